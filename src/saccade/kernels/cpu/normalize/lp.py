"""LpNormalization: every element over the p-norm of its row, p = 1 or 2.

    y = x / norm,  0 where the norm is 0

Two sweeps: the second one finds its row in the cache.
"""

from __future__ import annotations

from dataclasses import dataclass

from saccade.backends.cpu.codegen import math
from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.backends.cpu.codegen.values import Vec
from saccade.kernels.base import In, Launch, Out, numbered
from saccade.kernels.cpu.base import CpuCall, CpuKernel, single_variant
from saccade.kernels.cpu.machine import machine
from saccade.kernels.cpu.normalize.axis_sweep import (
    Sweep,
    SweepCode,
    SweepPlace,
    SweepStep,
    plan_sweep,
)
from saccade.kernels.cpu.pointwise.vector_elements import FLOATS
from saccade.kernels.cpu.refusals import refuse_repeats, refuse_types
from saccade.opdefs.normalize import LpNormalize

__all__ = ["LP_NORMALIZE", "LpNormalizeConfig"]


@dataclass(frozen=True)
class LpNormalizeConfig:
    """What the code depends on: the sweep and the power."""

    sweep: SweepCode
    p: int


def supports(call: CpuCall) -> str | None:
    """Why this kernel cannot take the call."""
    x, out = call.inputs[0], call.outputs[0]
    return refuse_types((x, out), FLOATS) or refuse_repeats(out)


def launch(call: CpuCall) -> tuple[Launch, ...]:
    """One phase."""
    x, out = call.inputs[0], call.outputs[0]
    plan = plan_sweep(x.shape, [out.strides, x.strides], [out, x], (call.op.axis,))
    config = LpNormalizeConfig(plan.code, call.op.p)
    return (Launch(config, numbered((Out(0), In(0))), plan.integers, plan.chunks),)


def emit(k: KernelBuilder, config: LpNormalizeConfig) -> None:
    """The code of one configuration."""
    sweep = Sweep(k, config.sweep)
    sweep.declare_integers()

    def size(step: SweepStep) -> Vec:
        x = step.load(1)
        return math.absolute(k, x) if config.p == 1 else x * x

    def body(place: SweepPlace) -> None:
        total = place.reduce(size, "add")
        norm = total if config.p == 1 else math.sqrt(k, total)
        # Over 1 where all are zero: zeros stay.
        norm = norm.compare("==", 0.0).select(norm.like(1.0), norm)
        place.each(lambda step: step.store(0, step.load(1) / norm))

    sweep.places(body)


def cost(call: CpuCall) -> float:
    """Microseconds: two sweeps, of which the second reads the cache."""
    x = call.inputs[0]
    nbytes = 2 * x.nbytes + call.outputs[0].nbytes
    return machine(call.target).roofline(8.0 * x.size, nbytes, call.threads, 0.5)


# y may take the memory of x: an element is stored when it has been read for the last time.
LP_NORMALIZE = CpuKernel(
    "normalize.lp",
    (LpNormalize,),
    LpNormalizeConfig,
    supports,
    single_variant(launch, cost),
    emit,
    lambda _call: ((0, 0),),
)
