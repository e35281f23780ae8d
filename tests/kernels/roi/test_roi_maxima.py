"""RoiPool and its gradient against their references, which walk pixels by themselves."""

from __future__ import annotations

import numpy as np
import pytest
from roi_operands import FEW, REPORT, VIEWS, H, N, W, some_boxes

from saccade.ir import DType
from saccade.kernels.cpu.roi.pool import ROI_POOL
from saccade.kernels.cpu.roi.pool_gradient import ROI_POOL_GRADIENT
from saccade.opdefs import RoiPool, RoiPoolGradient
from saccade.testing.kernels import nchw_view, off_by, row_major


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def equal_pixels(rng, shape, dtype):
    """Few values, so that most bins have several largest ones, and now and then NaN or -∞."""
    x = rng.integers(-2, 3, shape).astype(np.float32)
    x[rng.random(shape) < 0.05] = np.nan
    x[rng.random(shape) < 0.05] = -np.inf
    return x.astype(dtype.numpy)


@pytest.mark.parametrize(
    ("layout", "to", "channels", "dtype", "places"),
    [
        ("planar", "planar", 70, DType.F32, True),
        ("last", "last", 70, DType.F32, True),
        ("planar", "last", 5, DType.F32, True),
        ("last", "planar", 33, DType.F32, False),
        ("last", "last", 70, DType.BF16, True),
        ("planar", "planar", 70, DType.BF16, True),
        ("planar", "planar", 5, DType.F16, True),
        ("last", "last", 20, DType.F64, True),
        ("planar", "planar", 20, DType.F64, True),
    ],
)
def test_exact(layout, to, channels, dtype, places, *, rng, hold):
    op = RoiPool((4, 2), 0.5, places=places, report=True)
    x, boxes = equal_pixels(rng, (N, channels, H, W), dtype), some_boxes(rng)
    shape = (len(boxes), channels, 4, 2)
    results = [VIEWS[to](dtype, shape), VIEWS[to](DType.I32, shape)][: 1 + places]
    inputs = (VIEWS[layout](dtype, x.shape), row_major(DType.F32, boxes.shape))
    *_, bad = hold(ROI_POOL, op, (x, boxes), inputs=inputs, outputs=(*results, REPORT), exact=True)
    assert bad == [2]


def test_rows_of_bins_at_a_time(rng, hold):
    """More bins than scratch has space for."""
    op = RoiPool((9, 40), 1.0, places=True)
    x, boxes = equal_pixels(rng, (N, 3, H, W), DType.F32), some_boxes(rng)
    hold(ROI_POOL, op, (x, boxes), exact=True, runs=FEW)


def pointed(rng, op, channels, count):
    boxes = some_boxes(rng, count)
    _, h, w = op.images
    places = rng.integers(-1, h * w, (count, channels, 4, 2)).astype(np.int32)
    places[:, 0] = 5  # many bins, one pixel
    places[0, :, 0, 0], places[1, :, 0, 0] = h * w, -9  # beyond the image
    return rng.integers(-4, 5, places.shape).astype(np.float32), places, boxes


@pytest.mark.parametrize(
    ("layout", "to", "channels", "dtype"),
    [
        ("planar", "planar", 20, DType.F32),
        ("last", "last", 37, DType.F32),
        ("last", "planar", 5, DType.F32),
        ("planar", "last", 5, DType.BF16),
        ("planar", "planar", 5, DType.F16),
        ("last", "last", 20, DType.F64),
    ],
)
def test_gradient_exact(layout, to, channels, dtype, *, rng, hold):
    op = RoiPoolGradient((N, H, W), report=True)
    grad, places, boxes = pointed(rng, op, channels, 12)
    inputs = (
        VIEWS[layout](dtype, grad.shape), VIEWS[layout](DType.I32, places.shape),
        row_major(DType.F32, boxes.shape),
    )  # fmt: skip
    outputs = (VIEWS[to](dtype, (N, channels, H, W)), REPORT)
    arrays = (grad.astype(dtype.numpy), places, boxes)
    hold(ROI_POOL_GRADIENT, op, arrays, inputs=inputs, outputs=outputs, exact=True)


def test_gradients_are_repeated_and_nothing_is_pooled(rng, hold):
    op = RoiPoolGradient((N, H, W))
    grad, places, boxes = pointed(rng, op, 3, 8)
    grad[:] = 2
    once = nchw_view(DType.F32, grad.shape)
    once = type(once)(DType.F32, grad.shape, (0, 0, 0, 0))
    views = (once, row_major(DType.I32, places.shape), row_major(DType.F32, boxes.shape))
    hold(ROI_POOL_GRADIENT, op, (grad, places, boxes), inputs=views, exact=True, runs=FEW)
    none = grad[:0], places[:0], boxes[:0]
    (dx,) = hold(ROI_POOL_GRADIENT, op, none, exact=True, runs=FEW)
    assert not dx.any()


def test_one_hundred_boxes_in_many_chunks(rng, hold):
    op = RoiPool((2, 2), 0.5, places=True)
    x, boxes = equal_pixels(rng, (N, 16, H, W), DType.F32), some_boxes(rng, 100)
    hold(ROI_POOL, op, (x, boxes), exact=True, runs=FEW)


def test_refusals(rng, hold):
    x, boxes = equal_pixels(rng, (N, 4, H, W), DType.F32), some_boxes(rng)
    apart = nchw_view(DType.F32, (12, 4, 2, 2))
    apart = type(apart)(DType.F32, apart.shape, (32, 8, 4, 2))
    with pytest.raises(ValueError, match="neighbours in memory"):
        hold(ROI_POOL, RoiPool((2, 2)), (x, boxes), outputs=(apart,))


@pytest.mark.parametrize(("name", "by"), [("ph", 1), ("pw", 1), ("x_start", 1), ("width", -1)])
def test_mistakes_are_caught(name, by, *, rng, hold):
    """Bins, the first pixel, columns of an image."""
    op = RoiPool((4, 2), 0.5, places=True)
    x, boxes = equal_pixels(rng, (N, 20, H, W), DType.F32), some_boxes(rng)
    checked = (("avx512", True, 1, None),)
    with pytest.raises((AssertionError, IndexError)):
        hold(off_by(ROI_POOL, name, by), op, (x, boxes), exact=True, runs=checked)
