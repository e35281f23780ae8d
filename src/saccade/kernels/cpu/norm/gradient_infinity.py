"""The phases of p = ±∞, whose gradient needs the number of ties.

These are:

blocks, rows   counts of ties and the gradient, where x stays in the cache between the looks
ties           counts of parts of longer rows
sums           the counts of all parts, and from them what the gradient is made of
mark           dx = that, in the order of dx's memory
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import gcd, prod

from saccade.backends.cpu.codegen.streams import LINE
from saccade.ir import DType
from saccade.kernels.base import Launch, Operand, Out, Scratch, Temp, numbered
from saccade.kernels.cpu.movement.loop_nest import Loops, Nest, Partition, collapse, partition
from saccade.kernels.cpu.norm.gradient_blocks import vectors_across
from saccade.kernels.cpu.norm.gradient_launch import (
    GRAD,
    NORM,
    GradientAxes,
    GradientPlan,
    X,
    dense,
)

__all__ = ["ExtremePlan"]

_CHUNK = 1 << 14  # elements of a chunk of cached rows
_PART = 1 << 15  # elements behind one part of a count
_DEEP = 32  # elements behind one count of a part: counts are a fraction of x
_ACROSS = 1 << 14  # results that are counted beside each other
_LONG = 1 << 13  # bytes of a row of elements from which on several rows go side by side
_BESIDE = 4  # rows
_ENOUGH = 16  # chunks that keep a team busy


@dataclass(frozen=True, slots=True)
class _ReductionSplit:
    """How elements behind a result are cut.

    Attributes:
        count: Parts.
        each: Steps along the outermost reduced axis, of each.
        results: Of a chunk, about.
    """

    count: int
    each: int
    results: int


class ExtremePlan(GradientPlan):
    """The phases of one call."""

    def launches(self) -> tuple[Launch, ...]:
        """One phase, or three."""
        walk = self.walk()
        block = self._fitting(walk)
        return (self._rows(walk, block),) if block else self._long(walk)

    @property
    def _size(self) -> int:
        return self.call.inputs[1].dtype.itemsize

    def _counts(self, most: int) -> str:
        """The integer that counts so many ties of a vector of elements."""
        enough = most < 1 << (8 * self._size - 1)
        return f"int{8 * self._size}" if enough else "int32"

    def _fitting(self, walk: GradientAxes) -> int:
        """How many results a chunk of `rows` takes in at a time; 0 where it is no good."""
        x, target, inner = self.call.inputs[1], self.call.target, walk.kept.sizes[-1]
        behind = max(1, walk.count * self._size)
        block = target.l2 // 2 // behind
        if walk.along:
            block = min(block, max(1, _CHUNK // max(1, walk.count)))
        elif x.nbytes > target.l3 // 2 and 2 * block < inner:
            # Memory gives parts of rows at half of its speed.
            held = self._vectors(walk.kept, inner, walk.count) and inner * behind <= 2 * target.l2
            block = inner if held else 0
        if block < (1 if walk.along else min(inner, 4 * self.lanes)):
            return 0
        # Too few chunks for a team are counted in parts, unless x is small anyway.
        few = partition(walk.kept, block).chunks < _ENOUGH and x.size > 2 * _PART
        return 0 if few else block

    def _rows(self, walk: GradientAxes, block: int) -> Launch:
        """Counts of ties and the gradient, rows at a time."""
        grad, x, norm = self.call.inputs
        dx = self.call.outputs[0]
        kept = Loops(walk.kept.sizes, walk.kept.strides[:4])
        cut = partition(kept, block, self.lanes)
        vectors = 0 if walk.along else self._vectors(kept, cut.inner, walk.count)
        stage = "blocks" if vectors else "rows"
        steps = (*kept.strides[0], *walk.gone.strides[0])
        # What is written along a reduced axis has its lines there. `blocks` stores vectors that
        # overlap, not whole lines.
        lines = Loops((*kept.sizes, *walk.gone.sizes), (steps,)) if walk.along else kept
        config = replace(
            self.config(stage, self.types(dx, x, grad, norm), kept, walk),
            vectors=vectors, counts=self._counts(walk.count),
            streamed=not vectors and self.streamed(lines),
        )  # fmt: skip
        integers = {**Nest.integers(kept, cut), **_gone(walk.gone)}
        operands = numbered((Out(0), X, GRAD, NORM))
        # Else counts stay in registers: of a row of results, or of one result.
        if not vectors and not walk.along:
            operands |= self._scratch(cut, config.counts, 3)
        return Launch(config, operands, integers, cut.chunks)

    def _vectors(self, kept: Loops, inner: int, count: int) -> int:
        """Vectors of a row of results that `gradient_blocks` would take; 0 where it is no good."""
        near = all(strides[-1] == 1 for strides in kept.strides[:4])
        if not near or inner != kept.sizes[-1]:
            return 0
        return vectors_across(self.call.target, self.call.inputs[1].dtype, inner, count)

    def _scratch(self, cut: Partition, counts: str, planes: int) -> dict[str, Operand]:
        """Numbers of a row of results and counts, in whole vectors."""
        lanes = 4 * self.call.target.lanes // self._size
        capacity = -(-cut.inner // lanes) * lanes
        return {
            "kept": Scratch(planes * self._size * capacity),
            "counts": Scratch(DType(counts).itemsize * capacity),
        }

    def _long(self, walk: GradientAxes) -> tuple[Launch, ...]:
        """Counts of parts of all rows, then what they give, then dx."""
        total = prod(self.results)
        parts = self._parts(walk)
        counts = Temp(1, self.itemsize * parts.count * total)
        marks = Temp(0, 3 * self._size * total)
        long = not walk.along and walk.kept.sizes[-1] * self._size >= _LONG
        near = all(strides[-1] == 1 for strides in walk.kept.strides)
        return (
            self._ties(walk, parts, counts, _BESIDE if long else 1),
            self._sums(walk, counts, parts.count, marks),
            self._paint(walk, parts, marks) if long and near else self._mark(marks),
        )

    def _parts(self, walk: GradientAxes) -> _ReductionSplit:
        """Parts of the outermost reduced axis, deep enough for a count to be worth its space."""
        outer = walk.gone.sizes[0]
        # Elements behind a result in one step along the axis that is cut.
        behind = max(1, walk.count // max(1, outer))
        results = 1 if walk.along else min(walk.kept.sizes[-1], _ACROSS)
        each = max(1, _DEEP // behind, _PART // (behind * results))
        return _ReductionSplit(
            max(1, -(-outer // each)), each, max(results, _PART // (each * behind))
        )

    def _over_parts(
        self,
        walk: GradientAxes,
        parts: _ReductionSplit,
        strides: Sequence[Sequence[int]],
        first: Sequence[int],
    ) -> tuple[Loops, Partition]:
        """Parts are one more axis, the outermost; `first` are its strides."""
        loops = Loops(
            (parts.count, *walk.kept.sizes),
            tuple((step, *rest) for step, rest in zip(first, strides, strict=True)),
        )
        return loops, partition(loops, parts.results, self.lanes)

    def _ties(
        self, walk: GradientAxes, parts: _ReductionSplit, counts: Temp, beside: int
    ) -> Launch:
        _, x, norm = self.call.inputs
        kept, gone = walk.kept, walk.gone
        strides = (dense(kept.sizes), kept.strides[1], kept.strides[3])
        # The norm does not know of parts.
        first = (prod(kept.sizes), parts.each * gone.strides[1][0], 0)
        loops, cut = self._over_parts(walk, parts, strides, first)
        config = replace(
            self.config("ties", (self.wide, *self.types(x, norm)), loops, walk),
            counts=self._counts(parts.each * walk.count // max(1, gone.sizes[0])), beside=beside,
        )  # fmt: skip
        of_x = _gone(Loops(gone.sizes, gone.strides[1:]))
        integers = {**Nest.integers(loops, cut), **of_x, "per_part": parts.each}
        operands = numbered((counts, X, NORM))
        if not walk.along:
            operands |= self._scratch(cut, config.counts, 1)
        return Launch(config, operands, integers, cut.chunks)

    def _sums(self, walk: GradientAxes, counts: Temp, parts: int, marks: Temp) -> Launch:
        """From the counts to norms and both numbers that gradients are made of, as bits."""
        grad, x, norm = self.call.inputs
        kept = walk.kept
        total, steps = prod(kept.sizes), dense(kept.sizes)
        loops = Loops(kept.sizes, (kept.strides[4], steps, kept.strides[2], kept.strides[3]))
        cut = partition(loops, _CHUNK // 4)
        config = self.config(
            "sums", (f"int{8 * self._size}", self.wide, *self.types(grad, norm)), loops
        )
        config = replace(config, element=x.dtype.value)
        sizes = {"parts": parts, "part_step": total, "plane": total}
        integers = {**Nest.integers(loops, cut), **sizes}
        return Launch(config, numbered((marks, counts, GRAD, NORM)), integers, cut.chunks)

    def _mark(self, marks: Temp) -> Launch:
        x, dx = self.call.inputs[1], self.call.outputs[0]
        total, bits = prod(self.results), f"int{8 * self._size}"
        loops = collapse(x.shape, [dx.strides, x.strides, *[self.over(self.dense)] * 3])
        elements = (*self.types(dx, x), bits, bits, bits)
        starts = (0, 0, 0, total, 2 * total)
        return self.over_x("mark", (Out(0), X, marks, marks, marks), elements, loops, starts)

    def _paint(self, walk: GradientAxes, parts: _ReductionSplit, marks: Temp) -> Launch:
        x, dx = self.call.inputs[1], self.call.outputs[0]
        kept, gone, total = walk.kept, walk.gone, prod(self.results)
        strides = (*kept.strides[:2], *[kept.strides[4]] * 3)
        first = (*(parts.each * steps[0] for steps in gone.strides), 0, 0, 0)
        loops, cut = self._over_parts(walk, parts, strides, first)
        bits = f"int{8 * self._size}"
        config = replace(
            self.config("paint", (*self.types(dx, x), bits, bits, bits), loops, walk),
            beside=_BESIDE, streamed=self.streamed(loops),
        )  # fmt: skip
        # Rows so far apart begin at the same byte of a line.
        apart = LINE // gcd(LINE, gone.strides[0][-1] * self._size)
        starts = (0, 0, 0, total, 2 * total)
        rows = {"per_part": parts.each, "apart": apart}
        integers = {**Nest.integers(loops, cut, starts), **_gone(gone), **rows}
        operands = numbered((Out(0), X, marks, marks, marks))
        return Launch(config, operands, integers, cut.chunks)


def _gone(loops: Loops) -> dict[str, tuple[int, ...]]:
    """The reduced axes: sizes, then the strides of each operand that has them."""
    return {"gone_sizes": loops.sizes, "gone_strides": tuple(chain.from_iterable(loops.strides))}
