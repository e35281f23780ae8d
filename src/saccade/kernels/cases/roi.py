"""Pooling of regions and its gradients: boxes of every kind over images in either order."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan

from saccade.ir import DType, Op
from saccade.kernels.cases.base import (
    BF16,
    F16,
    F32,
    F64,
    I32,
    I64,
    LAST,
    NORMAL,
    ROWS,
    SPECIAL,
    Case,
    CaseStorage,
    Given,
    Operand,
    Result,
    Values,
    Whole,
)
from saccade.opdefs import (
    PsRoi,
    PsRoiGradient,
    RoiAlign,
    RoiAlignGradient,
    RoiPool,
    RoiPoolGradient,
)

__all__ = ["CASES"]

_IMAGES, _H, _W = 3, 13, 11
_FINITE = (
    (0, -60, -60, -40, -40),  # outside
    (1, 2, 3, 2, 3),  # empty
    (2, 0, 0, 2 * _W + 4, 2 * _H + 4),  # beyond the last row and column
    (1, 1, 1, 9, 5),
    (0, -40, -24, 40, 72),  # all of an image, and more
    (3, 4, 5, 12, 9),  # of an image that is not there
    (2, 3, 3, 3.5, 3.25),  # smaller than a pixel
    (0, 1.125, 2.5, 17.25, 20.875),
    (2, 5.5, 0.125, 12.75, 15.5),
    (1, 0.5, -3.5, 30.125, 11),
    (0, 2, 2, 6, 18),
    (2, 9.875, 7.25, 19, 25.5),
)
_ANY = (*_FINITE, (0, nan, 0, 5, 5), (1, 0, -inf, 5, inf), (nan, 1, 1, 4, 4))
# Many that have more than three rows and columns in each of 2x2 bins, and all of the others.
_LARGE = (*_ANY, *((i % 3, i % 4 - 1, i % 3 - 1, 9 + i % 5, 10 + i % 4) for i in range(60)))
_TERMS = 64


def _boxes(rows: tuple[tuple[float, ...], ...], dtype: DType = F32) -> Operand:
    numbers = tuple(float(number) for row in rows for number in row)
    return Operand((len(rows), 5), F64 if dtype is F64 else F32, values=Given(numbers))


def _forward(
    name: str, op: Op, channels: int, *, rows: tuple[tuple[float, ...], ...] = _ANY,
    x: CaseStorage = ROWS, y: CaseStorage = ROWS, dtype: DType = F32, terms: int = _TERMS,
    values: Values = NORMAL, width: int = _W,
) -> Case:  # fmt: skip
    image = Operand((_IMAGES, channels, _H, width), dtype, x, values=values)
    places = (Result(y),) if isinstance(op, RoiPool) and op.places else ()
    return Case(name, op, (image, _boxes(rows, dtype)), (Result(y, dtype), *places), terms)


def _backward(
    name: str, op: Op, channels: int, bins: tuple[int, int], *extra: Operand,
    rows: tuple[tuple[float, ...], ...] = _ANY, x: CaseStorage = ROWS, y: CaseStorage = ROWS,
    dtype: DType = F32,
) -> Case:  # fmt: skip
    grad = Operand((len(rows), channels, *bins), dtype, x)
    return Case(name, op, (grad, *extra, _boxes(rows, dtype)), (Result(y, dtype),), _TERMS)


_ALIGN = RoiAlign((4, 2), 0.5, 2, report=True)
_ALIGN_BACK = RoiAlignGradient((4, 2), 0.5, 2, images=(_IMAGES, _H, _W))
_POOL = RoiPool((4, 2), 0.5, places=True, report=True)
_POOL_LARGE = replace(_POOL, bins=(2, 2), scale=1.0)
_PS_ALIGN, _PS_POOL = PsRoi((4, 2), 0.5, "align", 2), PsRoi((4, 2), 0.5, "pool")
_PS_BACK = PsRoiGradient((4, 2), 0.5, "align", 2, images=(_IMAGES, _H, _W))


def _pool_back(
    name: str, channels: int, x: CaseStorage = ROWS, y: CaseStorage = ROWS, dtype: DType = F32,
    rows: tuple[tuple[float, ...], ...] = _ANY,
) -> Case:  # fmt: skip
    anywhere = Whole(-3, _H * _W + 2)  # some are none, some beyond the image
    places = Operand((len(rows), channels, 4, 2), I32, x, values=anywhere)
    op = RoiPoolGradient((_IMAGES, _H, _W), report=True)
    return _backward(name, op, channels, (4, 2), places, rows=rows, x=x, y=y, dtype=dtype)


_APART = Case(
    "align-images-apart",
    RoiAlign((2, 2), 1.0, 1),
    (
        Operand((_IMAGES, 6, _H, _W), storage=CaseStorage(strides=(1716, 286, 1, 13))),
        Operand((12, 4), storage=CaseStorage(strides=(7, 1)),
                values=Given(tuple(float(n) for row in _FINITE for n in row[1:]))),
        Operand((12,), I64, values=Given(tuple(float(row[0]) for row in _FINITE))),
    ),
    (Result(LAST),),
    _TERMS,
)  # fmt: skip

_OF_ALIGN = (
    _forward("align", _ALIGN, 70),
    _forward("align-last", replace(_ALIGN, ratio=0, aligned=False), 70, x=LAST, y=LAST),
    _forward("align-largest", replace(_ALIGN, mode="max", aligned=False), 5, x=LAST, y=LAST),
    _forward("align-few", replace(_ALIGN, bins=(7, 7)), 1),
    _forward(
        "align-few-last", replace(_ALIGN, bins=(2, 3), ratio=1, aligned=False), 3, x=LAST, y=LAST
    ),
    _forward("align-one-pixel", replace(_ALIGN, bins=(1, 1)), 2, width=1),
    _forward("align-bf16", replace(_ALIGN, bins=(3, 3)), 67, dtype=BF16),
    _forward("align-f16-last", replace(_ALIGN, bins=(3, 3)), 67, dtype=F16, x=LAST, y=LAST),
    _forward("align-f64", replace(_ALIGN, bins=(3, 3)), 17, dtype=F64),
    _forward("align-no-boxes", _ALIGN, 5, rows=()),
    _APART,
    _backward("align-gradient", _ALIGN_BACK, 70, (4, 2)),
    _backward("align-gradient-last", replace(_ALIGN_BACK, report=True), 70, (4, 2), x=LAST, y=LAST),
    _backward("align-gradient-few", _ALIGN_BACK, 5, (4, 2), x=LAST, y=LAST),
    _backward("align-gradient-bf16", replace(_ALIGN_BACK, bins=(3, 3)), 67, (3, 3), dtype=BF16),
    _backward("align-gradient-no-boxes", _ALIGN_BACK, 5, (4, 2), rows=()),
)
_OF_POOL = (
    _forward("pool", _POOL, 70, terms=0, values=SPECIAL),
    _forward("pool-last", _POOL, 70, x=LAST, y=LAST, terms=0),
    _forward(
        "pool-large-last", _POOL_LARGE, 21, rows=_LARGE, x=LAST, y=LAST, terms=0, values=SPECIAL
    ),
    _forward(
        "pool-large-equal",
        _POOL_LARGE,
        37,
        rows=_LARGE,
        x=LAST,
        dtype=F16,
        terms=0,
        values=Whole(0, 3),
    ),
    _forward(
        "pool-large-values",
        replace(_POOL_LARGE, places=False, report=False),
        5,
        rows=_LARGE,
        x=LAST,
        terms=0,
    ),
    _forward(
        "pool-large-values-f16",
        replace(_POOL_LARGE, places=False),
        21,
        rows=_LARGE,
        x=LAST,
        y=LAST,
        dtype=F16,
        terms=0,
        values=SPECIAL,
    ),
    _forward("pool-values-f16", replace(_POOL, places=False), 37, dtype=F16, terms=0),
    _forward(
        "pool-values-bf16", replace(_POOL, places=False), 20, dtype=BF16, terms=0, values=SPECIAL
    ),
    _forward("pool-few", replace(_POOL, places=False), 5, terms=0),
    _forward("pool-few-wide", replace(_POOL, bins=(3, 7)), 2, width=39, terms=0, values=SPECIAL),
    _forward("pool-many-bins", replace(_POOL, bins=(9, 40), scale=1.0), 3, terms=0),
    _forward("pool-bf16", _POOL, 20, dtype=BF16, terms=0),
    _forward("pool-f64", _POOL, 20, dtype=F64, x=LAST, y=LAST, terms=0),
    _forward("pool-no-boxes", _POOL, 5, rows=(), terms=0),
    _pool_back("pool-gradient", 20),
    _pool_back("pool-gradient-last", 37, LAST, LAST),
    _pool_back("pool-gradient-last-to-rows", 5, LAST, ROWS),
    _pool_back("pool-gradient-bf16", 5, ROWS, LAST, BF16),
    _pool_back("pool-gradient-no-boxes", 3, rows=()),
)
_OF_PS = (
    _forward("ps-align", replace(_PS_ALIGN, report=True, mapping=True), 24, rows=_FINITE),
    _forward("ps-align-last", _PS_ALIGN, 24, rows=_FINITE, x=LAST, y=LAST),
    _forward("ps-pool", _PS_POOL, 24, rows=_FINITE),
    _forward("ps-pool-last", _PS_POOL, 24, rows=_FINITE, x=LAST, y=LAST),
    _forward("ps-any-grid", PsRoi((2, 4), 0.5, "align"), 16),
    _forward("ps-bf16", _PS_ALIGN, 24, rows=_FINITE, dtype=BF16),
    _backward("ps-gradient", _PS_BACK, 3, (4, 2), rows=_FINITE),
    _backward("ps-gradient-last", _PS_BACK, 3, (4, 2), rows=_FINITE, x=LAST, y=LAST),
    _backward("ps-gradient-pool", replace(_PS_BACK, mode="pool", ratio=0), 3, (4, 2), rows=_FINITE),
    _backward("ps-gradient-no-boxes", _PS_BACK, 3, (4, 2), rows=()),
)

CASES = (*_OF_ALIGN, *_OF_POOL, *_OF_PS)
