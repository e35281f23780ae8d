"""`PackedPlaces`: each place finds its list among all of them, whose numbers are few.

Floor: the bytes of the places, after one look at all numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from saccade.kernels.base import In, Launch, Operand, Out, Variant
from saccade.kernels.cuda.base import CudaCall, CudaKernel, Entry
from saccade.kernels.cuda.machine import LAUNCH, stream_micros
from saccade.kernels.cuda.refusals import refuse_extents, refuse_gaps
from saccade.opdefs import PackedPlaces

__all__ = ["SELECT_PACKED", "CudaPackedConfig"]

_MOST = 256  # lists, whose room is an integer of the launch each
_BLOCK = 256  # places of a program
_LIST = 0.02  # microseconds for each list that a program looks at (an estimate)


@dataclass(frozen=True)
class CudaPackedConfig:
    """What the code depends on.

    Attributes:
        lists: How many there are.
    """

    lists: int


def _supports(call: CudaCall) -> str | None:
    if not 1 <= len(call.op.room) <= _MOST:
        return f"not 1 to {_MOST} lists"
    if sum(call.op.room) >= 1 << 31:
        return "room for 2^31 elements or more"
    return refuse_gaps((*call.inputs, *call.outputs)) or refuse_extents(call)


def _variants(call: CudaCall) -> Iterator[Variant]:
    micros = LAUNCH + _LIST * len(call.op.room) + stream_micros(call) - stream_micros(call, 0)
    yield Variant(micros, partial(_launches, call))


def _launches(call: CudaCall) -> tuple[Launch, ...]:
    room: tuple[int, ...] = call.op.room
    rows = call.outputs[0].shape[0]
    operands: dict[str, Operand] = {"sizes": In(0), "places": Out(0), "total": Out(1)}
    integers = {"rows": rows, **{f"room{i}": n for i, n in enumerate(room)}}
    # One at least, which writes the total.
    programs = max(1, -(-rows // _BLOCK))
    return (Launch(CudaPackedConfig(len(room)), operands, integers, programs),)


def _entry(config: CudaPackedConfig) -> Entry:
    return Entry(
        "select.packed_code:packed",
        (("sizes", "i64"), ("places", "i64"), ("total", "i64")),
        ("rows",),
        {"LISTS": config.lists, "BLOCK": _BLOCK},
        extra_integers=tuple(f"room{i}" for i in range(config.lists)),
    )


SELECT_PACKED = CudaKernel(
    "select.packed", (PackedPlaces,), CudaPackedConfig, _supports, _variants, _entry
)
