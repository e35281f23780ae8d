"""The code of float32 convolutions in tiles of matrices: windows gathered as limbs."""

from __future__ import annotations

from dataclasses import dataclass

from saccade.backends.cpu.codegen.expressions import emit_expr
from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr
from saccade.backends.cpu.codegen.matrix_tiles import DEPTH, ROWS
from saccade.backends.cpu.codegen.values import Int
from saccade.ir.expr import IDENTITY, parse
from saccade.kernels.cpu.conv2d.amx_windows import within
from saccade.kernels.cpu.conv2d.direct_pixels import PixelWalk, Rectangle, Spot
from saccade.kernels.cpu.conv2d.epilogue import Epilogue
from saccade.kernels.cpu.conv2d.limb_copies import LimbRow
from saccade.kernels.cpu.conv2d.limb_products import LimbChunk, LimbProducts
from saccade.kernels.cpu.conv2d.result_pixels import ResultPixels
from saccade.kernels.cpu.conv2d.tile_grid import TileGrid
from saccade.kernels.cpu.conv2d.tile_products import BlockSums

__all__ = ["LimbConvConfig", "emit_limbs"]


@dataclass(frozen=True, slots=True)
class LimbConvConfig:
    """What the code depends on.

    Attributes:
        rows: Tiles along the pixels of a block of sums.
        single: Whether windows have one tap, whose channels parts of the reduction may cut.
        ragged: Whether channels do not fill whole steps.
        flat: Whether pixels are evenly apart in the result and in every operand.
        prologue: Expression applied to every loaded element; `$0` for none.
        prologue_operands: Type of the elements of each of its operands.
        epilogue: `EpilogueSpec.code`.
    """

    rows: int
    single: bool
    ragged: bool
    flat: bool
    prologue: str
    prologue_operands: tuple[str, ...]
    epilogue: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _WindowSizes:
    """The integer parameters; `depth` channels of each of `taps` lie in a window."""

    x_n: Int
    x_h: Int
    x_w: Int
    height: Int
    width: Int
    out_height: Int
    out_width: Int
    depth: Int
    taps: Int
    taps_s: Int
    stride_h: Int
    stride_w: Int
    pad_top: Int
    pad_left: Int
    dilation_h: Int
    dilation_w: Int
    pixels: Int


class _LimbConvolution:
    """Emits one convolution."""

    def __init__(self, k: KernelBuilder, config: LimbConvConfig) -> None:
        self.k, self.config = k, config
        self.x, self.w = k.pointer("x"), k.pointer("w")
        operands = [
            k.pointer(f"prologue{i}", element) for i, element in enumerate(config.prologue_operands)
        ]
        self.products = LimbProducts(k, config.rows, ragged=config.ragged)
        self.epilogue = Epilogue(k, config.epilogue)
        self.g, self.grid = k.sizes(_WindowSizes), k.sizes(TileGrid)
        self.products.declare_integers()
        steps = k.array("prologue_n", len(operands))
        self.epilogue.declare_integers()
        g, zero = self.g, k.int(0)
        self.prologue = list(zip(operands, steps, strict=True))
        self.image = Rectangle(g.pixels, zero, g.out_height, zero, g.out_width)
        self.walk = PixelWalk(k, self.products.height, flat=False)
        self.pixels = ResultPixels(
            self.epilogue, g.out_height, g.out_width, g.out_width, config.flat, filled=False
        )

    def emit(self) -> None:
        """All chunks."""
        k, height = self.k, self.products.height
        k.tiles_begin()
        self.products.begin()
        with self.grid.chunks(k) as cell:
            first, end = cell.tiles
            end = k.minimum_int(end, (self.g.pixels + (height - 1)) // height)
            x = self.x + cell.group * self.g.depth
            panels = self.w + cell.group * self.grid.blocks * self.products.g.inner * ROWS

            def copy(tile: Int, start: Int, stop: Int) -> None:
                self._copy(x, tile, start * DEPTH, stop * DEPTH)

            def finish(tile: Int, block: Int, sums: BlockSums) -> None:
                counted = k.int(0), self.g.pixels
                self.pixels.finish(sums, cell.group, tile, block, counted)

            def fetch(tile: Int, block: Int, rows: tuple[Int, Int]) -> None:
                if not self.config.flat:
                    return
                place = self.epilogue.place(block, cell.group)
                pixel = self.epilogue.pixel(0, 0, tile * height)
                with k.range(*rows) as i:
                    self.epilogue.fetch(self.epilogue.along(pixel, i), place)

            def source(tile: Int) -> Ptr:
                return x + tile * height * self.g.depth

            number = cell.group * self.grid.blocks + cell.blocks[0]
            self.products.multiply(
                LimbChunk((first, end), cell.blocks, panels, number, copy, finish, fetch, source)
            )
        k.tiles_end()

    def _copy(self, x: Ptr, tile: Int, start: Int, stop: Int) -> None:
        """Elements `start … stop - 1` of the windows of a tile's pixels."""
        k, g, config, height = self.k, self.g, self.config, self.products.height
        first = tile * height
        with k.range(first, k.minimum_int(first + height, g.pixels)) as number:
            spot = self.walk.spot(self.image, number)
            row = self.products.row(number - first)
            computed = config.prologue != str(IDENTITY)
            if config.ragged and (computed or not config.single):
                # What fills up the last step; of what lies before it all is written over.
                row.blank(stop - start - DEPTH)
            if computed:
                self._compute(spot, x, row, (start, k.minimum_int(stop, g.depth)))
            elif config.single:
                self._tap(spot, x, row, k.int(0), k.int(0), (start, k.minimum_int(stop, g.depth)))
            else:
                # Parts are of whole taps, unless there is one.
                end = k.minimum_int(stop, g.taps * g.depth)
                with k.range(start // g.depth, end // g.depth) as tap:
                    self._tap(spot, x, row, tap, tap * g.depth - start, (k.int(0), g.depth))

    def _tap(
        self, spot: Spot, x: Ptr, row: LimbRow, tap: Int, at: Int, channels: tuple[Int, Int]
    ) -> None:
        """Some channels of a tap, or zeros where it lies outside the image."""
        k, g, (first, end) = self.k, self.g, channels
        r = tap // g.taps_s
        i = spot.p * g.stride_h - g.pad_top + r * g.dilation_h
        j = spot.q * g.stride_w - g.pad_left + (tap - r * g.taps_s) * g.dilation_w
        seen = within(k, i, g.height) & within(k, j, g.width)
        with k.when_else(seen) as (inside, outside):
            with inside:
                source = x + (spot.n * g.x_n + i * g.x_h + j * g.x_w + first)
                row.copy(source, at, end - first, ragged=self.config.ragged)
            with outside, k.range(0, end - first, DEPTH) as c:
                row.blank(at + c)

    def _compute(self, spot: Spot, x: Ptr, row: LimbRow, channels: tuple[Int, Int]) -> None:
        """Channels of a pixel after the prologue; windows have one tap and lie on the image."""
        k, g, (first, end) = self.k, self.g, channels
        x += spot.n * g.x_n + spot.p * g.stride_h * g.x_h + spot.q * g.stride_w * g.x_w
        main = first + (end - first) // ROWS * ROWS
        for begin, stop, lanes in ((first, main, ROWS), (main, end, 1)):
            with k.range(begin, stop, lanes) as c:
                values = [x.vec(c, lanes=lanes)]
                for pointer, n_stride in self.prologue:
                    values.append(pointer.vec(spot.n * n_stride + c, lanes=lanes))
                value = emit_expr(k, parse(self.config.prologue), values, stored="float32")
                row.store(value, c - first)


def emit_limbs(k: KernelBuilder, config: LimbConvConfig) -> None:
    """Emit the convolution that `config` describes."""
    _LimbConvolution(k, config).emit()
