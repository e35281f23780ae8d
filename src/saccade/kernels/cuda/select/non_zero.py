"""`NonZero`: blocks of elements are counted, then each writes the places of its own.

    count       how many elements of each block are not zero
    write       where they are, behind those of the blocks before; zeros behind the last one

What one block holds is written at once. Floor: the bytes of the operand, twice, and of the places.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from saccade.kernels.base import In, Launch, Operand, Out, Temp, Variant
from saccade.kernels.cuda.base import CudaCall, CudaKernel, Entry, element_of
from saccade.kernels.cuda.machine import LAUNCH, stream_micros
from saccade.kernels.cuda.reduce.axis_loops import power_above
from saccade.kernels.cuda.refusals import refuse_extents, refuse_gaps
from saccade.opdefs import NonZero

__all__ = ["SELECT_NON_ZERO", "CudaNonZeroConfig"]

_BLOCK = 4096  # elements of a program, at most
_LEAST = 128  # elements, at least: fewer save nothing
_THREAD = 16  # elements of a thread


@dataclass(frozen=True)
class CudaNonZeroConfig:
    """What the code of one phase depends on.

    Attributes:
        phase: The Triton function.
        element: Of x.
        rank: Axes.
        block: Elements of a program.
        alone: Whether it is the only one, and nothing was counted before.
    """

    phase: str
    element: str
    rank: int
    block: int
    alone: bool


def _supports(call: CudaCall) -> str | None:
    room = call.outputs[0].size
    if max(call.inputs[0].size, room) >= (1 << 31) - _BLOCK:
        return "2^31 elements or more"
    return refuse_gaps((*call.inputs, *call.outputs)) or refuse_extents(call)


def _variants(call: CudaCall) -> Iterator[Variant]:
    x, places = call.inputs[0], call.outputs[0]
    launches = 1 if max(x.size, places.shape[1]) <= _BLOCK else 2
    moved = stream_micros(call, launches * x.nbytes + places.nbytes) - stream_micros(call, 0)
    yield Variant(LAUNCH * launches + moved, partial(_launches, call))


def _launches(call: CudaCall) -> tuple[Launch, ...]:
    x, rows = call.inputs[0], call.outputs[0].shape[1]
    most = max(x.size, rows)
    block = min(_BLOCK, max(_LEAST, power_above(most)))
    blocks, alone = max(1, -(-most // block)), most <= block
    rank, element = len(x.shape), element_of(x)
    counts = Temp(0, 4 * blocks)
    write = Launch(
        CudaNonZeroConfig("write", element, rank, block, alone),
        {"x": In(0), "counts": counts, "places": Out(0), "total": Out(1)},
        {"size": x.size, "rows": rows, "blocks": blocks,
         **{f"n{axis}": n for axis, n in enumerate(x.shape)}},
        blocks,
    )  # fmt: skip
    if alone:
        return (write,)
    operands: dict[str, Operand] = {"x": In(0), "counts": counts}
    config = CudaNonZeroConfig("count", element, 0, block, alone=False)
    return Launch(config, operands, {"size": x.size}, blocks), write


def _entry(config: CudaNonZeroConfig) -> Entry:
    pointers: tuple[tuple[str, str], ...] = (("x", config.element), ("counts", "i32"))
    integers: tuple[str, ...] = ("size",)
    constants: dict[str, int | bool] = {"BLOCK": config.block}
    if config.phase == "write":
        pointers = (*pointers, ("places", "i64"), ("total", "i64"))
        integers = (*integers, "rows", "blocks")
        constants |= {"RANK": config.rank, "ALONE": config.alone}
    return Entry(
        f"select.non_zero_code:{config.phase}",
        pointers,
        integers,
        constants,
        extra_integers=tuple(f"n{axis}" for axis in range(config.rank)),
        warps=max(1, config.block // (32 * _THREAD)),
    )


SELECT_NON_ZERO = CudaKernel(
    "select.non_zero", (NonZero,), CudaNonZeroConfig, _supports, _variants, _entry
)
