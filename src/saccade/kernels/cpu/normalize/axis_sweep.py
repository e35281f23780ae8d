"""Kernels that sweep an axis several times per result: softmax, normalisations, scans.

Some axes stay, the others are swept; both groups are collapsed over all operands together. Vectors
go along the swept axes where they are contiguous (`along`), else across neighbouring results
(`across`). A kernel writes its sweeps once:

    top = place.reduce(lambda step: step.load(0), "max")
    total = place.reduce(lambda step: math.exp(k, step.load(0) - top), "add")
    place.each(lambda step: step.store(1, …))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain

from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.backends.cpu.codegen.values import Int, Mask, Vec
from saccade.kernels.base import Integers, View
from saccade.kernels.cpu.movement.loop_nest import Nest, Row, collapse, inner_kind, partition
from saccade.kernels.cpu.pointwise.vector_elements import from_float, load, store, to_float

__all__ = [
    "Sweep",
    "SweepCode",
    "SweepPlace",
    "SweepPlan",
    "SweepStep",
    "across_lanes",
    "plan_sweep",
]

_START = {"add": 0.0, "max": float("-inf")}
_UNROLL = 4


@dataclass(frozen=True)
class SweepCode:
    """What the code of a sweep depends on.

    Attributes:
        way: `along` or `across`.
        elements: Element types of the operands.
        kept_kinds: How each meets the last kept axis.
        swept_kinds: How each meets the last swept axis.
        kept: Number of kept axes.
        swept: Number of swept axes.
    """

    way: str
    elements: tuple[str, ...]
    kept_kinds: tuple[str, ...]
    swept_kinds: tuple[str, ...]
    kept: int
    swept: int


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """One call: code, integers, chunks, elements of one sweep."""

    code: SweepCode
    integers: Integers
    chunks: int
    count: int


def plan_sweep(
    shape: Sequence[int],
    strides: Sequence[Sequence[int]],
    elements: Sequence[View],
    axes: Sequence[int],
) -> SweepPlan:
    """The loops of one call.

    Args:
        shape: Extents of all axes.
        strides: For each operand, its strides along these axes; the first decides the order.
        elements: Views of the operands (for their element types).
        axes: The swept axes.
    """
    stay = [axis for axis in range(len(shape)) if axis not in axes]
    kept, swept = (
        collapse([shape[a] for a in group], [[s[a] for a in group] for s in strides])
        for group in (stay, axes)
    )
    along = all(inner_kind(s[-1]) != "strided" for s in swept.strides)
    # A single swept element is no vector: then results go side by side, if they lie so.
    along = along and (swept.sizes[-1] > 1 or kept.strides[0][-1] != 1)
    code = SweepCode(
        "along" if along else "across",
        tuple(v.dtype.value for v in elements),
        tuple(inner_kind(s[-1]) for s in kept.strides),
        tuple(inner_kind(s[-1]) for s in swept.strides),
        kept.rank,
        swept.rank,
    )
    count = swept.rows * swept.sizes[-1]
    # Results are cut, never a sweep: sums do not depend on the team.
    cut = partition(kept, max(1, 8192 // max(1, count)), 16)
    integers = {
        **Nest.integers(kept, cut),
        "swept_sizes": swept.sizes,
        "swept_strides": tuple(chain.from_iterable(swept.strides)),
        "count": count,
    }
    return SweepPlan(code, integers, cut.chunks, count)


def across_lanes(k: KernelBuilder, value: Vec, combine: Callable[[Vec, Vec], Vec]) -> Vec:
    """All lanes of a vector combined by halves, in every lane."""
    lanes = value.lanes
    while value.lanes > 2:
        half = value.lanes // 2
        low, high = (k.shuffle(value, value, range(s, s + half)) for s in (0, half))
        value = combine(low, high)
    return k.broadcast(combine(k.extract(value, 0), k.extract(value, 1)), lanes)


class Sweep:
    """Declares the pointers first, then (`declare_integers`) the integers of a `SweepPlan`."""

    def __init__(self, k: KernelBuilder, code: SweepCode) -> None:
        self.k, self.code = k, code
        self.pointers = [k.pointer(f"p{i}", e) for i, e in enumerate(code.elements)]

    def declare_integers(self) -> None:
        """Declare `SweepPlan.integers`."""
        k, code = self.k, self.code
        self.nest = Nest(k, code.kept, len(self.pointers))
        self.sizes = k.array("swept_sizes", code.swept)
        steps = k.array("swept_strides", code.swept * len(self.pointers))
        starts = range(0, len(steps), code.swept)
        self.steps = [steps[start : start + code.swept] for start in starts]
        self.count = k.integer("count")

    def places(self, body: Callable[[SweepPlace], None]) -> None:
        """Emit `body` for all results that this thread claims, once per form of its vectors."""
        k, lanes = self.k, self.k.lanes
        with self.nest.walk() as row:
            if self.code.way == "along":
                with k.range(row.low, row.high) as i:
                    body(SweepPlace(self, row, i, lanes, None))
                return
            whole = row.low + (row.high - row.low) // lanes * lanes
            with k.range(row.low, whole, lanes) as i:
                body(SweepPlace(self, row, i, lanes, None))
            # Strided operands are loaded lane by lane, without masks: what is left goes one by one.
            if "strided" in self.code.kept_kinds:
                with k.range(whole, row.high) as i:
                    body(SweepPlace(self, row, i, 1, None))
            else:
                with k.when(whole < row.high):
                    body(SweepPlace(self, row, whole, lanes, k.first(row.high - whole)))


@dataclass(frozen=True, slots=True)
class SweepPlace:
    """One result (`along`) or a vector of them (`across`).

    Attributes:
        sweep: The sweep.
        row, at: Where.
        lanes: Lanes of vectors.
        mask: Results that exist (`across`); None for all.
    """

    sweep: Sweep
    row: Row
    at: Int
    lanes: int
    mask: Mask | None

    def count(self) -> Vec:
        """Number of swept elements, in every lane."""
        k = self.sweep.k
        return k.broadcast(
            Vec(k.b, k.b.sitofp(self.sweep.count.value, k.vector_type(1))), self.lanes
        )

    @contextmanager
    def _outer(self) -> Iterator[list[Int]]:
        """Loops over all swept axes but the last; offsets of all operands."""
        sweep, k = self.sweep, self.sweep.k
        offsets = list(self.row.offsets)
        if sweep.code.way == "along":
            offsets = [
                o + s[-1] * self.at for o, s in zip(offsets, sweep.nest.strides, strict=True)
            ]
        with ExitStack() as stack:
            for axis in range(len(sweep.sizes) - 1):
                j = stack.enter_context(k.range(0, sweep.sizes[axis]))
                offsets = [o + j * s[axis] for o, s in zip(offsets, sweep.steps, strict=True)]
            yield offsets

    def each(self, visit: Callable[[SweepStep], None]) -> None:
        """Visit every swept element, in order of memory."""
        self._visit(lambda step, _: visit(step), 1)

    def _visit(self, visit: Callable[[SweepStep, int], None], unroll: int) -> None:
        sweep, k = self.sweep, self.sweep.k
        last = sweep.sizes[-1]
        step = self.lanes if sweep.code.way == "along" else 1
        with self._outer() as offsets:
            low: Int = k.int(0)
            for many in (unroll, 1) if unroll > 1 else (1,):
                whole = low + (last - low) // (many * step) * (many * step)
                with k.range(low, whole, many * step) as j:
                    for u in range(many):
                        visit(SweepStep(self, offsets, j + u * step, None), u)
                low = whole
            if step > 1:
                with k.when(low < last):
                    visit(SweepStep(self, offsets, low, k.first(last - low, self.lanes)), 0)

    def reduce(self, value: Callable[[SweepStep], Vec], how: str) -> Vec:
        """Sum (`add`) or maximum (`max`) over the swept elements, in every lane."""
        sweep, k = self.sweep, self.sweep.k
        start = k.number(_START[how], self.lanes)
        # Several, so that additions do not wait for each other.
        sums = [k.var(start) for _ in range(_UNROLL)]

        def combine(a: Vec, b: Vec) -> Vec:
            return a + b if how == "add" else k.maximum(a, b)

        def visit(step: SweepStep, u: int) -> None:
            v = value(step)
            # Lanes that are not there read as 0, which is no neutral element of what `value` makes
            # of them.
            if step.mask is not None:
                v = step.mask.select(v, start)
            sums[u].set(combine(sums[u].get(), v))

        self._visit(visit, _UNROLL)
        totals = [s.get() for s in sums]
        total = combine(combine(totals[0], totals[1]), combine(totals[2], totals[3]))
        # Each lane is a result of its own.
        if sweep.code.way == "across":
            return total
        return across_lanes(k, total, combine)


@dataclass(frozen=True, slots=True)
class SweepStep:
    """A swept element of each of a vector of results, or a vector of swept elements of one.

    Attributes:
        place: Whose.
        offsets: Of each operand, before the last swept axis.
        j: Position on the last swept axis.
        mask: Swept elements that exist (`along`); None for all.
    """

    place: SweepPlace
    offsets: Sequence[Int]
    j: Int
    mask: Mask | None

    def _where(self, p: int) -> tuple[str, Int, Int, Int, Mask | None]:
        """Kind, offset, position, stride and mask of an access of operand `p`."""
        place, sweep = self.place, self.place.sweep
        swept = sweep.steps[p][-1]
        if sweep.code.way == "along":
            return sweep.code.swept_kinds[p], self.offsets[p], self.j, swept, self.mask
        offset = self.offsets[p] + self.j * swept
        kept = sweep.nest.strides[p][-1]
        return sweep.code.kept_kinds[p], offset, place.at, kept, place.mask

    def load(self, p: int) -> Vec:
        """Elements of operand `p`, as float32."""
        sweep = self.place.sweep
        kind, offset, at, stride, mask = self._where(p)
        raw = load(sweep.k, sweep.pointers[p], kind, offset, at, stride, mask, self.place.lanes)
        return to_float(sweep.k, raw, sweep.code.elements[p])

    def store(self, p: int, value: Vec) -> None:
        """Float32 values into operand `p`."""
        sweep = self.place.sweep
        kind, offset, at, stride, mask = self._where(p)
        converted = from_float(sweep.k, value, sweep.code.elements[p])
        store(sweep.k, sweep.pointers[p], kind, offset, at, stride, mask, converted)
