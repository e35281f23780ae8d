"""Blocks of pooling windows: a few neighbours of each of a few rows, done at once.

    column[i, j] = max or sum over the rows r of window row i of x[r, j]
    y[i, q] = max or mean over the columns j of window q of column[i, j]

Rows of windows that have rows of the image in common are done together, so that these are fetched
once; windows of a row share what is found of a column, and of two columns. What lies beyond the
borders is for `direct_places` to say. Where fewer windows are left than a block has, it begins
earlier and does some again.

Where the operands exceed the caches, what the next rows of windows need is asked for: few channels
make short runs, which the processor does not foresee. What a vector holds is up to `direct_lanes`.
The maximum instruction of float32 loses NaN: it is looked for, and what has one in it is done again
with care.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING

from saccade.backends.cpu.codegen.values import Int, Mask
from saccade.kernels.cpu.pool.direct_lanes import Lanes, Value
from saccade.kernels.cpu.pool.direct_places import Lines, PoolPart, PoolPlace, PoolPlaces

if TYPE_CHECKING:
    from saccade.kernels.cpu.pool.direct_code import PoolCode

__all__ = ["PoolBlocks"]


@dataclass(slots=True)
class _Joined:
    """What is found of rows or columns one by one, and of two neighbours together."""

    join: Callable[[Value, Value], Value]
    found: dict[int, Value]
    paired: bool = True
    pairs: dict[int, Value] = field(default_factory=dict)

    def window(self, first: int, count: int) -> Value:
        """All of a window's; two of which the first is an odd one are joined first, and once."""
        parts, at, end = [], first, first + count
        while at < end:
            # Two windows of three taps with stride 1 are 0 (1 2) and (1 2) 3.
            if self.paired and at % 2 and at + 1 < end:
                if at not in self.pairs:
                    self.pairs[at] = self.join(self.found[at], self.found[at + 1])
                parts.append(self.pairs[at])
                at += 2
            else:
                parts.append(self.found[at])
                at += 1
        return reduce(self.join, parts)


class PoolBlocks:
    """Emits the blocks of a chunk.

    Args:
        pool: The kernel's parameters.
        part: Of the image, not empty.
        lanes: What its vectors hold.
    """

    def __init__(self, pool: PoolCode, part: PoolPart, lanes: Lanes) -> None:
        self.pool, self.k, self.config = pool, pool.k, pool.config
        self.part, self.lanes = part, lanes
        self.places = PoolPlaces(pool, part, lanes.width)
        self.maximum = pool.config.kind == "max"

    def emit(self) -> None:
        """All blocks, from top to bottom and from left to right."""
        k, pool, part, c = self.k, self.pool, self.part, self.config
        with k.range(part.first, part.end, c.height) as down:
            lines = self.places.lines(k.minimum_int(down, pool.p - c.height))
            with k.range(0, pool.q, c.width) as along:
                self._block(lines, k.minimum_int(along, pool.q - c.width))

    def _block(self, lines: Lines, q: Int) -> None:
        if not self.config.zeros:
            self._vectors(self.places.place(lines, q, inner=True))
            return
        with self.k.when_else(self.places.inner(lines.p, q)) as (then, other):
            with then:
                self._vectors(self.places.place(lines, q, inner=True))
            with other:
                self._vectors(self.places.place(lines, q, inner=False))

    def _vectors(self, place: PoolPlace) -> None:
        """All channels of a block."""
        k, part = self.k, self.part
        width = self.lanes.width
        with k.range(part.low, part.high, width) as channel:
            if self.config.masked:
                self._vector(place, channel, part.high - channel)
            else:
                # The last vector reaches back, and does some channels again.
                self._vector(place, k.minimum_int(channel, part.high - width), None)

    def _vector(self, place: PoolPlace, channel: Int, left: Int | None) -> None:
        """One vector of channels of a block's windows; `left` of them, where not all, exist."""
        c, done = self.config, 0
        mask = None if left is None else self.k.first(left, self.lanes.width)
        # Chunks cut no row of windows: sums of columns may share pairs.
        rows = [_Joined(self.lanes.join, {}) for _ in range(c.height)]
        for i in range(c.width):
            first = i * c.stride[1]
            for j in range(max(done, first), first + c.columns):
                for row, value in zip(rows, self._down(place, j, channel, mask), strict=True):
                    row.found[j] = value
            done = first + c.columns
            for down, row in enumerate(rows):
                value = row.window(first, c.columns)
                if not self.maximum:
                    value = self.lanes.share(value, place.shares[down][i])
                self._store(value, place, (down, i), channel, left)

    def _down(self, place: PoolPlace, j: int, channel: Int, mask: Mask | None) -> list[Value]:
        """One column, for each row of windows."""
        c, lanes, at = self.config, self.lanes, place.columns[j]
        offsets = [self._masked(at, bits) + channel for bits in place.kept]
        if not offsets:
            offsets = [at + channel] * len(place.rows)
        loaded = [
            lanes.load(row, offset, mask) for row, offset in zip(place.rows, offsets, strict=True)
        ]
        for row in place.lines.below:
            self.k.prefetch(row.x, at + channel, locality=2)
        lanes.look(loaded)
        # Sums must not depend on where a chunk starts, so they share no pairs of rows.
        found = _Joined(lanes.join, dict(enumerate(loaded)), paired=self.maximum)
        values = [found.window(i * c.stride[0], c.rows) for i in range(c.height)]
        return [lanes.kept(v, place.inside[j]) for v in values] if place.inside else values

    def _masked(self, number: Int, bits: Int) -> Int:
        return Int(self.k.b, self.k.b.and_(number.value, bits.value))

    def _store(
        self,
        value: Value,
        place: PoolPlace,
        window: tuple[int, int],
        channel: Int,
        left: Int | None,
    ) -> None:
        (down, along), lines = window, place.lines
        y, to = lines.results[down], place.windows[along] + channel
        at = (self.part.n, lines.p + down, place.q + along)
        self.lanes.store(value, y + to, at, channel, left)
        if self.config.fetch and not y.streamed:
            self.k.prefetch(y, to + self.pool.y_h * self.config.height, locality=2)
