"""Normalisations: over the last axes, over groups of channels, around a channel, by a p-norm."""

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
)
from saccade.opdefs import GroupNorm, LayerNorm, LocalResponseNorm, LpNormalize

__all__ = ["CASES"]

_Shape = tuple[int, ...]
_AROUND = Normal(offset=3.0)


def _layer(
    name: str, shape: _Shape, axis: int, scale: _Shape, *, bias: bool = True, dtype: DType = F32
) -> Case:
    factors = (Operand(scale, dtype, constant=True),) * (1 + bias)
    x = Operand(shape, dtype, values=_AROUND)
    return Case(name, LayerNorm(axis), (x, *factors), (Result(dtype=dtype),), 256)


def _group(name: str, shape: _Shape, groups: int, storage: CaseStorage = ROWS) -> Case:
    factors = (Operand(shape[1:2], constant=True),) * 2
    x = Operand(shape, storage=storage, values=_AROUND)
    return Case(name, GroupNorm(groups), (x, *factors), (Result(storage),), 1024)


def _around(
    name: str, shape: _Shape, size: int, storage: CaseStorage = ROWS, dtype: DType = F32
) -> Case:
    op = LocalResponseNorm(size, 0.3, 0.75, 2.0)
    return Case(name, op, (Operand(shape, dtype, storage),), (Result(storage, dtype),), 4)


def _lp(name: str, shape: _Shape, axis: int, p: int, storage: CaseStorage = ROWS) -> Case:
    return Case(
        name, LpNormalize(axis, p), (Operand(shape, storage=storage),), (Result(storage),), 37
    )


# Axis 1 has neighbours in memory, axis 2, which is swept, has not.
_ACROSS = CaseStorage(strides=(720, 1, 30))

CASES = (
    _layer("layer-rows", (5, 37), 1, (37,)),
    _layer("layer-two-axes", (2, 3, 20), 1, (3, 20)),
    _layer("layer-all", (4, 9), 0, (4, 9), bias=False),
    _layer("layer-scalar", (3, 16), 1, ()),
    _layer("layer-one-element", (5, 1), 1, (1,)),
    _layer("layer-nothing", (0, 7), 1, (7,)),
    _layer("layer-f16", (4, 40), 1, (40,), dtype=F16),
    _layer("layer-bf16", (4, 40), 1, (40,), dtype=BF16),
    Case(
        "layer-across", LayerNorm(2),
        (Operand((2, 30, 24), storage=_ACROSS), *(Operand((24,), constant=True),) * 2),
        (Result(_ACROSS),), 64,
    ),
    _group("groups", (2, 24, 5, 6), 3),
    _group("groups-last", (2, 24, 5, 6), 3, GAPS),
    _group("instance", (2, 24, 5, 6), 24),
    _group("instance-last", (2, 24, 5, 6), 24, LAST),
    _group("one-group", (1, 40, 7, 7), 1),
    _group("three-axes", (2, 6, 33), 2),
    _group("no-pixels", (3, 8), 2),
    _around("response", (2, 37, 3, 4), 5),
    _around("response-last", (2, 37, 3, 4), 8, GAPS),
    _around("response-of-one", (2, 64, 1, 1), 1),
    _around("response-wider-than-all", (1, 3, 5), 8),
    _around("response-nothing", (0, 4, 2, 2), 2),
    _around("response-f16", (2, 20, 3, 3), 5, dtype=F16),
    _lp("lp1", (5, 37, 20), 1, 1),
    _lp("lp2", (5, 37, 20), 2, 2),
    _lp("lp2-last", (2, 37, 3, 4), 1, 2, GAPS),
)  # fmt: skip
