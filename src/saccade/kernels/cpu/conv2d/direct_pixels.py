"""Which output pixels a tile of the direct convolution holds, and where their windows start."""

from __future__ import annotations

from dataclasses import dataclass

from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr
from saccade.backends.cpu.codegen.values import Int
from saccade.kernels.cpu.conv2d.direct_regions import REGION_WORDS

__all__ = ["DirectSizes", "PixelWalk", "Rectangle", "Spot", "TapRegion"]


@dataclass(frozen=True, slots=True)
class DirectSizes:
    """The integer parameters of the direct convolution."""

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
    step_h: Int
    step_w: Int
    first_h: Int
    first_w: Int
    regions: Int
    row_parts: Int
    far: Int
    ahead: Int


@dataclass(frozen=True, slots=True)
class Spot:
    """An output pixel: number and coordinates (those of the last pixel past the end)."""

    number: Int
    n: Int
    p: Int
    q: Int


@dataclass(frozen=True, slots=True)
class Rectangle:
    """Neighbouring output pixels, the same ones in every image."""

    pixels: Int
    top: Int
    rows: Int
    left: Int
    columns: Int


@dataclass(frozen=True, slots=True)
class TapRegion(Rectangle):
    """A rectangle and the range of taps that its pixels need."""

    taps_r: tuple[Int, Int]
    taps_s: tuple[Int, Int]


@dataclass(frozen=True, slots=True)
class PixelWalk:
    """Finds the pixels of tiles.

    Attributes:
        k: Builder.
        rows: Pixels of a tile.
        flat: Whether pixels are evenly apart in every operand and no window leaves the image.
    """

    k: KernelBuilder
    rows: int
    flat: bool

    def whole(self, g: DirectSizes) -> TapRegion:
        """The whole image, with all taps."""
        zero = self.k.int(0)
        taps = (zero, g.taps_r), (zero, g.taps_s)
        return TapRegion(g.pixels, zero, g.out_height, zero, g.out_width, *taps)

    def listed(self, row: Ptr) -> tuple[TapRegion, Int, Int]:
        """A region of the table, its first tile and the number of its tiles."""
        first, count, *words = (row.load_int(i) for i in range(REGION_WORDS))
        pixels, top, rows, left, columns, *taps = words
        region = TapRegion(pixels, top, rows, left, columns, (taps[0], taps[1]), (taps[2], taps[3]))
        return region, first, count

    def spot(self, region: Rectangle, number: Int) -> Spot:
        """Pixel `number` of a region."""
        zero = self.k.int(0)
        if self.flat:
            return Spot(number, zero, zero, self.k.minimum_int(number, region.pixels - 1))
        area = region.rows * region.columns
        n = number // area
        rest = number - n * area
        p = rest // region.columns
        return Spot(number, n, p + region.top, rest - p * region.columns + region.left)

    def _following(self, region: Rectangle, spot: Spot) -> Spot:
        number = spot.number + 1
        more = number < region.pixels
        turn = more & (spot.q + 1).equals(region.left + region.columns)
        next_p = turn.select(spot.p + 1, spot.p)
        over = next_p.equals(region.top + region.rows)
        q = turn.select(region.left, more.select(spot.q + 1, spot.q))
        p = over.select(region.top, next_p)
        return Spot(number, over.select(spot.n + 1, spot.n), p, q)

    def spots(self, region: Rectangle, first: Spot) -> list[Spot]:
        """The pixels of the tile that begins with `first`."""
        if self.flat:
            return [self.spot(region, first.number + i) for i in range(self.rows)]
        spots = [first]
        while len(spots) < self.rows:
            spots.append(self._following(region, spots[-1]))
        return spots
