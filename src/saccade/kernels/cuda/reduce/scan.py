"""Running sums along an axis: CumSum.

A program takes a block of rows and sweeps the axis in order, each block's sums on top of those of
the blocks before. Its floor is the bytes of operand and result; long axes of few rows take the
latency of one block after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from saccade.ir import DType
from saccade.kernels.base import In, Launch, Out, Variant, per_call
from saccade.kernels.cuda.base import ELEMENTS, FLOATS, CudaCall, CudaKernel, Entry, element_of
from saccade.kernels.cuda.reduce.axis_loops import AxisLoops, axis_loops, common_step
from saccade.kernels.cuda.reduce.axis_tiles import AxisTile, TileWork, axis_tiles
from saccade.kernels.cuda.refusals import refuse_places
from saccade.opdefs import CumSum

__all__ = ["REDUCE_SCAN", "CumSumConfig"]

_INTEGERS = (
    "rows", "k1", "k2", "length", "x_k0", "x_k1", "x_k2", "x_r", "y_k0", "y_k1", "y_k2", "y_r",
)  # fmt: skip


@dataclass(frozen=True)
class CumSumConfig:
    """What the code depends on.

    Attributes:
        elements: Of x, of y, and what sums are kept in.
        exclusive, reverse, product: Of the operator.
        kept: How many axes there are besides.
        units: Whose neighbours lie side by side, in x and in y: "kept", "reduced" or "".
        step: Strides and extents of x are multiples of so many elements.
        tile: Rows and elements of a block.
    """

    elements: tuple[str, str, str]
    exclusive: bool
    reverse: bool
    product: bool
    kept: int
    units: tuple[str, str]
    step: int
    tile: AxisTile


@per_call
def _kept(call: CudaCall) -> AxisLoops:
    """The other axes, over x and the result."""
    x, y = call.inputs[0], call.outputs[0]
    stay = [axis for axis in range(len(x.shape)) if axis != call.op.axis]
    strides = [[view.strides[axis] for axis in stay] for view in (x, y)]
    return axis_loops([x.shape[axis] for axis in stay], strides)


def _supports(call: CudaCall) -> str | None:
    if not _kept(call).fits:
        return "more than 3 separate axes besides"
    return refuse_places(call)


def _units(call: CudaCall) -> tuple[str, str]:
    def unit(index: int) -> str:
        if (call.inputs[0], call.outputs[0])[index].strides[call.op.axis] == 1:
            return "reduced"
        return "kept" if _kept(call).unit(index) else ""

    return unit(0), unit(1)


def _variants(call: CudaCall) -> Iterator[Variant]:
    x = call.inputs[0]
    unit, _ = _units(call)
    work = TileWork(_kept(call).count, x.shape[call.op.axis], x.dtype.itemsize, 2 * x.nbytes, unit)
    for micros, tile, _ in axis_tiles(call, work, cut=False):
        yield Variant(micros, partial(_launches, call, tile), rounding=tile)


def _launches(call: CudaCall, tile: AxisTile) -> tuple[Launch, ...]:
    x, y, kept, op = call.inputs[0], call.outputs[0], _kept(call), call.op
    units, length = _units(call), call.inputs[0].shape[call.op.axis]
    extents = {"kept": (kept.count, kept.sizes[-1]), "reduced": (length,), "": (1,)}[units[0]]
    steps = (s for s in (*kept.strides[0], x.strides[op.axis]) if s > 1)
    wide = "fp32" if x.dtype in FLOATS else ELEMENTS[x.dtype]
    if x.dtype.itemsize < 4 and not x.dtype.is_float:
        wide = ELEMENTS[DType.I32]
    config = CumSumConfig(
        (element_of(x), element_of(y), wide), op.exclusive, op.reverse, op.product,
        max(2, kept.axes), units, common_step((*steps, *extents), (x,)), tile,
    )  # fmt: skip
    integers = {
        "rows": kept.count, "k1": kept.sizes[1], "k2": kept.sizes[2], "length": length,
        **kept.integers("x_k", 0), "x_r": x.strides[op.axis],
        **kept.integers("y_k", 1), "y_r": y.strides[op.axis],
    }  # fmt: skip
    programs = -(-kept.count // tile.rows) if length else 0
    return (Launch(config, {"x": In(0), "y": Out(0)}, integers, programs),)


def _entry(config: CumSumConfig) -> Entry:
    kind, result, wide = config.elements
    constants: dict[str, int | float | str] = {
        "WIDE": wide, "EXCLUSIVE": config.exclusive, "REVERSE": config.reverse,
        "PRODUCT": config.product, "KEPT": config.kept,
        "UNIT": config.units[0], "Y_UNIT": config.units[1], "STEP": config.step,
        "BM": config.tile.rows, "BR": config.tile.elements,
    }  # fmt: skip
    return Entry(
        "reduce.scan_code:scan_rows",
        (("x", kind), ("y", result)),
        _INTEGERS,
        constants,
        warps=config.tile.warps,
        stages=config.tile.stages,
    )


REDUCE_SCAN = CudaKernel("reduce.scan", (CumSum,), CumSumConfig, _supports, _variants, _entry)
