"""Phases of ±∞, whose factor needs the number of ties: in rows that stay cached, or in parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from saccade.codegen.language import Ptr, Var
from saccade.codegen.values import Int, Mask, Vec
from saccade.kernels.movement.strided import Row
from saccade.kernels.norm import rules
from saccade.kernels.norm.phase import Phase, narrowed

__all__ = ["Counting", "Rows", "Ties"]


class Counting(Phase):
    """What phases that count share: sweeps over the axes that go, and counts of ties.

    Attributes:
        x, norm: Which operands of the nest these are.
        steps: Strides along the axes that go, of the operands that have them.
    """

    x: int
    norm: int
    steps: dict[int, list[Int]]
    sizes: list[Int]

    def axes(self, *swept: int) -> None:
        """Declare the axes that go: sizes, then strides of these operands."""
        count = range(self.config.gone)
        self.sizes = [self.k.integer("size") for _ in count]
        self.steps = {p: [self.k.integer("step") for _ in count] for p in swept}

    def high(self, row: Row) -> Int:
        """End of the outermost axis that goes."""
        del row
        return self.sizes[0]

    @contextmanager
    def swept(self, row: Row, axes: int) -> Iterator[dict[int, Int]]:
        """Loops over the first axes that go; offsets of the operands that have them."""
        with ExitStack() as stack:
            offsets = {p: row.offsets[p] for p in self.steps}
            for axis in range(axes):
                high = self.high(row) if axis == 0 else self.sizes[axis]
                j = stack.enter_context(self.k.range(0, high))
                offsets = {p: o + j * self.steps[p][axis] for p, o in offsets.items()}
            yield offsets

    # Vectors along an axis that goes

    def line(
        self, row: Row, i: Int, visit: Callable[[dict[int, Int], Int, Mask | None], None]
    ) -> None:
        """All elements behind result `i`, from neighbours in memory."""
        last = self.config.gone - 1
        with self.swept(row, last) as offsets:
            own = {p: o + self.nest.strides[p][-1] * i for p, o in offsets.items()}
            end = self.high(row) if last == 0 else self.sizes[-1]
            self.vectors(self.k.int(0), end, False, lambda j, _lanes, mask: visit(own, j, mask))

    def count_line(self, row: Row, i: Int) -> tuple[Vec, Vec]:
        """How many elements behind result `i` are tied, and its norm in every lane."""
        k, wide = self.k, self.config.wide
        norm = k.broadcast(self.read(self.norm, row.offsets[self.norm], i, 1, None), self.lanes)
        sums = [k.var(k.zero(self.lanes, wide)) for _ in range(2)]
        turn = [0]

        def visit(offsets: dict[int, Int], j: Int, mask: Mask | None) -> None:
            raw = self.pointers[self.x].vec(offsets[self.x] + j, mask, self.lanes)
            tied = rules.tied(k, k.convert(raw, wide), norm)
            self._add(sums[turn[0] % 2], tied if mask is None else tied & mask)
            turn[0] += 1

        self.line(row, i, visit)
        return k.sum_lanes(sums[0].get() + sums[1].get()), norm

    def _add(self, total: Var, tied: Mask) -> None:
        before = total.get()
        total.set(tied.select(before + 1.0, before))

    # Vectors along neighbouring results

    def count_across(self, row: Row) -> None:
        """Counts of all results of the row, into scratch from element 0 on."""
        k, counts = self.k, self.counts
        strided = "strided" in self.config.kinds

        def clear(i: Int, lanes: int, _mask: Mask | None) -> None:
            counts.store(k.zero(lanes, self.config.wide), i - row.low)

        self.vectors(row.low, row.high, strided, clear)
        with self.swept(row, self.config.gone) as offsets:

            def visit(i: Int, lanes: int, mask: Mask | None) -> None:
                x = self.read(self.x, offsets[self.x], i, lanes, mask)
                norm = self.read(self.norm, row.offsets[self.norm], i, lanes, mask)
                tied = rules.tied(k, x, norm).select(x.like(1.0), x.like(0.0))
                counts.store(self.counted(row, i, lanes) + tied, i - row.low)

            self.vectors(row.low, row.high, strided, visit)

    def counted(self, row: Row, i: Int, lanes: int) -> Vec:
        """What stands in scratch for results from `i` on.

        It has room for whole vectors: what is stored under a mask is slow to load again (which is
        also why 0 or 1 is added, where a choice of two sums became a masked store).
        """
        at = i - row.low
        found: Vec = self.counts.load(at) if lanes == 1 else self.counts.vec(at, lanes=lanes)
        return found

    @property
    def counts(self) -> Ptr:
        """Scratch of one row."""
        assert self.scratch is not None
        return self.scratch


class Rows(Counting):
    """Counts and gradient of rows that stay in the cache."""

    x, norm = 1, 3

    def emit(self) -> None:
        self.axes(0, 1)
        with self.nest.walk() as row:
            if self.config.along:
                with self.k.range(row.low, row.high) as i:
                    self._along(row, i)
            else:
                self._across(row)

    def _along(self, row: Row, i: Int) -> None:
        k = self.k
        count, norm = self.count_line(row, i)
        grad = self.read(2, row.offsets[2], i, 1, None)
        factor = k.broadcast(grad / k.maximum(count, 1.0), self.lanes)

        def visit(offsets: dict[int, Int], j: Int, mask: Mask | None) -> None:
            x = k.convert(self.pointers[1].vec(offsets[1] + j, mask, self.lanes), self.config.wide)
            value = rules.shape(k, self.config.rule, x, None, norm) * factor
            to = self.pointers[0]
            to.store(narrowed(k, value, to), offsets[0] + j, mask)

        self.line(row, i, visit)

    def _across(self, row: Row) -> None:
        k, strided = self.k, "strided" in self.config.kinds
        self.count_across(row)

        def divide(i: Int, lanes: int, mask: Mask | None) -> None:
            count = k.maximum(self.counted(row, i, lanes), 1.0)
            factor = self.read(2, row.offsets[2], i, lanes, mask) / count
            self.counts.store(factor, i - row.low)

        self.vectors(row.low, row.high, strided, divide)
        with self.swept(row, self.config.gone) as offsets:

            def visit(i: Int, lanes: int, mask: Mask | None) -> None:
                x = self.read(1, offsets[1], i, lanes, mask)
                norm = self.read(3, row.offsets[3], i, lanes, mask)
                shape = rules.shape(k, self.config.rule, x, None, norm)
                self.write(offsets[0], i, shape * self.counted(row, i, lanes), mask)

            self.vectors(row.low, row.high, strided, visit)


class Ties(Counting):
    """Counts of parts of long rows; the first axis of the nest numbers the parts."""

    x, norm = 1, 2

    def emit(self) -> None:
        self.axes(1)
        self.per_part = self.k.integer("per_part")
        with self.nest.walk() as row:
            if self.config.along:
                with self.k.range(row.low, row.high) as i:
                    self.write(row.offsets[0], i, self.count_line(row, i)[0], None)
                return
            self.count_across(row)
            strided = "strided" in self.config.kinds

            def put(i: Int, lanes: int, mask: Mask | None) -> None:
                self.write(row.offsets[0], i, self.counted(row, i, lanes), mask)

            self.vectors(row.low, row.high, strided, put)

    def high(self, row: Row) -> Int:
        left = self.sizes[0] - row.indices[0] * self.per_part
        return self.k.minimum_int(left, self.per_part)
