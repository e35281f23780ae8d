"""Softmax and its logarithm along any axis of any storage.

    y = exp(x - max) / Σ exp(x - max)        log: y = x - max - log Σ exp(x - max)

Three sweeps of a row that stays in the L1 cache; see `normalize.axis_sweep` for how
vectors go.
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
    SweepPlan,
    SweepStep,
    plan_sweep,
)
from saccade.kernels.cpu.pointwise.vector_elements import FLOATS
from saccade.kernels.cpu.refusals import refuse_repeats, refuse_types
from saccade.opdefs.reduce import Softmax

__all__ = ["SOFTMAX", "SoftmaxConfig"]


@dataclass(frozen=True)
class SoftmaxConfig:
    """What the code depends on: the sweep, and whether the logarithm is wanted."""

    sweep: SweepCode
    log: bool


def _plan(call: CpuCall) -> SweepPlan:
    x, out = call.inputs[0], call.outputs[0]
    return plan_sweep(x.shape, [out.strides, x.strides], [out, x], [call.op.axis])


def supports(call: CpuCall) -> str | None:
    """Why this kernel cannot take the call."""
    x, out = call.inputs[0], call.outputs[0]
    return refuse_types((x, out), FLOATS) or refuse_repeats(out)


def launch(call: CpuCall) -> tuple[Launch, ...]:
    """One phase."""
    plan = _plan(call)
    config = SoftmaxConfig(plan.code, call.op.log)
    return (Launch(config, numbered((Out(0), In(0))), plan.integers, plan.chunks),)


def emit(k: KernelBuilder, config: SoftmaxConfig) -> None:
    """The code of one configuration."""
    sweep = Sweep(k, config.sweep)
    sweep.declare_integers()
    # Powers wait in the result where it holds them exactly; elsewhere they are computed twice.
    kept = not config.log and config.sweep.elements[0] == "float32"

    def body(place: SweepPlace) -> None:
        # No power exceeds 1, and one is 1: the sum neither overflows nor vanishes.
        top = place.reduce(lambda step: step.load(1), "max")

        def power(step: SweepStep) -> Vec:
            value = math.exp(k, step.load(1) - top)
            if kept:
                step.store(0, value)
            return value

        total = place.reduce(power, "add")
        shift, scale = math.log(k, total), 1.0 / total

        def finish(step: SweepStep) -> None:
            if config.log:
                step.store(0, step.load(1) - top - shift)
            elif kept:
                step.store(0, step.load(0) * scale)
            else:
                step.store(0, math.exp(k, step.load(1) - top) * scale)

        place.each(finish)

    sweep.places(body)


def cost(call: CpuCall) -> float:
    """Microseconds: an exponential and three sweeps."""
    x, out = call.inputs[0], call.outputs[0]
    slow = (
        1.0
        if "strided" not in _plan(call).code.kept_kinds or _plan(call).code.way == "along"
        else 4.0
    )
    return machine(call.target).roofline(
        30.0 * slow * x.size, x.nbytes + out.nbytes, call.threads, 0.5
    )


# y may take the memory of x: once powers lie there x is not read any more.
SOFTMAX = CpuKernel(
    "softmax.direct",
    (Softmax,),
    SoftmaxConfig,
    supports,
    single_variant(launch, cost),
    emit,
    lambda _call: ((0, 0),),
)
