"""How Winograd's tiles are numbered.

An image is cut into whole tiles from the top left; what is left at the right and at the bottom are
shorter tiles (unless tiles are clipped instead). So there are four regions, each of one form:
the right edge, whole tiles, the bottom edge, the corner. The rows of V and of M are in this order:
a frequency that a shorter tile lacks then still finds its rows side by side. A block takes an equal
share of every region. How long the shorter tiles are is known when the code runs, so that one code
serves every size; an edge of length 0 is a region without tiles.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from saccade.kernels.cpu.conv2d.winograd_points import (
    TAPS,
    WinogradTile,
    count_of,
    whole_tile,
)

if TYPE_CHECKING:
    from saccade.backends.cpu.codegen.language import KernelBuilder
    from saccade.backends.cpu.codegen.values import Bool, Int, IntLike

__all__ = [
    "At",
    "Frequencies",
    "TileAxis",
    "TileRegion",
    "TileShare",
    "Tiling",
    "Where",
    "rows_of",
    "tile_counts",
]

At = tuple["Int", "Int", "Int"]  # image, row and column of a tile's first output pixel


@dataclass(frozen=True, slots=True)
class TileRegion:
    """Tiles of one form: whether they lie below, and to the right of, all whole tiles."""

    bottom: bool
    right: bool


_REGIONS = (
    TileRegion(False, True),
    TileRegion(False, False),
    TileRegion(True, False),
    TileRegion(True, True),
)
"""In the order of their rows of V."""


@dataclass(frozen=True, slots=True)
class TileShare:
    """Some tiles of a region: the first one, how many, and the row of V where they begin."""

    region: TileRegion
    first: Int
    count: Int
    row: Int


@dataclass(frozen=True, slots=True)
class TileAxis:
    """One axis of a tile whose form is known when the code runs.

    Attributes:
        whole: The form of whole tiles.
        shorter: The others that there is code for.
        short: Whether this tile has one of these.
        results: How many results it has, which tells its form.
    """

    whole: WinogradTile
    shorter: tuple[WinogradTile, ...]
    short: Bool
    results: Int

    @property
    def points(self) -> Int:
        """How many frequencies follow `first`."""
        return self.results + (TAPS[self.whole.stride] - 1)

    @property
    def first(self) -> Int:
        """Number of the first frequency: 0 is among an even number of points."""
        return self.points % 2

    @property
    def count(self) -> Int:
        """How many frequencies it has."""
        return self.points + self.results * (self.whole.stride - 1)

    def frequency(self, number: Int) -> Int:
        """The one with a number below `count`."""
        if self.whole.stride == 1:
            return self.first + number
        gap = self.whole.points - self.first - self.points
        return self.first + number + (number < self.points).select(0, gap)


@dataclass(frozen=True, slots=True)
class Where:
    """A tile: image, row and column of its first output pixel, its row of V, its form."""

    at: At
    row: Int
    down: TileAxis
    along: TileAxis


@dataclass(frozen=True, slots=True)
class Tiling:
    """The tiles of a batch.

    Attributes:
        edges: Heights of the tiles at the bottom and widths of those at the right, 0 for none.
        images, rows, columns: Extents, in whole tiles.
        whole: The form of whole tiles; nothing that only counts tiles asks for it.
        shorter: Lengths that edges may have.
    """

    edges: tuple[Int, Int]
    images: Int
    rows: Int
    columns: Int
    whole: WinogradTile
    shorter: tuple[int, ...]

    def _size(self, region: TileRegion) -> Int:
        """How many tiles a region has."""
        below, beside = ((edge > 0).select(1, 0) for edge in self.edges)
        rows = self.images * (below if region.bottom else self.rows)
        return rows * (beside if region.right else self.columns)

    def shares(self, k: KernelBuilder, block: Int, blocks: Int, *, local: bool) -> list[TileShare]:
        """Block number `block` of `blocks`; rows of V are the block's own or of the whole batch."""
        found, row = [], k.int(0)
        for region in _REGIONS:
            size = self._size(region)
            first = size * block // blocks
            count = size * (block + 1) // blocks - first
            found.append(TileShare(region, first, count, row if local else row + first))
            row = row + (count if local else size)
        return found

    def all(self, k: KernelBuilder) -> list[TileShare]:
        """Every tile."""
        return self.shares(k, k.int(0), k.int(1), local=True)

    @contextmanager
    def each(self, k: KernelBuilder, shares: list[TileShare]) -> Iterator[Where]:
        """Loop over the tiles of all shares: one body, whatever their forms."""
        total = k.int(0)
        for share in shares:
            total = total + share.count
        with k.range(0, total) as number:
            tile, row = shares[0].first + number, shares[0].row + number
            bottom, right = k.int(0), k.int(int(shares[0].region.right))
            before = k.int(0)
            for last, share in pairwise(shares):
                before = before + last.count
                there, ahead = number >= before, number - before
                tile = there.select(share.first + ahead, tile)
                row = there.select(share.row + ahead, row)
                bottom = there.select(int(share.region.bottom), bottom)
                right = there.select(int(share.region.right), right)
            yield self._where(tile, row, bottom > 0, right > 0)

    def _where(self, tile: Int, row: Int, bottom: Bool, right: Bool) -> Where:
        columns = right.select(1, self.columns)
        line = tile // columns
        column = right.select(self.columns, tile - line * columns)
        rows = bottom.select(1, self.rows)
        n, base = line // rows, self.whole.m
        at = n, bottom.select(self.rows, line - n * rows) * base, column * base
        return Where(at, row, self._axis(self.edges[0], bottom), self._axis(self.edges[1], right))

    def _axis(self, edge: Int, short: Bool) -> TileAxis:
        base, stride = self.whole.m, self.whole.stride
        forms = tuple(WinogradTile(base, m, stride) for m in self.shorter)
        return TileAxis(self.whole, forms, short, short.select(edge, base))


@dataclass(frozen=True, slots=True)
class Frequencies:
    """The frequencies of whole tiles along an axis, as numbers that may be known late.

    Attributes:
        count: How many there are.
        points: How many of them are at points; what follows are odd pixels.
        distinct: How many differ in their weights: all odd pixels share the last one's.
        taps: Taps that meet at points.
    """

    count: IntLike
    points: IntLike
    distinct: IntLike
    taps: IntLike

    @classmethod
    def of(cls, whole: WinogradTile) -> Frequencies:
        """Those of a tile that is known."""
        return cls(whole.count, whole.points, whole.weights, TAPS[whole.stride])

    def weights(self, k: KernelBuilder, down: Int, along: Int) -> Int:
        """Number of the transformed weights of a frequency, among `distinct`²."""
        last = self.distinct - 1
        return k.minimum_int(down, last) * self.distinct + k.minimum_int(along, last)

    def rows(
        self,
        k: KernelBuilder,
        shares: list[TileShare],
        edges: tuple[Int, Int],
        down: Int,
        along: Int,
    ) -> tuple[Int, Int]:
        """First row of V that has a frequency, and how many have it."""
        first, count = k.int(0), k.int(0)
        at_right, at_bottom = self._within(edges[1], along), self._within(edges[0], down)
        for share in shares:
            have = share.count
            have = at_right.select(have, 0) if share.region.right else have
            have = at_bottom.select(have, 0) if share.region.bottom else have
            count = count + have
            if share.region == _REGIONS[0]:
                first = share.count - have
        return first, count

    def _within(self, edge: Int, frequency: Int) -> Bool:
        """Whether a tile of that length has a frequency."""
        points = edge + (self.taps - 1)
        first = points % 2
        at_points = (frequency >= first) & (frequency < first + points)
        return at_points | ((frequency >= self.points) & (frequency < edge + self.points))


def tile_counts(
    images: int, rows: int, columns: int, base: int, edges: tuple[int, int]
) -> tuple[int, ...]:
    """Tiles in each region, in the order of `Tiling.regions`; a region that is not there has 0."""
    down, along = -(-rows // base), -(-columns // base)
    if edges[0]:
        down = rows // base
    if edges[1]:
        along = columns // base
    right, bottom = bool(edges[1]), bool(edges[0])
    return (
        images * down * right,
        images * down * along,
        images * along * bottom,
        images * (right and bottom),
    )


def rows_of(
    counts: tuple[float, ...], base: int, edges: tuple[int, int], stride: int
) -> dict[float, int]:
    """For each number of rows that a frequency has, how many frequencies have it."""
    found: dict[float, int] = {}
    n = whole_tile(base, stride).count
    short_down, short_along = (count_of(base, m, stride) for m in edges)
    for down, many_down in ((True, short_down), (False, n - short_down)):
        for along, many_along in ((True, short_along), (False, n - short_along)):
            right, whole, bottom, corner = counts
            rows = whole + right * along + bottom * down + corner * (down and along)
            found[rows] = found.get(rows, 0) + many_down * many_along
    return {rows: many for rows, many in found.items() if many}
