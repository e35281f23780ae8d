"""Neighbouring pooling windows on the picture: what is found of a column serves them all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saccade.codegen.language import Var
from saccade.codegen.values import Bool, Int, Mask, Vec
from saccade.kernels.pointwise.elements import to_float

if TYPE_CHECKING:
    from saccade.kernels.pool.direct import _Pool, _Range

__all__ = ["SharedColumns"]


class SharedColumns:
    """A group of windows of one row of results.

    For each vector of channels, first every column's maximum (or sum) over the valid rows, then
    every window's over its columns. The maximum instruction loses NaN, so a group that meets one
    says so, to be done again with care.

    Args:
        pool: The kernel's parameters.
        place: n, p and the first window's q.
        rows: Valid rows of the windows, at least one.
        source: Offset of the first column in the first row, which may lie above the picture.
    """

    def __init__(self, pool: _Pool, place: tuple[Int, Int, Int], rows: _Range, source: Int) -> None:
        self.pool, self.k, self.config = pool, pool.k, pool.config
        self.place, self.rows = place, rows
        self.step = pool.down.dilation * pool.x_h
        self.first = source + rows.low * self.step
        self.maximum = pool.config.kind == "max"
        self.columns = (pool.config.windows - 1) * pool.config.stride + pool.config.columns

    def walk(self, low: Int, high: Int) -> Bool:
        """All channels from `low` to `high`; whether a NaN was met."""
        k, lanes = self.k, self.k.lanes
        found = k.var(self._no_nan())
        whole = low + (high - low) // lanes * lanes
        with k.range(low, whole, lanes) as channel:
            self._vector(channel, None, found)
        with k.range(whole, high, lanes) as channel:
            self._vector(channel, k.first(high - channel), found)
        return k.any_lane(Mask(k.b, found.get().value))

    def _no_nan(self) -> Vec:
        zero = self.k.zero()
        return Vec(self.k.b, zero.compare("!=", zero).value)

    def _vector(self, channel: Int, mask: Mask | None, found: Var) -> None:
        k, c = self.k, self.config
        totals = [k.var(one) for one in self._line(self.first + channel, mask, found)]
        with k.range(1, self.rows.high - self.rows.low) as r:
            line = self._line(self.first + r * self.step + channel, mask, found)
            for total, one in zip(totals, line, strict=True):
                total.set(self._join(total.get(), one))
        columns = [total.get() for total in totals]
        share = self._share()
        n, p, q = self.place
        to = n * self.pool.y_n + p * self.pool.y_h + channel
        for j in range(c.windows):
            window = columns[j * c.stride : j * c.stride + c.columns]
            value = window[0]
            for one in window[1:]:
                value = self._join(value, one)
            value = value / share if share is not None else value
            value = self.pool.finish.apply(value, (n, p, q + j), channel, mask)
            self.pool.y.store(value, to + (q + j) * self.pool.y_w, mask)

    def _line(self, at: Int, mask: Mask | None, found: Var) -> list[Vec]:
        """One row of all columns."""
        k, pool = self.k, self.pool
        loaded = [
            to_float(k, pool.x.vec(at + j * pool.x_w, mask), self.config.element)
            for j in range(self.columns)
        ]
        if self.maximum:  # one unordered comparison sees to two vectors
            nan = found.get().value
            for one, two in zip(loaded[::2], [*loaded[1::2], loaded[-1]], strict=False):
                nan = k.b.or_(nan, k.b.fcmp_unordered("uno", one.value, two.value))
            found.set(Vec(k.b, nan))
        return loaded

    def _join(self, a: Vec, b: Vec) -> Vec:
        return self.k.maximum(a, b) if self.maximum else a + b

    def _share(self) -> Vec | None:
        if self.maximum:
            return None
        k = self.k
        taps = self.rows.count * self.config.columns
        return k.broadcast(Vec(k.b, k.b.sitofp(taps.value, k.vector_type(1))))
