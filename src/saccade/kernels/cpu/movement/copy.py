"""`Move`: an index map between any two stored arrays, as one strided copy.

Reorders are moves too: with the identity map, between differently stored operand and result. So is
a `BitCast` whose operand and result are, which a view cannot be.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from saccade.ir import IndexMap
from saccade.kernels.base import In, Launch, Out, View
from saccade.kernels.cpu.base import CpuCall, CpuKernel, single_variant
from saccade.kernels.cpu.machine import beyond_caches, machine
from saccade.kernels.cpu.movement.copy_code import CopyConfig, copy_launch, copy_way, emit_copy
from saccade.kernels.cpu.movement.copy_transposed import MICROS
from saccade.kernels.cpu.refusals import refuse_repeats
from saccade.opdefs.bits import BitCast
from saccade.opdefs.movement import Concat, Move

__all__ = ["COPY", "copy_cost", "map_strides", "refuse_views"]

_ITEMSIZES = (1, 2, 4, 8)  # bytes


def _factor_strides(groups: Sequence[Sequence[Any]], strides: Sequence[int]) -> list[int]:
    """Stride of each factor of axes that are split row-major."""
    found: list[int] = []
    for sizes, stride in zip(groups, strides, strict=True):
        steps, step = [], stride
        for size in reversed(sizes):
            steps.append(step)
            step *= size
        found.extend(reversed(steps))
    return found


def map_strides(
    index_map: IndexMap, source: View, result: View
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], int]:
    """A bound map as a copy: sizes, strides in result and source, first element of the source."""
    factors: Any = index_map.factors
    out_groups = [[f.size for f in axis] for axis in index_map.out_axes]
    to = _factor_strides(out_groups, result.strides)
    origin = _factor_strides(index_map.in_factors, source.strides)
    start = sum(f.start * origin[f.source] for f in factors if f.source is not None)
    # A factor without a source repeats what is there.
    steps = tuple(0 if f.source is None else f.step * origin[f.source] for f in factors)
    return tuple(f.size for f in factors), tuple(to), steps, start


def refuse_views(call: CpuCall) -> str | None:
    """Why views cannot be copied between, or None."""
    out = call.outputs[0]
    data = call.inputs if isinstance(call.op, Concat) else call.inputs[:1]
    if any(view.dtype is not out.dtype for view in data):
        return "a change of element type"
    if out.dtype.itemsize not in _ITEMSIZES:
        return f"elements of {out.dtype.itemsize} bytes"
    return refuse_repeats(out)


def supports(call: CpuCall) -> str | None:
    """Why this kernel cannot take the call."""
    if isinstance(call.op, BitCast):
        return refuse_repeats(call.outputs[0])
    return refuse_views(call)


def _strides(call: CpuCall) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], int]:
    """As `map_strides`; bits of another type stay where they are."""
    source, out = call.inputs[0], call.outputs[0]
    if isinstance(call.op, BitCast):
        return out.shape, out.strides, source.strides, 0
    return map_strides(call.op.map, source, out)


def launch(call: CpuCall) -> tuple[Launch, ...]:
    """One phase."""
    out = call.outputs[0]
    sizes, to, steps, start = _strides(call)
    return (
        copy_launch(
            sizes, to, steps, out.dtype.itemsize, (Out(0), In(0)), starts=(0, start),
            lanes=call.target.lanes, threads=call.threads,
            far=beyond_caches(call.target, out.nbytes),
        ),
    )  # fmt: skip


# Microseconds of one core for 1000 elements beside their traffic, as measured on a Zen 4 core.
_SLOWNESS = {"scalar": 1.0, "transpose": MICROS, "interleave": 0.15, "deinterleave": 0.02}


def copy_cost(call: CpuCall, way: str, size: int, itemsize: int) -> float:
    """Microseconds to read and write `size` elements."""
    m = machine(call.target)
    work = _SLOWNESS.get(way, 0.0) * size / 1000 / call.threads
    return m.step + work + m.traffic(2 * size * itemsize, call.threads)


def cost(call: CpuCall) -> float:
    """Microseconds, by bytes moved."""
    out = call.outputs[0]
    sizes, to, steps, _ = _strides(call)
    itemsize = out.dtype.itemsize
    return copy_cost(call, copy_way(sizes, to, steps, itemsize), out.size, itemsize)


COPY = CpuKernel(
    "movement.copy", (Move, BitCast), CopyConfig, supports, single_variant(launch, cost), emit_copy
)
