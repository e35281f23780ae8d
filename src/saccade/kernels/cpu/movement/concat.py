"""`Concat` by copies: one phase per operand, each into its slice of the result."""

from __future__ import annotations

from saccade.kernels.base import In, Launch, Out
from saccade.kernels.cpu.base import CpuCall, CpuKernel, single_variant
from saccade.kernels.cpu.machine import beyond_caches
from saccade.kernels.cpu.movement.copy import copy_cost, refuse_views
from saccade.kernels.cpu.movement.copy_code import CopyConfig, copy_launch, copy_way, emit_copy
from saccade.opdefs.movement import Concat

__all__ = ["CONCAT"]


def supports(call: CpuCall) -> str | None:
    """Why this kernel cannot take the call."""
    return refuse_views(call)


def launch(call: CpuCall) -> tuple[Launch, ...]:
    """One phase per operand."""
    out, axis = call.outputs[0], call.op.axis
    # What the caches hold until it is read is all of the result, not a slice of it.
    far = beyond_caches(call.target, out.nbytes)
    phases, start = [], 0
    for index, view in enumerate(call.inputs):
        phases.append(
            copy_launch(
                view.shape, out.strides, view.strides, out.dtype.itemsize, (Out(0), In(index)),
                starts=(start, 0), lanes=call.target.lanes, threads=call.threads, far=far,
            )
        )  # fmt: skip
        start += view.shape[axis] * out.strides[axis]
    return tuple(phases)


def cost(call: CpuCall) -> float:
    """Microseconds, by bytes moved."""
    out, itemsize = call.outputs[0], call.outputs[0].dtype.itemsize
    return sum(
        copy_cost(call, copy_way(v.shape, out.strides, v.strides, itemsize), v.size, itemsize)
        for v in call.inputs
    )


CONCAT = CpuKernel(
    "movement.concat", (Concat,), CopyConfig, supports, single_variant(launch, cost), emit_copy
)
