"""Operators that OpenMMLab's exporters write, into the domains `mmcv` and `mmdeploy`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from saccade.frontend.onnx.call import OnnxNode, Operand
from saccade.frontend.onnx.importers._elementwise import pointwise
from saccade.frontend.onnx.importers.contrib._forms import only
from saccade.frontend.onnx.importers.regions import suppressed
from saccade.frontend.onnx.moves import move, reshaped, slice_map, transpose_map
from saccade.frontend.onnx.refusal import Refusal
from saccade.ir import Value
from saccade.ir.dim import mul
from saccade.ir.expr import apply, const
from saccade.opdefs import DeformConv, GridSample, NonMaxSuppression, RoiAlign, WeightedSamples

__all__ = [
    "import_deform_conv_1",
    "import_grid_sampler",
    "import_mmcv_nms",
    "import_mmcv_roi_align",
    "import_modulated_deform_conv",
    "import_multi_scale_attention",
]

_MODES = ("linear", "nearest", "cubic")
_PADDING = ("zeros", "border", "reflection")
_MOST = 2**31 - 1
"""A limit that is none."""


def import_grid_sampler(call: OnnxNode) -> Sequence[Operand]:
    """ONNX mmdeploy.grid_sampler 1: PyTorch's `grid_sampler`, of images."""
    only(call, "align_corners", "interpolation_mode", "padding_mode", inputs=2)
    mode, padding = call.integer("interpolation_mode", 0), call.integer("padding_mode", 0)
    if not 0 <= mode < len(_MODES) or not 0 <= padding < len(_PADDING):
        raise call.broken(f"interpolation_mode {mode}, padding_mode {padding}")
    op = GridSample(_MODES[mode], _PADDING[padding], call.flag("align_corners"))
    return [call.emit(op, call.value(0), call.value(1))]


def import_mmcv_roi_align(call: OnnxNode) -> Sequence[Operand]:
    """ONNX mmdeploy.MMCVRoiAlign 1: boxes of (image, x1, y1, x2, y2), means."""
    only(
        call, "aligned", "mode", "output_height", "output_width", "sampling_ratio", "spatial_scale",
        inputs=2,
    )  # fmt: skip
    if call.text("mode", "avg") != "avg":
        # ONNX's largest weighted corner is something else than MMCV's largest sample.
        raise Refusal(f"mode {call.text('mode', 'avg')!r}")
    op = RoiAlign(
        bins=(call.integer("output_height", 1), call.integer("output_width", 1)),
        scale=call.finite("spatial_scale", 1.0),
        ratio=call.integer("sampling_ratio", 0),
        aligned=call.flag("aligned", default=True),
    )
    return [call.emit(op, call.value(0), call.value(1))]


_WINDOW = ("deform_groups", "dilation", "groups", "padding", "stride")


def import_modulated_deform_conv(call: OnnxNode) -> Sequence[Operand]:
    """ONNX mmdeploy.MMCVModulatedDeformConv2d 1: version 2, with a mask."""
    only(call, *_WINDOW, inputs=5)
    x, offset, mask, weight = (call.value(index) for index in range(4))
    bias = [call.value(4)] if call.has(4) else []
    op = _deformed(call, weight, bias=bool(bias), mask=True)
    return [call.emit(op, x, weight, offset, *bias, mask)]


def import_deform_conv_1(call: OnnxNode) -> Sequence[Operand]:
    """ONNX mmdeploy.MMCVDeformConv2d 1: version 1, without mask and bias."""
    only(call, *_WINDOW, "bias", "im2col_step", inputs=3)
    if call.flag("bias"):
        raise Refusal("attribute 'bias'")
    x, offset, weight = (call.value(index) for index in range(3))
    return [call.emit(_deformed(call, weight, bias=False, mask=False), x, weight, offset)]


def _deformed(call: OnnxNode, weight: Value, *, bias: bool, mask: bool) -> DeformConv:
    if weight.rank != 4 or not isinstance(weight.shape[0], int):
        raise call.broken(f"weights {list(weight.shape)}")
    down, along = _pair(call, "padding", 0)
    return DeformConv(
        stride=_pair(call, "stride", 1),
        padding=(down, along, down, along),
        dilation=_pair(call, "dilation", 1),
        groups=call.integer("groups", 1),
        offset_groups=call.integer("deform_groups", 1),
        bias=bias,
        mask=mask,
    )


def _pair(call: OnnxNode, name: str, least: int) -> tuple[int, int]:
    """Two integers, or one for both."""
    attribute = call.node.attributes.get(name)
    if attribute is not None and attribute.type.name == "INT":
        found: tuple[int, ...] = (call.integer(name, least),) * 2
    else:
        found = call.integers(name) or (least, least)
    if len(found) != 2 or min(found) < least or max(found) > _MOST:
        raise call.broken(f"{name} {list(found)}")
    return found[0], found[1]


def import_mmcv_nms(call: OnnxNode) -> Sequence[Operand]:
    """ONNX mmdeploy.NonMaxSuppression 1: of one class, indices by falling score."""
    only(call, "iou_threshold", "max_num", "offset", "score_threshold", inputs=2)
    boxes, scores = call.value(0), call.value(1)
    if boxes.rank != 2 or scores.rank != 1:
        raise call.broken(f"boxes of {boxes.rank} axes, scores of {scores.rank}")
    if call.flag("offset"):
        # The last pixel counts: x2 and y2 lie one farther.
        ends = np.asarray([0, 0, 1, 1], boxes.dtype.arithmetic.numpy)
        far = call.build.constant(ends, "ends")
        boxes = pointwise(call, partial(apply, "add"), [boxes, far])
    threshold, most = call.finite("score_threshold", 0.0), call.integer("max_num", -1)
    like = NonMaxSuppression(
        rows=0,
        most=min(most, _MOST) if most > 0 else _MOST,
        iou_threshold=call.finite("iou_threshold", 0.0),
        score_threshold=threshold if threshold > 0 else None,
    )
    of_one = reshaped(call, boxes, (1, *boxes.shape)), reshaped(call, scores, (1, 1, *scores.shape))
    rows = suppressed(call, *of_one, like)
    return [move(call, rows, slice_map(rows.shape, {1: (2, 1, 1)}, drop=(1,)))]


def import_multi_scale_attention(call: OnnxNode) -> Sequence[Operand]:
    """ONNX mmdeploy.MultiScaleDeformableAttn 1: of levels of known sizes.

    value [B, Σ H·W, heads, D], sizes [levels, 2], first rows [levels], places [B, Q, heads,
    levels, P, 2] from 0 to 1, weights [B, Q, heads, levels, P]; the result is [B, Q, heads · D].
    """
    only(call, "im2col_step", inputs=5)
    value, places, weights = (call.value(index) for index in (0, 3, 4))
    if (value.rank, places.rank, weights.rank) != (4, 6, 5):
        raise call.broken(f"operands of {value.rank}, {places.rank} and {weights.rank} axes")
    flat = call.integers_of(1, "the sizes of the levels")
    levels = [(flat[i], flat[i + 1]) for i in range(0, len(flat) - 1, 2)]
    rows = sum(height * width for height, width in levels)
    if len(flat) % 2 or min(flat, default=0) < 1 or value.shape[1] != rows:
        raise call.broken(f"levels {levels} of {value.shape[1]} rows")
    if places.shape[3] != len(levels) or weights.shape[3] != len(levels):
        raise call.broken(f"{places.shape[3]} levels of places for {len(levels)}")
    batch, _, heads, size = value.shape
    if not isinstance(heads, int):
        raise call.broken(f"{heads} heads")
    centred = pointwise(
        call, lambda e: apply("sub", apply("mul", e, const(2)), const(1)), [places]
    )  # fmt: skip
    images, grids, start = list[Value](), list[Value](), 0
    for level, (height, width) in enumerate(levels):
        part = move(call, value, slice_map(value.shape, {1: (start, height * width, 1)}))
        ordered = move(call, part, transpose_map(part.shape, (0, 2, 3, 1)))
        images.append(reshaped(call, ordered, (batch, mul(heads, size), height, width)))
        grids.append(move(call, centred, slice_map(places.shape, {3: (level, 1, 1)}, drop=(3,))))
        start += height * width
    together = reshaped(
        call, weights, (*weights.shape[:3], mul(weights.shape[3], weights.shape[4]))
    )
    return [call.emit(WeightedSamples(len(levels), heads), *images, *grids, together)]
