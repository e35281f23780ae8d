"""Where blocks of pooling windows lie: rows and columns of the image, and what they count.

Nothing is tested at the borders. Positions beyond the image are those next to it: a maximum takes
them twice. A sum takes zeros instead, rows of them from where there are only zeros, columns by
masks, and is multiplied by the share that each of a window's pixels has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from saccade.backends.cpu.codegen import llvm
from saccade.backends.cpu.codegen.language import Ptr
from saccade.backends.cpu.codegen.values import Bool, Int, Vec
from saccade.kernels.cpu.pool.direct_lanes import Reciprocal

if TYPE_CHECKING:
    from saccade.kernels.cpu.pool.direct_code import PoolAxis, PoolCode

__all__ = ["Lines", "PoolPart", "PoolPlace", "PoolPlaces"]

_LEAST = 2.0**-64  # so that an infinite sum times what is missing is infinite


@dataclass(frozen=True, slots=True)
class PoolPart:
    """What a chunk does: rows of windows of one image, and a block of its channels."""

    n: Int
    first: Int
    end: Int
    low: Int
    high: Int


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of the image, or the one next to where it would be; whether it is there."""

    x: Ptr
    valid: Bool


@dataclass(frozen=True, slots=True)
class Lines:
    """What a row of blocks has in common.

    Attributes:
        p: First row of windows.
        rows: Of the image, under the windows.
        below: Rows that the next rows of windows need, to be asked for.
        results: Where each row of windows goes.
    """

    p: Int
    rows: Sequence[_Row]
    below: Sequence[_Row]
    results: Sequence[Ptr]


@dataclass(frozen=True, slots=True)
class PoolPlace:
    """A block: what does not change from channel to channel, and so is found before.

    Attributes:
        lines: Its row of blocks.
        q: First window in the row.
        rows: Of the image, or of zeros.
        kept: For each row all bits, or none where columns of zeros are all the same one; empty
            where no row is of zeros.
        columns: How far each column is from the first of its row.
        inside: For each column all bits, or none where it is replaced by zeros; empty where no
            column ever is.
        windows: How far each window's result is from the first of its row.
        shares: What the sums of each window are multiplied by, row by row.
    """

    lines: Lines
    q: Int
    rows: Sequence[Ptr]
    kept: Sequence[Int]
    columns: Sequence[Int]
    inside: Sequence[Vec]
    windows: Sequence[Int]
    shares: Sequence[Sequence[Reciprocal]]


class PoolPlaces:
    """Finds the places of the blocks of a chunk.

    Args:
        pool: The kernel's parameters.
        part: Of the image, not empty.
        width: Lanes of a vector.
    """

    def __init__(self, pool: PoolCode, part: PoolPart, width: int) -> None:
        self.pool, self.k, self.config = pool, pool.k, pool.config
        self.part, self.width = part, width
        c = pool.config
        self.spans = tuple(
            taps + (windows - 1) * stride
            for taps, windows, stride in zip(
                (c.rows, c.columns), (c.height, c.width), c.stride, strict=True
            )
        )

    def lines(self, p: Int) -> Lines:
        """A row of blocks whose first row of windows is `p`."""
        pool, c = self.pool, self.config
        top = p * c.stride[0] - pool.down.before
        # What the caches hold comes soon enough unasked.
        coming = c.height * c.stride[0] if c.fetch else 0
        first = self.part.n * pool.y_n
        return Lines(
            p,
            [self._row(top + r) for r in range(self.spans[0])],
            [self._row(top + self.spans[0] + r) for r in range(coming)],
            [self._fixed(pool.y + (first + (p + i) * pool.y_h)) for i in range(c.height)],
        )

    def inner(self, p: Int, q: Int) -> Bool:
        """Whether a block's windows lie on the image."""
        inside = None
        for axis, at, span in zip(
            (self.pool.down, self.pool.along), (p, q), self.spans, strict=True
        ):
            start = at * axis.stride - axis.before
            here = (start >= 0) & (start + span <= axis.size)
            inside = here if inside is None else inside & here
        assert inside is not None
        return inside

    def place(self, lines: Lines, q: Int, *, inner: bool) -> PoolPlace:
        """The block whose first window of each row is `q`; `inner` if it lies on the image."""
        k, pool, c = self.k, self.pool, self.config
        left = q * c.stride[1] - pool.along.before
        places = [left + j for j in range(self.spans[1])]
        columns = [self._clipped(j, pool.along.size) for j in places]
        rows, kept, inside = [row.x for row in lines.rows], [], []
        if not inner:
            assert pool.zeros is not None
            # Channels count from the image's first one: the part's are at the front, but for a
            # vector that its last one may reach back.
            zeros = pool.zeros + (self.width - self.part.low)
            rows = [self._fixed(k.pick(row.valid, row.x, zeros)) for row in lines.rows]
            kept = [row.valid.select(-1, 0) for row in lines.rows]
            flags = [one.equals(j).select(-1, 0) for one, j in zip(columns, places, strict=True)]
            inside = [
                k.broadcast(Vec(k.b, k.b.trunc(f.value, k.vector_type(1, "int32")))) for f in flags
            ]
        return PoolPlace(
            lines, q, rows, kept,
            [column * pool.x_w for column in columns], inside,
            [(q + i) * pool.y_w for i in range(c.width)],
            [] if c.kind == "max" else self._shares(lines.p, q, even=inner),
        )  # fmt: skip

    def _row(self, h: Int) -> _Row:
        pool = self.pool
        inside = self._clipped(h, pool.down.size)
        x = pool.x + (self.part.n * pool.x_n + inside * pool.x_h)
        return _Row(self._fixed(x), inside.equals(h))

    def _fixed(self, p: Ptr) -> Ptr:
        """The same position as an address of its own: loops would add it up for each access."""
        if p.length is not None:
            return p
        base = self.k.b.gep(p.base, [p.offset.value], source_etype=llvm.ELEMENTS[p.element])
        return replace(p, base=base, offset=self.k.int(0))

    def _clipped(self, at: Int, size: Int) -> Int:
        return self.k.maximum_int(self.k.minimum_int(at, size - 1), 0)

    def _shares(self, p: Int, q: Int, *, even: bool) -> list[list[Reciprocal]]:
        pool, c = self.pool, self.config
        if even:
            return [[self._even_share(c.rows * c.columns)] * c.width] * c.height
        across = [self._taps(pool.along, q + i, c.columns) for i in range(c.width)]
        down = [self._taps(pool.down, p + i, c.rows) for i in range(c.height)]
        return [[self._share(rows * columns) for columns in across] for rows in down]

    def _taps(self, axis: PoolAxis, at: Int, most: int) -> Int:
        """How many taps of a window count; those of blocks lie side by side."""
        k = self.k
        start = at * axis.stride - axis.before
        if self.config.include_pad:
            return k.minimum_int(axis.size + axis.after - start, most)
        return k.minimum_int(axis.size - start, most) - k.maximum_int(0 - start, 0)

    def _even_share(self, taps: int) -> Reciprocal:
        """Of a window that lies on the image; to the bit what `_share` finds."""
        # In float64 its product with the taps is exact.
        below = np.float32(1 / taps)
        if float(below) * taps > 1:
            below = np.nextafter(below, np.float32(0))
        rest = float(np.float32(1 - float(below) * taps) / np.float32(taps))
        return Reciprocal(
            self.k.number(float(below)), self.k.number(max(rest, _LEAST)) if rest else None
        )

    def _share(self, taps: Int) -> Reciprocal:
        k = self.k
        one, n = k.number(1.0, 1), Vec(k.b, k.b.sitofp(taps.value, k.vector_type(1)))
        # The same in float32: the sign of what an `fma` leaves says whether it was rounded up.
        near = one / n
        above = k.fma(-n, near, one).compare("<", 0.0)
        below = above.select(near * (1 - 2.0**-24), near)
        rest = k.maximum(k.fma(-n, below, one) / n, _LEAST)
        return Reciprocal(k.broadcast(below), k.broadcast(rest))
