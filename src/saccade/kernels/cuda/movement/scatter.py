"""`ScatterRows`: each row of the result takes its updates in their order, whoever comes first.

    none        no row has an update yet
    link        each row's last update; or, where they are combined, its first one, and for each
                update the next one of the same row
    apply       data, or the last update, or all of them on top of the data, one after the other

Of atomic operations there are minima and maxima of integers alone, so that nothing depends on an
order of programs. Floor: the bytes of data, updates and result; chains of updates that are
combined take the comparison of all pairs of indices, half a microsecond for 10 000.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from saccade.ir import DType
from saccade.kernels.base import In, Launch, Operand, Out, Temp, Variant, View
from saccade.kernels.cuda.base import FLOATS, CudaCall, CudaKernel, Entry, element_of
from saccade.kernels.cuda.machine import LAUNCH, operation_micros, stream_micros
from saccade.kernels.cuda.movement.copy import raw_element
from saccade.kernels.cuda.reduce.axis_loops import common_step, power_above
from saccade.kernels.cuda.refusals import refuse_places
from saccade.opdefs import ScatterRows

__all__ = ["MOVEMENT_SCATTER", "CudaScatterConfig"]

_FILL = 1024  # rows of a program that empties their lists
_LINKS, _LATER = 64, 128  # updates of a program that links, and those it compares them with
_TILE = 1024  # elements of a program that writes
_COMPARISON = 3  # operations for a pair of indices (an estimate)


@dataclass(frozen=True)
class CudaScatterConfig:
    """What the code of one phase depends on.

    Attributes:
        phase: The Triton function.
        element: Of the data; of as many bytes where rows are replaced.
        reduction: Of the operator.
        tile: Rows and columns of a block.
        units: Whether columns are neighbours, in data, updates and result.
        step: What the other strides and the number of columns are multiples of.
    """

    phase: str
    element: str = "i32"
    reduction: str = "none"
    tile: tuple[int, int] = (1, 1)
    units: tuple[bool, bool, bool] = (True, True, True)
    step: int = 1


def _supports(call: CudaCall) -> str | None:
    data, indices, updates = call.inputs
    if {data.dtype, updates.dtype} != {call.outputs[0].dtype}:
        return "elements of different types"
    if call.op.reduction != "none" and data.dtype is DType.BOOL:
        return "truth values that are combined"
    if indices.shape[0] >= (1 << 31) - _LINKS:
        return "2^31 updates or more"
    return refuse_places(call)


def _variants(call: CudaCall) -> Iterator[Variant]:
    (rows, columns), updates = call.inputs[0].shape, call.inputs[1].shape[0]
    micros = stream_micros(call) + 2 * LAUNCH
    if call.op.reduction != "none":
        micros += operation_micros(call, _COMPARISON * updates * updates / 2)
    across = min(power_above(columns), _TILE)
    for area in (_TILE, _TILE // 4):
        wide = min(across, area)
        tile = (min(area // wide, power_above(rows)), wide)
        yield Variant(micros, partial(_launches, call, tile))


def _launches(call: CudaCall, tile: tuple[int, int]) -> tuple[Launch, ...]:
    data, indices, updates = call.inputs
    (rows, columns), count, reduction = data.shape, indices.shape[0], call.op.reduction
    heads, following = Temp(0, 4 * max(rows, 4)), Temp(1, 4 * max(count, 4))
    kind = CudaScatterConfig("none", reduction=reduction)
    number = {"rows": rows, "count": count}
    linked: dict[str, Operand] = {"indices": In(1), "heads": heads, "following": following}
    link = CudaScatterConfig("link", reduction=reduction)
    views = (data, updates, call.outputs[0])
    element = raw_element(data.dtype.itemsize) if reduction == "none" else element_of(data)
    config = CudaScatterConfig(
        "apply", element, reduction, tile, *_strided(views, columns),
    )  # fmt: skip
    operands: dict[str, Operand] = {
        "data": In(0), "updates": In(2), "y": Out(0), "heads": heads, "following": following,
    }  # fmt: skip
    integers = {**number, "columns": columns}
    for name, view in zip("duy", views, strict=True):
        integers |= {f"{name}_row": view.strides[0], f"{name}_column": view.strides[1]}
    programs = -(-rows // tile[0]) * -(-columns // tile[1])
    return (
        Launch(kind, {"heads": heads}, number, -(-rows // _FILL)),
        Launch(link, linked, {**number, "step": indices.strides[0]}, -(-count // _LINKS)),
        Launch(config, operands, integers, programs),
    )


def _strided(views: tuple[View, ...], columns: int) -> tuple[tuple[bool, bool, bool], int]:
    """Whose columns are neighbours; what the strides of their rows are multiples of."""
    data, updates, y = (view.strides[1] == 1 for view in views)
    rows = [view.strides[0] for view in views if view.strides[1] == 1]
    return (data, updates, y), common_step((*rows, columns), views)


def _entry(config: CudaScatterConfig) -> Entry:
    last = config.reduction == "none"
    if config.phase == "none":
        return Entry(
            "movement.scatter_code:none", (("heads", "i32"),), ("rows", "count"),
            {"LAST": last, "BLOCK": _FILL},
        )  # fmt: skip
    if config.phase == "link":
        return Entry(
            "movement.scatter_code:link",
            (("indices", "i64"), ("heads", "i32"), ("following", "i32")),
            ("rows", "count", "step"),
            {"LAST": last, "BLOCK": _LINKS, "LATER": _LATER},
        )
    constants: dict[str, int | bool | str] = {
        "REDUCTION": config.reduction, "FLOAT": config.element in _NARROW,
        "ROWS": config.tile[0], "COLUMNS": config.tile[1], "STEP": config.step,
        **dict(zip(("D_UNIT", "U_UNIT", "Y_UNIT"), config.units, strict=True)),
    }  # fmt: skip
    elements = config.element
    return Entry(
        "movement.scatter_code:apply",
        (("data", elements), ("updates", elements), ("y", elements), ("heads", "i32"),
         ("following", "i32")),
        ("rows", "count", "columns", "d_row", "d_column", "u_row", "u_column", "y_row",
         "y_column"),
        constants,
        contract=False,
    )  # fmt: skip


_NARROW = tuple({DType.F32: "fp32", DType.F16: "fp16", DType.BF16: "bf16"}[kind] for kind in FLOATS)

MOVEMENT_SCATTER = CudaKernel(
    "movement.scatter",
    (ScatterRows,),
    CudaScatterConfig,
    _supports,
    _variants,
    _entry,
    aliases=lambda _call: ((0, 0),),
)
