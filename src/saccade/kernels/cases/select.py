"""Elements by rank and by value, rows by index: ties, zeros of both signs, NaN, nothing at all."""

from __future__ import annotations

from saccade.ir import DType
from saccade.kernels.cases.base import (
    BF16,
    F16,
    F32,
    I32,
    I64,
    SPECIAL,
    U8,
    Case,
    Given,
    Operand,
    Result,
    Values,
    Whole,
)
from saccade.opdefs import NonZero, PackedPlaces, ScatterRows, TopK

__all__ = ["CASES", "SCATTERS"]

_TIES, _MASK = Whole(-3, 3, 0.5), Whole(0, 1)


def _best(
    name: str,
    shape: tuple[int, ...],
    op: TopK,
    dtype: DType = F32,
    values: Values = _TIES,
) -> Case:
    return Case(name, op, (Operand(shape, dtype, values=values),), (Result(dtype=dtype),), 0)


def _found(name: str, shape: tuple[int, ...], dtype: DType = U8, values: Values = _MASK) -> Case:
    size = 1
    for n in shape:
        size *= n
    return Case(name, NonZero(size), (Operand(shape, dtype, values=values),), terms=0)


def _packed(name: str, room: tuple[int, ...], sizes: tuple[int, ...]) -> Case:
    operand = Operand((len(room),), I64, values=Given(tuple(map(float, sizes))))
    return Case(name, PackedPlaces(sum(room), room), (operand,), terms=0)


def _scatter(
    name: str,
    rows: int,
    columns: int,
    indices: tuple[int, ...],
    reduction: str = "none",
    dtype: DType = F32,
    values: Values = _TIES,
) -> Case:
    operands = (
        Operand((rows, columns), dtype, values=values),
        Operand((len(indices),), I64, values=Given(tuple(map(float, indices)))),
        Operand((len(indices), columns), dtype, values=values),
    )
    return Case(name, ScatterRows(reduction), operands, (Result(dtype=dtype),), 0)


CASES = (
    _best("best", (3, 37), TopK(5, 1)),
    _best("least", (3, 37), TopK(5, 1, False)),
    _best("of-many", (2, 1031), TopK(100, 1)),
    _best("least-of-many", (1031,), TopK(7, 0, False), values=Whole(-500, 500)),
    _best("of-thousands", (1, 70001), TopK(100, 1), values=Whole(-5000, 5000)),
    _best("across", (2, 700, 3), TopK(9, 1), values=SPECIAL),
    _best("all", (4, 19), TopK(19, 1), values=SPECIAL),
    _best("none", (4, 19), TopK(0, 1)),
    _best("no-rows", (0, 19), TopK(3, 1)),
    _best("best-f16", (5, 301), TopK(4, 1), F16),
    _best("best-bf16", (301,), TopK(4, 0, False), BF16),
    _best("best-i32", (2, 900), TopK(50, 1), I32, Whole(-20, 20)),
    _best("best-i64", (2, 900), TopK(50, 1, False), I64, Whole(-20, 20, 2.0**40)),
    _found("mask", (5, 7, 11)),
    _found("line", (9001,)),
    _found("numbers", (3, 41), F32, SPECIAL),
    _found("halves", (3, 41), F16, SPECIAL),
    _found("integers", (2, 3, 5), I64, Whole(-1, 1)),
    _found("nothing", (0, 3)),
    _packed("lists", (3, 5, 1), (2, 5, 0)),
    _packed("too-long", (3, 5), (9, -1)),
    _packed("one-list", (4000,), (17,)),
    _packed(
        "many-lists", tuple(7 * i % 13 for i in range(90)), tuple(5 * i % 11 for i in range(90))
    ),
)
SCATTERS = (
    _scatter("scatter", 7, 5, (3, 0, 3, -1)),
    _scatter("scatter-wide", 4, 1301, (1, 2, 1)),
    _scatter("scatter-single", 50, 1, (9, 9, 0, 49)),
    _scatter("scatter-bytes", 5, 70, (4, 1), dtype=U8, values=Whole(0, 9)),
    _scatter("scatter-nothing", 5, 3, ()),
    _scatter("scatter-add", 7, 21, (3, 0, 3, -1), "add"),
    _scatter("scatter-mul", 7, 21, (3, 0, 3, 6), "mul", I32, Whole(-4, 4)),
    _scatter("scatter-min", 7, 21, (3, 0, 3, 6), "min", values=SPECIAL),
    _scatter("scatter-max", 7, 21, (3, 0, 3, 6), "max", I64, Whole(-4, 4)),
    _scatter("scatter-max-bf16", 7, 21, (3, 0, 3, 6), "max", BF16),
)
