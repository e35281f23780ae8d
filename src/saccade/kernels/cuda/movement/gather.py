"""`Gather` and `GatherNd`: slices of an array by indices, for operands of any strides.

A walk over the result (`movement.walk_plan`), in vectors where the innermost axis is one of the
slices'. An index beyond its axis is clamped to its ends, so that nothing outside the operand is
ever read.

Floor: the bytes of the result twice, and of the indices.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from saccade.backends.cuda.codegen.expressions import TritonLines
from saccade.ir import DType
from saccade.kernels.base import In, Launch, Operand, Out, Variant
from saccade.kernels.cuda.base import CudaCall, CudaKernel, Entry, element_of
from saccade.kernels.cuda.movement.copy import raw_element, refuse_move
from saccade.kernels.cuda.movement.loop_axes import LoopAxes, collapsed, power_dividing
from saccade.kernels.cuda.movement.walk_plan import (
    Walk,
    WalkCode,
    vector_of,
    vector_walks,
    walk_variants,
)
from saccade.kernels.cuda.movement.walk_text import WalkText
from saccade.opdefs import Gather, GatherNd

__all__ = ["MOVEMENT_GATHER", "CudaGatherConfig"]


@dataclass(frozen=True)
class CudaGatherConfig:
    """What the code depends on.

    Attributes:
        itemsize: Bytes of an element.
        index: Element type of the indices, as Triton calls it.
        depth: How many indices one slice has.
        step: What the strides of the axes that they replace are multiples of.
        walk: How elements are found; operands are the result, the data and the indices.
    """

    itemsize: int
    index: str
    depth: int
    step: int
    walk: WalkCode


def _supports(call: CudaCall) -> str | None:
    data, indices = call.inputs
    if indices.dtype not in (DType.I64, DType.I32):
        return f"indices of type {indices.dtype.value}"
    if 0 in data.shape and call.outputs[0].size:
        return "slices of an empty axis"
    return refuse_move(call)


def _replaced(call: CudaCall) -> slice:
    """The axes of the data that indices replace."""
    op: Gather | GatherNd = call.op
    if isinstance(op, Gather):
        return slice(op.axis, op.axis + 1)
    return slice(op.batch, op.batch + call.inputs[1].shape[-1])


def _axes(call: CudaCall) -> LoopAxes:
    data, indices = call.inputs
    replaced = _replaced(call)
    before, after = data.strides[: replaced.start], data.strides[replaced.stop :]
    where: tuple[int, ...] = indices.strides
    if isinstance(call.op, GatherNd):
        where = where[:-1]
        chosen = len(where) - len(before)
    else:
        where = (*(0,) * len(before), *where)
        chosen = len(indices.strides)
    from_data = (*before, *(0,) * chosen, *after)
    from_indices = (*where, *(0,) * len(after))
    out = call.outputs[0]
    return collapsed(out.shape, (out.strides, from_data, from_indices))[0]


def _variants(call: CudaCall) -> Iterator[Variant]:
    out, axes = call.outputs[0], _axes(call)
    starts = (0, 0, 0)
    together = axes.strides[1][-1] == 1 and axes.strides[2][-1] == 0
    vector = vector_of(axes, (out.dtype.itemsize,), starts) if together else 1
    nbytes = 2 * out.nbytes + call.inputs[1].nbytes
    return walk_variants(call, vector_walks(axes, vector, starts), nbytes, _launch)


def _launch(call: CudaCall, way: Walk) -> Launch:
    data, indices = call.inputs
    replaced = _replaced(call)
    sizes, strides = data.shape[replaced], data.strides[replaced]
    step = power_dividing(strides, way.code.steps[1])
    config = CudaGatherConfig(data.dtype.itemsize, element_of(indices), len(sizes), step, way.code)
    integers = {f"x{d}": size for d, size in enumerate(sizes)}
    integers |= {f"g{d}": stride // step for d, stride in enumerate(strides)}
    integers["between"] = 0 if isinstance(call.op, Gather) else indices.strides[-1]
    operands: dict[str, Operand] = {"p0": Out(0), "p1": In(0), "p2": In(1)}
    return Launch(config, operands, {**way.integers, **way.ends, **integers}, way.programs)


def _entry(config: CudaGatherConfig) -> Entry:
    names = [f"{word}{d}" for word in "xg" for d in range(config.depth)]
    raw, lines = raw_element(config.itemsize), TritonLines({})
    text = WalkText(config.walk, (raw, raw, config.index), lines, (*names, "between"))
    where, data = text.base(2), text.base(1)
    for d in range(config.depth):
        place = f"{text.extra('p2')} + {where} + {d} * {text.extra('between')}"
        size = text.extra(f"x{d}")
        lines.add(f"j{d} = tl.load({place}, mask=mask, other=0)")
        lines.add(f"j{d} = tl.where(j{d} < 0, j{d} + {size}, j{d})")
        lines.add(f"j{d} = tl.minimum(tl.maximum(j{d}, 0), {size} - 1).to(tl.int32)")
    slices = " + ".join(f"j{d} * {text.extra(f'g{d}')}" for d in range(config.depth))
    lines.add(f"start = {data} + ({slices}) * {config.step}")
    lines.add(f"v1 = {text.load(1, 'start')}")
    text.store("v1")
    return text.entry()


MOVEMENT_GATHER = CudaKernel(
    "movement.gather", (Gather, GatherNd), CudaGatherConfig, _supports, _variants, _entry
)
