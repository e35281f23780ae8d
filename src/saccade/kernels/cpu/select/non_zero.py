"""`NonZero`: elements are counted block by block, then each block writes the places of its own.

Three phases: numbers of elements that are not zero, a chunk for each block; where the places of
each block begin, one chunk; the places, and zeros behind the last one. Of a single block, one
phase. Any element type, row-major.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr
from saccade.backends.cpu.codegen.values import Bool, Int
from saccade.kernels.base import In, Launch, Operand, Out, Temp
from saccade.kernels.cpu.base import CpuCall, CpuKernel, single_variant
from saccade.kernels.cpu.machine import machine
from saccade.kernels.cpu.movement.copy_code import ELEMENT
from saccade.kernels.cpu.nms.classes_rows import emit_places
from saccade.kernels.cpu.refusals import refuse_gaps
from saccade.opdefs.select import NonZero

__all__ = ["NON_ZERO", "NonZeroConfig"]

_BLOCK = 4096  # elements of a chunk
_COUNTS, _STARTS = range(2)


@dataclass(frozen=True)
class NonZeroConfig:
    """The code of one phase.

    Attributes:
        phase: "count", "places" (where those of each block begin) or "write"; "whole" does all.
        itemsize: Bytes of an element.
        rank: Axes.
        real: Whether elements are floating-point numbers, whose sign does not tell a zero.
    """

    phase: str
    itemsize: int = 1
    rank: int = 1
    real: bool = False


def supports(call: CpuCall) -> str | None:
    """Why this kernel cannot take the call."""
    return refuse_gaps((*call.inputs, *call.outputs))


def launch(call: CpuCall) -> tuple[Launch, ...]:
    """Counts, where blocks begin, places; all at once of a single block."""
    x, rows = call.inputs[0], call.outputs[0].shape[1]
    blocks = -(-x.size // _BLOCK)
    if max(x.size, rows) <= _BLOCK:
        whole = NonZeroConfig("whole", x.dtype.itemsize, len(x.shape), x.dtype.is_float)
        operands: dict[str, Operand] = {"x": In(0), "total": Out(1), "to": Out(0)}
        return (Launch(whole, operands, {"size": x.size, "rows": rows, "sizes": x.shape}, 1),)
    counts, starts = (Temp(i, 8 * max(blocks, 1)) for i in (_COUNTS, _STARTS))
    found: dict[str, Operand] = {"counts": counts, "starts": starts, "total": Out(1)}
    count = NonZeroConfig("count", x.dtype.itemsize, len(x.shape), x.dtype.is_float)
    return (
        Launch(count, {"x": In(0), "counts": counts}, {"size": x.size}, blocks),
        Launch(NonZeroConfig("places"), found, {"runs": blocks}, 1),
        Launch(
            replace(count, phase="write"),
            {"x": In(0), **found, "to": Out(0)},
            {"size": x.size, "rows": rows, "blocks": max(blocks, -(-rows // _BLOCK)),
             "full": blocks, "sizes": x.shape},
            max(blocks, -(-rows // _BLOCK)),
        ),
    )  # fmt: skip


def emit(k: KernelBuilder, config: NonZeroConfig) -> None:
    """The code of one phase."""
    if config.phase == "places":
        emit_places(k)
    elif config.phase == "count":
        _emit_counts(k, config)
    elif config.phase == "whole":
        _emit_whole(k, config)
    else:
        _emit_writes(k, config)


def _there(config: NonZeroConfig, x: Ptr, at: Int) -> Bool:
    bits = x.load_int(at)
    # Both zeros of floating-point numbers are zero.
    return (bits & ((1 << (8 * config.itemsize - 1)) - 1) if config.real else bits).differs(0)


def _emit_counts(k: KernelBuilder, config: NonZeroConfig) -> None:
    x, counts = k.pointer("x", ELEMENT[config.itemsize]), k.pointer("counts", "int64")
    size = k.integer("size")
    with k.chunks((size + (_BLOCK - 1)) // _BLOCK) as block:
        count = k.var(0)
        with k.range(block * _BLOCK, k.minimum_int((block + 1) * _BLOCK, size)) as i:
            count.set(count.get() + _there(config, x, i).select(1, 0))
        counts.store_int(count.get(), block)


def _emit_whole(k: KernelBuilder, config: NonZeroConfig) -> None:
    x = k.pointer("x", ELEMENT[config.itemsize])
    total, to = k.pointer("total", "int64"), k.pointer("to", "int64")
    size, rows = k.integers("size rows")
    sizes = k.array("sizes", config.rank)
    with k.chunks(k.int(1)):
        at = k.var(0)
        with k.range(0, size) as i, k.when(_there(config, x, i)):
            _emit_place(to, i, at.get(), rows, sizes)
            at.set(at.get() + 1)
        total.store_int(at.get())
        _emit_zeros(k, to, at.get(), rows, rows, config.rank)


def _emit_place(to: Ptr, i: Int, at: Int, rows: Int, sizes: Sequence[Int]) -> None:
    """Where element `i` is, along each axis."""
    rest = i
    for axis in reversed(range(len(sizes))):
        place = rest % sizes[axis] if axis else rest
        to.store_int(place, at + rows * axis)
        rest = rest // sizes[axis] if axis else rest


def _emit_zeros(k: KernelBuilder, to: Ptr, start: Int, end: Int, rows: Int, rank: int) -> None:
    with k.range(start, end) as i:
        for axis in range(rank):
            to.store_int(0, i + rows * axis)


def _emit_writes(k: KernelBuilder, config: NonZeroConfig) -> None:
    x = k.pointer("x", ELEMENT[config.itemsize])
    names = ("counts", "starts", "total", "to")
    counts, starts, total, to = (k.pointer(n, "int64") for n in names)
    size, rows, blocks, full = k.integers("size rows blocks full")
    sizes = k.array("sizes", config.rank)
    with k.chunks(blocks) as block:
        low = block * _BLOCK
        with k.when(block < full), k.when(counts.load_int(block) > 0):
            at = k.var(starts.load_int(block))
            end = k.minimum_int(low + _BLOCK, size)
            with k.range(low, end) as i, k.when(_there(config, x, i)):
                _emit_place(to, i, at.get(), rows, sizes)
                at.set(at.get() + 1)
        # Zeros where no block has written: of this block's share of the room.
        end = k.minimum_int(low + _BLOCK, rows)
        _emit_zeros(k, to, k.maximum_int(low, total.load_int()), end, rows, config.rank)


def cost(call: CpuCall) -> float:
    """Microseconds: each element is looked at twice, one at a time; zeros fill the room."""
    x, places = call.inputs[0], call.outputs[0]
    m = machine(call.target)
    return m.roofline(48.0 * x.size, 2 * x.nbytes + places.nbytes, call.threads, 0.5)


NON_ZERO = CpuKernel(
    "select.non_zero", (NonZero,), NonZeroConfig, supports, single_variant(launch, cost), emit
)
