"""What a plan cannot be faster than, by the speeds of the machine that it was made for."""

from __future__ import annotations

from dataclasses import dataclass

from saccade.ir import DType
from saccade.kernels.machine import Machine
from saccade.plan.types import Plan, Step

__all__ = ["Floor", "floor", "peak"]


_NARROW = {DType.BF16, DType.F16}


@dataclass(frozen=True, slots=True)
class Floor:
    """Microseconds that a run takes at least.

    Attributes:
        arithmetic: The operators' own operations (valid taps only) at the peak of every core, or
            those of an algorithm that needs fewer (`Step.least_flops`).
        memory: Inputs, outputs and weights as they are packed, each moved once; values in between
            may stay in cache.
        barriers: Phases that do nothing.
    """

    arithmetic: float
    memory: float
    barriers: float

    @property
    def total(self) -> float:
        """The larger of arithmetic and memory, and the barriers."""
        return max(self.arithmetic, self.memory) + self.barriers


def floor(plan: Plan, speeds: Machine | None = None) -> Floor:
    """The floor of a plan at given speeds, else at those of the machine that it was made for."""
    speeds = speeds or plan.speeds
    moved = sum(port.nbytes for port in (*plan.inputs, *plan.outputs))
    # What was only packed from is not read by a run.
    read = zip(plan.constants, plan.constants_read, strict=True)
    moved += sum(constant.nbytes for constant, used in read if used)
    phases = sum(len(step.phases) for step in plan.steps)
    arithmetic = sum(_arithmetic(step, speeds, plan.exact) for step in plan.steps)
    # Operations are counted for one core, bandwidth is that of all.
    return Floor(arithmetic / plan.threads, moved / speeds.bandwidth, phases * speeds.step)


def peak(step: Step, speeds: Machine) -> float:
    """Operations per microsecond that one core reaches at most: more for products of 16 bits."""
    # Products may be made in the type of either end: a floor takes the faster one.
    ends = {slot.view.dtype for slot in (*step.inputs[:1], *step.outputs[:1])}
    return speeds.pair_flops if step.op.contracts and ends & _NARROW else speeds.flops


def _arithmetic(step: Step, speeds: Machine, exact: bool) -> float:
    """Microseconds of one core for a step at least."""
    least = step.work.flops / peak(step, speeds)
    if step.least_flops is not None and not exact:  # in float32
        least = min(least, step.least_flops / speeds.flops)
    return least
