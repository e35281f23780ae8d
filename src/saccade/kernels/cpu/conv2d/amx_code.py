"""The code of convolutions in tiles of matrices: windows side by side, times panels of weights."""

from __future__ import annotations

from dataclasses import dataclass

from saccade.backends.cpu.codegen.expressions import emit_expr
from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr
from saccade.backends.cpu.codegen.values import Bool, Int
from saccade.ir.expr import IDENTITY, parse
from saccade.kernels.cpu.conv2d.amx_config import AmxConfig
from saccade.kernels.cpu.conv2d.direct_pixels import PixelWalk, Rectangle, Spot
from saccade.kernels.cpu.conv2d.epilogue import Epilogue
from saccade.kernels.cpu.conv2d.microkernel import anchored
from saccade.kernels.cpu.conv2d.tile_grid import Cell, TileGrid
from saccade.kernels.cpu.conv2d.tile_products import DEPTH, TileBlock, TileProducts

__all__ = ["emit_amx"]


@dataclass(frozen=True, slots=True)
class _Sizes:
    """The integer parameters.

    `pitch` is the distance of the windows of a copy, `pairs` are those of a window's sum.
    """

    x_n: Int
    x_h: Int
    x_w: Int
    height: Int
    width: Int
    out_height: Int
    out_width: Int
    depth: Int
    taps_r: Int
    taps_s: Int
    stride_h: Int
    stride_w: Int
    pad_top: Int
    pad_left: Int
    dilation_h: Int
    dilation_w: Int
    pixels: Int
    pitch: Int
    pairs: Int


class _Convolution:
    """Emits one convolution."""

    def __init__(self, k: KernelBuilder, config: AmxConfig) -> None:
        self.k, self.config = k, config
        self.block = TileBlock(config.rows, config.vectors)
        self.x, self.w = k.pointer("x", "bfloat16"), k.pointer("w", "bfloat16")
        self.operands = [
            k.pointer(f"prologue{i}", element) for i, element in enumerate(config.prologue_operands)
        ]
        self.windows = k.scratch("windows", "bfloat16")
        self.products = TileProducts(k, self.block, rest=config.rest)
        self.epilogue = Epilogue(k, config.epilogue)
        self.g, self.grid = k.sizes(_Sizes), k.sizes(TileGrid)
        self.operand_strides = k.array("prologue_n", len(self.operands))
        self.epilogue.declare_integers()
        zero = k.int(0)
        self.image = Rectangle(self.g.pixels, zero, self.g.out_height, zero, self.g.out_width)
        self.walk = PixelWalk(k, self.block.height, flat=False)
        self.stores = PixelWalk(k, self.block.height, config.flat)

    def emit(self) -> None:
        """All chunks."""
        k, g, height = self.k, self.g, self.block.height
        k.tiles_begin()
        with self.grid.chunks(k) as cell:
            first, end = cell.tiles
            end = k.minimum_int(end, (g.pixels + (height - 1)) // height)
            # Where pixels are read where they lie, a last tile of fewer is read from a copy.
            copied = first if self.config.gathered else k.maximum_int(first, g.pixels // height)
            self._gather(cell, copied * height, k.minimum_int(end * height, g.pixels))
            with k.range(*cell.blocks) as block:
                panel = self._panel(cell, block)
                self.products.fill_rest(panel, g.pairs)
                with k.range(first, end) as tile:
                    a, pitch = self._rows(cell, tile, copied)
                    self.products.compute(a, pitch, panel, g.pairs)
                    self._finish(cell, block, tile)
        k.tiles_end()

    def _panel(self, cell: Cell, block: Int) -> Ptr:
        number = cell.group * self.grid.blocks + block
        panel = self.w + number * self.g.pairs * (2 * self.block.width)
        return anchored(self.k, panel)

    def _rows(self, cell: Cell, tile: Int, copied: Int) -> tuple[Ptr, Int]:
        """The first of a tile's rows, and their distance."""
        k, g = self.k, self.g
        copy = self.windows + (tile - copied) * self.block.height * g.pitch
        if self.config.gathered:
            return anchored(k, copy), g.pitch
        there = self.x + cell.group * g.depth + tile * self.block.height * g.x_w
        last = tile >= copied
        return anchored(k, k.pick(last, copy, there)), last.select(g.pitch, g.x_w)

    def _finish(self, cell: Cell, block: Int, tile: Int) -> None:
        k, g, config = self.k, self.g, self.config
        lanes = [k.lanes] * config.vectors
        places = self.epilogue.places(block, lanes, cell.group)
        first = tile * self.block.height
        with k.range(0, k.minimum_int(self.block.height, g.pixels - first)) as row:
            spot = self.stores.spot(self.image, first + row)
            pixel = self.epilogue.pixel(spot.n, spot.p, spot.q)
            for j, place in enumerate(places):
                total = self.products.sums.vec(row * self.block.width + j * k.lanes)
                self.epilogue.finish(total, pixel, place)

    # Windows

    def _gather(self, cell: Cell, first: Int, end: Int) -> None:
        """Windows of pixels `first … end - 1`, each in a row of this thread's scratch."""
        k, g = self.k, self.g
        x = self.x + cell.group * g.depth
        with k.range(first, end) as number:
            spot = self.walk.spot(self.image, number)
            row = self.windows + (number - first) * g.pitch
            if self.config.rest or self.config.odd:
                self._blank(row, g.pairs * 2 - 2)
            if self.config.prologue != str(IDENTITY):
                self._compute(spot, x, row)
            else:
                self._copy(spot, x, row)

    def _copy(self, spot: Spot, x: Ptr, row: Ptr) -> None:
        k, g = self.k, self.g
        top, left = spot.p * g.stride_h - g.pad_top, spot.q * g.stride_w - g.pad_left
        image = x + spot.n * g.x_n
        each = (g.depth + 1) // 2 * 2 if self.config.odd else g.depth
        with k.range(0, g.taps_r) as r, k.range(0, g.taps_s) as s:
            i, j = top + r * g.dilation_h, left + s * g.dilation_w
            to = row + (r * g.taps_s + s) * each
            seen = self._below(i, g.height) & self._below(j, g.width)
            with k.when_else(seen) as (inside, outside):
                with inside:
                    self._channels(image + (i * g.x_h + j * g.x_w), to)
                with outside, k.range(0, each, DEPTH) as c:
                    self._blank(to, c)

    def _channels(self, source: Ptr, to: Ptr) -> None:
        """One tap of a window; what lies behind its last channel is written after it."""
        k, g = self.k, self.g
        source, to = source.viewed("int16"), to.viewed("int16")
        main = g.depth // DEPTH * DEPTH if self.config.ragged else g.depth
        with k.range(0, main, DEPTH) as c:
            to.store(source.vec(c, lanes=DEPTH), c)
        if self.config.ragged:
            left = k.first(g.depth - main, DEPTH)
            to.store(source.vec(main, left, DEPTH), main)

    def _blank(self, row: Ptr, at: Int) -> None:
        row.viewed("int16").store(self.k.number(0, DEPTH, "int16"), at)

    def _compute(self, spot: Spot, x: Ptr, row: Ptr) -> None:
        """A pixel after the prologue; windows have one tap and lie on the image."""
        k, g = self.k, self.g
        at = spot.n * g.x_n + spot.p * g.stride_h * g.x_h + spot.q * g.stride_w * g.x_w
        main = g.depth // k.lanes * k.lanes
        with k.range(0, main, k.lanes) as c:
            self._prologue_at(spot, x + at, row, c, k.lanes)
        with k.range(main, g.depth) as c:
            self._prologue_at(spot, x + at, row, c, 1)

    def _prologue_at(self, spot: Spot, x: Ptr, row: Ptr, c: Int, lanes: int) -> None:
        k = self.k
        values = [x.vec(c, lanes=lanes)]
        for pointer, n_stride in zip(self.operands, self.operand_strides, strict=True):
            values.append(pointer.vec(spot.n * n_stride + c, lanes=lanes))
        value = emit_expr(k, parse(self.config.prologue), values, stored=row.element)
        row.store(value, c)

    def _below(self, a: Int, limit: Int) -> Bool:
        """Whether `0 <= a < limit`, in one comparison."""
        return Bool(self.k.b, self.k.b.icmp_unsigned("<", a.value, limit.value))


def emit_amx(k: KernelBuilder, config: AmxConfig) -> None:
    """Emit the convolution that `config` describes."""
    _Convolution(k, config).emit()
