"""The phases of one call whose gradient needs factors alone; strides and configs for all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from saccade.backends.cpu.codegen.calling import real_word
from saccade.ir import DType
from saccade.kernels.base import In, Launch, Operand, Out, Temp, View, numbered
from saccade.kernels.cpu.base import CpuCall
from saccade.kernels.cpu.floats import wide
from saccade.kernels.cpu.machine import beyond_caches
from saccade.kernels.cpu.movement.loop_nest import (
    Loops,
    Nest,
    collapse,
    in_lines,
    inner_kind,
    partition,
)
from saccade.kernels.cpu.norm.gradient_code import NormGradConfig
from saccade.kernels.cpu.norm.gradient_formula import rule_of

__all__ = ["GRAD", "NORM", "GradientAxes", "GradientPlan", "X", "dense"]

_CHUNK = 1 << 14  # elements of a chunk
_LONG = 1 << 12  # bytes of a row from which on it is worth while to look for its lines
GRAD, X, NORM = In(0), In(1), In(2)


@dataclass(frozen=True, slots=True)
class GradientAxes:
    """Kept axes and reduced axes of x, beside those of dx, gradient and norm.

    Attributes:
        kept: dx, x, gradient, norm, a temporary of the results in their order.
        gone: dx, x.
        along: Whether vectors go along the last reduced axis.
    """

    kept: Loops
    gone: Loops
    along: bool

    @property
    def count(self) -> int:
        """Elements behind one result."""
        return prod(self.gone.sizes)


class GradientPlan:
    """The phases of one call."""

    def __init__(self, call: CpuCall) -> None:
        self.call, op = call, call.op
        grad, x, norm = call.inputs
        out = call.outputs[0]
        self.rule = rule_of(op.p)
        self.axes: frozenset[int] = frozenset(op.axes)
        self.stay = [a for a in range(len(x.shape)) if a not in self.axes]
        # Where gradient and norm have the kept axes.
        self.places = self.stay if op.keepdims else list(range(len(self.stay)))
        self.wide = wide(*(view.dtype.value for view in (grad, x, norm, out)))
        self.itemsize = DType(self.wide).itemsize
        self.lanes = call.target.lanes * 4 // self.itemsize
        self.results = [x.shape[a] for a in self.stay]
        self.dense = dense(self.results)

    def launches(self) -> tuple[Launch, ...]:
        """All phases, in order."""
        grad = self.call.inputs[0]
        if self.rule == "l1":
            return (self._apply(GRAD, grad.dtype.value, self._spread(grad)),)
        factors = Temp(0, self.itemsize * prod(self.results))
        return self._factors(factors), self._apply(factors, self.wide, self.over(self.dense))

    # Strides

    def of(self, view: View, axes: Sequence[int]) -> list[int]:
        """Strides along some axes."""
        return [view.strides[a] for a in axes]

    def over(self, strides: Sequence[int]) -> list[int]:
        """Strides of one number for each result, along all axes of x."""
        found = dict(zip(self.stay, strides, strict=True))
        return [found.get(a, 0) for a in range(len(self.call.inputs[1].shape))]

    def _spread(self, view: View) -> list[int]:
        return self.over(self.of(view, self.places))

    def walk(self) -> GradientAxes:
        """Results, and what is behind each."""
        grad, x, norm = self.call.inputs
        dx, gone = self.call.outputs[0], sorted(self.axes)
        kept = collapse(
            self.results,
            [
                self.of(dx, self.stay), self.of(x, self.stay),
                self.of(grad, self.places), self.of(norm, self.places), self.dense,
            ],
        )  # fmt: skip
        swept = collapse([x.shape[a] for a in gone], [self.of(dx, gone), self.of(x, gone)])
        # A single element behind each result is no vector: then results go side by side, if they
        # lie so.
        along = all(s[-1] == 1 for s in swept.strides) and (
            swept.sizes[-1] > 1 or any(s[-1] != 1 for s in kept.strides[:2])
        )
        return GradientAxes(kept, swept, along)

    # Phases

    def config(
        self, stage: str, elements: Sequence[str], loops: Loops, walk: GradientAxes | None = None
    ) -> NormGradConfig:
        """What the code of a phase depends on."""
        kinds = tuple(inner_kind(s[-1]) for s in loops.strides)
        gone, along = (0, False) if walk is None else (walk.gone.rank, walk.along)
        return NormGradConfig(
            stage, self.rule, tuple(elements), kinds, loops.rank, self.wide, gone, along
        )

    def types(self, *views: View) -> tuple[str, ...]:
        """Names of elements."""
        return tuple(view.dtype.value for view in views)

    def streamed(self, loops: Loops) -> bool:
        """Whether dx, walked like this, is better stored past the caches."""
        dx = self.call.outputs[0]
        size, inner = dx.dtype.itemsize, loops.strides[0][-1] == 1
        lines = in_lines(loops, size) or loops.sizes[-1] * size >= _LONG
        return inner and lines and beyond_caches(self.call.target, dx.nbytes)

    def _exponent(self, value: float) -> dict[str, int]:
        return {"exponent": real_word(value)} if self.rule in ("above", "below") else {}

    def _factors(self, factors: Temp) -> Launch:
        grad, _, norm = self.call.inputs
        views = [self.of(v, self.places) for v in (grad, norm)]
        loops = collapse(self.results, [self.dense, *views])
        cut = partition(loops, _CHUNK // 4)
        config = self.config("factors", (self.wide, *self.types(grad, norm)), loops)
        integers = {**Nest.integers(loops, cut), **self._exponent(abs(self.call.op.p - 1))}
        return Launch(config, numbered((factors, GRAD, NORM)), integers, cut.chunks)

    def _apply(self, factor: Operand, element: str, strides: Sequence[int]) -> Launch:
        x, dx = self.call.inputs[1], self.call.outputs[0]
        loops = collapse(x.shape, [dx.strides, x.strides, strides])
        return self.over_x("apply", (Out(0), X, factor), (*self.types(dx, x), element), loops)

    def over_x(
        self,
        stage: str,
        operands: tuple[Operand, ...],
        elements: Sequence[str],
        loops: Loops,
        starts: Sequence[int] | None = None,
    ) -> Launch:
        """A phase that writes dx in the order of its memory."""
        cut = partition(loops, _CHUNK)
        config = self.config(stage, elements, loops)
        if self.streamed(loops):
            config = replace(config, streamed=True)
        integers = {**Nest.integers(loops, cut, starts), **self._exponent(self.call.op.p - 1)}
        return Launch(config, numbered(operands), integers, cut.chunks)


def dense(sizes: Sequence[int]) -> tuple[int, ...]:
    """Strides of these axes without gaps."""
    return tuple(prod(sizes[i + 1 :]) for i in range(len(sizes)))
