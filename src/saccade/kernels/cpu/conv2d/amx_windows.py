"""Windows of a convolution in tiles of matrices: where they lie, or side by side in a copy."""

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
from saccade.kernels.cpu.conv2d.result_pixels import ResultPixels
from saccade.kernels.cpu.conv2d.tile_products import DEPTH, TileProducts, blank, copy_row

__all__ = ["AmxSizes", "Chunk", "GatheredWindows", "within"]


@dataclass(frozen=True, slots=True)
class AmxSizes:
    """The integer parameters.

    `pairs` are those of a window's sum. Of a copy, `pitch` is the distance of windows, `line` that
    of the image's rows in pixels, and `across` counts rows of sums for a row of the result; its
    pixels come in `pieces` of `piece` elements. Grids are of `channel_groups`, and where rows
    are shifted of images.
    """

    x_n: Int
    x_c: Int
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
    channel_groups: Int
    pairs: Int
    pitch: Int
    line: Int
    across: Int
    pieces: Int
    piece: Int
    runs: Int
    tiles_outer: Int


@dataclass(frozen=True, slots=True)
class Chunk:
    """Tiles `first … end - 1` of rows of sums; the image is 0 where rows count all images'."""

    image: Int
    group: Int
    first: Int
    end: Int


class GatheredWindows:
    """Windows of pixels counted over all images."""

    def __init__(
        self,
        k: KernelBuilder,
        config: AmxConfig,
        g: AmxSizes,
        x: Ptr,
        windows: Ptr,
        products: TileProducts,
        epilogue: Epilogue,
        prologue: list[tuple[Ptr, Int]],
    ) -> None:
        self.k, self.config, self.g, self.x, self.windows = k, config, g, x, windows
        self.products, self.prologue = products, prologue
        self.pixels = ResultPixels(
            epilogue, g.out_height, g.out_width, g.across, config.flat, filled=False
        )
        self.height, zero = products.block.height, k.int(0)
        self.image = Rectangle(g.pixels, zero, g.out_height, zero, g.out_width)
        self.walk = PixelWalk(k, self.height, flat=False)

    def count(self) -> Int:
        """Rows of sums in all."""
        return self.g.pixels

    def _copied(self, chunk: Chunk) -> Int:
        """The chunk's first tile that is read from the copy: of pixels in place only the last."""
        if self.config.source == "gathered":
            return chunk.first
        return self.k.maximum_int(chunk.first, self.g.pixels // self.height)

    def prepare(self, chunk: Chunk) -> None:
        """Copy windows, each into a row of this thread's scratch."""
        k, g = self.k, self.g
        first = self._copied(chunk) * self.height
        x = self.x + chunk.group * g.depth
        with k.range(first, k.minimum_int(chunk.end * self.height, g.pixels)) as number:
            spot = self.walk.spot(self.image, number)
            row = self.windows + (number - first) * g.pitch
            if self.config.rest or self.config.odd:
                blank(k, row, g.pairs * 2 - 2)
            if self.config.prologue != str(IDENTITY):
                self._compute_pixel(spot, x, row)
            else:
                self._copy(spot, x, row)

    def compute(self, chunk: Chunk, tile: Int, panel: Ptr) -> None:
        """Sums of a tile of windows, times a panel."""
        cold = tile.equals(chunk.first)
        k, g = self.k, self.g
        copied = self._copied(chunk)
        copy, pitch = self.windows + (tile - copied) * self.height * g.pitch, g.pitch
        if self.config.source == "there":
            there = self.x + chunk.group * g.depth + tile * self.height * g.x_w
            last = tile >= copied
            copy, pitch = k.pick(last, copy, there), last.select(g.pitch, g.x_w)
        self.products.compute(anchored(k, copy), pitch, panel, g.pairs, cold)

    def finish(self, chunk: Chunk, tile: Int, block: Int) -> None:
        """The epilogue of a tile of windows and a block of channels."""
        counted = self.k.int(0), self.g.pixels
        self.pixels.finish(self.products.sums, chunk.group, tile, block, counted)

    def _copy(self, spot: Spot, x: Ptr, row: Ptr) -> None:
        with self.k.range(0, self.g.taps_r) as r, self.k.range(0, self.g.taps_s) as s:
            self._copy_tap(spot, x, row, r, s)

    def _copy_tap(self, spot: Spot, x: Ptr, row: Ptr, r: Int, s: Int) -> None:
        k, g = self.k, self.g
        i = spot.p * g.stride_h - g.pad_top + r * g.dilation_h
        j = spot.q * g.stride_w - g.pad_left + s * g.dilation_w
        each = (g.depth + 1) // 2 * 2 if self.config.odd else g.depth
        to = row + (r * g.taps_s + s) * each
        seen = within(k, i, g.height) & within(k, j, g.width)
        with k.when_else(seen) as (inside, outside):
            with inside:
                source = x + (spot.n * g.x_n + i * g.x_h + j * g.x_w)
                copy_row(k, source, to, g.depth, ragged=self.config.ragged)
            with outside, k.range(0, each, DEPTH) as c:
                blank(k, to, c)

    def _compute_pixel(self, spot: Spot, x: Ptr, row: Ptr) -> None:
        """A pixel after the prologue; windows have one tap and lie on the image."""
        k, g = self.k, self.g
        at = spot.n * g.x_n + spot.p * g.stride_h * g.x_h + spot.q * g.stride_w * g.x_w
        main = g.depth // k.lanes * k.lanes
        with k.range(0, main, k.lanes) as c:
            self._prologue_at(spot, x + at, row, c, k.lanes)
        with k.range(main, g.depth) as c:
            self._prologue_at(spot, x + at, row, c, 1)

    def _prologue_at(self, spot: Spot, x: Ptr, row: Ptr, c: Int, lanes: int) -> None:
        values = [x.vec(c, lanes=lanes)]
        for pointer, n_stride in self.prologue:
            values.append(pointer.vec(spot.n * n_stride + c, lanes=lanes))
        value = emit_expr(self.k, parse(self.config.prologue), values, stored=row.element)
        row.store(value, c)


def within(k: KernelBuilder, a: Int, limit: Int) -> Bool:
    """Whether `0 <= a < limit`, in one comparison."""
    return Bool(k.b, k.b.icmp_unsigned("<", a.value, limit.value))
