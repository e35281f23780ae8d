"""`Gather` and `GatherNd`: slices of an array by indices, for operands of any strides.

Rows that share their indices are copied whole; where the innermost axis is one of the indices',
element by element. An index beyond its axis is clamped to its ends, so nothing outside the operand
is ever read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr
from saccade.backends.cpu.codegen.values import Int
from saccade.backends.fusions import GatheredPointwise, counted_axes
from saccade.ir import DType
from saccade.ir.expr import IDENTITY
from saccade.kernels.base import In, Launch, Operand, Out
from saccade.kernels.cpu.base import CpuCall, CpuKernel, single_variant
from saccade.kernels.cpu.movement.copy import copy_cost, refuse_views
from saccade.kernels.cpu.movement.copy_code import ELEMENT, CopyConfig, emit_row
from saccade.kernels.cpu.movement.loop_nest import Loops, Nest, collapse, inner_kind, partition
from saccade.opdefs.movement import Gather, GatherNd

__all__ = ["GATHER", "GatherConfig"]


@dataclass(frozen=True)
class GatherConfig:
    """What the code depends on.

    Attributes:
        itemsize: Bytes of an element.
        index: Element type of the indices.
        rank: Axes after collapsing.
        whole: Whether rows are contiguous in operand and result and share their indices.
        depth: How many indices one slice has.
        counted: Axes after collapsing that operands say the length of, in their order.
    """

    itemsize: int
    index: str
    rank: int
    whole: bool
    depth: int = 1
    counted: tuple[int, ...] = ()


def supports(call: CpuCall) -> str | None:
    """Why this kernel cannot take the call."""
    data, indices, op = call.inputs[0], call.inputs[1], call.op
    if isinstance(op, GatheredPointwise):
        (pick, *others), kind = op.picks, call.outputs[0].dtype
        if others or pick[0] < 0 or op.expr != IDENTITY or data.dtype is not kind:
            return "arithmetic on slices"
    if indices.dtype not in (DType.I64, DType.I32):
        return f"indices of type {indices.dtype.value}"
    # An index cannot be clamped to an axis that has no elements.
    if 0 in data.shape and call.outputs[0].size:
        return "slices of an empty axis"
    return refuse_views(call)


def _axes(call: CpuCall) -> tuple[int, int, int]:
    """The first axis of the data that indices replace, how many they are, and axes shared."""
    if isinstance(call.op, Gather):
        return call.op.axis, 1, 0
    if isinstance(call.op, GatheredPointwise):
        return call.op.picks[0][0], 1, 0
    return call.op.batch, call.inputs[1].shape[-1], call.op.batch


def _loops(call: CpuCall) -> Loops:
    data, indices = call.inputs[:2]
    axis, depth, shared = _axes(call)
    tuples = isinstance(call.op, GatherNd)
    chosen = indices.strides[shared:-1] if tuples else indices.strides[shared:]
    before, after = data.strides[:axis], data.strides[axis + depth :]
    from_data = (*before, *(0,) * len(chosen), *after)
    # Before its axis a `Gather` has axes that its indices know nothing of.
    from_indices = (
        *(indices.strides[:shared] if shared else (0,) * axis), *chosen, *(0,) * len(after)
    )  # fmt: skip
    out = call.outputs[0]
    return collapse(out.shape, [out.strides, from_data, from_indices], counted_axes(call.op))


def launch(call: CpuCall) -> tuple[Launch, ...]:
    """One phase."""
    data, loops = call.inputs[0], _loops(call)
    axis, depth, _ = _axes(call)
    to, source, index = (inner_kind(s[-1]) for s in loops.strides)
    # A single element per row has kind `unit` everywhere: its index is then read with it.
    whole = to == source == "unit" and index == "zero"
    itemsize = data.dtype.itemsize
    told = loops.places(counted_axes(call.op))
    config = GatherConfig(
        itemsize, call.inputs[1].dtype.value, loops.rank, whole, depth, tuple(told.values())
    )
    cut = partition(loops, max(4096, -(-call.outputs[0].size // (8 * call.threads))))
    between = call.inputs[1].strides[-1] if isinstance(call.op, GatherNd) else 0
    replaced = slice(axis, axis + depth)
    integers = {
        **Nest.integers(loops, cut),
        "axis_sizes": data.shape[replaced],
        "axis_strides": data.strides[replaced],
        "between": between,
    }
    operands: dict[str, Operand] = {"to": Out(0), "data": In(0), "indices": In(1)}
    operands |= {f"n{i}": In(2 + n) for i, n in enumerate(told)}
    return (Launch(config, operands, integers, cut.chunks),)


def emit(k: KernelBuilder, config: GatherConfig) -> None:
    """The code of one configuration."""
    to, data = (k.pointer(name, ELEMENT[config.itemsize]) for name in ("to", "data"))
    indices = k.pointer("indices", config.index)
    numbers = {axis: k.pointer(f"n{i}", "int64") for i, axis in enumerate(config.counted)}
    nest = Nest(k, config.rank, 3, numbers)
    slices = _Slices(k, indices, config.depth)
    vector = 4 * k.lanes // config.itemsize
    with nest.walk() as row:
        at, origin, where = row.offsets
        if config.whole:
            # The whole row has one index, which is read once.
            moved = replace(row, offsets=(at, origin + slices.start(where)))
            emit_row(k, to, data, moved, CopyConfig("rows", config.itemsize, 1), vector)
            return
        with k.range(row.low, row.high) as i:
            a, o, w = (r + s[-1] * i for r, s in zip(row.offsets, nest.strides, strict=True))
            to.store(data.load(o + slices.start(w)), a)


class _Slices:
    """Where slices begin; parameters: size and stride of each axis, and from index to index."""

    def __init__(self, k: KernelBuilder, indices: Ptr, depth: int) -> None:
        self.k, self.indices = k, indices
        self.sizes = k.array("axis_sizes", depth)
        self.steps = k.array("axis_strides", depth)
        self.between = k.integer("between")

    def start(self, at: Int) -> Int:
        """Of the slice whose first index is at a place."""
        found = self.k.int(0)
        for i, (size, step) in enumerate(zip(self.sizes, self.steps, strict=True)):
            found = found + self._index(at + self.between * i, size) * step
        return found

    def _index(self, at: Int, size: Int) -> Int:
        """An index, counted from the end where negative, clamped to the axis."""
        index = self.indices.load_int(at)
        index = (index < 0).select(index + size, index)
        return self.k.minimum_int(self.k.maximum_int(index, 0), size - 1)


def cost(call: CpuCall) -> float:
    """Microseconds, by bytes moved."""
    out = call.outputs[0]
    kinds = [inner_kind(s[-1]) for s in _loops(call).strides]
    way = "rows" if kinds == ["unit", "unit", "zero"] else "scalar"
    return copy_cost(call, way, out.size, out.dtype.itemsize)


GATHER = CpuKernel(
    "movement.gather",
    (Gather, GatherNd, GatheredPointwise),
    GatherConfig,
    supports,
    single_variant(launch, cost),
    emit,
)
