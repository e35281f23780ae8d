"""Softmax and its logarithm: rows, columns, channels, extremes."""

from __future__ import annotations

from saccade.ir import DType
from saccade.kernels.cases.base import (
    BF16,
    F16,
    F32,
    GAPS,
    LAST,
    ROWS,
    Case,
    CaseStorage,
    Normal,
    Operand,
    Result,
    Values,
)
from saccade.opdefs import Softmax

__all__ = ["CASES"]


_WIDE = Normal(3.0)


def _case(
    name: str, shape: tuple[int, ...], axis: int, *, log: bool = False, dtype: DType = F32,
    source: CaseStorage = ROWS, to: CaseStorage = ROWS, values: Values = _WIDE,
) -> Case:  # fmt: skip
    x = Operand(shape, dtype, source, values=values)
    return Case(name, Softmax(axis, log), (x,), (Result(to, dtype),), 64)


_IMAGE = (2, 21, 5, 18)

CASES = (
    _case("rows", (5, 37), 1),
    _case("rows-log", (5, 37), 1, log=True),
    _case("columns", (5, 37), 0),
    _case("columns-log", (5, 37), 0, log=True),
    _case("long-rows", (1, 1000), 1),
    _case("attention", (2, 3, 197), 2),
    _case("middle", (2, 40, 3), 1),
    _case("one-axis", (7,), 0),
    _case("one-element", (4, 1), 1),
    _case("no-rows", (0, 4), 1),
    _case("no-elements", (4, 0), 1),
    _case("channels", (3, 21, 4, 6), 1),
    _case("channels-last", _IMAGE, 1, source=GAPS, to=LAST),
    _case("columns-of-last", _IMAGE, 3, source=GAPS, to=LAST),
    _case("last-to-rows", _IMAGE, 2, source=GAPS),
    # Powers overflow where the largest is not taken off first.
    _case("far-apart", (6, 50), 1, values=Normal(1e4)),
    _case("special", (6, 50), 1, values=Normal(special=True)),
    _case("f16", (3, 70), 1, dtype=F16),
    _case("bf16", (35, 37), 1, dtype=BF16),
    _case("bf16-log", (35, 37), 0, log=True, dtype=BF16),
)
