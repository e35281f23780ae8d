"""LayerNorm, GroupNorm and InstanceNorm: mean and variance in two sweeps, the result in a third.

    y = (x - mean) / sqrt(variance + epsilon) · scale + bias

One code serves both operators: what differs is which axes are swept, and along which axes scale
and bias repeat.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from saccade.backends.cpu.codegen import math
from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.backends.cpu.codegen.values import Vec
from saccade.kernels.base import In, Launch, Out, View, numbered
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
from saccade.opdefs.normalize import GroupNorm, LayerNorm

__all__ = ["GROUP_NORM", "LAYER_NORM", "NormConfig"]


@dataclass(frozen=True)
class NormConfig:
    """What the code depends on: the sweep, epsilon, and whether there is a bias."""

    sweep: SweepCode
    epsilon: float
    bias: bool


def _views(call: CpuCall) -> list[View]:
    return [call.outputs[0], *call.inputs]


def _layer_plan(call: CpuCall) -> SweepPlan:
    x, out = call.inputs[0], call.outputs[0]
    strides = [out.strides, x.strides, *(v.broadcast_to(x.shape).strides for v in call.inputs[1:])]
    return plan_sweep(x.shape, strides, _views(call), range(call.op.axis, len(x.shape)))


def _group_plan(call: CpuCall) -> SweepPlan:
    """The axis of channels is split into groups and the channels of one."""
    x, groups = call.inputs[0], call.op.groups
    n, channels, *space = x.shape
    inner = channels // groups if groups else 0

    def split(strides: Sequence[int]) -> list[int]:
        return [strides[0], strides[1] * inner, *strides[1:]]

    per_channel = [[0, v.strides[0], *(0 for _ in space)] for v in call.inputs[1:]]
    strides = [split(s) for s in (call.outputs[0].strides, x.strides, *per_channel)]
    shape = (n, groups, inner, *space)
    return plan_sweep(shape, strides, _views(call), range(2, len(shape)))


def _plan(call: CpuCall) -> SweepPlan:
    return _layer_plan(call) if isinstance(call.op, LayerNorm) else _group_plan(call)


def supports(call: CpuCall) -> str | None:
    """Why this kernel cannot take the call."""
    return refuse_types(_views(call), FLOATS) or refuse_repeats(call.outputs[0])


def launch(call: CpuCall) -> tuple[Launch, ...]:
    """One phase."""
    plan = _plan(call)
    config = NormConfig(plan.code, call.op.epsilon, len(call.inputs) == 3)
    operands = numbered((Out(0), *map(In, range(len(call.inputs)))))
    return (Launch(config, operands, plan.integers, plan.chunks),)


def emit(k: KernelBuilder, config: NormConfig) -> None:
    """The code of one configuration."""
    sweep = Sweep(k, config.sweep)
    sweep.declare_integers()

    def body(place: SweepPlace) -> None:
        count = place.count()
        # The mean first: squares of x minus that of the mean would cancel where the mean is large.
        mean = place.reduce(lambda step: step.load(1), "add") / count

        def square(step: SweepStep) -> Vec:
            centred = step.load(1) - mean
            return centred * centred

        variance = place.reduce(square, "add") / count
        # One division for each row, a product for each element.
        scale = 1.0 / math.sqrt(k, variance + config.epsilon)

        def finish(step: SweepStep) -> None:
            value = (step.load(1) - mean) * scale * step.load(2)
            step.store(0, value + step.load(3) if config.bias else value)

        place.each(finish)

    sweep.places(body)


def cost(call: CpuCall) -> float:
    """Microseconds: three sweeps, of which the last two read the cache."""
    x = call.inputs[0]
    nbytes = 2 * x.nbytes + call.outputs[0].nbytes
    return machine(call.target).roofline(16.0 * x.size, nbytes, call.threads, 0.5)


# y may take the memory of x: an element is stored when it has been read for the last time.
LAYER_NORM = CpuKernel(
    "normalize.layer",
    (LayerNorm,),
    NormConfig,
    supports,
    single_variant(launch, cost),
    emit,
    lambda _call: ((0, 0),),
)
GROUP_NORM = CpuKernel(
    "normalize.group",
    (GroupNorm,),
    NormConfig,
    supports,
    single_variant(launch, cost),
    emit,
    lambda _call: ((0, 0),),
)
