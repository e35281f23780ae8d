"""Ties and gradient of ±∞ across neighbouring results, where registers hold a row of them.

Norms, counts and both numbers that gradients are made of stay in registers while all elements
behind a row of results are swept, twice. Of longer rows each sweep would read a part, which memory
gives at half of its speed. There are no rests: the last vector of a row ends at its border and does
again what the one before has done. So dx may not be x, and a row has a vector of results or more.
"""

from __future__ import annotations

from collections.abc import Sequence

from saccade.backends.cpu.codegen.values import Int, Vec
from saccade.backends.cpu.target import Target
from saccade.ir import DType
from saccade.kernels.cpu.movement.loop_nest import Row
from saccade.kernels.cpu.norm.gradient_integers import Marks
from saccade.kernels.cpu.norm.gradient_ties import Counting

__all__ = ["CountedBlocks", "vectors_across"]

_VECTORS = 8  # of results beside each other, at most
_NUMBERS = 3  # registers that a vector of results needs: norm, gradient where tied, elsewhere


def vectors_across(target: Target, element: DType, results: int, count: int) -> int:
    """Vectors of a row of results, a power of two; 0 for rows that this is not for.

    Args:
        target: Whose registers these are.
        element: Of x and dx.
        results: Of a row.
        count: Elements behind each.
    """
    lanes = 4 * target.lanes // element.itemsize
    # A power of two, so that few widths make code of their own; more than a row has repeat its end.
    vectors = 1 << (-(-results // lanes) - 1).bit_length()
    held = vectors <= _VECTORS and vectors * _NUMBERS < target.registers
    counted = count < 1 << (8 * element.itemsize - 1)
    return vectors if results >= lanes and held and counted else 0


class CountedBlocks(Counting):
    """Counts and gradient of rows that stay in the cache."""

    x, norm = 1, 3
    elements = (0, 1)

    def row(self, row: Row) -> None:
        last = row.high - self.lanes
        starts = range(0, self.config.vectors * self.lanes, self.lanes)
        self._row(row, [self.k.minimum_int(row.low + start, last) for start in starts])

    def _row(self, row: Row, places: Sequence[Int]) -> None:
        """All elements behind the vectors of results at some places."""
        k, bits = self.k, self.bits
        norms = [
            bits.of_norm(self.read(self.norm, row.offsets[self.norm], i, self.lanes, None))
            for i in places
        ]
        counts = [k.var(self.none(self.lanes)) for _ in places]
        with self.swept(row, self.config.gone) as offsets:
            for i, norm, count in zip(places, norms, counts, strict=True):
                tied = bits.tied(self.raw(1, offsets[1], i, self.lanes, None), norm)
                count.set(self.more(count.get(), tied))
        every = [
            self._marks(row, i, norm, count.get())
            for i, norm, count in zip(places, norms, counts, strict=True)
        ]
        with self.swept(row, self.config.gone) as offsets:
            for i, marks in zip(places, every, strict=True):
                x = self.raw(1, offsets[1], i, self.lanes, None)
                self.put(offsets[0], i, bits.marked(x, marks), None)

    def _marks(self, row: Row, i: Int, norm: Vec, count: Vec) -> Marks:
        grad = self.read(2, row.offsets[2], i, self.lanes, None)
        return self.bits.marks(norm, grad / self.k.maximum(self.real(count), 1.0))
