"""Pooling: windows of every kind over channels-last images, NaN, epilogues, no channels."""

from __future__ import annotations

from saccade.ir import DType
from saccade.ir.expr import parse
from saccade.kernels.cases.base import (
    BF16,
    F16,
    F32,
    GAPS,
    LAST,
    NORMAL,
    SPECIAL,
    Case,
    CaseStorage,
    Operand,
    Result,
    Values,
)
from saccade.opdefs import Pool2d

__all__ = ["CASES"]

_THREE, _TWO = (3, 3), (2, 2)


def _case(
    name: str, shape: tuple[int, int, int, int], op: Pool2d, *more: Operand, dtype: DType = F32,
    result: DType | None = None, storage: CaseStorage = LAST, values: Values = NORMAL,
) -> Case:  # fmt: skip
    x = Operand(shape, dtype, storage, values=values)
    results = (Result(storage, result or dtype),)
    return Case(name, op, (x, *more), results, op.kernel[0] * op.kernel[1])


def _mean(kernel: tuple[int, int], stride: tuple[int, int] = (1, 1), pad: int = 0) -> Pool2d:
    return Pool2d("average", kernel, stride, (pad,) * 4)


def _most(kernel: tuple[int, int], stride: tuple[int, int] = (1, 1), pad: int = 0) -> Pool2d:
    return Pool2d("max", kernel, stride, (pad,) * 4)


_SCALE = Operand((21, 1, 1), constant=True)
_RESIDUAL = Operand((2, 21, 2, 3), storage=GAPS)
_SCALED = Pool2d("average", _THREE, _TWO, epilogue=parse("relu(add(mul($0, $1), 0.5))"))
_ADDED = Pool2d("average", _THREE, _TWO, epilogue=parse("add($0, $1)"))

CASES = (
    _case("stride-2", (1, 16, 9, 11), _mean(_THREE, _TWO, 1)),
    _case("largest", (1, 37, 5, 27), _most(_THREE, _TWO, 1)),
    _case("largest-quarters", (2, 7, 6, 6), _most(_TWO, _TWO)),
    _case("asymmetric", (2, 33, 7, 5), Pool2d("average", (3, 2), padding=(1, 0, 2, 1)),
          storage=GAPS),
    _case("dilated", (1, 70, 8, 8), Pool2d("average", _THREE, (1, 1), (2, 3, 2, 3), (2, 3))),
    _case("global", (1, 64, 7, 7), _mean((7, 7))),
    _case("larger-than-the-image", (1, 130, 13, 13), _mean((13, 13), pad=6)),
    _case("last-window", (1, 5, 10, 9),
          Pool2d("average", _THREE, _THREE, (0, 1, 2, 0), ceil_mode=True)),
    _case("one-tap", (1, 3, 5, 5), _mean((1, 1), _TWO)),
    _case("one-row", (1, 1, 1, 12), Pool2d("average", (1, 9), padding=(0, 4, 0, 4))),
    _case("wide", (2, 19, 6, 33), _most(_THREE, pad=1), storage=GAPS),
    _case("with-padding", (2, 24, 7, 9),
          Pool2d("average", (5, 5), padding=(2, 2, 2, 2), count_include_pad=True)),
    _case("odd-strides", (1, 20, 13, 9), Pool2d("average", (4, 3), (3, 2), (3, 2, 3, 2))),
    _case("no-images", (0, 4, 5, 5), _mean(_TWO)),
    _case("no-channels", (1, 0, 5, 5), _most(_TWO)),
    _case("nan-wins", (1, 18, 9, 34), _most(_THREE, pad=1), values=SPECIAL),
    _case("f16", (1, 40, 6, 6), _mean(_THREE, _TWO, 1), dtype=F16),
    _case("bf16", (2, 37, 6, 7), _mean(_THREE, _TWO, 1), dtype=BF16),
    _case("bf16-largest-to-f32", (2, 37, 6, 7), _most(_THREE), dtype=BF16, result=F32),
    _case("epilogue", (2, 21, 6, 7), _SCALED, _SCALE),
    _case("residual", (2, 21, 6, 7), _ADDED, _RESIDUAL),
)  # fmt: skip
