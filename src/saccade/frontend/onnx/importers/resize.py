"""Resize 10 to 19 and Upsample 7 and 9."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from saccade.frontend.onnx.call import OnnxNode, Operand
from saccade.frontend.onnx.refusal import Refusal
from saccade.ir import Dim, Value
from saccade.ir.dim import floordiv, mul
from saccade.opdefs import Resize

__all__ = ["import_resize", "import_upsample"]

_LARGEST = 1 << 20


def import_upsample(call: OnnxNode) -> Sequence[Operand]:
    """ONNX Upsample 7 (scales are an attribute) and 9: asymmetric coordinates, rounded down."""
    x = call.value(0)
    scales = call.numbers("scales") if call.opset < 9 else _scales(call, 1)
    if scales is None:
        raise call.broken("no scales")
    mode = _mode(call)
    return [_resize(call, x, None, scales, mode=mode, coordinate="asymmetric", nearest="floor")]


def import_resize(call: OnnxNode) -> Sequence[Operand]:
    """ONNX Resize; regions of interest and antialiasing are refused."""
    x = call.value(0)
    if call.opset < 11:
        return [_resize_10(call, x)]
    coordinate = call.text("coordinate_transformation_mode", "half_pixel")
    if coordinate == "tf_crop_and_resize":
        raise Refusal("resizes a region of interest")
    if call.flag("antialias"):
        raise Refusal("resizes with antialiasing")
    # Such a policy changes the sizes that the node gives.
    if call.text("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise Refusal("resizes with a kept aspect ratio")
    given = call.integers("axes")
    axes = range(x.rank) if given is None else [call.axis(axis, x.rank) for axis in given]
    sizes, scales = _target(call, x, list(axes))
    y = _resize(
        call,
        x,
        sizes,
        scales,
        mode=_mode(call),
        coordinate=coordinate,
        nearest=call.text("nearest_mode", "round_prefer_floor"),
    )
    return [y]


def _resize_10(call: OnnxNode, x: Value) -> Value:
    """Version 10 rounds down where it enlarges and up where it shrinks."""
    scales = _scales(call, 1)
    shrinks, grows = min(scales, default=1) < 1, max(scales, default=1) > 1
    mode = _mode(call)
    # `Resize` has one rounding for all axes.
    if mode == "nearest" and shrinks and grows:
        raise Refusal("enlarges and shrinks at once, in the manner of version 10")
    rounding = "ceil" if shrinks else "floor"
    return _resize(call, x, None, scales, mode=mode, coordinate="asymmetric", nearest=rounding)


def _mode(call: OnnxNode) -> str:
    mode = call.text("mode", "nearest")
    return "linear" if mode == "bilinear" else mode


def _scales(call: OnnxNode, index: int) -> tuple[float, ...]:
    scales = tuple(float(v) for v in call.constant(index, "the scales of a resize").ravel())
    if not all(math.isfinite(s) and 0 < s <= _LARGEST for s in scales):
        raise call.broken(f"scales {list(scales)}")
    return scales


def _is_given(call: OnnxNode, index: int) -> bool:
    # An empty tensor stands for an operand that is left out.
    return call.has(index) and call.shape(index) != (0,)


def _target(
    call: OnnxNode, x: Value, axes: list[int]
) -> tuple[tuple[Dim, ...] | None, tuple[float, ...] | None]:
    """Sizes or scales, whichever is given, for all axes."""
    if _is_given(call, 3):
        wanted = call.dims(3, "the size of a resize")
        if len(wanted) != len(axes):
            raise call.broken(f"{len(wanted)} sizes for {len(axes)} axes")
        sizes = list(x.shape)
        for axis, size in zip(axes, wanted, strict=True):
            sizes[axis] = size
        return tuple(sizes), None
    if not _is_given(call, 2):
        raise call.broken("neither scales nor sizes")
    given = _scales(call, 2)
    if len(given) != len(axes):
        raise call.broken(f"{len(given)} scales for {len(axes)} axes")
    scales = [1.0] * x.rank
    for axis, scale in zip(axes, given, strict=True):
        scales[axis] = scale
    return None, tuple(scales)


def _scaled(size: Dim, scale: float) -> Dim:
    """`floor(size · scale)`, in float32 as others do it where the size is known."""
    if isinstance(size, int):
        return int(np.floor(np.float32(size) * np.float32(scale)))
    # A scale of 0.7 means 7/10 and not the float32 beside it, as in `symbolic_arithmetic`.
    short = Fraction(scale).limit_denominator(1000)
    exact = short if np.float32(short) == np.float32(scale) else Fraction(scale)
    return floordiv(mul(size, exact.numerator), exact.denominator)


def _resize(
    call: OnnxNode,
    x: Value,
    sizes: tuple[Dim, ...] | None,
    scales: tuple[float, ...] | None,
    *,
    mode: str,
    coordinate: str,
    nearest: str,
) -> Value:
    if sizes is None:
        assert scales is not None
        if len(scales) != x.rank:
            raise call.broken(f"{len(scales)} scales for {x.rank} axes")
        sizes = tuple(_scaled(d, s) for d, s in zip(x.shape, scales, strict=True))
    # A scale near 1 may keep the size and still move samples.
    if sizes == x.shape and (scales is None or set(scales) <= {1.0}):
        return x
    op = Resize(
        sizes=sizes,
        scales=scales,
        mode=mode,
        coordinate=coordinate,
        nearest=nearest,
        cubic_a=call.number("cubic_coeff_a", -0.75),
        exclude_outside=call.flag("exclude_outside"),
    )
    return call.emit(op, x)
