"""Gradients of norms: every rule, both orders of rows, ties in short and in long rows."""

from __future__ import annotations

from math import inf

from saccade.ir import DType
from saccade.kernels.cases.base import BF16, F16, F32, F64, Case, Operand, Result, ResultOf, Whole
from saccade.opdefs import VectorNorm, VectorNormGrad

__all__ = ["CASES"]

_QUARTERS = Whole(-8, 8, 0.25)  # so that there are zeros, and magnitudes that are equal


def _case(
    name: str,
    p: float,
    shape: tuple[int, ...],
    axes: tuple[int, ...],
    dtype: DType = F32,
    keepdims: bool = False,
) -> Case:
    wide = F64 if dtype is F64 else F32
    kept = [1 if axis in axes else n for axis, n in enumerate(shape)]
    left = kept if keepdims else [n for axis, n in enumerate(shape) if axis not in axes]
    # Elements tie with the norm as the operator rounds it.
    norm = ResultOf(VectorNorm(p, axes, keepdims, wide), (1,))
    operands = (
        Operand(tuple(left), wide),
        Operand(shape, dtype, values=_QUARTERS),
        Operand(tuple(left), wide, values=norm),
    )
    return Case(name, VectorNormGrad(p, axes, keepdims), operands, (Result(dtype=dtype),), 1)


CASES = (
    _case("p1", 1.0, (37, 41), (1,)),
    _case("p2", 2.0, (37, 41), (1,)),
    _case("p2-across", 2.0, (37, 41), (0,)),
    _case("p2-kept", 2.0, (3, 7, 5), (0, 2), keepdims=True),
    _case("p3", 3.0, (37, 41), (1,)),
    _case("p2.5", 2.5, (37, 41), (1,)),
    _case("p1.5", 1.5, (37, 41), (1,)),
    _case("largest", inf, (37, 41), (1,)),
    _case("smallest", -inf, (37, 41), (1,)),
    _case("largest-across", inf, (37, 41), (0,)),
    _case("largest-few-across", inf, (37, 3), (0,)),
    _case("largest-of-many", inf, (3, 50_000), (1,)),
    _case("largest-of-many-across", inf, (16_000, 3), (0,)),
    _case("largest-of-all", inf, (70_001,), (0,)),
    _case("f64", 2.0, (13, 21), (0,), F64),
    _case("f64-largest", inf, (13, 21), (1,), F64),
    _case("bf16", 2.0, (11, 35), (1,), BF16),
    _case("bf16-largest", inf, (11, 35), (1,), BF16),
    _case("f16", inf, (11, 35), (1,), F16),
    _case("one-element", 2.0, (1, 1), (1,)),
    _case("nothing", 2.0, (0, 7), (1,)),
)
