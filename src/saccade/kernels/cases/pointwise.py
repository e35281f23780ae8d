"""Expressions: broadcasting, operands in other orders than the result, every kind of type."""

from __future__ import annotations

from saccade.ir import DType
from saccade.ir.expr import parse
from saccade.kernels.cases.base import (
    BF16,
    F16,
    F32,
    GAPS,
    I32,
    I64,
    LAST,
    ROWS,
    SPECIAL,
    U8,
    WHOLE,
    Case,
    CaseStorage,
    Normal,
    Operand,
    Result,
    Values,
    Whole,
)
from saccade.opdefs import Pointwise

__all__ = ["CASES"]

_Shape = tuple[int, ...]
_SUM = "add($0, mul($1, 2.0))"


def _case(
    name: str,
    text: str,
    *shapes: _Shape,
    dtype: DType = F32,
    to: DType | None = None,
    values: Values | None = None,
) -> Case:
    drawn = values or (Normal() if dtype.is_float else WHOLE)
    operands = tuple(Operand(shape, dtype, values=drawn) for shape in shapes)
    kind = to or dtype
    # bfloat16 is a way to store float32: that is what the expression's type says.
    op = Pointwise(parse(text), F32 if kind is BF16 else kind)
    # Integers and truth values are settled to the bit.
    exact = 1 if dtype.is_float and kind.is_float else 0
    return Case(name, op, operands, (Result(dtype=kind),), exact)


def _stored(
    name: str, text: str, shape: _Shape, views: tuple[CaseStorage, ...], result: CaseStorage
) -> Case:
    operands = tuple(Operand(shape, storage=storage) for storage in views)
    return Case(name, Pointwise(parse(text), F32), operands, (Result(result),))


_IMAGE = (2, 19, 4, 6)
# Planes column by column; and no neighbours along any axis.
_TRANSPOSED = CaseStorage(strides=(456, 24, 1, 4))
_SPACED = CaseStorage(strides=(4000, 200, 48, 2))

CASES = (
    _case(
        "words",
        "div(sub(mul($0, 7.0), $1), 3.0)",
        (5, 37),
        (37,),
        dtype=DType.I16,
        values=Whole(-99, 99),
    ),
    _case(
        "unsigned-words",
        "max(sub($0, $1), 9.0)",
        (5, 37),
        (37,),
        dtype=DType.U16,
        values=Whole(0, 65535),
    ),
    _case(
        "unsigned-longs",
        "div($0, max($1, 1.0))",
        (5, 37),
        (37,),
        dtype=DType.U32,
        values=Whole(0, 15, 2.0**28),
    ),
    _case("from-unsigned-words", "$0", (5, 37), dtype=DType.U16, to=F32, values=Whole(0, 65535)),
    _case("to-unsigned-longs", "$0", (5, 37), to=DType.U32, values=Whole(0, 15, 2.0**11)),
    _case("one-operand", "mul($0, $0)", (3, 37)),
    _case("rows", _SUM, (3, 37), (37,)),
    _case("columns", _SUM, (3, 37), (3, 1)),
    _case("both-repeat", _SUM, (1, 37), (3, 1)),
    _case("channels", _SUM, (2, 5, 7, 9), (5, 1, 1)),
    _case("every-other-axis", _SUM, (2, 1, 7, 1), (1, 5, 1, 9)),
    _case("scalar-first", _SUM, (), (4,)),
    _case("scalars", _SUM, (), ()),
    _case("five-axes", _SUM, (4, 1, 6, 1, 2), (1, 3, 1, 5, 1)),
    _case("nothing", _SUM, (2, 0, 4), (1, 4)),
    _stored("channels-last", "relu(add($0, $1))", _IMAGE, (GAPS, LAST), GAPS),
    _stored("mixed-orders", "sub(max($0, $1), $2)", _IMAGE, (LAST, ROWS, _TRANSPOSED), GAPS),
    _stored("mixed-to-rows", "sub(max($0, $1), $2)", _IMAGE, (LAST, ROWS, _TRANSPOSED), ROWS),
    _stored("last-to-rows", "neg($0)", (1, 70, 37, 41), (LAST,), ROWS),
    _stored("rows-to-last", "neg($0)", (1, 600, 3, 3), (ROWS,), LAST),
    _stored("spaced", "silu($0)", _IMAGE, (_SPACED,), _SPACED),
    _case("special", "relu(add($0, $1))", (6, 50), (50,), values=SPECIAL),
    _case("transcendental", "mul(tanh($0), erf(sigmoid($0)))", (5, 23)),
    _case("select", "where(less($0, $1), $0, mul($1, 3.0))", (4, 9), (9,)),
    _case("f16", "mul($0, $1)", (3, 37), (37,), dtype=F16),
    _case("bf16", "mul($0, $1)", (3, 37), (37,), dtype=BF16),
    _case("i64", "add(mul($0, $1), 3.0)", (3, 37), (37,), dtype=I64),
    _case("u8", "max($0, $1)", (2, 7, 9), (7, 1), dtype=U8, values=Whole(0, 255)),
    _case("comparison", "greater_equal($0, $1)", (4, 33), (33,), dtype=I32, to=DType.BOOL),
    _case("cast-f16", "$0", (5, 21), dtype=F16, to=F32),
    _case("cast", "$0", (5, 21), dtype=I32, to=I64),
)
