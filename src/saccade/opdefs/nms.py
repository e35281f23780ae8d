"""Greedy non-maximum suppression of boxes: torchvision's, and ONNX's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from saccade.ir.dim import Dim, add
from saccade.ir.dtype import DType
from saccade.ir.op import Array, Op, TensorType, Work
from saccade.opdefs._rules import (
    differ,
    expect,
    expect_count,
    expect_float,
    static_count,
    tensor_bytes,
    text,
    unify,
)

__all__ = ["Nms", "NonMaxSuppression"]


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
        ordered: Whether boxes come by group and then by falling score: indices of those that stay
            then come in that order, and scores are not looked at.
    """

    iou_threshold: float
    ordered: bool = False

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
        left = np.arange(count) if self.ordered else np.lexsort((-scores, ~np.isnan(scores)))
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


@dataclass(frozen=True)
class NonMaxSuppression(Op):
    """ONNX's suppression: of every class of every image, the best boxes that overlap no better.

    Operands: boxes [B, N, 4], scores [B, C, N]. Results, int64: `selected` [rows, 3], a row
    (image, class, box) for each box that stays, by image, then class, then falling score, and
    zeros behind them; `count` [1], how many rows that are.

    Of a class take part the boxes whose score exceeds the threshold; a score that is NaN exceeds
    none. As in `Nms`, a box drops another one of its class if overlap over union exceeds the
    threshold, in float32; equal scores keep the order of their boxes. Boxes without an area, with
    an infinite one, or with a NaN drop none and are dropped by none.

    Attributes:
        rows: Extent for what stays: a symbol of its own, whose bound is B · C · min(most, N).
        most: Of a class, how many boxes stay at most.
        iou_threshold: What the ratio has to exceed, from 0 to 1.
        score_threshold: What scores have to exceed; None for no threshold.
        centred: Boxes are (x centre, y centre, width, height); otherwise any two opposite corners
            (y, x, y, x).
    """

    rows: Dim
    most: int
    iou_threshold: float = 0.0
    score_threshold: float | None = None
    centred: bool = False

    _dim_fields = frozenset({"rows"})

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(self, inputs, 2)
        boxes, scores = inputs
        expect_float(self, boxes, "boxes")
        expect_float(self, scores, "scores")
        shaped = len(boxes.shape) == 3 and not differ(boxes.shape[2], 4)
        expect(self, shaped, f"boxes must be [B, N, 4], are {text(boxes.shape)}")
        expect(self, len(scores.shape) == 3, f"scores must be [B, C, N], are {text(scores.shape)}")
        unify(self, boxes.shape[0], scores.shape[0], "the number of images")
        unify(self, boxes.shape[1], scores.shape[2], "the number of boxes")
        expect(self, self.most > 0, f"{self.most} boxes of a class")
        expect(self, 0 <= self.iou_threshold <= 1, f"iou_threshold {self.iou_threshold}")
        return TensorType(DType.I64, (self.rows, 3)), TensorType(DType.I64, (1,))

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        boxes, scores = (operand.astype(np.float32) for operand in inputs)
        found = [
            (image, group, box)
            for image in range(len(boxes))
            for group in range(scores.shape[1])
            for box in self._of_class(_corners(boxes[image], self.centred), scores[image, group])
        ]
        selected = np.zeros((static_count((self.rows,)), 3), np.int64)
        selected[: len(found)] = np.array(found, np.int64).reshape(-1, 3)
        return selected, np.array([len(found)], np.int64)

    def _of_class(self, boxes: Array, scores: Array) -> list[int]:
        """Boxes that stay, the best first."""
        if self.score_threshold is None:
            taken = ~np.isnan(scores)
        else:
            taken = scores > np.float32(self.score_threshold)
        left = np.flatnonzero(taken)
        left = left[np.argsort(-scores[left], kind="stable")]
        kept: list[int] = []
        while len(left) and len(kept) < self.most:
            best, left = left[0], left[1:]
            kept.append(int(best))
            left = left[~(_iou(boxes[best], boxes[left]) > self.iou_threshold)]
        return kept

    def work(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Work:
        # How many boxes take part depends on the scores; each of those is looked at.
        return Work(static_count(inputs[1].shape), tensor_bytes((*inputs, *outputs)))


def _corners(boxes: Array, centred: bool) -> Array:
    """Boxes as (x1, y1, x2, y2); only those given by their centres may have negative sizes."""
    with np.errstate(all="ignore"):
        if centred:
            half = boxes[:, 2:] / np.float32(2)
            return np.concatenate([boxes[:, :2] - half, boxes[:, :2] + half], axis=1)
        ends = boxes[:, [1, 0]], boxes[:, [3, 2]]
        return np.concatenate([np.minimum(*ends), np.maximum(*ends)], axis=1)


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
