"""RoiAlign, NonMaxSuppression and GridSample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from saccade.frontend.onnx.call import OnnxNode, Operand
from saccade.frontend.onnx.open_axes import close
from saccade.frontend.onnx.refusal import Refusal
from saccade.ir import Dim, Value, storage
from saccade.ir.dim import minimum, product
from saccade.opdefs import GridSample, NonMaxSuppression, RoiAlign

__all__ = [
    "import_grid_sample",
    "import_non_max_suppression",
    "import_roi_align",
    "most_rows",
    "suppressed",
]

_FAR = 2**31 - 1
"""Exporters write this and more for "all of them"."""
_MODES = {"avg": "average", "max": "max"}


def import_roi_align(call: OnnxNode) -> Sequence[Operand]:
    """ONNX RoiAlign 10 to 22; what names an image that is not there gives zeros."""
    x, boxes, images = (call.value(i) for i in range(3))
    mode = call.text("mode", "avg").lower()
    if mode not in _MODES:
        raise call.broken(f"mode {mode!r}")
    # The attribute came with version 16, and its default is not what version 10 did.
    usual = "half_pixel" if call.opset >= 16 else "output_half_pixel"
    coordinates = call.text("coordinate_transformation_mode", usual)
    if coordinates not in ("half_pixel", "output_half_pixel"):
        raise Refusal(f"coordinates {coordinates!r}")
    op = RoiAlign(
        bins=(call.integer("output_height", 1), call.integer("output_width", 1)),
        scale=call.finite("spatial_scale", 1.0),
        ratio=call.integer("sampling_ratio", 0),
        aligned=coordinates == "half_pixel",
        mode=_MODES[mode],
    )
    return [call.emit(op, x, boxes, images)]


_SAMPLED = {"linear": "linear", "bilinear": "linear", "cubic": "cubic", "bicubic": "cubic"}


def import_grid_sample(call: OnnxNode) -> Sequence[Operand]:
    """ONNX GridSample 16 to 22, over any number of axes."""
    mode = call.text("mode", "linear" if call.opset >= 20 else "bilinear")
    padding = call.text("padding_mode", "zeros")
    op = GridSample(_SAMPLED.get(mode, mode), padding, call.flag("align_corners"))
    return [call.emit(op, call.value(0), call.value(1))]


def import_non_max_suppression(call: OnnxNode) -> Sequence[Operand]:
    """ONNX NonMaxSuppression 10 and 11; limit and thresholds must be constants."""
    boxes, scores = call.value(0), call.value(1)
    if boxes.rank != 3 or scores.rank != 3:
        raise call.broken(f"boxes of {boxes.rank} axes, scores of {scores.rank}")
    most = int(_number(call, 2, "max_output_boxes_per_class", np.int64) or 0)
    like = NonMaxSuppression(
        rows=0,
        most=max(1, min(most, _FAR)),
        iou_threshold=_number(call, 3, "iou_threshold", np.float32) or 0.0,
        score_threshold=_number(call, 4, "score_threshold", np.float32),
        centred=call.flag("center_point_box"),
    )
    if most > 0:
        return [suppressed(call, boxes, scores, like)]
    # No limit means no boxes; operands that do not fit are an error all the same.
    storage.infer(like, [boxes.type, scores.type])
    return [call.build.constant(np.zeros((0, 3), np.int64), call.name)]


def suppressed(call: OnnxNode, boxes: Value, scores: Value, like: NonMaxSuppression) -> Value:
    """What stays of boxes, [rows, 3], where a step finds out how many rows there are.

    Args:
        call: The node.
        boxes: [B, N, 4].
        scores: [B, C, N].
        like: The operator but for its rows.
    """
    # Scores that are no numbers take no part.
    boxes, scores = close(call, boxes, 1, 0), close(call, scores, 2, np.nan)
    bound = most_rows(scores.shape, like.most)
    if bound == 0:
        storage.infer(replace(like, rows=0), [boxes.type, scores.type])
        return call.build.constant(np.zeros((0, 3), np.int64), call.name)
    rows = call.build.symbol(_label(call))
    op = replace(like, rows=rows)
    selected, found = call.build.emit(op, [boxes, scores], call.name)
    call.build.counted(rows, bound, found)
    return selected


def most_rows(scores: Sequence[Dim], most: int) -> Dim:
    """How many boxes may stay: scores are [B, C, N], and so many of a class stay at most."""
    count = scores[2]
    # A minimum with so large a number would stay in every dim made of the bound.
    return product((*scores[:2], count if most >= _FAR else minimum(count, most)))


def _number(
    call: OnnxNode, index: int, name: str, kind: type[np.int64] | type[np.float32]
) -> float | None:
    """An optional operand of one element."""
    if not call.has(index):
        return None
    array = call.constant(index, name)
    if array.dtype != kind:
        raise call.broken(f"{name} of type {array.dtype}")
    if array.size > 1:
        raise call.broken(f"{array.size} elements of {name}")
    # An empty operand counts as left out.
    return array.item() if array.size else None


def _label(call: OnnxNode) -> str:
    """What the file calls the number of boxes that stay."""
    shape = call.node.outputs[0].shape
    label = getattr(shape[0], "value", None) if shape else None
    return label if isinstance(label, str) else "selected"
