"""RoiPool of few channels against its reference, which walks pixels by itself."""

from __future__ import annotations

import os

import numpy as np
import pytest

from saccade.backends.cpu.target import described_target
from saccade.ir import DType
from saccade.kernels.base import Call
from saccade.kernels.cpu.roi.pool_few import ROI_POOL_FEW
from saccade.opdefs import RoiPool
from saccade.testing.kernels import nchw_view, nhwc_view, off_by, row_major

N, H, W = 3, 13, 39
WIDE = (
    ("avx512", False, 1, None),
    ("avx512", True, 7, (6, 2, 4, 0, 1, 5, 3)),
)
REPORT = row_major(DType.I32, (1,))


@pytest.fixture
def hold(hold):
    """Where lanes are permuted: not in code for Arm."""
    if int(os.environ.get("SACCADE_TEST_ARM") or 0):
        pytest.skip("no lanes are permuted there")
    return hold


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def some_boxes(rng, count=14):
    """Multiples of 1/8: inside, outside, across borders, empty, not finite, without an image."""
    boxes = rng.integers(-32, 160, (count, 5)) / 8.0
    boxes[:, 0] = rng.integers(0, N, count)
    boxes[0, 1:] = (-60, -60, -40, -40)
    boxes[1, 1:] = (2, 3, 2, 3)
    boxes[2, 1:] = (np.nan, 0, 5, 5)
    boxes[3, 1:] = (0, -np.inf, 5, np.inf)
    boxes[4, 1:] = (-40, -24, 90, 72)
    boxes[5, 0] = N
    boxes[6, 0] = np.nan
    boxes[7, 1:] = (-3e38, 4, 3e38, 6)
    boxes[8, 1:] = (3, 2, 76, 20)
    boxes[9, 1:] = (1.2e9, 1, 1.3e9, 9)
    return boxes.astype(np.float32)


def equal_pixels(rng, shape, dtype):
    """Few values, so that most bins have several largest ones, and now and then NaN or -∞."""
    x = rng.integers(-2, 3, shape).astype(np.float32)
    x[rng.random(shape) < 0.05] = np.nan
    x[rng.random(shape) < 0.05] = -np.inf
    return x.astype(dtype.numpy)


@pytest.mark.parametrize(
    ("bins", "channels", "dtype", "places"),
    [
        ((4, 2), 3, DType.F32, True),
        ((3, 7), 8, DType.F32, True),
        ((7, 8), 5, DType.BF16, True),
        ((2, 5), 1, DType.F16, True),
        ((3, 7), 2, DType.F32, False),
    ],
)
def test_exact(bins, channels, dtype, places, *, rng, hold):
    op = RoiPool(bins, 0.5, places=places, report=True)
    x, boxes = equal_pixels(rng, (N, channels, H, W), dtype), some_boxes(rng)
    shape = (len(boxes), channels, *bins)
    results = [nchw_view(dtype, shape), nchw_view(DType.I32, shape)][: 1 + places]
    *_, bad = hold(ROI_POOL_FEW, op, (x, boxes), outputs=(*results, REPORT), exact=True)
    assert bad == [2]


@pytest.mark.parametrize(
    ("bins", "dtype", "boxes"),
    [
        ((3, 16), DType.F32, np.float32),
        ((3, 16), DType.F32, np.float64),
        ((2, 7), DType.F64, np.float32),
        ((2, 4), DType.F64, np.float32),
    ],
)
def test_whole_registers(bins, dtype, boxes, *, rng, hold):
    """Of 16 bins, and of lanes of 64 bits, which AVX2 does not permute."""
    op = RoiPool(bins, 0.5, places=True)
    x, given = equal_pixels(rng, (N, 3, H, W), dtype), some_boxes(rng).astype(boxes)
    shape = (len(given), 3, *bins)
    results = (nchw_view(dtype, shape), nchw_view(DType.I32, shape))
    hold(ROI_POOL_FEW, op, (x, given), outputs=results, exact=True, runs=WIDE)


def test_part_of_a_image_and_many_chunks(rng, hold):
    op = RoiPool((7, 7), 0.25, places=True)
    x, boxes = equal_pixels(rng, (N, 4, H, W), DType.F32), some_boxes(rng, 60)
    view = nchw_view(DType.F32, x.shape)._replace(strides=(9000, 2100, W + 5, 1))
    inputs = (view, row_major(DType.F32, boxes.shape))
    hold(ROI_POOL_FEW, op, (x, boxes), inputs=inputs, exact=True, runs=WIDE)


@pytest.mark.parametrize("shape", [(1, 2, 0, 4), (1, 2, 4, 0), (0, 2, 4, 4), (1, 0, 4, 4)])
def test_nothing_to_look_at(shape, rng, hold):
    op = RoiPool((2, 2), places=True, report=True)
    boxes = np.array([[0, 0, 0, 3, 3], [0, -5, -5, 50, 50]], np.float32)
    *_, bad = hold(ROI_POOL_FEW, op, (np.zeros(shape, np.float32), boxes), exact=True, runs=WIDE)
    assert bad == [0 if shape[0] else 2]


def test_refusals():
    shape = (N, 4, H, W)
    op, boxes = RoiPool((2, 17), places=True), row_major(DType.F32, (5, 5))

    def reason(x, out, isa="avx512", op=op):
        places = out._replace(dtype=DType.I32)
        call = Call(op, (x, boxes), (out, places), (False,) * 2, described_target("zen4", isa), 2)
        return ROI_POOL_FEW.supports(call)

    x, fine = nchw_view(DType.F32, shape), nchw_view(DType.F32, (5, 4, 2, 2))
    assert reason(x, fine) is None
    assert "than a vector has lanes" in reason(x, nchw_view(DType.F32, (5, 4, 2, 17)))
    assert "pixels are not neighbours" in reason(nhwc_view(DType.F32, shape), fine)
    assert "bins of the results" in reason(x, nhwc_view(DType.F32, (5, 4, 2, 2)))
    wide = nchw_view(DType.F64, shape), nchw_view(DType.F64, (5, 4, 2, 2))
    assert reason(*wide) is None
    assert "cannot be permuted" in reason(*wide, isa="avx2")


@pytest.mark.parametrize(
    ("name", "by"),
    [("box_count", -1), ("channels", 1), ("h", -1), ("x_n", 1), ("x_c", -1), ("out_box", 1)],
)
def test_mistakes_are_caught(name, by, *, rng, hold):
    """Boxes, channels, rows of an image, steps."""
    op = RoiPool((4, 3), 0.5, places=True)
    x, boxes = equal_pixels(rng, (N, 3, H, W), DType.F32), some_boxes(rng)
    checked = (("avx512", True, 1, None),)
    with pytest.raises((AssertionError, IndexError)):
        hold(off_by(ROI_POOL_FEW, name, by), op, (x, boxes), exact=True, runs=checked)
