"""How Winograd's tiles are numbered.

An image is cut into whole tiles from the top left; what is left at the right and at the bottom are
shorter tiles (unless tiles are clipped instead). So there are up to four regions, each of one form:
whole tiles, the right edge, the bottom edge, the corner. The rows of V and of M are sorted: right
edge, whole, bottom edge, corner. A frequency that a shorter tile lacks then still finds its rows
side by side. A block takes an equal share of every region.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from saccade.kernels.conv2d.winograd_points import Tile

if TYPE_CHECKING:
    from saccade.codegen.language import Kernel
    from saccade.codegen.values import Bool, Int

__all__ = ["At", "Axis", "Region", "Share", "Tiling", "Where", "rows_of", "tile_counts"]

At = tuple["Int", "Int", "Int"]  # image, row and column of a tile's first output pixel


@dataclass(frozen=True, slots=True)
class Region:
    """Tiles of one form.

    Attributes:
        down, along: The tile's two axes.
        bottom, right: Whether they lie below, and to the right of, all whole tiles.
    """

    down: Tile
    along: Tile
    bottom: bool
    right: bool


@dataclass(frozen=True, slots=True)
class Share:
    """Some tiles of a region: the first one, how many, and the row of V where they begin."""

    region: Region
    first: Int
    count: Int
    row: Int


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of a tile whose form is known when the code runs.

    Attributes:
        whole, shorter: The forms that there are; no shorter one where tiles are clipped.
        short: Whether this tile has the shorter one.
        first, count, results: Of its form: `first` and `count` of frequencies, and `m`.
        points, gap: Of its form: how many frequencies follow `first`, and how many of the whole
            tile's lie between them and the rest.
    """

    whole: Tile
    shorter: Tile | None
    short: Bool
    first: Int
    count: Int
    results: Int
    points: Int
    gap: Int

    def frequency(self, number: Int) -> Int:
        """The one with a number below `count`."""
        if self.whole.stride == 1:
            return self.first + number
        return self.first + number + (number < self.points).select(0, self.gap)


@dataclass(frozen=True, slots=True)
class Where:
    """A tile: image, row and column of its first output pixel, its row of V, its form."""

    at: At
    row: Int
    down: Axis
    along: Axis


@dataclass(frozen=True, slots=True)
class Tiling:
    """The tiles of a batch.

    Attributes:
        base: Edge of a whole tile.
        edges: Heights of the tiles at the bottom and widths of those at the right, 0 for none.
        stride: Of the convolution.
        images, rows, columns: Extents, in whole tiles.
    """

    base: int
    edges: tuple[int, int]
    stride: int
    images: Int
    rows: Int
    columns: Int

    @property
    def regions(self) -> tuple[Region, ...]:
        """In the order of their rows of V."""
        whole = self._tile(self.base)
        down, along = (self._tile(edge) if edge else None for edge in self.edges)
        found = [Region(whole, along, False, True)] if along else []
        found.append(Region(whole, whole, False, False))
        if down:
            found.append(Region(down, whole, True, False))
        if down and along:
            found.append(Region(down, along, True, True))
        return tuple(found)

    def _tile(self, m: int) -> Tile:
        return Tile(self.base, m, self.stride)

    def _size(self, region: Region) -> Int:
        rows = self.images if region.bottom else self.images * self.rows
        return rows if region.right else rows * self.columns

    def shares(self, k: Kernel, block: Int, blocks: Int, *, local: bool) -> list[Share]:
        """Block number `block` of `blocks`; rows of V are the block's own or of the whole batch."""
        found, row = [], k.int(0)
        for region in self.regions:
            size = self._size(region)
            first = size * block // blocks
            count = size * (block + 1) // blocks - first
            found.append(Share(region, first, count, row if local else row + first))
            row = row + (count if local else size)
        return found

    def all(self, k: Kernel) -> list[Share]:
        """Every tile."""
        return self.shares(k, k.int(0), k.int(1), local=True)

    @contextmanager
    def each(self, k: Kernel, shares: list[Share]) -> Iterator[Where]:
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
        n = line // rows
        at = n, bottom.select(self.rows, line - n * rows) * self.base, column * self.base
        return Where(at, row, self._axis(self.edges[0], bottom), self._axis(self.edges[1], right))

    def _axis(self, edge: int, short: Bool) -> Axis:
        whole, shorter = self._tile(self.base), self._tile(edge) if edge else None
        form = shorter or whole
        words = ("first", "count", "m", "points", "gap")
        pairs = ((getattr(form, word), getattr(whole, word)) for word in words)
        return Axis(whole, shorter, short, *(short.select(*pair) for pair in pairs))

    def rows_with(self, k: Kernel, shares: list[Share], down: Int, along: Int) -> tuple[Int, Int]:
        """First row of V that has frequency (down, along), and how many."""
        first, count = k.int(0), k.int(0)
        for share in shares:
            region = share.region
            have = share.count
            if region.right:
                have = _within(region.along, along).select(have, 0)
            if region.bottom:
                have = _within(region.down, down).select(have, 0)
            count = count + have
            if region.right and not region.bottom:
                first = share.count - have
        return first, count


def _within(tile: Tile, frequency: Int) -> Bool:
    found = (frequency >= tile.first) & (frequency < tile.first + tile.points)
    if tile.stride > 1:
        odd = tile.whole.points
        found = found | ((frequency >= odd) & (frequency < odd + tile.m))
    return found


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
    n = Tile(base, base, stride).count
    short_down, short_along = (Tile(base, m, stride).count if m else 0 for m in edges)
    for down, many_down in ((True, short_down), (False, n - short_down)):
        for along, many_along in ((True, short_along), (False, n - short_along)):
            right, whole, bottom, corner = counts
            rows = whole + right * along + bottom * down + corner * (down and along)
            found[rows] = found.get(rows, 0) + many_down * many_along
    return {rows: many for rows, many in found.items() if many}
