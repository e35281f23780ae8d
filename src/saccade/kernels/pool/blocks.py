"""Blocks of pooling windows: a few neighbours of each of a few rows, done at once.

    column[i, j] = max or sum over the rows r of window row i of x[r, j]
    y[i, q] = max or mean over the columns j of window q of column[i, j]

Rows of windows that have rows of the picture in common are done together, so that these are fetched
once; windows of a row share what is found of a column, and of two columns. Nothing is tested at the
borders: a maximum takes a row or column of its window that is on the picture twice, a sum takes
zeros. Where fewer windows are left than a block has, it begins earlier and does some again.

Where the operands exceed the caches, what the next rows of windows need is asked for: few channels
make short runs, which the processor does not foresee. What a vector holds is up to `lanes`. The
maximum instruction of float32 loses NaN: it is looked for, and what has one in it is done again
with care.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

from saccade.codegen.emitter import ELEMENTS
from saccade.codegen.language import Ptr
from saccade.codegen.values import Bool, Int, Mask, Vec
from saccade.kernels.pool.lanes import Lanes, Share, Value

if TYPE_CHECKING:
    from saccade.kernels.pool.code import Axis, PoolCode

__all__ = ["Blocks", "Part"]

_LEAST = 2.0**-64  # so that an infinite sum times what is missing is infinite


@dataclass(frozen=True, slots=True)
class Part:
    """What a chunk does: rows of windows of one picture, and a block of its channels."""

    n: Int
    first: Int
    end: Int
    low: Int
    high: Int


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of the picture, or the one next to where it would be; whether it is there."""

    x: Ptr
    valid: Bool


@dataclass(frozen=True, slots=True)
class _Lines:
    """What a row of blocks has in common.

    Attributes:
        p: First row of windows.
        rows: Of the picture, under the windows.
        below: Rows that the next rows of windows need, to be asked for.
        results: Where each row of windows goes.
    """

    p: Int
    rows: Sequence[_Row]
    below: Sequence[_Row]
    results: Sequence[Ptr]


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
            if self.paired and at % 2 and at + 1 < end:
                if at not in self.pairs:
                    self.pairs[at] = self.join(self.found[at], self.found[at + 1])
                parts.append(self.pairs[at])
                at += 2
            else:
                parts.append(self.found[at])
                at += 1
        return reduce(self.join, parts)


@dataclass(frozen=True, slots=True)
class _Place:
    """A block: what does not change from channel to channel, and so is found before.

    Attributes:
        lines: Its row of blocks.
        q: First window in the row.
        rows: Of the picture, or of zeros.
        kept: For each row all bits, or none where columns of zeros are all the same one; empty
            where no row is of zeros.
        columns: How far each column is from the first of its row.
        inside: For each column all bits, or none where it is replaced by zeros; empty where no
            column ever is.
        windows: How far each window's result is from the first of its row.
        shares: What the sums of each window are multiplied by, row by row.
    """

    lines: _Lines
    q: Int
    rows: Sequence[Ptr]
    kept: Sequence[Int]
    columns: Sequence[Int]
    inside: Sequence[Vec]
    windows: Sequence[Int]
    shares: Sequence[Sequence[Share]]


class Blocks:
    """Emits the blocks of a chunk.

    Args:
        pool: The kernel's parameters.
        part: Of the picture, not empty.
        lanes: What its vectors hold.
    """

    def __init__(self, pool: PoolCode, part: Part, lanes: Lanes) -> None:
        self.pool, self.k, self.config = pool, pool.k, pool.config
        self.part, self.lanes = part, lanes
        self.maximum = pool.config.kind == "max"
        c = pool.config
        self.spans = tuple(
            taps + (windows - 1) * stride
            for taps, windows, stride in zip(
                (c.rows, c.columns), (c.height, c.width), c.stride, strict=True
            )
        )

    def emit(self) -> None:
        """All blocks, from top to bottom and from left to right."""
        k, pool, part, c = self.k, self.pool, self.part, self.config
        with k.range(part.first, part.end, c.height) as down:
            lines = self._lines(k.minimum_int(down, pool.p - c.height))
            with k.range(0, pool.q, c.width) as along:
                self._block(lines, k.minimum_int(along, pool.q - c.width))

    def _lines(self, p: Int) -> _Lines:
        pool, c = self.pool, self.config
        top = p * c.stride[0] - pool.down.before
        coming = c.height * c.stride[0] if c.fetch else 0
        first = self.part.n * pool.y_n
        return _Lines(
            p,
            [self._row(top + r) for r in range(self.spans[0])],
            [self._row(top + self.spans[0] + r) for r in range(coming)],
            [self._fixed(pool.y + (first + (p + i) * pool.y_h)) for i in range(c.height)],
        )

    def _row(self, h: Int) -> _Row:
        pool = self.pool
        inside = self._clipped(h, pool.down.size)
        x = pool.x + (self.part.n * pool.x_n + inside * pool.x_h)
        return _Row(self._fixed(x), inside.equals(h))

    def _fixed(self, p: Ptr) -> Ptr:
        """The same position as an address of its own: loops would add it up for each access."""
        if p.length is not None:
            return p
        base = self.k.b.gep(p.base, [p.offset.value], source_etype=ELEMENTS[p.element])
        return replace(p, base=base, offset=self.k.int(0))

    def _block(self, lines: _Lines, q: Int) -> None:
        if not self.config.zeros:
            self._vectors(self._place(lines, q, inner=True))
            return
        with self.k.when_else(self._inner(lines.p, q)) as (then, other):
            with then:
                self._vectors(self._place(lines, q, inner=True))
            with other:
                self._vectors(self._place(lines, q, inner=False))

    def _vectors(self, place: _Place) -> None:
        """All channels of a block."""
        k, part = self.k, self.part
        width = self.lanes.width
        with k.range(part.low, part.high, width) as channel:
            if self.config.masked:
                self._vector(place, channel, part.high - channel)
            else:
                self._vector(place, k.minimum_int(channel, part.high - width), None)

    def _inner(self, p: Int, q: Int) -> Bool:
        """Whether a block's windows lie on the picture."""
        inside = None
        for axis, at, span in zip(
            (self.pool.down, self.pool.along), (p, q), self.spans, strict=True
        ):
            start = at * axis.stride - axis.before
            here = (start >= 0) & (start + span <= axis.size)
            inside = here if inside is None else inside & here
        assert inside is not None
        return inside

    def _place(self, lines: _Lines, q: Int, *, inner: bool) -> _Place:
        k, pool, c = self.k, self.pool, self.config
        left = q * c.stride[1] - pool.along.before
        places = [left + j for j in range(self.spans[1])]
        columns = [self._clipped(j, pool.along.size) for j in places]
        rows, kept, inside = [row.x for row in lines.rows], [], []
        if not inner:
            assert pool.zeros is not None
            zeros = pool.zeros + (self.lanes.width - self.part.low)
            rows = [self._fixed(k.pick(row.valid, row.x, zeros)) for row in lines.rows]
            kept = [row.valid.select(-1, 0) for row in lines.rows]
            flags = [one.equals(j).select(-1, 0) for one, j in zip(columns, places, strict=True)]
            inside = [
                k.broadcast(Vec(k.b, k.b.trunc(f.value, k.vector_type(1, "int32")))) for f in flags
            ]
        return _Place(
            lines, q, rows, kept,
            [column * pool.x_w for column in columns], inside,
            [(q + i) * pool.y_w for i in range(c.width)],
            [] if self.maximum else self._shares(lines.p, q, even=inner),
        )  # fmt: skip

    def _clipped(self, at: Int, size: Int) -> Int:
        return self.k.maximum_int(self.k.minimum_int(at, size - 1), 0)

    def _shares(self, p: Int, q: Int, *, even: bool) -> list[list[Share]]:
        pool, c = self.pool, self.config
        if even:
            return [[self._even_share(c.rows * c.columns)] * c.width] * c.height
        across = [self._taps(pool.along, q + i, c.columns) for i in range(c.width)]
        down = [self._taps(pool.down, p + i, c.rows) for i in range(c.height)]
        return [[self._share(rows * columns) for columns in across] for rows in down]

    def _taps(self, axis: Axis, at: Int, most: int) -> Int:
        """How many taps of a window count; those of blocks lie side by side."""
        k = self.k
        start = at * axis.stride - axis.before
        if self.config.include_pad:
            return k.minimum_int(axis.size + axis.after - start, most)
        return k.minimum_int(axis.size - start, most) - k.maximum_int(0 - start, 0)

    def _even_share(self, taps: int) -> Share:
        """Of a window that lies on the picture; to the bit what `_share` finds."""
        below = np.float32(1 / taps)
        if float(below) * taps > 1:
            below = np.nextafter(below, np.float32(0))
        rest = float(np.float32(1 - float(below) * taps) / np.float32(taps))
        return Share(
            self.k.number(float(below)), self.k.number(max(rest, _LEAST)) if rest else None
        )

    def _share(self, taps: Int) -> Share:
        k = self.k
        one, n = k.number(1.0, 1), Vec(k.b, k.b.sitofp(taps.value, k.vector_type(1)))
        near = one / n
        above = k.fma(-n, near, one).compare("<", 0.0)
        below = above.select(near * (1 - 2.0**-24), near)
        rest = k.maximum(k.fma(-n, below, one) / n, _LEAST)
        return Share(k.broadcast(below), k.broadcast(rest))

    def _vector(self, place: _Place, channel: Int, left: Int | None) -> None:
        """One vector of channels of a block's windows; `left` of them, where not all, exist."""
        c, done = self.config, 0
        mask = None if left is None else self.k.first(left, self.lanes.width)
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

    def _down(self, place: _Place, j: int, channel: Int, mask: Mask | None) -> list[Value]:
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
        self, value: Value, place: _Place, window: tuple[int, int], channel: Int, left: Int | None
    ) -> None:
        (down, along), lines = window, place.lines
        y, to = lines.results[down], place.windows[along] + channel
        at = (self.part.n, lines.p + down, place.q + along)
        self.lanes.store(value, y + to, at, channel, left)
        if self.config.fetch and not y.streamed:
            self.k.prefetch(y, to + self.pool.y_h * self.config.height, locality=2)
