"""Windows of a convolution in tiles of matrices whose taps reach far beyond the image.

Gathered like others, but for the taps that lie outside the image for all pixels of a tile: these
are neither copied nor multiplied. Channels fill whole tiles.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from saccade.backends.cpu.codegen.language import Ptr
from saccade.backends.cpu.codegen.values import Bool, Int
from saccade.kernels.cpu.conv2d.amx_windows import Chunk, GatheredWindows
from saccade.kernels.cpu.conv2d.microkernel import anchored
from saccade.kernels.cpu.conv2d.tile_products import DEPTH

__all__ = ["SparseWindows"]


@dataclass(frozen=True, slots=True)
class _Reach:
    """Rows and columns of the result that a tile has pixels of, first and last."""

    rows: tuple[Int, Int]
    columns: tuple[Int, Int]


class SparseWindows(GatheredWindows):
    """Windows of pixels counted over all images."""

    def prepare(self, chunk: Chunk) -> None:
        """Copy windows, each into a row of this thread's scratch."""
        k, g = self.k, self.g
        x, start = self.x + chunk.group * g.depth, chunk.first * self.height
        with k.range(chunk.first, chunk.end) as tile:
            reach, first = self._reach(tile), tile * self.height
            with k.range(first, k.minimum_int(g.pixels, first + self.height)) as number:
                spot = self.walk.spot(self.image, number)
                row = self.windows + (number - start) * g.pitch
                with self._taps(reach) as (r, s):
                    self._copy_tap(spot, x, row, r, s)

    def compute(self, chunk: Chunk, tile: Int, panel: Ptr) -> None:
        """Sums of a tile of windows, times a panel."""
        k, g, products = self.k, self.g, self.products
        window = anchored(k, self.windows + (tile - chunk.first) * self.height * g.pitch)
        reach, cold = self._reach(tile), tile.equals(chunk.first)
        products.clear()
        with self._taps(reach) as (r, s):
            at = (r * g.taps_s + s) * g.depth
            weights = panel + at * products.block.width
            products.add(window + at, g.pitch, weights, g.depth // DEPTH, cold)
        products.store()

    def _reach(self, tile: Int) -> _Reach:
        k, g = self.k, self.g
        first = tile * self.height
        last = k.minimum_int(first + self.height, g.pixels) - 1
        one, other = (self.walk.spot(self.image, number) for number in (first, last))
        image = one.n.equals(other.n)
        line = image & one.p.equals(other.p)
        rows = image.select(one.p, 0), image.select(other.p, g.out_height - 1)
        columns = line.select(one.q, 0), line.select(other.q, g.out_width - 1)
        return _Reach(rows, columns)

    @contextmanager
    def _taps(self, reach: _Reach) -> Iterator[tuple[Int, Int]]:
        """Those that lie on the image for any pixel between these."""
        k, g = self.k, self.g
        with (
            k.range(0, g.taps_r) as r,
            k.range(0, g.taps_s) as s,
            k.when(self._needed(reach, r * g.dilation_h, s * g.dilation_w)),
        ):
            yield r, s

    def _needed(self, reach: _Reach, down: Int, right: Int) -> Bool:
        g = self.g
        down, right = down - g.pad_top, right - g.pad_left
        (top, bottom), (left, end) = reach.rows, reach.columns
        inside = (bottom * g.stride_h + down >= 0) & (top * g.stride_h + down < g.height)
        return inside & (end * g.stride_w + right >= 0) & (left * g.stride_w + right < g.width)
