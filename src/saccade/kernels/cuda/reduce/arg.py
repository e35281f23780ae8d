"""Where along an axis the largest or the smallest element stands: ArgMax and ArgMin.

A program takes a block of rows and sweeps the axis, comparing integers that have the elements'
order, NaN in front of all (NumPy's rule). Its floor is the operand's bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from saccade.ir import DType
from saccade.kernels.base import In, Launch, Operand, Out, Variant, per_call
from saccade.kernels.cuda.base import CudaCall, CudaKernel, Entry, element_of
from saccade.kernels.cuda.reduce.axis_loops import AxisLoops, axis_loops, common_step
from saccade.kernels.cuda.reduce.axis_tiles import AxisTile, TileWork, axis_tiles
from saccade.kernels.cuda.refusals import refuse_places
from saccade.opdefs import ArgReduce

__all__ = ["REDUCE_ARG", "ArgReduceConfig"]

_INTEGERS = (
    "rows", "k1", "k2", "reduced", "x_k0", "x_k1", "x_k2", "x_r", "y_k0", "y_k1", "y_k2",
)  # fmt: skip
_LONG_KEYS = (DType.F64, DType.I64, DType.U64)


@dataclass(frozen=True)
class ArgReduceConfig:
    """What the code depends on.

    Attributes:
        element: Of x.
        largest: Whether the largest is looked for.
        last: Whether the last of equal ones is it.
        wide: Whether they are compared in 64 bits.
        kept: How many axes are kept.
        unit: Whose neighbours lie side by side in x: "kept", "reduced" or "".
        y_unit: Whether neighbouring results do.
        step: Strides and extents are multiples of so many elements.
        tile: Rows and elements of a block.
        counted: Of the operator.
    """

    element: str
    largest: bool
    last: bool
    wide: bool
    kept: int
    unit: str
    y_unit: bool
    step: int
    tile: AxisTile
    counted: bool


@per_call
def _kept(call: CudaCall) -> AxisLoops:
    """The kept axes over x and the result."""
    x, y, op = call.inputs[0], call.outputs[0], call.op
    stay = [axis for axis in range(len(x.shape)) if axis != op.axis]
    places = stay if op.keepdims else range(len(stay))
    strides = [[x.strides[axis] for axis in stay], [y.strides[place] for place in places]]
    return axis_loops([x.shape[axis] for axis in stay], strides)


def _supports(call: CudaCall) -> str | None:
    if not _kept(call).fits:
        return "more than 3 separate axes are kept"
    return refuse_places(call)


def _unit(call: CudaCall) -> str:
    if call.inputs[0].strides[call.op.axis] == 1:
        return "reduced"
    return "kept" if _kept(call).unit(0) else ""


def _variants(call: CudaCall) -> Iterator[Variant]:
    x = call.inputs[0]
    work = TileWork(
        _kept(call).count, x.shape[call.op.axis], x.dtype.itemsize, x.nbytes, _unit(call)
    )
    for micros, tile, _ in axis_tiles(call, work, cut=False):
        yield Variant(micros, partial(_launches, call, tile))


def _launches(call: CudaCall, tile: AxisTile) -> tuple[Launch, ...]:
    x, kept, op, unit = call.inputs[0], _kept(call), call.op, _unit(call)
    along, length = x.strides[op.axis], x.shape[op.axis]
    extents = {"kept": (kept.count, kept.sizes[-1]), "reduced": (length,), "": (1,)}[unit]
    steps = (*(step for step in (*kept.strides[0], along) if step > 1), *extents)
    config = ArgReduceConfig(
        element_of(x), op.kind == "argmax", op.select_last,
        x.dtype in _LONG_KEYS or not x.dtype.is_float,
        max(2, kept.axes), unit, kept.unit(1), common_step(steps, (x,)), tile, op.counted,
    )  # fmt: skip
    integers = {
        "rows": kept.count, "k1": kept.sizes[1], "k2": kept.sizes[2], "reduced": length,
        **kept.integers("x_k", 0), "x_r": along, **kept.integers("y_k", 1),
    }  # fmt: skip
    programs = -(-kept.count // tile.rows)
    operands: dict[str, Operand] = {"x": In(0), "y": Out(0)}
    if op.counted:
        operands["number"] = In(1)
    return (Launch(config, operands, integers, programs),)


def _entry(config: ArgReduceConfig) -> Entry:
    constants: dict[str, int | float | str] = {
        "LARGEST": config.largest, "LAST": config.last, "WIDE": config.wide, "KEPT": config.kept,
        "UNIT": config.unit, "Y_UNIT": config.y_unit, "STEP": config.step,
        "BM": config.tile.rows, "BR": config.tile.elements, "STAGES": config.tile.stages,
        "COUNTED": config.counted,
    }  # fmt: skip
    return Entry(
        "reduce.arg_code:place_extreme",
        (("x", config.element), ("y", "i64")),
        _INTEGERS,
        constants,
        extra_pointers=(("number", "i64"),) if config.counted else (),
        warps=config.tile.warps,
        stages=config.tile.stages,
    )


REDUCE_ARG = CudaKernel("reduce.arg", (ArgReduce,), ArgReduceConfig, _supports, _variants, _entry)
