"""Matrix products in blocks on the matrix units.

`y[.., m, n] = epilogue(Σ_k a[.., m, k] · b[.., k, n])`

Layouts: a, b and y with any strides; wide loads and stores where neighbours of the last axis, or of
the one before it for a and b, lie side by side. Constant b is packed [K', N'], or [N', K'] for
float32 on the matrix units, padded to multiples of 16. Elements are float16, bfloat16 or float32,
sums float32. Rows of batch axes that share b are rows of one product. Sums of small results are
divided among programs, which leave float32 parts [splits, matrices, rows, N'], and a second launch
adds them in their order.
Floor: 2·M·N·K operations at the rate of the matrix units, or the bytes of a, b and y.
Refuses: other types, batch axes that do not merge into two.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import ceil

from saccade.ir import DType
from saccade.kernels.base import In, Launch, Out, Variant, per_call
from saccade.kernels.cuda.base import FLOATS, CudaCall, CudaKernel, Entry
from saccade.kernels.cuda.epilogue import integers_of, pointers_of, source_of
from saccade.kernels.cuda.matmul.product_axes import AXES_INTEGERS, AxesCode, axes_for, merges
from saccade.kernels.cuda.matmul.split_sums import (
    parts_for,
    pitch_of,
    sum_code,
    sum_entry,
    sum_launch,
    without_result,
)
from saccade.kernels.cuda.matmul.tile_times import Tile, tiled_times
from saccade.kernels.cuda.precision import dot_precision
from saccade.opdefs import MatMul

__all__ = ["INTEGERS", "MATMUL_TILED", "MULTIPLES", "TiledConfig", "aliases", "refuse_product"]

INTEGERS = (*AXES_INTEGERS, "matrices", "steps", "pitch")
MULTIPLES = tuple(name for name in INTEGERS if name not in ("n1", "matrices", "steps"))
_MOST = 2**31  # elements that offsets of 32 bits reach
_MEASURED = 1.1  # times over estimates: the layers of ViT-B/16 at batch 32 in float16 on one H200
_GROUP = 8  # blocks of rows that go through the columns together, where that is tried


@dataclass(frozen=True)
class TiledConfig:
    """What the code depends on.

    Attributes:
        phase: `product`, `parts` of one, or `sum` of the parts.
        axes: See `AxesCode`.
        tile: Rows, columns and depth of a block, warps, stages.
        precision: How products of float32 are made, for `tl.dot`.
        group: Blocks of rows that go through all columns together, for the L2 cache.
    """

    phase: str
    axes: AxesCode
    tile: Tile
    precision: str
    group: int


def refuse_product(call: CudaCall) -> str | None:
    """Why no kernel for products of floats takes a call."""
    return _refused(call) or None


@per_call
def _refused(call: CudaCall) -> str:
    """The reason, or nothing: every kernel for them asks."""
    if any(view.dtype not in FLOATS for view in (*call.inputs[:2], call.outputs[0])):
        return "element types"
    if any(view.dtype not in (*FLOATS, DType.BOOL) for view in call.inputs[2:]):
        return "element types of the epilogue"
    if any(view.extent >= _MOST for view in (*call.inputs, *call.outputs)):
        return "2^31 elements or more"
    return "" if merges(call) else "the batch axes do not merge into two"


def _variants(call: CudaCall) -> Iterator[Variant]:
    axes = axes_for(call)
    timed = tiled_times(call, axes, dot_precision(call))
    timed = [(_MEASURED * micros, tile, splits) for micros, tile, splits in timed]
    for place, (micros, tile, splits) in enumerate(sorted(timed)):
        rounding = (tile[2], splits, tile[0] < 64)
        yield Variant(micros, partial(_launches, call, tile, splits, 1), rounding)
        if place < 3 and axes.all_rows > tile[0] * _GROUP and axes.columns > tile[1]:
            yield Variant(micros, partial(_launches, call, tile, splits, _GROUP), rounding)


def _launches(call: CudaCall, tile: Tile, splits: int, group: int) -> tuple[Launch, ...]:
    axes = axes_for(call)
    epilogue = axes.epilogue(call)
    code, precision = axes.code(call, epilogue.code), dot_precision(call)
    tiles = -(-axes.all_rows // tile[0]) * -(-axes.columns // tile[1])
    steps = ceil(-(-axes.inner // tile[2]) / splits)
    integers = {
        **axes.integers, "matrices": axes.matrices, "steps": steps, "pitch": pitch_of(axes),
    }  # fmt: skip
    operands = {"a": In(0), "b": axes.b_operand}
    programs = tiles * axes.matrices
    if splits == 1:
        config = TiledConfig("product", code, tile, precision, group)
        given = {**operands, "y": Out(0), **epilogue.operands}
        return (Launch(config, given, {**integers, **epilogue.integers}, programs),)
    parts = parts_for(axes, splits)
    config = TiledConfig("parts", without_result(code), tile, precision, group)
    first = Launch(config, {**operands, "y": parts}, integers, programs * splits)
    adding = TiledConfig("sum", sum_code(code), (1, 1, 1, 4, 1), "", 1)
    return first, sum_launch(adding, axes, epilogue, parts, splits)


def _entry(config: TiledConfig) -> Entry:
    code = config.axes
    if config.phase == "sum":
        return sum_entry(code)
    bm, bn, bk, warps, stages = config.tile
    constants: dict[str, int | float | bool | str] = {
        "DEPENDS": code.depends, "FLAT": code.flat, "A_UNIT": code.units[0],
        "B_UNIT": code.units[1], "Y_UNIT": code.units[2] == "n",
        "OPERAND": code.elements[3], "PRECISION": config.precision,
        "GROUP": config.group, "SPLIT": config.phase == "parts", "BM": bm, "BN": bn, "BK": bk,
    }  # fmt: skip
    pointers = tuple(zip("aby", code.elements[:3], strict=True))
    return Entry(
        "matmul.tiled_code:multiply",
        pointers,
        INTEGERS,
        constants,
        {"EPILOGUE": source_of(code.epilogue)},
        pointers_of(code.epilogue),
        integers_of(code.epilogue),
        (*MULTIPLES, *integers_of(code.epilogue)),
        warps,
        stages,
    )


def aliases(call: CudaCall) -> tuple[tuple[int, int], ...]:
    """A residual may give its memory to the result: programs read their part before they write."""
    last = len(call.inputs)
    return tuple((i, 0) for i in range(2, last) if call.inputs[i] == call.outputs[0])


MATMUL_TILED = CudaKernel(
    "matmul.tiled", (MatMul,), TiledConfig, refuse_product, _variants, _entry, aliases
)
