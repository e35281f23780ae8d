"""PsRoi and its gradient against their references, which weigh all pixels of an image."""

from __future__ import annotations

import numpy as np
import pytest
from roi_operands import FEW, REPORT, VIEWS, H, N, W, some_boxes

from saccade.ir import DType
from saccade.kernels.cpu.roi.ps import PS_ROI
from saccade.kernels.cpu.roi.ps_gradient import PS_ROI_GRADIENT
from saccade.opdefs import PsRoi, PsRoiGradient
from saccade.testing.kernels import nchw_view, off_by, row_major

FORMS = [
    ("align", 2, "planar", DType.F32),
    ("align", 2, "last", DType.F32),
    ("pool", 0, "planar", DType.F32),
    ("pool", 0, "last", DType.F32),
    ("align", 2, "planar", DType.BF16),
    ("pool", 0, "last", DType.BF16),
    ("align", 2, "last", DType.F16),
    ("pool", 0, "planar", DType.F16),
    ("align", 2, "planar", DType.F64),
    ("pool", 0, "planar", DType.F64),
]


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def whole(rng, shape, dtype):
    return (64 * rng.integers(-2, 3, shape)).astype(np.float32).astype(dtype.numpy)


@pytest.mark.parametrize(("mode", "ratio", "layout", "dtype"), FORMS)
def test_exact(mode, ratio, layout, dtype, *, rng, hold):
    op = PsRoi((4, 2), 0.5, mode, ratio, report=True, mapping=True)
    x, boxes = whole(rng, (N, 24, H, W), dtype), some_boxes(rng, finite=True)
    if dtype in (DType.BF16, DType.F16):
        x = (x.astype(np.float32) / 32).astype(dtype.numpy)
    shape = (len(boxes), 3, 4, 2)
    outputs = (VIEWS[layout](dtype, shape), row_major(DType.I32, shape), REPORT)
    inputs = (VIEWS[layout](dtype, x.shape), row_major(DType.F32, boxes.shape))
    exact = mode == "align" and dtype in (DType.F32, DType.F64)
    *_, bad = hold(PS_ROI, op, (x, boxes), inputs=inputs, outputs=outputs, exact=exact, k=4)
    assert bad == [2]


@pytest.mark.parametrize("mode", ["align", "pool"])
def test_grids_of_any_size_and_boxes_that_are_not_finite(mode, rng, hold):
    op = PsRoi((2, 4), 0.5, mode, 0)
    x, boxes = whole(rng, (N, 16, H, W), DType.F32), some_boxes(rng, finite=True)
    boxes[7, 1:] = (np.nan, 0, 5, 5)
    boxes[8, 1:] = (0, -np.inf, 5, np.inf)
    boxes[9, 1:] = (9, 9, 8, 8)  # no samples: 0 / 0
    boxes[10, 1:] = (20, 20, -8, -8)  # some, none of which count
    boxes[11, 1:] = (0, 3, np.nan, 3)  # not finite along one axis, 0 samples down the other
    (y,) = hold(PS_ROI, op, (x, boxes), k=64)
    assert np.isnan(y[9]).all() == (mode == "align")
    assert not y[[7, 8, 10, 11]].any()


def test_bins_without_samples_of_images_without_pixels(hold):
    boxes = np.array([[0, 1, 1, 1, 1], [0, 0, 0, 4, 4]], np.float32)
    (y,) = hold(PS_ROI, PsRoi((1, 1), 1.0, "align", 0), (np.zeros((1, 1, 5, 0), np.float32), boxes))
    assert np.isnan(y[0]).all() and not y[1].any()


@pytest.mark.parametrize(("mode", "ratio", "layout", "dtype"), FORMS)
def test_gradient(mode, ratio, layout, dtype, *, rng, hold):
    op = PsRoiGradient((4, 2), 0.5, mode, ratio, report=True, images=(N, H, W))
    boxes = some_boxes(rng, finite=True)
    grad = whole(rng, (len(boxes), 3, 4, 2), dtype)
    outputs = (VIEWS[layout](dtype, (N, 24, H, W)), REPORT)
    inputs = (VIEWS[layout](dtype, grad.shape), row_major(DType.F32, boxes.shape))
    exact = mode == "align" and dtype in (DType.F32, DType.F64)
    hold(PS_ROI_GRADIENT, op, (grad, boxes), inputs=inputs, outputs=outputs, exact=exact, k=16)


@pytest.mark.parametrize("mode", ["align", "pool"])
def test_gradients_are_repeated_and_nothing_is_pooled(mode, rng, hold):
    op = PsRoiGradient((4, 2), 0.5, mode, 2, images=(N, H, W))
    boxes = some_boxes(rng, 8, finite=True)
    grad = np.full((8, 3, 4, 2), 64, np.float32)
    once = nchw_view(DType.F32, grad.shape)
    once = type(once)(DType.F32, grad.shape, (0, 0, 0, 0))
    inputs = (once, row_major(DType.F32, boxes.shape))
    hold(PS_ROI_GRADIENT, op, (grad, boxes), inputs=inputs, runs=FEW, k=16)
    (dx,) = hold(PS_ROI_GRADIENT, op, (grad[:0], boxes[:0]), exact=True, runs=FEW)
    assert not dx.any()


@pytest.mark.parametrize(
    ("name", "by"), [("ph", 1), ("image_count", 1), ("box_column", 1), ("w", -1)]
)
def test_mistakes_are_caught(name, by, *, rng, hold):
    op = PsRoi((4, 2), 0.5, "pool")
    x, boxes = whole(rng, (N, 24, H, W), DType.F32), some_boxes(rng, finite=True)
    with pytest.raises((AssertionError, IndexError)):
        hold(off_by(PS_ROI, name, by), op, (x, boxes), runs=(("avx512", True, 1, None),))


@pytest.mark.parametrize("layout", VIEWS)
@pytest.mark.parametrize(("mode", "ratio"), [("align", 0), ("align", 3), ("pool", 0)])
def test_bins_wider_than_a_vector(mode, ratio, layout, *, rng, hold, past_caches):
    """Several runs of a row's pixels, whole squares of channels-last images, groups of planes."""
    bins, (n, c, h, w) = (2, 3), (2, 30, 21, 75)
    low, high = rng.uniform(0, 1, (2, 9, 2)) * 0.4
    ends = np.array([w - 4, h - 4])
    corners = 2 + low * ends, 2 + (1 - high) * ends  # no sample is moved to a border
    boxes = np.concatenate([rng.integers(0, n, (9, 1)), *corners], 1)
    x, boxes = whole(rng, (n, c, h, w), DType.F32), boxes.astype(np.float32)
    grad = whole(rng, (9, c // 6, *bins), DType.F32)
    if mode == "align":
        x[:, :, :, ::9] = np.inf  # under samples, and between them
    views = [VIEWS[layout](DType.F32, a.shape) for a in (x, grad)]
    where = row_major(DType.F32, boxes.shape)
    op, pooled = PsRoi(bins, 1.0, mode, ratio), {"inputs": (views[0], where), "outputs": views[1:]}
    hold(PS_ROI, op, (x, boxes), **pooled, runs=FEW, k=256)
    hold(PS_ROI, op, (x, boxes), **pooled, runs=past_caches[:2], k=256)
    op = PsRoiGradient(bins, 1.0, mode, ratio, images=(n, h, w))
    hold(
        PS_ROI_GRADIENT, op, (grad, boxes), inputs=(views[1], where), outputs=views[:1],
        runs=FEW, k=64,
    )  # fmt: skip


@pytest.mark.parametrize("dtype", [DType.BF16, DType.F16, DType.F64])
@pytest.mark.parametrize(("width", "channels"), [(75, 54), (64, 96), (31, 17 * 6)])
def test_planes_past_the_caches(dtype, width, channels, *, rng, hold, past_caches):
    """Lines of two squares or of one, those that a border cuts, and channels that are left."""
    x = whole(rng, (2, channels, 9, width), dtype)
    corners = rng.uniform(0, 1, (9, 2)) * (width / 2, 3)
    ends = corners + rng.uniform(0, 1, (9, 2)) * (width / 2, 3)
    boxes = np.concatenate([rng.integers(0, 2, (9, 1)), corners, ends], 1).astype(np.float32)
    views = VIEWS["last"](dtype, x.shape), row_major(DType.F32, boxes.shape)
    out = VIEWS["last"](dtype, (9, channels // 6, 2, 3))
    hold(
        PS_ROI, PsRoi((2, 3), 1.0, "pool"), (x, boxes), inputs=views, outputs=[out],
        runs=past_caches[:2], k=4,
    )  # fmt: skip
