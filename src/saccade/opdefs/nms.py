"""Greedy non-maximum suppression of boxes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from saccade.ir.dim import add
from saccade.ir.dtype import DType
from saccade.ir.op import Array, Op, TensorType, Work
from saccade.opdefs._rules import expect, expect_count, expect_float, static_count, tensor_bytes

__all__ = ["Nms"]


@dataclass(frozen=True)
class Nms(Op):
    """Which boxes stay when the best one drops all that overlap it, then the best of the rest.

    Operands: boxes [N, 4] as (x1, y1, x2, y2), scores [N], and, where boxes of different groups
    leave each other alone, groups [N] as int64. The result [N + 1], int64, holds the indices of
    the boxes that stay, by falling score, then -1, and their number at its end.

    A box drops another one if the overlap of both over the area of both exceeds the threshold,
    computed in float64 for boxes of float64 and in float32 for others, without regard to whether
    x1 <= x2: what is negative counts as no overlap, what is not a number drops nothing. Equal
    scores keep the order of their boxes; NaN comes before all others.

    Attributes:
        iou_threshold: What the ratio has to exceed.
    """

    iou_threshold: float

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(self, inputs, 2, 3)
        boxes, scores = inputs[:2]
        expect_float(self, boxes, "boxes")
        expect_float(self, scores, "scores")
        shaped = len(boxes.shape) == 2 and boxes.shape[1] == 4
        expect(self, shaped, f"boxes must be [N, 4], are {list(boxes.shape)}")
        for name, operand in zip(("scores", "groups"), inputs[1:], strict=False):
            same = operand.shape == boxes.shape[:1]
            expect(self, same, f"{name} must be [{boxes.shape[0]}], are {list(operand.shape)}")
        for groups in inputs[2:]:
            expect(self, groups.dtype is DType.I64, f"groups are {groups.dtype.value}")
        return (TensorType(DType.I64, (add(boxes.shape[0], 1),)),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        boxes, scores = inputs[:2]
        if boxes.dtype != np.float64:
            boxes = boxes.astype(np.float32)
        count = len(boxes)
        groups = inputs[2] if len(inputs) > 2 else np.zeros(count, np.int64)
        left = np.lexsort((-scores, ~np.isnan(scores)))
        result = np.full(count + 1, -1, np.int64)
        kept = 0
        while len(left):
            best, left = left[0], left[1:]
            result[kept] = best
            kept += 1
            near = (_iou(boxes[best], boxes[left]) > self.iou_threshold) & (
                groups[left] == groups[best]
            )
            left = left[~near]
        result[count] = kept
        return (result,)

    def work(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Work:
        # How many pairs have to be looked at depends on the boxes; their areas are always needed.
        return Work(3 * static_count(inputs[0].shape[:1]), tensor_bytes((*inputs, *outputs)))


def _iou(box: Array, others: Array) -> Array:
    """Overlap over union, as float64, of a box with each of the others."""
    with np.errstate(all="ignore"):
        low, high = np.maximum(box[:2], others[:, :2]), np.minimum(box[2:], others[:, 2:])
        sides = high - low
        overlap = np.prod(np.where(sides > 0, sides, 0), axis=1, dtype=box.dtype)
        areas = (others[:, 2] - others[:, 0]) * (others[:, 3] - others[:, 1])
        area = (box[2] - box[0]) * (box[3] - box[1])
        ratio: Array = overlap / (area + areas - overlap)
    return ratio.astype(np.float64)
