"""Where all heads of a query look, in vectors of places; then sums of channels over the places."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from saccade.backends.cpu.codegen import llvm
from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr, Var
from saccade.backends.cpu.codegen.values import Int, Mask, Vec, literal
from saccade.kernels.cpu import floats
from saccade.kernels.cpu.sample.pixel_places import pixel_place, within_reach

if TYPE_CHECKING:
    from saccade.kernels.cpu.sample.weighted import WeightedConfig

__all__ = ["SCRATCH", "WeightedSums"]

SCRATCH = (("index", 1), ("inside", 1), ("shares", 4))
"""Buffers of which each thread has its own, and how many words they have for a place."""
_CORNERS = ((0, 0), (0, 1), (1, 0), (1, 1))
"""Rows and columns of the four pixels, from the one above and left of a place."""
_CHAINS = 8
"""Sums that go on side by side, as each waits for the product before: twice what Zen 4 starts in
the four cycles that one takes."""


@dataclass(frozen=True, slots=True)
class _Level:
    """An image and its grid.

    Attributes:
        x, grid: The operands.
        x_strides, grid_strides, sizes: Theirs; rows before columns.
        pairs: Whether the grid's numbers are neighbours.
        first, points: Its places among those of a head.
        lanes: Of a vector of places.
    """

    x: Ptr
    grid: Ptr
    x_strides: tuple[Int, ...]
    grid_strides: tuple[Int, ...]
    sizes: tuple[Int, ...]
    pairs: bool
    first: int
    points: int
    lanes: int


class WeightedSums:
    """The code of one configuration."""

    def __init__(self, k: KernelBuilder, config: WeightedConfig) -> None:
        self.k, self.config = k, config
        n = len(config.points)
        elements = config.elements
        images = [k.pointer(f"x{i}", elements[i]) for i in range(n)]
        grids = [k.pointer(f"grid{i}", elements[n + i]) for i in range(n)]
        self.weights, self.y = k.pointer("weights", elements[-2]), k.pointer("y", elements[-1])
        self.index, self.inside = k.scratch("index", "int32"), k.scratch("inside", "int32")
        self.shares, self.zeros = k.scratch("shares"), k.scratch("zeros", elements[0])
        self.heads, self.channels, self.queries = k.integers("heads channels queries")
        self.rows, self.share, self.capacity = k.integers("rows share capacity")
        self.levels: list[_Level] = []
        for i, points in enumerate(config.points):
            sizes, x_strides = k.array(f"sizes{i}", 2), k.array(f"x{i}_strides", 4)
            lanes = 2
            while lanes < min(points, k.lanes):
                lanes *= 2
            grid_strides, first = k.array(f"grid{i}_strides", 5), sum(config.points[:i])
            level = _Level(
                images[i], grids[i], x_strides, grid_strides, sizes, config.pairs[i], first, points,
                lanes,
            )  # fmt: skip
            self.levels.append(level)
        self.weight_strides, self.y_strides = k.array("weight_strides", 4), k.array("y_strides", 3)
        self.places = sum(config.points)

    def emit(self) -> None:
        """Chunks of queries."""
        k, config = self.k, self.config
        with k.chunks((self.rows + (self.share - 1)) // self.share) as chunk:
            for v in range(max(1, config.vectors)):
                floats.store(k, self.zeros, k.zero(), v * k.lanes)
            low = chunk * self.share
            with k.range(low, k.minimum_int(low + self.share, self.rows)) as row:
                image = row // self.queries
                query = row - image * self.queries
                with k.range(0, self.heads) as head:
                    self._look(image, query, head)
                with k.range(0, self.heads) as head:
                    self._sum(image, query, head)

    # -- where a head looks ----------------------------------------------------------------------

    def _look(self, image: Int, query: Int, head: Int) -> None:
        """Fill the scratch of one head.

        Vectors may end behind the places of an image: those of the next one are stored later.
        """
        k, w = self.k, self.weight_strides
        weights = self.weights + (image * w[0] + query * w[1] + head * w[2])
        for level in self.levels:
            g = level.grid_strides
            grid = level.grid + (image * g[0] + query * g[1] + head * g[2])
            with k.range(0, level.points, level.lanes) as at:
                left = level.points - at
                places = self._places(level, grid, at, left)
                along = weights + (at + level.first) * w[3]
                weight = self._lanes(along, w[3], level, left, neighbours=self.config.line)
                self._store(level, places, weight, head * self.places + (at + level.first))

    def _places(self, level: _Level, grid: Ptr, at: Int, left: Int) -> tuple[Vec, Vec]:
        """Columns and rows of a vector of places, from -1 to 1."""
        k, lanes, (by_place, by_axis) = self.k, level.lanes, level.grid_strides[3:]
        if level.pairs:
            mask = None if level.points % lanes == 0 else k.first(left * 2, 2 * lanes)
            both = floats.load(k, grid, at * 2, 2 * lanes, "float32", mask)
            column, row = (k.shuffle(both, both, range(i, 2 * lanes, 2)) for i in range(2))
            return column, row
        start = grid + at * by_place
        column, row = (
            self._lanes(start + by_axis * i, by_place, level, left, neighbours=False)
            for i in range(2)
        )
        return column, row

    def _lanes(self, start: Ptr, by: Int, level: _Level, left: Int, *, neighbours: bool) -> Vec:
        """A vector of numbers, of which the first `left` are there."""
        k, lanes = self.k, level.lanes
        if neighbours:
            mask = None if level.points % lanes == 0 else k.first(left, lanes)
            return floats.load(k, start, 0, lanes, "float32", mask)
        value = k.zero(lanes)
        for i in range(lanes):
            # Lanes behind the last place repeat it: nothing is read past the operand.
            one = floats.load_one(k, start, k.minimum_int(k.int(i), left - 1) * by, "float32")
            value = k.insert(value, one, i)
        return value

    def _store(self, level: _Level, places: tuple[Vec, Vec], weight: Vec, to: Int) -> None:
        """The pixels around a vector of places: the first one, their shares, which are inside."""
        k, b, lanes = self.k, self.k.b, level.lanes
        kind = k.vector_type(lanes, "int32")
        index = literal(kind, 0)
        shares: list[list[Vec]] = []
        there: list[list[Any]] = []
        # The grid names columns first.
        axes = zip(places[::-1], level.sizes, level.x_strides[2:], strict=True)
        for place, size, stride in axes:
            real = k.broadcast(k.to_real(size), lanes)
            at = within_reach(pixel_place(place, real, aligned=self.config.aligned), real)
            base = k.call("floor", at)
            after = at - base
            shares.append([1.0 - after, after])
            whole = b.fptosi(base.value, kind)
            index = b.add(index, b.mul(whole, self._spread(stride, lanes)))
            # Numbers below 0 are the largest without their sign.
            count = self._spread(size, lanes)
            pixels = [whole, b.add(whole, literal(kind, 1))]
            there.append([b.icmp_unsigned("<", pixel, count) for pixel in pixels])
        tall, wide = [share * weight for share in shares[0]], shares[1]
        bits = none = literal(kind, 0)
        for number, (i, j) in enumerate(_CORNERS):
            self.shares.store(tall[i] * wide[j], self.capacity * number + to)
            both = b.and_(there[0][i], there[1][j])
            bits = b.or_(bits, b.select(both, literal(kind, 1 << number), none))
        self.index.store(Vec(b, index), to)
        self.inside.store(Vec(b, bits), to)

    def _spread(self, number: Int, lanes: int) -> Any:  # noqa: ANN401
        """An integer in all of int32 lanes."""
        return self.k.broadcast(Vec(self.k.b, self.k.b.trunc(number.value, llvm.I32)), lanes).value

    # -- sums ------------------------------------------------------------------------------------

    def _sum(self, image: Int, query: Int, head: Int) -> None:
        """All channels of one head."""
        k, config, first = self.k, self.config, head * self.channels
        s = self.y_strides
        to = self.y + (image * s[0] + query * s[1] + first * s[2])
        if not config.vectors:
            with k.range(0, self.channels) as c:
                alone = [k.var(k.number(0.0, 1)) for _ in _CORNERS]
                for level, source in self._starts(image, first + c):
                    for place, pixel in self._pixels(level, source, head):
                        self._add_one(level, pixel, place, alone)
                floats.store(k, to, _total(alone), c * s[2])
            return
        with k.range(0, self.channels, config.vectors * k.lanes) as c:
            left = self.channels - c
            chains = min(len(_CORNERS), max(1, _CHAINS // config.vectors))
            sums = [[k.var(k.zero()) for _ in range(config.vectors)] for _ in range(chains)]
            for level, source in self._starts(image, first + c):
                for place, pixel in self._pixels(level, source, head):
                    self._add(level, pixel, place, sums, left)
            for v in range(config.vectors):
                total = _total([chain[v] for chain in sums])
                floats.store(k, to, total, c + v * k.lanes, self._mask(v, left))

    def _starts(self, image: Int, channel: Int) -> Iterator[tuple[_Level, Ptr]]:
        """Each image from a channel on."""
        for level in self.levels:
            s = level.x_strides
            yield level, level.x + (image * s[0] + channel * s[1])

    def _pixels(self, level: _Level, source: Ptr, head: Int) -> Iterator[tuple[Int, Ptr]]:
        """A loop over a head's places in an image: where in scratch, the first pixel of each."""
        start = head * self.places + level.first
        with self.k.range(start, start + level.points) as place:
            yield place, source + self.index.load_int(place)

    def _mask(self, vector: int, left: Int) -> Mask | None:
        """Channels that are there; None where it is all of a vector's."""
        if vector < self.config.whole:
            return None
        return self.k.first(left - vector * self.k.lanes)

    def _corners(self, level: _Level, pixel: Ptr, place: Int) -> Iterator[tuple[int, Ptr, Ptr]]:
        """The four pixels: number, where it is, where its share is."""
        s = level.x_strides
        for number, (i, j) in enumerate(_CORNERS):
            step = s[2] * i + s[3] * j
            yield number, pixel + step, self.shares + (self.capacity * number + place)

    def _add(self, level: _Level, pixel: Ptr, place: Int, sums: list[list[Var]], left: Int) -> None:
        """Vectors of channels of the four pixels; zeros where they are outside."""
        k, inside = self.k, self.inside.load_int(place)
        for number, corner, share in self._corners(level, pixel, place):
            there = (inside & (1 << number)).differs(0)
            weight, source = share.splat(), k.pick(there, corner, self.zeros)
            for v, total in enumerate(sums[number % len(sums)]):
                at = v * k.lanes
                value = floats.load(k, source, at, k.lanes, "float32", self._mask(v, left))
                total.set(k.fma(value, weight, total.get()))

    def _add_one(self, level: _Level, pixel: Ptr, place: Int, sums: list[Var]) -> None:
        """A channel of the four pixels."""
        k, inside = self.k, self.inside.load_int(place)
        for total, (number, corner, share) in zip(
            sums, self._corners(level, pixel, place), strict=True
        ):
            source = k.pick((inside & (1 << number)).differs(0), corner, self.zeros)
            value = floats.load_one(k, source, 0, "float32")
            total.set(k.fma(value, share.load(), total.get()))


def _total(sums: list[Var]) -> Vec:
    """What was summed side by side."""
    values: list[Vec] = [one.get() for one in sums]
    return reduce(lambda a, b: a + b, values)
