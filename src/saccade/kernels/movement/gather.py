"""`Gather`: slices of an array by index, for operands of any strides.

Rows that share their index are copied whole; where the innermost axis is one of the indices',
element by element. An index beyond the axis is clamped to its ends, so nothing outside the operand
is ever read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from saccade.codegen.language import Kernel, Ptr
from saccade.codegen.values import Int
from saccade.ir import DType
from saccade.kernels.base import Call, CpuKernel, In, Launch, Out, one_way
from saccade.kernels.movement.copy import ELEMENT, CopyConfig, emit_row
from saccade.kernels.movement.move import copy_cost, refuse_views
from saccade.kernels.movement.strided import Loops, Nest, collapse, inner_kind, partition
from saccade.opdefs.movement import Gather

__all__ = ["GATHER", "GatherConfig"]


@dataclass(frozen=True)
class GatherConfig:
    """What the code depends on.

    Attributes:
        itemsize: Bytes of an element.
        index: Element type of the indices.
        rank: Axes after collapsing.
        whole: Whether rows are contiguous in operand and result and share their index.
    """

    itemsize: int
    index: str
    rank: int
    whole: bool


def supports(call: Call) -> str | None:
    """Why this kernel cannot take the call."""
    data, indices = call.inputs
    if indices.dtype not in (DType.I64, DType.I32):
        return f"indices of type {indices.dtype.value}"
    if data.shape[call.op.axis] == 0 and call.outputs[0].size:
        return "slices of an empty axis"
    return refuse_views(call)


def _loops(call: Call) -> Loops:
    data, indices = call.inputs
    out, axis, count = call.outputs[0], call.op.axis, len(indices.shape)
    from_data = (*data.strides[:axis], *(0,) * count, *data.strides[axis + 1 :])
    from_indices = (
        *(0,) * axis, *indices.strides, *(0,) * (len(data.shape) - axis - 1)
    )  # fmt: skip
    return collapse(out.shape, [out.strides, from_data, from_indices])


def launch(call: Call) -> tuple[Launch, ...]:
    """One phase."""
    data, loops = call.inputs[0], _loops(call)
    to, source, index = (inner_kind(s[-1]) for s in loops.strides)
    # A single element per row has kind `unit` everywhere: its index is then read with it.
    whole = to == source == "unit" and index == "zero"
    itemsize = data.dtype.itemsize
    config = GatherConfig(itemsize, call.inputs[1].dtype.value, loops.rank, whole)
    cut = partition(loops, max(4096, -(-call.outputs[0].size // (8 * call.threads))))
    axis = call.op.axis
    integers = (*Nest.integers(loops, cut), data.shape[axis], data.strides[axis])
    return (Launch(config, (Out(0), In(0), In(1)), integers, cut.chunks),)


def emit(k: Kernel, config: GatherConfig) -> None:
    """The code of one configuration."""
    to, data = (k.pointer(name, ELEMENT[config.itemsize]) for name in ("to", "data"))
    indices = k.pointer("indices", config.index)
    nest = Nest(k, config.rank, 3)
    size, step = k.integers("size step")
    vector = 4 * k.lanes // config.itemsize
    with nest.walk() as row:
        at, origin, where = row.offsets
        if config.whole:
            origin = origin + _index(k, indices, where, size) * step
            moved = replace(row, offsets=(at, origin))
            emit_row(k, to, data, moved, CopyConfig("rows", config.itemsize, 1), vector)
            return
        with k.range(row.low, row.high) as i:
            a, o, w = (r + s[-1] * i for r, s in zip(row.offsets, nest.strides, strict=True))
            to.store(data.load(o + _index(k, indices, w, size) * step), a)


def _index(k: Kernel, indices: Ptr, at: Int, size: Int) -> Int:
    """The index, counted from the end where negative, clamped to the axis."""
    index = indices.load_int(at)
    index = (index < 0).select(index + size, index)
    return k.minimum_int(k.maximum_int(index, 0), size - 1)


def cost(call: Call) -> float:
    """Microseconds, by bytes moved."""
    out = call.outputs[0]
    kinds = [inner_kind(s[-1]) for s in _loops(call).strides]
    way = "rows" if kinds == ["unit", "unit", "zero"] else "scalar"
    return copy_cost(call, way, out.size, out.dtype.itemsize)


GATHER = CpuKernel(
    "movement.gather", (Gather,), GatherConfig, supports, one_way(launch, cost), emit
)
