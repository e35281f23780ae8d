"""Resize 10 to 19 and Upsample 1 to 9."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from saccade.frontend.onnx.call import OnnxNode, Operand
from saccade.frontend.onnx.importers._measured_resize import resized_to_measured
from saccade.frontend.onnx.measured import measured
from saccade.frontend.onnx.moves import reshaped
from saccade.frontend.onnx.open_axes import is_open
from saccade.frontend.onnx.refusal import Refusal
from saccade.frontend.onnx.specialise import refuse_sizes
from saccade.ir import Dim, Value
from saccade.ir.dim import floordiv, mul
from saccade.opdefs import Resample, Resize

__all__ = ["import_resize", "import_upsample"]

_LARGEST = 1 << 20
_ALL_SCALES_SINCE = 7
_SCALES_INPUT_SINCE = 9


def import_upsample(call: OnnxNode) -> Sequence[Operand]:
    """ONNX Upsample 1, 7 (scales are attributes) and 9: asymmetric coordinates, rounded down."""
    x = call.value(0)
    if call.opset < _ALL_SCALES_SINCE:
        if x.rank != 4:
            raise call.broken(f"two scales for {x.rank} axes")
        height, width = (call.number(f"{name}_scale", 0.0) for name in ("height", "width"))
        scales = _positive(call, (1.0, 1.0, height, width))
    elif call.opset < _SCALES_INPUT_SINCE:
        scales = _positive(call, call.numbers("scales") or ())
    else:
        scales = _scales(call, 1)
    mode = _mode(call)
    return [_resize(call, x, None, scales, mode=mode, coordinate="asymmetric", nearest="floor")]


def import_resize(call: OnnxNode) -> Sequence[Operand]:
    """ONNX Resize; a region of interest has to be known."""
    x = call.value(0)
    if call.opset < 11:
        return [_resize_10(call, x)]
    coordinate = call.text("coordinate_transformation_mode", "half_pixel")
    given = call.integers("axes")
    axes = range(x.rank) if given is None else [call.axis(axis, x.rank) for axis in given]
    regions = _regions(call, x, list(axes)) if coordinate == "tf_crop_and_resize" else None
    sizes, scales = _target(call, x, list(axes))
    if sizes is not None and is_open(
        call, *(b for a, b in zip(x.shape, sizes, strict=True) if a != b)
    ):
        if regions is not None or scales is not None:
            raise Refusal("the size of a resize depends on data, of a region or at one ratio")
        return [resized_to_measured(call, x, sizes, _mode(call))]
    y = _resize(
        call,
        x,
        sizes,
        scales,
        mode=_mode(call),
        coordinate=coordinate,
        nearest=call.text("nearest_mode", "round_prefer_floor"),
        regions=regions,
    )
    return [y]


def _regions(call: OnnxNode, x: Value, axes: list[int]) -> tuple[tuple[float, float], ...]:
    """Begin and end of the region along all axes, in lengths of the axis less one element."""
    roi = call.constant(1, "the region of a resize").ravel().astype(float)
    if len(roi) != 2 * len(axes) or not np.isfinite(roi).all():
        raise call.broken(f"a region of {len(roi)} numbers for {len(axes)} axes")
    found = [(0.0, 1.0)] * x.rank
    for number, axis in enumerate(axes):
        found[axis] = (float(roi[number]), float(roi[number + len(axes)]))
    return tuple(found)


def _resize_10(call: OnnxNode, x: Value) -> Value:
    """Version 10 rounds down where it enlarges and up where it shrinks."""
    scales = _scales(call, 1)
    if len(scales) != x.rank:
        raise call.broken(f"{len(scales)} scales for {x.rank} axes")
    for rounding, chosen in (("ceil", [s < 1 for s in scales]), ("floor", [s > 1 for s in scales])):
        # One rounding for all axes: what shrinks and enlarges at once takes two steps.
        part = tuple(s if take else 1.0 for s, take in zip(scales, chosen, strict=True))
        if any(chosen):
            x = _resize(
                call, x, None, part, mode=_mode(call), coordinate="asymmetric", nearest=rounding
            )
    return x


def _mode(call: OnnxNode) -> str:
    mode = call.text("mode", "nearest")
    return "linear" if mode == "bilinear" else mode


def _scales(call: OnnxNode, index: int) -> tuple[float, ...]:
    given = call.constant(index, "the scales of a resize").ravel()
    return _positive(call, tuple(float(v) for v in given))


def _positive(call: OnnxNode, scales: tuple[float, ...]) -> tuple[float, ...]:
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
        wanted = measured(call, 3, "the size of a resize")
        if len(wanted) != len(axes):
            raise call.broken(f"{len(wanted)} sizes for {len(axes)} axes")
        policy = call.text("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            return _kept_ratio(call, x, dict(zip(axes, wanted, strict=True)), policy)
        sizes = list(x.shape)
        for axis, size in zip(axes, wanted, strict=True):
            sizes[axis] = size
        refuse_sizes(f"Resize {call.name!r} to {list(sizes)}", x.shape, sizes, call.build.own)
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


def _kept_ratio(
    call: OnnxNode, x: Value, wanted: dict[int, Dim], policy: str
) -> tuple[tuple[Dim, ...], tuple[float, ...]]:
    """Sizes of one common scale: the smallest or the largest of those that were asked for."""
    if policy not in ("not_larger", "not_smaller"):
        raise call.broken(f"keep_aspect_ratio_policy {policy!r} is unknown")
    known = {
        axis: (size, before)
        for axis, size in wanted.items()
        if isinstance(size, int) and isinstance(before := x.shape[axis], int) and before
    }
    if len(known) < len(wanted) or not known:
        raise Refusal("keeps an aspect ratio of sizes that vary")
    ratios = [Fraction(size, before) for size, before in known.values()]
    scale = min(ratios) if policy == "not_larger" else max(ratios)
    sizes, scales = list(x.shape), [1.0] * x.rank
    for axis, (_, before) in known.items():
        sizes[axis] = math.floor(scale * before + Fraction(1, 2))  # halves are rounded up
        scales[axis] = float(scale)
    return tuple(sizes), tuple(scales)


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
    regions: tuple[tuple[float, float], ...] | None = None,
) -> Value:
    if sizes is None:
        assert scales is not None
        if len(scales) != x.rank:
            raise call.broken(f"{len(scales)} scales for {x.rank} axes")
        # Also of a region: that its length counts, as the standard's text has it, is what neither
        # its own shape rule, nor its reference, nor ONNX Runtime does.
        sizes = tuple(_scaled(d, s) for d, s in zip(x.shape, scales, strict=True))
    # A scale near 1 may keep the size and still move samples.
    whole = regions is None or set(regions) == {(0.0, 1.0)}
    if sizes == x.shape and (scales is None or set(scales) <= {1.0}) and whole:
        return x
    op = Resize(
        sizes=sizes,
        scales=scales,
        mode=mode,
        coordinate="half_pixel" if regions is not None else coordinate,
        nearest=nearest,
        cubic_a=call.number("cubic_coeff_a", -0.75),
        exclude_outside=call.flag("exclude_outside"),
    )
    if regions is not None or _by_axis(call, x, op):
        return _resampled(call, x, op, regions)
    if x.rank != 3:
        return call.emit(op, x)
    # A sequence is an image of one row.
    row = reshaped(call, x, (*x.shape[:2], 1, x.shape[2]))
    row_scales = None if scales is None else (*scales[:2], 1.0, scales[2])
    image = dataclasses.replace(op, sizes=(*sizes[:2], 1, sizes[2]), scales=row_scales)
    return reshaped(call, call.emit(image, row), sizes)


def _changes(op: Resize, shape: Sequence[Dim], axis: int) -> bool:
    return op.sizes[axis] != shape[axis] or (op.scales is not None and op.scales[axis] != 1)


def _by_axis(call: OnnxNode, x: Value, op: Resize) -> bool:
    """Whether one axis after the other is resampled: what no resize of images does."""
    if not x.dtype.is_float:
        return False
    if call.flag("antialias") and op.mode != "nearest":
        return True
    return x.rank not in (3, 4) or any(_changes(op, x.shape, axis) for axis in (0, 1))


def _resampled(
    call: OnnxNode, x: Value, op: Resize, regions: tuple[tuple[float, float], ...] | None
) -> Value:
    """The same along one axis after the other; what shrinks comes first."""

    def growth(axis: int) -> float:
        before, after = x.shape[axis], op.sizes[axis]
        return (
            after / before if isinstance(before, int) and isinstance(after, int) and before else 1
        )

    if not x.dtype.is_float:
        raise Refusal(f"resizes a region of {x.dtype.value} elements")
    shape = x.shape
    for axis in sorted(range(x.rank), key=growth):
        region = (0.0, 1.0) if regions is None else regions[axis]
        cut = regions is not None and (region != (0.0, 1.0) or op.sizes[axis] != shape[axis])
        if not (cut if regions is not None else _changes(op, shape, axis)):
            continue
        step = Resample(
            axis,
            op.sizes[axis],
            None if op.scales is None else op.scales[axis],
            op.mode,
            op.coordinate if regions is None else "tf_crop_and_resize",
            op.nearest,
            op.cubic_a,
            op.exclude_outside,
            call.flag("antialias"),
            region,
            call.finite("extrapolation_value", 0.0),
        )
        x = call.emit(step, x)
    return x
