"""`ScatterRows`: a copy of the data, then updates in their order, a share of the columns a chunk.

What several updates do to one row they do one after the other in each chunk, so that any number of
threads gives the same result. Any element type where rows are replaced; float32, halves, int32 and
int64 where they are combined.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr
from saccade.backends.cpu.codegen.values import Int, Mask, Vec
from saccade.ir import DType
from saccade.kernels.base import In, Launch, Operand, Out
from saccade.kernels.cpu import floats
from saccade.kernels.cpu.base import CpuCall, CpuKernel, single_variant
from saccade.kernels.cpu.movement.copy import copy_cost
from saccade.kernels.cpu.movement.copy_code import ELEMENT
from saccade.kernels.cpu.refusals import refuse_gaps, refuse_other_types, refuse_types
from saccade.opdefs.scatter import ScatterRows

__all__ = ["SCATTER", "ScatterConfig"]

_BYTES = 1 << 15  # of a chunk of the copy
_COLUMNS = 512  # of a chunk of the updates
_COMBINED = {DType.F32, DType.F16, DType.BF16, DType.I32, DType.I64}


@dataclass(frozen=True)
class ScatterConfig:
    """The code of one phase.

    Attributes:
        phase: "copy" or "update".
        element: Element type; of as many bytes where rows are replaced.
        reduction: Of the operator.
    """

    phase: str
    element: str
    reduction: str = "none"


def supports(call: CpuCall) -> str | None:
    """Why this kernel cannot take the call."""
    moved = (call.inputs[0], call.inputs[2], call.outputs[0])
    refused = refuse_gaps((*call.inputs, *call.outputs)) or refuse_other_types(moved)
    if refused is None and call.op.reduction != "none":
        return refuse_types(call.inputs[:1], _COMBINED)
    return refused


def launch(call: CpuCall) -> tuple[Launch, ...]:
    """A copy, then updates."""
    data, updates = call.inputs[0], call.inputs[2]
    rows, columns = data.shape
    raw = ELEMENT[data.dtype.itemsize]
    count = _BYTES // data.dtype.itemsize
    element = raw if call.op.reduction == "none" else data.dtype.value
    operands: dict[str, Operand] = {"to": Out(0), "indices": In(1), "updates": In(2)}
    integers = {"rows": rows, "columns": columns, "count": updates.shape[0]}
    return (
        Launch(
            ScatterConfig("copy", raw),
            {"to": Out(0), "data": In(0)},
            {"size": data.size, "count": count},
            -(-data.size // count),
        ),
        Launch(
            ScatterConfig("update", element, call.op.reduction),
            operands,
            integers,
            -(-columns // _COLUMNS) if updates.shape[0] else 0,
        ),
    )


def emit(k: KernelBuilder, config: ScatterConfig) -> None:
    """The code of one phase."""
    (_emit_copy if config.phase == "copy" else _emit_updates)(k, config)


def _emit_copy(k: KernelBuilder, config: ScatterConfig) -> None:
    to, data = (k.pointer(n, config.element) for n in ("to", "data"))
    size, count = k.integers("size count")
    with k.chunks((size + (count - 1)) // count) as chunk:
        low = chunk * count
        with _vectors(k, low, k.minimum_int(low + count, size)) as (at, mask):
            to.store(data.vec(at, mask, k.lanes), at, mask)


@contextmanager
def _vectors(k: KernelBuilder, low: Int, high: Int) -> Iterator[tuple[Int, Mask]]:
    """Places of vectors from `low` on, and which of their lanes are below `high`."""
    with k.range(low, high, k.lanes) as at:
        yield at, k.first(k.minimum_int(high - at, k.lanes))


def _emit_updates(k: KernelBuilder, config: ScatterConfig) -> None:
    to = k.pointer("to", config.element)
    indices = k.pointer("indices", "int64")
    updates = k.pointer("updates", config.element)
    rows, columns, count = k.integers("rows columns count")
    with k.chunks((columns + (_COLUMNS - 1)) // _COLUMNS) as chunk:
        low = chunk * _COLUMNS
        high = k.minimum_int(low + _COLUMNS, columns)
        with k.range(0, count) as update:
            index = indices.load_int(update)
            with k.when((index >= 0) & (index < rows)):
                row, new = to + index * columns, updates + update * columns
                with _vectors(k, low, high) as (at, mask):
                    _update(k, config, row, new, at, mask)


def _update(
    k: KernelBuilder, config: ScatterConfig, row: Ptr, new: Ptr, at: Int, mask: Mask
) -> None:
    if config.reduction == "none":
        row.store(new.vec(at, mask, k.lanes), at, mask)
    elif DType(config.element).is_float:
        old, update = (floats.load(k, p, at, k.lanes, "float32", mask) for p in (row, new))
        floats.store(k, row, _combined(k, config, old, update), at, mask)
    else:
        old, update = row.vec(at, mask, k.lanes), new.vec(at, mask, k.lanes)
        row.store(_combined(k, config, old, update), at, mask)


def _combined(k: KernelBuilder, config: ScatterConfig, old: Vec, new: Vec) -> Vec:
    real, b = DType(config.element).is_float, k.b
    if config.reduction in ("add", "mul"):
        emit_one = getattr(b, ("f" if real else "") + config.reduction)
        return Vec(b, emit_one(old.value, new.value))
    sign = "<" if config.reduction == "min" else ">"
    if real:
        # What is no number stays, from either side.
        better = new.compare(sign, old) | new.compare("!=", new)
        return (better & ~old.compare("!=", old)).select(new, old)
    return Vec(b, b.select(b.icmp_signed(sign, new.value, old.value), new.value, old.value))


def cost(call: CpuCall) -> float:
    """Microseconds, by bytes moved: the copy, and rows that are read and written anew."""
    out, updates = call.outputs[0], call.inputs[2]
    return copy_cost(call, "rows", out.size + updates.size, out.dtype.itemsize)


SCATTER = CpuKernel(
    "movement.scatter", (ScatterRows,), ScatterConfig, supports, single_variant(launch, cost), emit
)
