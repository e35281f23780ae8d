"""Windows of a convolution in tiles of matrices: gathered from an image that lies plane by plane.

Few channels, as of the first layer. A chunk copies the rows that it reads as bfloat16, with zeros
around them, then the windows of its pixels, each row of taps by one load and one store: in the
order of channels, rows, columns, whose number is filled up to an even one.
"""

from __future__ import annotations

from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr
from saccade.backends.cpu.codegen.values import Int
from saccade.kernels.cpu.conv2d.amx_config import AmxConfig
from saccade.kernels.cpu.conv2d.amx_windows import AmxSizes, Chunk, within
from saccade.kernels.cpu.conv2d.epilogue import Epilogue
from saccade.kernels.cpu.conv2d.microkernel import anchored
from saccade.kernels.cpu.conv2d.result_pixels import ResultPixels
from saccade.kernels.cpu.conv2d.tile_products import DEPTH, TileProducts, blank

__all__ = ["PlaneWindows"]


class PlaneWindows:
    """Windows of pixels counted over one image."""

    def __init__(
        self,
        k: KernelBuilder,
        config: AmxConfig,
        g: AmxSizes,
        x: Ptr,
        copies: tuple[Ptr, Ptr],
        products: TileProducts,
        epilogue: Epilogue,
    ) -> None:
        self.k, self.config, self.g, self.x = k, config, g, x
        self.rows, self.windows = copies
        self.products = products
        self.pixels = ResultPixels(
            epilogue, g.out_height, g.out_width, g.across, config.flat, filled=False
        )
        self.height = products.block.height

    def count(self) -> Int:
        """Rows of sums of an image."""
        return self.g.out_height * self.g.out_width

    def prepare(self, chunk: Chunk) -> None:
        """Copy rows of the image, then windows."""
        k, g = self.k, self.g
        first = chunk.first * self.height
        stop = k.minimum_int(chunk.end * self.height, self.count())
        top, bottom = first // g.out_width, (stop - 1) // g.out_width
        rows = (bottom - top) * g.stride_h + (g.taps_r - 1) * g.dilation_h + 1
        with k.range(0, g.depth) as c, k.range(0, rows) as row:
            i = top * g.stride_h - g.pad_top + row
            to = self.rows + (c * rows + row) * g.line
            with k.range(0, g.line, DEPTH) as at:
                blank(k, to, at)
            with k.when(within(k, i, g.height)):
                self._row(self.x + (chunk.image * g.x_n + c * g.x_c + i * g.x_h), to + g.pad_left)
        p, q = k.var(top), k.var(first - top * g.out_width)
        with k.range(first, stop) as number:
            corner = (p.get() - top) * g.stride_h * g.line + q.get() * g.stride_w
            window = self.windows + (number - first) * g.pitch
            self._window(anchored(k, self.rows + corner), rows, window)
            turn = (q.get() + 1).equals(g.out_width)
            p.set(turn.select(p.get() + 1, p.get()))
            q.set(turn.select(0, q.get() + 1))

    def _row(self, source: Ptr, to: Ptr) -> None:
        k, g = self.k, self.g
        main = g.width // k.lanes * k.lanes
        with k.range(0, main, k.lanes) as at:
            to.store(source.vec(at), at)
        with k.range(main, g.width) as at:
            to.store(source.load(at), at)

    def _window(self, corner: Ptr, rows: Int, to: Ptr) -> None:
        """All taps of a pixel; what is written behind a row of them is written after it."""
        k, g = self.k, self.g
        taps_r, taps_s = self.config.window
        wide = taps_s + taps_s % 2
        lanes = next(n for n in (8, 16, 32) if n >= wide)
        mask = k.first(k.int(taps_s), lanes)
        if self.config.rest:
            blank(k, to, g.pairs * 2 - 2)
        corner, to = corner.viewed("int16"), to.viewed("int16")
        with k.range(0, g.depth) as c:
            for r in range(taps_r):
                taps = corner.vec((c * rows + r * g.dilation_h) * g.line, mask, lanes)
                to.store(taps, (c * taps_r + r) * wide)

    def compute(self, chunk: Chunk, tile: Int, panel: Ptr) -> None:
        """Sums of a tile of windows, times a panel."""
        cold = tile.equals(chunk.first)
        k, g = self.k, self.g
        first = self.windows + (tile - chunk.first) * self.height * g.pitch
        self.products.compute(anchored(k, first), g.pitch, panel, g.pairs, cold)

    def finish(self, chunk: Chunk, tile: Int, block: Int) -> None:
        """The epilogue of a tile of windows and a block of channels."""
        counted = chunk.image, self.count()
        self.pixels.finish(self.products.sums, chunk.group, tile, block, counted)
