"""Matrix products of integers and float64, without matrix units.

`y[.., m, n] = Σ_k a[.., m, k] · b[.., k, n]`, integers modulo 2 to the power of their bits.

Layouts: a, b and y with any strides.
Floor: far above that of `matmul.tiled`; networks have a few small ones, for indices.
Refuses: other types, mixed ones, epilogues, batch axes that do not merge into two.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from saccade.backends.cuda.gpus import gpu
from saccade.ir import DType
from saccade.ir.expr import IDENTITY
from saccade.kernels.base import In, Launch, Out, Variant
from saccade.kernels.cuda.base import CudaCall, CudaKernel, Entry
from saccade.kernels.cuda.epilogue import NO_EPILOGUE
from saccade.kernels.cuda.machine import LAUNCH
from saccade.kernels.cuda.matmul.product_axes import (
    AXES_INTEGERS,
    AxesCode,
    ProductAxes,
    axes_for,
    merges,
)
from saccade.opdefs import MatMul

__all__ = ["MATMUL_ELEMENTWISE", "PlainProductConfig"]

_BLOCK = (16, 16, 16)  # rows, columns, depth
_MOST = 2**31  # elements that offsets of 32 bits reach


@dataclass(frozen=True)
class PlainProductConfig:
    """What the code depends on.

    Attributes:
        axes: See `AxesCode`.
        sums: Type of the sums.
    """

    axes: AxesCode
    sums: str


def _sums(dtype: DType) -> str | None:
    """What Triton calls the type of the sums; None for types of other kernels."""
    if dtype is DType.F64:
        return "fp64"
    if dtype is DType.BOOL or dtype.is_float:
        return None
    return "int64" if dtype.itemsize == 8 else "int32"  # unsigned ones are the same bits


def _supports(call: CudaCall) -> str | None:
    dtype = call.inputs[0].dtype
    if _sums(dtype) is None or any(v.dtype is not dtype for v in (*call.inputs, *call.outputs)):
        return "element types"
    if call.op.epilogue != IDENTITY:
        return "an epilogue"
    if any(view.extent >= _MOST for view in (*call.inputs, *call.outputs)):
        return "2^31 elements or more"
    return None if merges(call) else "the batch axes do not merge into two"


def _programs(axes: ProductAxes) -> int:
    rows, columns, _ = _BLOCK
    return axes.matrices * -(-axes.all_rows // rows) * -(-axes.columns // columns)


def _variants(call: CudaCall) -> Iterator[Variant]:
    axes = axes_for(call)
    machine = gpu(call.target.machine)
    products = float(_programs(axes) * _BLOCK[0] * _BLOCK[1] * axes.inner)
    yield Variant(LAUNCH + 16 * products / machine.flops, partial(_launches, call))


def _launches(call: CudaCall) -> tuple[Launch, ...]:
    axes = axes_for(call)
    sums = _sums(call.inputs[0].dtype)
    assert sums is not None  # `supports` was asked
    code = replace(axes.code(call, NO_EPILOGUE), units="---")
    config = PlainProductConfig(code, sums)
    operands = {"a": In(0), "b": axes.b_operand, "y": Out(0)}
    return (Launch(config, operands, axes.integers, _programs(axes)),)


def _entry(config: PlainProductConfig) -> Entry:
    rows, columns, depth = _BLOCK
    constants: dict[str, int | float | bool | str] = {
        "DEPENDS": config.axes.depends, "FLAT": config.axes.flat, "ACC": config.sums,
        "BM": rows, "BN": columns, "BK": depth,
    }  # fmt: skip
    return Entry(
        "matmul.elementwise_code:multiply_plain",
        tuple(zip("aby", config.axes.elements[:3], strict=True)),
        AXES_INTEGERS,
        constants,
    )


MATMUL_ELEMENTWISE = CudaKernel(
    "matmul.elementwise", (MatMul,), PlainProductConfig, _supports, _variants, _entry
)
