"""Phases of ±∞, whose factor needs the number of ties: in rows that stay cached, or in parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from saccade.backends.cpu.codegen.emitter import BYTES
from saccade.backends.cpu.codegen.values import Int, IntLike, Mask, Vec, literal
from saccade.kernels.cpu.floats import lanes_of
from saccade.kernels.cpu.movement.loop_nest import Row
from saccade.kernels.cpu.norm.gradient_code import GradientPhase
from saccade.kernels.cpu.norm.gradient_integers import Bits, Marks

__all__ = ["CountedRows", "Counting", "Paint", "Ties"]


class Counting(GradientPhase):
    """What phases that count share: sweeps over the reduced axes, and counts of ties.

    Attributes:
        x, norm: Which operands of the nest these are.
        elements: Those of these that are x or dx, and so have the reduced axes.
        steps: Their strides along these.
        per_line: Elements of a vector of them.
    """

    x: int
    norm: int
    elements: tuple[int, ...]
    per_line: int
    steps: dict[int, tuple[Int, ...]]
    sizes: tuple[Int, ...]

    def declare(self) -> None:
        k, config = self.k, self.config
        self.bits = Bits(k, config.elements[self.x], config.wide)
        self.per_line = 4 * k.lanes // BYTES[self.bits.name]
        if not config.along and config.stage in ("rows", "ties"):
            self.kept = k.scratch("kept", self.bits.name)
            self.counts = k.scratch("counts", config.counts)

    def begin(self) -> None:
        """The reduced axes: sizes, then strides of the operands that have them."""
        count, elements = self.config.gone, self.elements
        self.sizes = self.k.array("gone_sizes", count)
        steps = self.k.array("gone_strides", count * len(elements))
        self.steps = {p: steps[i * count : (i + 1) * count] for i, p in enumerate(elements)}
        for p in self.elements:
            self.pointers[p] = self.pointers[p].viewed(self.bits.name)
        # Lane by lane a vector is as long as its code.
        wide = lanes_of(self.k, self.config.wide)
        self.lanes = wide if self.strided and not self.config.along else self.per_line

    def high(self, row: Row) -> Int:
        """End of the outermost reduced axis."""
        del row
        return self.sizes[0]

    def end(self, row: Row, axis: int) -> Int:
        """End of a reduced axis."""
        return self.high(row) if axis == 0 else self.sizes[axis]

    @contextmanager
    def swept(self, row: Row, axes: int) -> Iterator[dict[int, Int]]:
        """Loops over the first reduced axes; offsets of the operands that have them."""
        with ExitStack() as stack:
            offsets = {p: row.offsets[p] for p in self.steps}
            for axis in range(axes):
                j = stack.enter_context(self.k.range(0, self.end(row, axis)))
                offsets = {p: o + j * self.steps[p][axis] for p, o in offsets.items()}
            yield offsets

    def more(self, count: Vec, tied: Mask) -> Vec:
        """A count, and one more where there is a tie."""
        b = self.k.b
        return Vec(b, b.sub(count.value, b.sext(tied.value, count.type)))  # true is -1

    def none(self, lanes: int) -> Vec:
        """Counts of nothing."""
        return Vec(self.k.b, literal(self.k.vector_type(lanes, self.config.counts), 0))

    def real(self, count: Vec) -> Vec:
        """A count as a wide number."""
        kind = self.k.vector_type(count.lanes, self.config.wide)
        return Vec(self.k.b, self.k.b.uitofp(count.value, kind))

    # Vectors along a reduced axis

    def line(
        self, row: Row, i: Int, visit: Callable[[dict[int, Int], Int, Mask | None], None],
        *, written: bool = False,
    ) -> None:  # fmt: skip
        """All elements behind result `i`, from neighbours in memory."""
        last = self.config.gone - 1
        with self.swept(row, last) as offsets:
            own = {p: o + self.nest.strides[p][-1] * i for p, o in offsets.items()}
            self.vectors(
                self.k.int(0), self.end(row, last), lambda j, _lanes, mask: visit(own, j, mask),
                offset=own[0] if written else None,
            )  # fmt: skip

    def count_line(self, row: Row, i: Int) -> tuple[Vec, Vec]:
        """How many elements behind result `i` are tied, and its norm in every lane; bits."""
        k = self.k
        norm = self.bits.of_norm(self.read(self.norm, row.offsets[self.norm], i, 1, None))
        norm = k.broadcast(norm, self.lanes)
        total = k.var(k.int(0))

        def visit(offsets: dict[int, Int], j: Int, mask: Mask | None) -> None:
            x = self.pointers[self.x].vec(offsets[self.x] + j, mask, self.lanes)
            tied = self.bits.tied(x, norm)
            # Masked lanes read as 0, which may be the norm.
            ones = k.count_ones(k.mask_bits(tied if mask is None else tied & mask))
            total.set(total.get() + ones)

        self.line(row, i, visit)
        return k.to_real(total.get(), self.config.wide), norm

    # Vectors along neighbouring results

    def count_across(self, row: Row) -> None:
        """Norms' bits and counts of all results of the row, into scratch from element 0 on."""

        def clear(i: Int, lanes: int, mask: Mask | None) -> None:
            norm = self.read(self.norm, row.offsets[self.norm], i, lanes, mask)
            self.keep(row, i, 0, self.bits.of_norm(norm))
            self.counts.store(self.none(lanes), i - row.low)

        self.vectors(row.low, row.high, clear, strided=self.strided)
        self.rows(row, 1, self._count)

    def rows(
        self, row: Row, apart: IntLike, visit: Callable[[Row, list[dict[int, Int]]], None]
    ) -> None:
        """All rows of elements beside the row of results, several at a time.

        Args:
            row: Of results.
            apart: How many rows on the next one of the same time is.
            visit: Emits the code; it gets the offsets of each.
        """
        k, beside, last = self.k, self.config.beside, self.config.gone - 1
        with self.swept(row, last) as offsets:

            def at(j: Int) -> dict[int, Int]:
                return {p: o + j * self.steps[p][last] for p, o in offsets.items()}

            end = self.end(row, last)
            whole = k.int(0)
            if beside > 1:
                group = apart * beside
                whole = end // group * group
                with k.range(0, whole, group) as first, k.range(first, first + apart) as j:
                    visit(row, [at(j + apart * r) for r in range(beside)])
            with k.range(whole, end) as j:
                visit(row, [at(j)])

    def _count(self, row: Row, rows: list[dict[int, Int]]) -> None:

        def visit(i: Int, lanes: int, mask: Mask | None) -> None:
            norm, count = self.kept_of(row, i, 0, lanes), self.counted(row, i, lanes)
            for offsets in rows:
                x = self.raw(self.x, offsets[self.x], i, lanes, mask)
                count = self.more(count, self.bits.tied(x, norm))
            self.counts.store(count, i - row.low)

        self.vectors(row.low, row.high, visit, strided=self.strided)

    # Scratch. It has space for whole vectors: what is stored under a mask is slow to load again.

    def counted(self, row: Row, i: Int, lanes: int) -> Vec:
        """Counts of results from `i` on."""
        return self.counts.vec(i - row.low, lanes=lanes)

    def keep(self, row: Row, i: Int, plane: int, value: Vec) -> None:
        """Keep numbers of results from `i` on."""
        self.kept.store(value, self._at(row, i, plane))

    def kept_of(self, row: Row, i: Int, plane: int, lanes: int) -> Vec:
        """What was kept."""
        return self.kept.vec(self._at(row, i, plane), lanes=lanes)

    def _at(self, row: Row, i: Int, plane: int) -> Int:
        capacity = (self.nest.inner + (self.per_line - 1)) // self.per_line * self.per_line
        return i - row.low + capacity * plane


class CountedRows(Counting):
    """Counts and gradient of rows that stay in the cache."""

    x, norm = 1, 3
    elements = (0, 1)

    def row(self, row: Row) -> None:
        if not self.config.along:
            self._across(row)
            return
        with self.k.range(row.low, row.high) as i:
            self._along(row, i)

    def _along(self, row: Row, i: Int) -> None:
        k, lanes = self.k, self.lanes
        count, norm = self.count_line(row, i)
        grad = self.read(2, row.offsets[2], i, 1, None)
        # Nothing ties with a norm of NaN: over 1, so that others get 0 and not 0 times infinity.
        factor = k.broadcast(grad / k.maximum(count, 1.0), lanes)
        marks = self.bits.marks(norm, factor)

        def visit(offsets: dict[int, Int], j: Int, mask: Mask | None) -> None:
            x = self.pointers[1].vec(offsets[1] + j, mask, lanes)
            self.pointers[0].store(self.bits.marked(x, marks), offsets[0] + j, mask)

        self.line(row, i, visit, written=True)

    def _across(self, row: Row) -> None:
        self.count_across(row)
        k, strided = self.k, self.strided

        def divide(i: Int, lanes: int, mask: Mask | None) -> None:
            count = k.maximum(self.real(self.counted(row, i, lanes)), 1.0)
            factor = self.read(2, row.offsets[2], i, lanes, mask) / count
            marks = self.bits.marks(self.kept_of(row, i, 0, lanes), factor)
            for plane, value in enumerate((marks.norm, marks.tied, marks.other)):
                self.keep(row, i, plane, value)

        self.vectors(row.low, row.high, divide, strided=strided)
        with self.swept(row, self.config.gone) as offsets:

            def visit(i: Int, lanes: int, mask: Mask | None) -> None:
                x = self.raw(1, offsets[1], i, lanes, mask)
                marks = Marks(*(self.kept_of(row, i, plane, lanes) for plane in range(3)))
                self.put(offsets[0], i, self.bits.marked(x, marks), mask)

            self.vectors(row.low, row.high, visit, offset=offsets[0], strided=strided)


class Parts(Counting):
    """Phases over parts of long rows; the first axis of the nest numbers the parts."""

    def begin(self) -> None:
        super().begin()
        self.per_part = self.k.integer("per_part")

    def high(self, row: Row) -> Int:
        left = self.sizes[0] - row.indices[0] * self.per_part
        return self.k.minimum_int(left, self.per_part)


class Ties(Parts):
    """Counts of parts."""

    x, norm = 1, 2
    elements = (1,)

    def row(self, row: Row) -> None:
        if self.config.along:
            with self.k.range(row.low, row.high) as i:
                self.write(row.offsets[0], i, self.count_line(row, i)[0], None)
            return
        self.count_across(row)

        def put(i: Int, lanes: int, mask: Mask | None) -> None:
            self.write(row.offsets[0], i, self.real(self.counted(row, i, lanes)), mask)

        self.vectors(row.low, row.high, put, strided=self.strided)


class Paint(Parts):
    """Dx from marks: rows whose lines begin alike share the marks of their results."""

    x, norm = 1, 2
    elements = (0, 1)

    def begin(self) -> None:
        super().begin()
        self.apart = self.k.integer("apart")

    def row(self, row: Row) -> None:
        self.rows(row, self.apart, self._paint)

    def _paint(self, row: Row, rows: list[dict[int, Int]]) -> None:
        def visit(i: Int, lanes: int, mask: Mask | None) -> None:
            marks = Marks(*(self.raw(p, row.offsets[p], i, lanes, mask) for p in range(2, 5)))
            for offsets in rows:
                x = self.raw(1, offsets[1], i, lanes, mask)
                self.put(offsets[0], i, self.bits.marked(x, marks), mask)

        self.vectors(row.low, row.high, visit, offset=rows[0][0])
