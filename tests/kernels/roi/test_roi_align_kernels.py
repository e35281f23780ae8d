"""RoiAlign and its gradient against their references."""

from __future__ import annotations

import numpy as np
import pytest
from roi_operands import FEW, REPORT, H, N, W, some_boxes

from saccade.errors import OutOfBoundsError
from saccade.ir import DType
from saccade.kernels.cpu.roi.align import ROI_ALIGN
from saccade.kernels.cpu.roi.align_gradient import ROI_ALIGN_GRADIENT
from saccade.opdefs import RoiAlign, RoiAlignGradient
from saccade.testing.kernels import (
    launched_as,
    mistaken,
    nchw_view,
    nhwc_view,
    off_by,
    row_major,
    run_kernel,
)
from saccade.testing.tolerance import exact_operands, random_operands


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def views(shape, dtype=DType.F32):
    return {"planar": nchw_view(dtype, shape), "last": nhwc_view(dtype, shape)}


@pytest.mark.parametrize(
    ("layout", "channels", "mode", "ratio", "aligned"),
    [
        ("planar", 70, "average", 2, True),
        ("last", 70, "average", 0, False),
        ("last", 5, "max", 2, False),
        ("planar", 5, "max", 0, True),
    ],
)
def test_exact(layout, channels, mode, ratio, aligned, *, rng, hold):
    op = RoiAlign((4, 2), 0.5, ratio, aligned, mode, report=True)
    x = 64 * exact_operands((N, channels, H, W), DType.F32, rng)
    boxes = some_boxes(rng)
    if ratio == 0:  # where a bin has as many samples as a power of two, means are exact
        boxes[8:, 3:] = boxes[8:, 1:3] + np.array([[8, 16], [16, 32], [4, 64], [6, 2]])
        boxes[4, 3:] = boxes[4, 1:3] + np.array([32, 128])
    result = views((len(boxes), channels, 4, 2))[layout]
    inputs = (views(x.shape)[layout], row_major(DType.F32, boxes.shape))
    _, bad = hold(
        ROI_ALIGN, op, (x, boxes), inputs=inputs, outputs=(result, REPORT), exact=mode == "average",
        k=64,
    )  # fmt: skip
    assert bad == [2]


@pytest.mark.parametrize(("layout", "channels"), [("planar", 70), ("last", 70), ("last", 5)])
def test_gradient_exact(layout, channels, *, rng, hold):
    op = RoiAlignGradient((4, 2), 0.5, 2, True, report=True, images=(N, H, W))
    boxes = some_boxes(rng)
    grad = 64 * exact_operands((len(boxes), channels, 4, 2), DType.F32, rng)
    inputs = (views(grad.shape)[layout], row_major(DType.F32, boxes.shape))
    outputs = (views((N, channels, H, W))[layout], REPORT)
    hold(ROI_ALIGN_GRADIENT, op, (grad, boxes), inputs=inputs, outputs=outputs, exact=True)


@pytest.mark.parametrize("dtype", [DType.BF16, DType.F16, DType.F64])
@pytest.mark.parametrize("layout", ["planar", "last"])
def test_other_types(dtype, layout, *, rng, hold):
    channels = 67
    boxes = some_boxes(rng).astype(np.float64 if dtype is DType.F64 else np.float32)
    x = random_operands((N, channels, H, W), dtype, rng)
    grad = random_operands((len(boxes), channels, 3, 3), dtype, rng)
    op = RoiAlign((3, 3), 0.5, 2, True)
    gradient = RoiAlignGradient((3, 3), 0.5, 2, True, images=(N, H, W))
    of_boxes = row_major(DType.of(boxes.dtype), boxes.shape)
    for kernel, what, data, shape in (
        (ROI_ALIGN, op, x, grad.shape),
        (ROI_ALIGN_GRADIENT, gradient, grad, x.shape),
    ):
        inputs = (views(data.shape, dtype)[layout], of_boxes)
        result = (views(shape, dtype)[layout],)
        hold(kernel, what, (data, boxes), inputs=inputs, outputs=result, stored=dtype, k=64,
             runs=FEW)  # fmt: skip


def test_images_of_their_own_and_other_strides(rng, hold):
    """Boxes [K, 4] beside the numbers of their images; operands that are parts of others."""
    boxes = some_boxes(rng)
    images = np.nan_to_num(boxes[:, 0], nan=-1).astype(np.int64)
    x = exact_operands((N, 6, H, W), DType.F32, rng)
    op = RoiAlign((2, 2), 1.0, 1, True)
    of_x = nchw_view(DType.F32, (N, 12, H, W))
    inputs = (
        type(of_x)(DType.F32, x.shape, (of_x.strides[0], 2 * H * W, 1, H)),
        type(of_x)(DType.F32, (len(boxes), 4), (7, 1)),
        row_major(DType.I64, images.shape),
    )
    hold(
        ROI_ALIGN, op, (x, boxes[:, 1:], images), inputs=inputs, exact=True, runs=FEW,
        outputs=(nhwc_view(DType.F32, (len(boxes), 6, 2, 2), 9),),
    )  # fmt: skip


def test_huge_boxes_take_no_longer(rng, hold):
    """Samples outside are not visited, however many there are."""
    x = exact_operands((1, 3, H, W), DType.F32, rng)
    boxes = np.array([[0, -(2.0**16), -8, 2.0**16, 8], [0, -8, 0, 8, 2.0**19]], np.float32)
    hold(ROI_ALIGN, RoiAlign((2, 2), 1.0, 0, False), (x, boxes), k=64, runs=FEW)
    extreme = np.array([[0, -3e38, 0, 3e38, 3e38], [0, 1e30, 1e30, 2e30, 2e30]], np.float32)
    out = nchw_view(DType.F32, (2, 3, 2, 2))
    (result,) = run_kernel(ROI_ALIGN, RoiAlign((2, 2), 1.0, 0, True), (x, extreme), (out,))
    assert np.isfinite(result).all()


@pytest.mark.parametrize(
    ("layout", "dtype"),
    [("planar", DType.F32), ("planar", DType.BF16), ("planar", DType.F16), ("last", DType.BF16)],
)
def test_gradient_past_the_caches(layout, dtype, *, rng, hold, past_caches):
    """Results of whole lines, several bands of them, two blocks of channels."""
    images, channels = (N, 22, 48), 96
    boxes = some_boxes(rng, 24) * np.float32([1, 3, 1, 3, 1])
    grad = 64 * exact_operands((len(boxes), channels, 4, 2), dtype, rng)
    inputs = (views(grad.shape, dtype)[layout], row_major(DType.F32, boxes.shape))
    outputs = (views((N, channels, *images[1:]), dtype)[layout],)
    op = RoiAlignGradient((4, 2), 0.5, 2, True, images=images)
    hold(ROI_ALIGN_GRADIENT, op, (grad, boxes), inputs=inputs, outputs=outputs, stored=dtype, k=64,
         runs=past_caches[: 4 if dtype is DType.BF16 else 2])  # fmt: skip


@pytest.mark.parametrize(
    ("layout", "dtype", "width"),
    [
        ("planar", DType.F32, 101),
        ("planar", DType.BF16, 101),
        ("planar", DType.BF16, 7),
        ("last", DType.BF16, 64),
    ],
)
def test_columns_without_a_gradient(layout, dtype, width, *, rng, hold):
    """Boxes on a few columns of one image; there are none in the others."""
    boxes = np.zeros((6, 5), np.float32)
    boxes[:, 0] = 1
    boxes[:, 1:3] = rng.integers(0, 40, (6, 2)) / 8 + np.float32([0.4 * width, 1])
    boxes[:, 3:] = boxes[:, 1:3] + rng.integers(8, 40, (6, 2)) / 8
    grad = random_operands((6, 38, 3, 3), dtype, rng)
    inputs = (views(grad.shape, dtype)[layout], row_major(DType.F32, boxes.shape))
    outputs = (views((N, 38, H, width), dtype)[layout],)
    op = RoiAlignGradient((3, 3), 1.0, 2, True, images=(N, H, width))
    hold(ROI_ALIGN_GRADIENT, op, (grad, boxes), inputs=inputs, outputs=outputs, stored=dtype, k=64,
         runs=FEW)  # fmt: skip


@pytest.mark.parametrize(("n", "count"), [(0, 0), (2, 0), (0, 3)])
def test_nothing(n, count, *, hold):
    boxes = np.zeros((count, 5), np.float32)
    x = np.zeros((n, 4, 5, 6), np.float32)
    hold(ROI_ALIGN, RoiAlign((2, 2)), (x, boxes), exact=True, runs=FEW)
    gradient = RoiAlignGradient((2, 2), images=(n, 5, 6))
    hold(ROI_ALIGN_GRADIENT, gradient, (np.zeros((count, 4, 2, 2), np.float32), boxes), exact=True,
         runs=FEW)  # fmt: skip


def test_a_mistake_shows(rng, hold):
    op = RoiAlign((2, 2), 0.5, 2, True)
    arrays = (exact_operands((N, 4, H, W), DType.F32, rng), some_boxes(rng))
    for name in ("ph", "pw"):
        with pytest.raises(AssertionError):
            hold(off_by(ROI_ALIGN, name, -1), op, arrays, exact=True, runs=FEW[:1])


def test_a_mistake_in_bands_shows(rng, hold):
    """Bins that are left out, and rows that are listed for another band."""
    grad, boxes = exact_operands((60, 4, 4, 2), DType.F32, rng), some_boxes(rng, 60)
    op = RoiAlignGradient((4, 2), 2.0, 2, True, images=(N, 4 * H, 16 * W))
    for name in ("ph", "band"):

        def wrong(phase, name=name):
            return mistaken(phase, name, -1) if phase.config.phase == "bands" else phase

        kernel = launched_as(
            ROI_ALIGN_GRADIENT,
            lambda call, wrong=wrong: tuple(map(wrong, ROI_ALIGN_GRADIENT.launch(call))),
        )
        with pytest.raises((AssertionError, OutOfBoundsError)):
            hold(kernel, op, (grad, boxes), exact=True, runs=FEW[1:])


def test_refusals(rng):
    x, boxes = np.zeros((1, 4, 5, 6), np.float32), np.zeros((2, 5), np.float32)
    out = nchw_view(DType.F32, (2, 4, 2, 2))
    strided = type(out)(DType.F32, out.shape, (64, 16, 8, 2))
    with pytest.raises(ValueError, match="neither channels nor bins"):
        run_kernel(ROI_ALIGN, RoiAlign((2, 2)), (x, boxes), (strided,))
    with pytest.raises(ValueError, match="boxes of type int64"):
        run_kernel(ROI_ALIGN, RoiAlign((2, 2)), (x, boxes.astype(np.int64)), (out,))
    with pytest.raises(ValueError, match="float64 from float32"):
        run_kernel(ROI_ALIGN, RoiAlign((2, 2)), (x, boxes), (nchw_view(DType.F64, out.shape),))
