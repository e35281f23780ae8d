"""Windows of a convolution in tiles of matrices: rows of the image, further for each tap.

A chunk copies the rows of the image that it reads, with zeros around them. In the copy, the windows
of neighbouring pixels begin one step apart, so that a tile of them is read anywhere in it: no tap
is copied more than once. Where steps are of one pixel, rows of sums go on from the end of a row of
the image to the next one, and those in between belong to no pixel; where they are longer, rows are
filled up to whole tiles.
"""

from __future__ import annotations

from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr
from saccade.backends.cpu.codegen.values import Int
from saccade.kernels.cpu.conv2d.amx_config import AmxConfig
from saccade.kernels.cpu.conv2d.amx_windows import AmxSizes, Chunk, within
from saccade.kernels.cpu.conv2d.epilogue import Epilogue
from saccade.kernels.cpu.conv2d.microkernel import anchored
from saccade.kernels.cpu.conv2d.result_pixels import ResultPixels
from saccade.kernels.cpu.conv2d.tile_products import DEPTH, TileProducts, blank, copy_row

__all__ = ["ShiftedRows"]


class ShiftedRows:
    """Windows of pixels counted over one image; channels fill whole tiles."""

    def __init__(
        self,
        k: KernelBuilder,
        config: AmxConfig,
        g: AmxSizes,
        x: Ptr,
        copy: Ptr,
        products: TileProducts,
        epilogue: Epilogue,
    ) -> None:
        self.k, self.config, self.g, self.x, self.copy = k, config, g, x, copy
        self.products = products
        self.pixels = ResultPixels(
            epilogue, g.out_height, g.out_width, g.across, config.flat, filled=True
        )
        self.height = products.block.height

    def count(self) -> Int:
        """Rows of sums of an image."""
        return self.g.out_height * self.g.across

    def _top(self, chunk: Chunk) -> Int:
        """The first row of the result that the chunk has pixels of."""
        return chunk.first * self.height // self.g.across

    def prepare(self, chunk: Chunk) -> None:
        """Copy rows of the image."""
        k, g = self.k, self.g
        top = self._top(chunk)
        bottom = k.minimum_int((chunk.end * self.height - 1) // g.across, g.out_height - 1)
        rows = (bottom - top) * g.stride_h + (g.taps_r - 1) * g.dilation_h + 1
        x = self.x + (chunk.image * g.x_n + chunk.group * g.depth)
        length = g.line * g.depth
        with k.range(0, rows) as row:
            i = top * g.stride_h - g.pad_top + row
            to = self.copy + row * length
            with k.when_else(within(k, i, g.height)) as (inside, outside):
                with inside:
                    self._row(x + i * g.x_h, to)
                with outside:
                    self._blank(to, k.int(0), length)

    def _row(self, source: Ptr, to: Ptr) -> None:
        """Zeros, the pixels, zeros."""
        k, g = self.k, self.g
        first, end = g.pad_left * g.depth, (g.pad_left + g.width) * g.depth
        self._blank(to, k.int(0), first)
        with k.range(0, g.pieces) as piece:
            into = to + (first + piece * g.piece)
            copy_row(k, source + piece * g.x_w, into, g.piece, ragged=False)
        self._blank(to, end, g.line * g.depth)

    def _blank(self, to: Ptr, first: Int, end: Int) -> None:
        with self.k.range(first, end, DEPTH) as c:
            blank(self.k, to, c)

    def compute(self, chunk: Chunk, tile: Int, panel: Ptr) -> None:
        """Sums of a tile of windows, times a panel."""
        k, g, products = self.k, self.g, self.products
        cold = tile.equals(chunk.first)
        first = tile * self.height
        p = first // g.across
        q = first - p * g.across
        start = (p - self._top(chunk)) * g.stride_h * g.line + q * g.stride_w
        window = anchored(k, self.copy + start * g.depth)
        # Taps of a row are neighbours, and one run, unless they are apart.
        run = g.depth * g.taps_s // g.runs
        products.clear()
        with k.range(0, g.taps_r) as r, k.range(0, g.runs) as s:
            moved = r * g.dilation_h * g.line + s * g.dilation_w
            weights = (r * g.runs + s) * run * products.block.width
            products.add(
                window + moved * g.depth, g.stride_w * g.depth, panel + weights, run // DEPTH, cold
            )
        products.store()

    def finish(self, chunk: Chunk, tile: Int, block: Int) -> None:
        """The epilogue of a tile of windows and a block of channels."""
        counted = chunk.image, self.count()
        self.pixels.finish(self.products.sums, chunk.group, tile, block, counted)
