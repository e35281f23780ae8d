"""The gradient of a p-norm over any axes of any storage: x is read once, dx written once.

    factors   one factor for each result (see `rules`), into a temporary of the results' size
    apply     dx = shape(x) · factor, in the order of dx's memory; the factor is one number for a
              row, or a vector beside it, and never repeated in memory

For p = 1 the factor is the gradient itself. For p = ±∞ it needs the number of ties, for which x
is read before: where what one result or a few neighbours look at fits half of the second cache,
`rows` counts and applies in one phase, and the second read comes from there (`blocks` does the same
for a few vectors of results side by side). Longer rows, or too few to share, are counted in parts
by `ties`, and x is read from memory twice.

Refuses integers, and float64 beside 16-bit elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from saccade.codegen.calling import real_word
from saccade.codegen.language import Kernel
from saccade.ir import DType
from saccade.kernels.base import (
    Call,
    CpuKernel,
    In,
    Launch,
    Operand,
    Out,
    Scratch,
    Temp,
    View,
    one_way,
)
from saccade.kernels.floats import FLOATS, wide
from saccade.kernels.machine import machine
from saccade.kernels.movement.strided import (
    Loops,
    Nest,
    Partition,
    collapse,
    inner_kind,
    partition,
)
from saccade.kernels.norm.blocks import Blocks, vectors_across
from saccade.kernels.norm.elementwise import Apply, Factors, Sums
from saccade.kernels.norm.phase import NormGradConfig, Phase
from saccade.kernels.norm.rules import rule_of
from saccade.kernels.norm.ties import Rows, Ties
from saccade.opdefs.norm import VectorNormGrad

__all__ = ["NORM_GRAD"]

_CHUNK = 1 << 14  # elements of a chunk
_PART = 1 << 15  # elements behind one part of a count
_ENOUGH = 16  # chunks that keep a team busy
_GRAD, _X, _NORM = In(0), In(1), In(2)
_PHASES: dict[str, type[Phase]] = {
    "factors": Factors, "apply": Apply, "rows": Rows, "blocks": Blocks, "ties": Ties, "sums": Sums,
}  # fmt: skip


def supports(call: Call) -> str | None:
    """Why this kernel cannot take the call."""
    views = (*call.inputs, *call.outputs)
    types = {view.dtype for view in views}
    if not types <= FLOATS or (DType.F64 in types and types & {DType.F16, DType.BF16}):
        return f"elements of types {', '.join(sorted(t.value for t in types))}"
    out = call.outputs[0]
    if out.size and any(s == 0 and n > 1 for n, s in zip(out.shape, out.strides, strict=True)):
        return "the result repeats elements"
    return None


def launch(call: Call) -> tuple[Launch, ...]:
    """One to three phases."""
    return _Plan(call).launches()


@dataclass(frozen=True, slots=True)
class _Walk:
    """Axes that stay and axes that go of x, beside those of dx, gradient and norm.

    Attributes:
        kept: dx, x, gradient, norm, a temporary of the results in their order.
        gone: dx, x.
        along: Whether vectors go along the last axis that goes.
    """

    kept: Loops
    gone: Loops
    along: bool

    @property
    def count(self) -> int:
        """Elements behind one result."""
        return prod(self.gone.sizes)


class _Plan:
    """The phases of one call."""

    def __init__(self, call: Call) -> None:
        self.call, op = call, call.op
        grad, x, norm = call.inputs
        out = call.outputs[0]
        self.rule = rule_of(op.p)
        self.axes: frozenset[int] = frozenset(op.axes)
        self.stay = [a for a in range(len(x.shape)) if a not in self.axes]
        self.places = self.stay if op.keepdims else list(range(len(self.stay)))
        self.wide = wide(*(view.dtype.value for view in (grad, x, norm, out)))
        self.itemsize = DType(self.wide).itemsize
        self.lanes = call.target.lanes * 4 // self.itemsize
        self.results = [x.shape[a] for a in self.stay]
        self.dense = _dense(self.results)
        self.temp = Temp(0, self.itemsize * prod(self.results))

    def launches(self) -> tuple[Launch, ...]:
        """All phases, in order."""
        if self.rule == "l1":
            return (self._apply(_GRAD, self._spread(self.call.inputs[0])),)
        before: tuple[Launch, ...] = (self._factors(),)
        if self.rule == "extreme":
            walk = self._walk()
            block = self._fitting(walk)
            if block:
                return (self._rows(walk, block),)
            before = self._ties(walk)
        return (*before, self._apply(self.temp, self._over(self.dense)))

    # Strides

    def _of(self, view: View, axes: Sequence[int]) -> list[int]:
        return [view.strides[a] for a in axes]

    def _over(self, strides: Sequence[int]) -> list[int]:
        """Strides of one number for each result, along all axes of x."""
        found = dict(zip(self.stay, strides, strict=True))
        return [found.get(a, 0) for a in range(len(self.call.inputs[1].shape))]

    def _spread(self, view: View) -> list[int]:
        return self._over(self._of(view, self.places))

    def _walk(self) -> _Walk:
        grad, x, norm = self.call.inputs
        dx, gone = self.call.outputs[0], sorted(self.axes)
        kept = collapse(
            self.results,
            [
                self._of(dx, self.stay), self._of(x, self.stay),
                self._of(grad, self.places), self._of(norm, self.places), self.dense,
            ],
        )  # fmt: skip
        swept = collapse([x.shape[a] for a in gone], [self._of(dx, gone), self._of(x, gone)])
        along = all(s[-1] == 1 for s in swept.strides) and (
            swept.sizes[-1] > 1 or any(s[-1] != 1 for s in kept.strides[:2])
        )
        return _Walk(kept, swept, along)

    # Phases

    def _config(
        self, stage: str, elements: Sequence[str], loops: Loops, walk: _Walk | None = None
    ) -> NormGradConfig:
        kinds = tuple(inner_kind(s[-1]) for s in loops.strides)
        gone, along = (0, False) if walk is None else (walk.gone.rank, walk.along)
        return NormGradConfig(
            stage, self.rule, tuple(elements), kinds, loops.rank, self.wide, gone, along
        )

    def _types(self, *views: View) -> tuple[str, ...]:
        return tuple(view.dtype.value for view in views)

    def _reals(self, value: float) -> tuple[int, ...]:
        return (real_word(value),) if self.rule in ("above", "below") else ()

    def _factors(self) -> Launch:
        grad, _, norm = self.call.inputs
        views = [self._of(v, self.places) for v in (grad, norm)]
        loops = collapse(self.results, [self.dense, *views])
        cut = partition(loops, _CHUNK // 4)
        config = self._config("factors", (self.wide, *self._types(grad, norm)), loops)
        words = (*Nest.integers(loops, cut), *self._reals(abs(self.call.op.p - 1)))
        return Launch(config, (self.temp, _GRAD, _NORM), words, cut.chunks)

    def _apply(self, factor: Operand, strides: Sequence[int]) -> Launch:
        grad, x, norm = self.call.inputs
        dx = self.call.outputs[0]
        element = self.wide if isinstance(factor, Temp) else grad.dtype.value
        every = [dx.strides, x.strides, strides]
        operands: tuple[Operand, ...] = (Out(0), _X, factor)
        elements = (*self._types(dx, x), element)
        if self.rule == "extreme":
            every.append(self._spread(norm))
            operands, elements = (*operands, _NORM), (*elements, norm.dtype.value)
        loops = collapse(x.shape, every)
        cut = partition(loops, _CHUNK)
        words = (*Nest.integers(loops, cut), *self._reals(self.call.op.p - 1))
        return Launch(self._config("apply", elements, loops), operands, words, cut.chunks)

    def _fitting(self, walk: _Walk) -> int:
        """How many results a chunk of `rows` takes in at a time; 0 where it is no good."""
        x = self.call.inputs[1]
        block = self.call.target.l2 // 2 // max(1, walk.count * x.dtype.itemsize)
        least = 1 if walk.along else min(walk.kept.sizes[-1], 4 * self.lanes)
        if walk.along:
            block = min(block, max(1, _CHUNK // max(1, walk.count)))
        if block < least:
            return 0
        few = partition(walk.kept, block).chunks < _ENOUGH and x.size > 2 * _PART
        return 0 if few else block

    def _rows(self, walk: _Walk, block: int) -> Launch:
        """Counts of ties and the gradient, rows at a time."""
        grad, x, norm = self.call.inputs
        dx = self.call.outputs[0]
        kept = Loops(walk.kept.sizes, walk.kept.strides[:4])
        cut = partition(kept, block, self.lanes)
        vectors = 0 if walk.along else self._vectors(kept, cut, walk.count)
        stage = "blocks" if vectors else "rows"
        config = self._config(stage, self._types(dx, x, grad, norm), kept, walk)
        config = replace(config, vectors=vectors)
        gone = (*walk.gone.sizes, *(s for steps in walk.gone.strides for s in steps))
        words = (*Nest.integers(kept, cut), *gone)
        operands = (Out(0), _X, _GRAD, _NORM, *(() if vectors else (self._scratch(cut),)))
        return Launch(config, operands, words, cut.chunks)

    def _vectors(self, kept: Loops, cut: Partition, count: int) -> int:
        """Vectors of a row of results that `blocks` would take; 0 where it is no good."""
        dx, x = self.call.outputs[0].dtype, self.call.inputs[1].dtype
        near = all(strides[-1] == 1 for strides in kept.strides)
        if x is not dx or not near or cut.inner != kept.sizes[-1]:
            return 0
        return vectors_across(self.call.target, x, cut.inner, count)

    def _scratch(self, cut: Partition) -> Scratch:
        """Counts of a row of results, in whole vectors."""
        lanes = self.lanes
        return Scratch(self.itemsize * (-(-cut.inner // lanes) * lanes))

    def _ties(self, walk: _Walk) -> tuple[Launch, ...]:
        """Counts of parts of all rows, then their sums, and the factors."""
        grad, x, norm = self.call.inputs
        kept, outer = walk.kept, walk.gone.sizes[0]
        behind = max(1, walk.count // max(1, outer))
        per_part = max(1, _PART // (behind * (1 if walk.along else kept.sizes[-1])))
        parts = max(1, -(-outer // per_part))
        total, dense = prod(kept.sizes), _dense(kept.sizes)
        counts = Temp(1, self.itemsize * parts * total)
        # The part is one more axis, the outermost.
        steps = (total, per_part * walk.gone.strides[1][0], 0)
        loops = Loops(
            (parts, *kept.sizes),
            tuple(
                (step, *strides)
                for step, strides in zip(
                    steps, (dense, kept.strides[1], kept.strides[3]), strict=True
                )
            ),
        )
        cut = partition(loops, max(1, _PART // (per_part * behind)), self.lanes)
        config = self._config("ties", (self.wide, *self._types(x, norm)), loops, walk)
        words = (*Nest.integers(loops, cut), *walk.gone.sizes, *walk.gone.strides[1], per_part)
        first = Launch(config, (counts, _X, _NORM, self._scratch(cut)), words, cut.chunks)
        sums = Loops(kept.sizes, (kept.strides[4], dense, kept.strides[2]))
        cut = partition(sums, _CHUNK // 4)
        config = self._config("sums", (self.wide, self.wide, *self._types(grad)), sums)
        words = (*Nest.integers(sums, cut), parts, total)
        return first, Launch(config, (self.temp, counts, _GRAD), words, cut.chunks)


def _dense(sizes: Sequence[int]) -> tuple[int, ...]:
    return tuple(prod(sizes[i + 1 :]) for i in range(len(sizes)))


def emit(k: Kernel, config: NormGradConfig) -> None:
    """The code of one phase."""
    _PHASES[config.stage](k, config).emit()


def cost(call: Call) -> float:
    """Microseconds: x is read and dx written."""
    x = call.inputs[1]
    flops = 60.0 if rule_of(call.op.p) in ("above", "below") else 4.0
    return machine(call.target).roofline(flops * x.size, 2 * x.nbytes, call.threads, 0.5)


NORM_GRAD = CpuKernel(
    "norm.gradient", (VectorNormGrad,), NormGradConfig, supports, one_way(launch, cost), emit
)
