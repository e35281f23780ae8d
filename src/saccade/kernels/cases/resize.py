"""Resizing: modes, positions and roundings, up and down, rows and pixels, either order."""

from __future__ import annotations

from dataclasses import replace

from saccade.ir import DType
from saccade.ir.expr import parse
from saccade.kernels.cases.base import (
    BF16,
    F16,
    F32,
    GAPS,
    LAST,
    ROWS,
    Case,
    CaseStorage,
    Operand,
    Result,
)
from saccade.opdefs import Resample, Resize

__all__ = ["CASES"]

_ROUNDED = 300  # positions are float32: a weight is off by a few units in their last place


def _case(
    name: str, shape: tuple[int, int, int, int], op: Resize, *more: Operand, dtype: DType = F32,
    result: CaseStorage = GAPS,
) -> Case:  # fmt: skip
    operands = (Operand(shape, dtype, GAPS), *more)
    return Case(name, op, operands, (Result(result, dtype),), _ROUNDED)


def _to(*sizes: int, mode: str = "linear", at: str = "half_pixel") -> Resize:
    return Resize(sizes, mode=mode, coordinate=at)


_SMALL, _ODD = (2, 5, 3, 4), (1, 33, 7, 5)
_SCALES = (1.0, 1.0, 1.5, 2.5)
_FLOOR = Resize((1, 20, 3, 4), nearest="floor")
_CEIL = Resize((1, 20, 16, 4), coordinate="asymmetric", nearest="ceil")
_SCALED = Resize((1, 7, 7, 12), _SCALES, "linear")
_OUTSIDE = Resize((1, 7, 7, 12), _SCALES, "cubic", exclude_outside=True)
_FUSED = Resize((2, 19, 8, 8), None, "linear", epilogue=parse("relu(mul($0, $1))"))


def _along(
    name: str, shape: tuple[int, ...], op: Resample, storage: CaseStorage = ROWS, dtype: DType = F32
) -> Case:
    return Case(name, op, (Operand(shape, dtype, storage),), (Result(storage, dtype),), 64)


_SMALLER = Resample(2, 5, antialias=True)
_REGION = Resample(3, 9, coordinate="tf_crop_and_resize", region=(-0.3, 1.2), fill=2.5)
_RESAMPLED = (
    _along("antialias-rows", (2, 3, 17, 11), _SMALLER),
    _along("antialias-rows-last", (2, 3, 17, 11), _SMALLER, LAST),
    _along("antialias-columns-last", (1, 37, 4, 23), Resample(3, 7, antialias=True), LAST),
    _along("antialias-columns", (1, 2, 4, 23), Resample(3, 7, mode="cubic", antialias=True)),
    _along("one-axis", (19,), Resample(0, 4, mode="cubic", exclude_outside=True)),
    _along("channels", (2, 5, 3, 2), Resample(1, 9, coordinate="align_corners"), LAST),
    _along("depths", (2, 3, 5, 7, 11), Resample(2, 8)),
    _along("region", (1, 2, 3, 10), _REGION),
    _along("region-nearest", (2, 13, 3, 10), replace(_REGION, mode="nearest"), LAST),
    _along("region-flipped", (1, 2, 3, 10), replace(_REGION, region=(0.9, 0.1))),
    _along("resample-f16", (2, 3, 17, 40), _SMALLER, dtype=F16),
    _along("resample-bf16", (2, 70, 17, 3), _SMALLER, LAST, BF16),
    _along("resample-nothing", (2, 0, 17, 3), _SMALLER),
)

CASES = (
    _case("nearest", _SMALL, _to(2, 5, 6, 8, mode="nearest")),
    _case("linear", _SMALL, _to(2, 5, 6, 8)),
    _case("cubic", _SMALL, _to(2, 5, 6, 8, mode="cubic")),
    _case("uneven-nearest", _ODD, _to(1, 33, 4, 9, mode="nearest", at="asymmetric")),
    _case("uneven", _ODD, _to(1, 33, 4, 9, at="align_corners")),
    _case("uneven-cubic", _ODD, _to(1, 33, 4, 9, mode="cubic", at="half_pixel_symmetric")),
    _case("one-row", (1, 70, 1, 6), _to(1, 70, 1, 3, at="pytorch_half_pixel")),
    _case("one-pixel", (1, 3, 1, 1), _to(1, 3, 4, 3)),
    _case("down", (1, 20, 8, 8), _FLOOR),
    _case("ceil", (1, 20, 8, 8), _CEIL),
    _case("scales", (1, 7, 5, 5), _SCALED),
    _case("outside", (1, 7, 5, 5), _OUTSIDE),
    _case("planar", (1, 21, 3, 3), _to(1, 21, 2, 40), result=ROWS),
    _case("planar-cubic", (2, 32, 5, 5), _to(2, 32, 40, 36, mode="cubic"), result=ROWS),
    _case("dense", (2, 40, 6, 5), _to(2, 40, 24, 20), result=LAST),
    _case("bands", (1, 40, 24, 16), _to(1, 40, 72, 100, at="align_corners")),
    _case("no-images", (0, 3, 4, 4), _to(0, 3, 8, 8)),
    _case("no-channels", (1, 0, 4, 4), _to(1, 0, 8, 8)),
    _case("f16", (2, 19, 4, 4), _to(2, 19, 8, 8), dtype=F16),
    _case("bf16", (2, 19, 4, 5), _to(2, 19, 8, 37), dtype=BF16),
    _case("epilogue", (2, 19, 4, 4), _FUSED, Operand((19, 1, 1), constant=True)),
    *_RESAMPLED,
)
