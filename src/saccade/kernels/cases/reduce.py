"""Reductions, norms, running sums and places: any axes of any storage, few elements and many."""

from __future__ import annotations

from math import inf, prod

from saccade.ir import DType
from saccade.ir.expr import parse
from saccade.kernels.cases.base import (
    BF16,
    F16,
    F32,
    F64,
    GAPS,
    I32,
    I64,
    LAST,
    NORMAL,
    ROWS,
    SPECIAL,
    WHOLE,
    Case,
    CaseStorage,
    Given,
    Normal,
    Operand,
    Result,
    Values,
)
from saccade.opdefs import ArgReduce, CumSum, Reduce, VectorNorm

__all__ = ["CASES"]

_Shape = tuple[int, ...]
_VALUES: dict[str, Values] = {
    # Only positive sums have logarithms.
    "log_sum": Normal(offset=0.1, magnitude=True),
    # Around 1: products neither vanish nor overflow.
    "prod": Normal(0.125, 1.0),
    "mean": Normal(offset=1.0),  # one near zero would have no relative error to speak of
    "sum": WHOLE,
}


def _case(
    name: str, kind: str, shape: _Shape, axes: tuple[int, ...], *,
    storage: CaseStorage = ROWS, result: CaseStorage = ROWS, dtype: DType = F32,
    keepdims: bool = True,
) -> Case:  # fmt: skip
    x = Operand(shape, dtype, storage, values=_VALUES.get(kind, NORMAL))
    terms = max(1, prod(shape[axis] for axis in axes))
    return Case(name, Reduce(kind, axes, keepdims), (x,), (Result(result, dtype),), terms)


def _norm(
    name: str, p: float, shape: _Shape, axes: tuple[int, ...], dtype: DType = F32,
    values: Values = NORMAL,
) -> Case:  # fmt: skip
    wide = F64 if dtype is F64 else F32
    terms = max(1, prod(shape[axis] for axis in axes))
    x = Operand(shape, dtype, values=values)
    return Case(name, VectorNorm(p, axes, False, wide), (x,), (Result(dtype=wide),), terms)


def _arg(
    name: str, op: ArgReduce, shape: _Shape, values: Values = WHOLE, dtype: DType = F32
) -> Case:
    return Case(name, op, (Operand(shape, dtype, values=values),), terms=0)


def _arg_of(name: str, op: ArgReduce, shape: _Shape, number: int, dtype: DType = F32) -> Case:
    """Of as many elements as are said to be there."""
    given = Operand((1,), I64, values=Given((number,)))
    return Case(name, op, (Operand(shape, dtype, values=WHOLE), given), terms=0)


def _running(name: str, op: CumSum, shape: _Shape, dtype: DType = F32) -> Case:
    return Case(name, op, (Operand(shape, dtype, values=WHOLE),), terms=0)


_IMAGE = (2, 21, 5, 6)
_SCALED = Reduce("mean", (2, 3), True, parse("relu(mul($0, $1))"))

CASES = (
    *(_case(kind, kind, (5, 37), (1,)) for kind in (
        "sum", "mean", "max", "min", "prod", "l1", "l2", "sum_square", "log_sum", "log_sum_exp",
    )),
    _case("across", "mean", (5, 37), (0,)),
    _case("dropped-axes", "max", (3, 70, 4), (0, 2), keepdims=False),
    _case("all", "sum", (300,), (0,)),
    _case("channels-of-last", "sum", _IMAGE, (1,), storage=GAPS),
    _case("outer-axes-of-last", "max", _IMAGE, (0, 2), storage=GAPS),
    _case("pixels-of-last", "mean", (2, 130, 7, 7), (2, 3), storage=LAST, result=LAST),
    _case("one-channel", "mean", (2, 1, 7, 7), (2, 3), storage=LAST, result=LAST),
    _case("few-results", "mean", (1, 24, 83, 90), (2, 3), storage=GAPS),
    _case("one-result", "l2", (1, 24, 83, 90), (0, 1, 2, 3)),
    _case("in-order", "mean", (2, 5000, 5, 5), (2, 3), storage=LAST, result=LAST),
    _case("no-elements", "sum", (3, 0), (1,)),
    _case("no-results", "max", (0, 4), (1,)),
    _case("f16", "mean", (9, 20), (1,), dtype=F16),
    _case("bf16", "sum", (9, 20), (0,), dtype=BF16),
    Case("epilogue", _SCALED, (Operand(_IMAGE, storage=LAST), Operand((21, 1, 1))), (), 30),
    *(_norm(f"norm-{p:g}", p, (37, 41), (1,)) for p in (0.0, 1.0, 2.0, 2.5, -1.0, inf, -inf)),
    _norm("norm-across", 2.0, (37, 41), (0,)),
    _norm("norm-of-many", 1.0, (2600, 60), (0, 1), values=WHOLE),
    _norm("norm-f64", 2.0, (5, 37), (0,), F64),
    _norm("norm-bf16", inf, (33, 70), (1,), BF16),
    _norm("norm-special", inf, (4, 40), (1,), values=SPECIAL),
    _running("running", CumSum(1), (5, 37)),
    _running("running-reverse", CumSum(0, exclusive=True, reverse=True), (5, 37), I64),
    _running("running-middle", CumSum(1, exclusive=True), (2, 3, 20)),
    _running("running-product", CumSum(1, product=True), (5, 7)),
    _running("running-product-before", CumSum(0, True, True, True), (6, 37), I64),
    _running("running-nothing", CumSum(0), (0, 3)),
    _arg("argmax", ArgReduce("argmax", 1), (5, 37)),
    _arg("argmin-last", ArgReduce("argmin", 0, False, True), (5, 37)),
    _arg("argmax-middle", ArgReduce("argmax", 1, True, True), (2, 3, 20)),
    _arg("argmax-special", ArgReduce("argmax", 0), (7, 33), SPECIAL),
    _arg("argmax-integers", ArgReduce("argmax", 1), (5, 37), dtype=I64),
    _arg("argmin-integers-last", ArgReduce("argmin", 0, False, True), (6, 37), dtype=I32),
    _arg_of("argmax-counted", ArgReduce("argmax", 1, False, counted=True), (5, 1300), 700),
    _arg_of("argmin-counted", ArgReduce("argmin", 0, True, True, True), (37, 45), 11, I64),
    _arg_of("argmax-counted-few", ArgReduce("argmax", 1, counted=True), (2, 37, 3), 1, F16),
    _arg_of("argmax-counted-all", ArgReduce("argmax", 2, counted=True), (2, 3, 20), 50),
    _arg_of("argmax-counted-none", ArgReduce("argmax", 1, counted=True), (3, 20), 0),
)  # fmt: skip
