"""Boxes that are anything: enormous ones, image numbers that are none."""

import numpy as np
import pytest

from saccade.ir import DType
from saccade.kernels.base import Call
from saccade.kernels.cuda.roi.align import ROI_ALIGN
from saccade.kernels.cuda.roi.pool import ROI_POOL
from saccade.kernels.cuda.roi.ps import PS_ROI
from saccade.opdefs import PsRoi, RoiAlign, RoiPool
from saccade.testing.kernels import row_major
from saccade.testing.triton import H200, interpret

HUGE = [
    (1, -3e7, -5, 8, 6e7),  # the image at the end of a row of bins
    (0, -1e6, -1e6, 1e6 + 12, 1e6 + 10),  # and across the border of two
    (0, -3e38, -3e38, 3e38, 3e38),
    (1, -1e15, -1e15, 1e15, 1e15),
    (0, 9, 9, -2e9, -2e9),
]
LARGE = [(1, -90, -5, 8, 60), (0, -40, -40, 52, 50), (1, 20, 2, 90, 7)]
IMAGES = [
    (np.nan, 0, 0, 5, 5),
    (-0.5, 0, 0, 5, 5),
    (0.5, 0, 0, 5, 5),
    (1.99, 0, 0, 5, 5),
    (2, 0, 0, 5, 5),
    (np.inf, 0, 0, 5, 5),
    (-1e30, 0, 0, 5, 5),
    (-0.0, 0, 0, 5, 5),
]


def check(kernel, op, rows, channels=3):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, channels, 6, 5)).astype(np.float32)
    arrays = [x, np.array(rows, np.float32)]
    with np.errstate(all="ignore"):
        truth = op.reference(*arrays)
    outputs = tuple(row_major(DType.of(a.dtype), a.shape) for a in truth)
    inputs = tuple(row_major(DType.F32, a.shape) for a in arrays)
    found = interpret(kernel, Call(op, inputs, outputs, (False, False), H200), arrays)
    for have, true in zip(found, truth, strict=True):
        assert np.allclose(have, true, rtol=1e-4, atol=1e-5, equal_nan=True)


def test_enormous_boxes_are_sampled_where_the_image_is():
    check(ROI_ALIGN, RoiAlign((3, 2)), HUGE)
    check(PS_ROI, PsRoi((2, 3)), HUGE, 12)


def test_what_is_not_visited_counts_as_zero():
    check(ROI_ALIGN, RoiAlign((3, 2), mode="max"), LARGE)


@pytest.mark.parametrize(
    ("kernel", "op"),
    [
        (ROI_POOL, RoiPool((3, 2), 1.0, places=True)),
        (PS_ROI, PsRoi((3, 2), 1.0, "pool", mapping=True)),
    ],
)
def test_enormous_boxes_have_the_pixels_that_there_are(kernel, op):
    check(kernel, op, HUGE, 6)


@pytest.mark.parametrize(
    ("kernel", "op"),
    [
        (ROI_ALIGN, RoiAlign((2, 2), 1.0, 1, report=True)),
        (ROI_POOL, RoiPool((2, 2), 1.0, report=True)),
        (PS_ROI, PsRoi((2, 2), 1.0, "align", 1, report=True)),
    ],
)
def test_images_by_any_number(kernel, op):
    check(kernel, op, IMAGES, 4)


def test_refusals():
    x, boxes, y = (row_major(DType.F32, s) for s in ((1, 2, 4, 4), (3, 5), (3, 2, 1, 1)))
    call = Call(RoiAlign((1, 1), 1.0, 4096), (x, boxes), (y,), (False, False), H200)
    assert ROI_ALIGN.supports(call) == "4096 samples of a bin along an axis"
