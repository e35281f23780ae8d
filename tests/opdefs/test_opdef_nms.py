"""Greedy suppression: the reference against one box at a time, and against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from saccade.errors import ModelError
from saccade.ir import DType, TensorType
from saccade.ir.dim import add, symbol
from saccade.opdefs import Nms


def one_by_one(boxes, scores, threshold, groups):
    """The definition, in the boxes' arithmetic."""
    zero = boxes.dtype.type(0)
    order = sorted(range(len(boxes)), key=lambda i: (not np.isnan(scores[i]), -scores[i]))
    kept = []
    for i in order:
        for j in kept:
            (a1, b1, a2, b2), (c1, d1, c2, d2) = boxes[j], boxes[i]
            width = max(zero, min(a2, c2) - max(a1, c1))
            height = max(zero, min(b2, d2) - max(b1, d1))
            overlap = width * height
            ratio = overlap / ((a2 - a1) * (b2 - b1) + (c2 - c1) * (d2 - d1) - overlap)
            if groups[i] == groups[j] and float(ratio) > threshold:
                break
        else:
            kept.append(i)
    return kept


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("threshold", [0.5, 1 / 3, 0.05, 0.0, -0.5, 1.0])
def test_as_one_box_after_the_other(threshold, dtype):
    rng = np.random.default_rng(0)
    boxes = rng.integers(0, 7, (60, 4)).astype(dtype)
    boxes[:40, 2:] += boxes[:40, :2]
    scores = rng.integers(0, 9, 60).astype(dtype)
    groups = rng.integers(-1, 2, 60)
    for chosen in (np.zeros(60, np.int64), groups):
        (result,) = Nms(threshold).reference(boxes, scores, chosen)
        with np.errstate(all="ignore"):
            kept = one_by_one(boxes, scores, threshold, chosen)
        assert result[: result[-1]].tolist() == kept
        assert (result[result[-1] : -1] == -1).all()


def test_agrees_with_onnxruntime(peer):
    rng = np.random.default_rng(1)
    boxes = rng.random((200, 4), np.float32) * 100
    boxes[:, 2:] += boxes[:, :2]
    scores = rng.integers(0, 50, 200).astype(np.float32)
    theirs = peer(
        "NonMaxSuppression",
        [boxes[None], scores[None, None], np.array([200]), np.array([0.4], np.float32)],
    )
    (result,) = Nms(0.4).reference(boxes, scores)
    assert result[: result[-1]].tolist() == theirs[:, 2].tolist()


def test_half_precision_overlaps_in_float32():
    boxes = np.array([[0, 0, 255, 255], [0, 0, 255, 130]], np.float16)  # areas overflow
    (result,) = Nms(0.5).reference(boxes, np.array([1, 0], np.float16))
    assert result.tolist() == [0, -1, 1]


def test_nan_scores_come_first_and_nan_boxes_stay():
    boxes = np.array([[0, 0, 4, 4], [0, 0, 4, 4], [0, np.nan, 4, 4]], np.float32)
    (result,) = Nms(0.5).reference(boxes, np.array([2, np.nan, 1], np.float32))
    assert result.tolist() == [1, 2, -1, 2]


def test_shape_rule():
    boxes = TensorType(DType.F32, (symbol("n"), 4))
    scores = TensorType(DType.F16, (symbol("n"),))
    (result,) = Nms(0.5).infer([boxes, scores])
    assert result.dtype is DType.I64
    assert result.shape == (add(symbol("n"), 1),)


@pytest.mark.parametrize(
    ("types", "message"),
    [
        ([((5, 3), DType.F32), ((5,), DType.F32)], "boxes must be"),
        ([((5, 4), DType.I64), ((5,), DType.F32)], "boxes must be floating"),
        ([((5, 4), DType.F32), ((4,), DType.F32)], "scores must be"),
        ([((5, 4), DType.F32), ((5,), DType.F32), ((5,), DType.I32)], "groups are int32"),
        ([((5, 4), DType.F32)], "2 to 3 operands"),
    ],
)
def test_refusals(types, message):
    with pytest.raises(ModelError, match=message):
        Nms(0.5).infer([TensorType(dtype, shape) for shape, dtype in types])
