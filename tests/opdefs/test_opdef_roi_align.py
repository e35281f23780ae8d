"""RoiAlign's reference against onnxruntime and against loops over the definition."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from saccade.errors import ModelError
from saccade.ir import DType, TensorType
from saccade.opdefs import RoiAlign, RoiAlignGradient
from saccade.testing.tolerance import assert_close, random_operands


def boxes_for(rng, count=9):
    boxes = rng.uniform(-4, 24, (count, 4)).astype(np.float32)
    boxes[: count // 2, 2:] += 12
    return boxes


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("ratio", [0, 2])
@pytest.mark.parametrize("mode", ["avg", "max"])
def test_agrees(aligned, ratio, mode, *, rng, peer, agrees):
    x = random_operands((2, 3, 9, 13), DType.F32, rng)
    boxes, images = boxes_for(rng), rng.integers(0, 2, 9)
    # A box of a negative size has no grid of its own; onnxruntime does not say what it does then.
    boxes[:, 2:] = np.maximum(boxes[:, 2:], boxes[:, :2] + 0.5)
    op = RoiAlign((3, 2), 0.75, ratio, aligned, {"avg": "average"}.get(mode, mode))
    theirs = peer(
        "RoiAlign", (x, boxes, images), mode=mode, output_height=3, output_width=2,
        sampling_ratio=ratio, spatial_scale=0.75,
        coordinate_transformation_mode="half_pixel" if aligned else "output_half_pixel",
    )  # fmt: skip
    agrees(op, (x, boxes, images), theirs, k=400)


def bilinear(plane, y, x):
    h, w = plane.shape
    if not (-1 <= y <= h and -1 <= x <= w):
        return 0.0
    y, x = min(max(y, 0), h - 1), min(max(x, 0), w - 1)
    top, left = int(y), int(x)
    rows, columns = (top, min(top + 1, h - 1)), (left, min(left + 1, w - 1))
    down, along = (1 - (y - top), y - top), (1 - (x - left), x - left)
    parts = itertools.product(range(2), range(2))
    return sum(plane[rows[i], columns[j]] * down[i] * along[j] for i, j in parts)


def by_definition(op, x, boxes):
    result = np.zeros((len(boxes), x.shape[1], *op.bins))
    for k, (n, x1, y1, x2, y2) in enumerate(boxes):
        offset = 0.5 if op.aligned else 0
        left, top = x1 * op.scale - offset, y1 * op.scale - offset
        width, height = (x2 - x1) * op.scale, (y2 - y1) * op.scale
        if not op.aligned:
            width, height = max(width, 1), max(height, 1)
        sizes = height / op.bins[0], width / op.bins[1]
        grid = [op.ratio if op.ratio > 0 else max(0, math.ceil(s)) for s in sizes]
        for c, p, q in itertools.product(*map(range, result.shape[1:])):
            samples = [
                bilinear(
                    x[int(n), c],
                    top + (p + (i + 0.5) / grid[0]) * sizes[0],
                    left + (q + (j + 0.5) / grid[1]) * sizes[1],
                )
                for i, j in itertools.product(*map(range, grid))
            ]
            result[k, c, p, q] = sum(samples) / max(1, len(samples))
    return result


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("ratio", [0, 1, 3])
def test_definition_and_its_transpose(aligned, ratio, *, rng):
    x = rng.standard_normal((2, 2, 7, 6))
    boxes = np.column_stack([rng.integers(0, 2, 8), boxes_for(rng, 8)]).astype(np.float64)
    op = RoiAlign((2, 3), 0.4, ratio, aligned)
    (y,) = op.reference(x, boxes)
    assert_close(y, by_definition(op, x, boxes), dtype=DType.F64, k=100)
    grad = rng.standard_normal(y.shape)
    gradient = RoiAlignGradient((2, 3), 0.4, ratio, aligned, images=(2, 7, 6))
    (dx,) = gradient.reference(grad, boxes)
    assert math.isclose((dx * x).sum(), (grad * y).sum(), rel_tol=1e-11)


def test_bad_boxes_are_counted_and_give_zeros():
    x = np.ones((1, 1, 4, 4), np.float32)
    boxes = np.zeros((4, 5), np.float32)
    boxes[:, 3:] = 4
    boxes[1, 0], boxes[2, 0], boxes[3, 2] = 1, np.nan, np.nan
    y, bad = RoiAlign((1, 1), report=True).reference(x, boxes)
    assert bad.tolist() == [2]
    assert y.ravel().tolist() == [1, 0, 0, 0]


def test_refusals():
    f32, i64 = DType.F32, DType.I64
    x, boxes = TensorType(f32, (1, 2, 3, 4)), TensorType(f32, (5, 4))
    numbers = TensorType(i64, (5,))
    assert RoiAlign((2, 3)).infer((x, boxes, numbers))[0].shape == (5, 2, 2, 3)
    for operands, message in (
        ((x, boxes), "boxes of 4 numbers, not 5"),
        ((TensorType(f32, (2, 3, 4)), boxes, numbers), "4 axes"),
        ((x, boxes, TensorType(i64, (6,))), "number of boxes"),
        ((x, boxes, TensorType(f32, (5,))), "images are float32"),
        ((x, TensorType(i64, (5, 4)), numbers), "floating point"),
    ):
        with pytest.raises(ModelError, match=message):
            RoiAlign((2, 3)).infer(operands)
    with pytest.raises(ModelError, match="mode 'median'"):
        RoiAlign((2, 3), mode="median").infer((x, boxes, numbers))
    with pytest.raises(ModelError, match="has no gradient"):
        RoiAlignGradient((3, 4), mode="max", images=(1, 8, 8)).infer((x, boxes, numbers))
