"""RoiAlign of maps of few channels, rows before columns, against its reference."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from saccade.ir import DType
from saccade.kernels.cpu.roi.align_separable import ROI_ALIGN_SEPARABLE
from saccade.opdefs import RoiAlign
from saccade.testing.kernels import nchw_view, nhwc_view, off_by, row_major, run_kernel
from saccade.testing.tolerance import exact_operands, random_operands

N = 3
LAYOUTS = {"planar": nchw_view, "last": nhwc_view}
FEW = (("avx512", False, 1, None), ("avx512", True, 5, (3, 1, 4, 0, 2)))
REPORT = row_major(DType.I32, (1,))
ALIGN = RoiAlign((7, 7), 0.5, 2, True, report=True)


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def some_boxes(rng, count=14, dtype=np.float32):
    """Multiples of 1/8, so that positions are exact; inside, outside, across borders, backwards."""
    boxes = rng.integers(-32, 160, (count, 5)) / 8.0
    boxes[:, 0] = rng.integers(0, N, count)
    boxes[0, 1:] = (-60, -60, -40, -40)
    boxes[1, 1:] = (2, 3, 2, 3)
    boxes[2, 1:] = (np.nan, 0, 5, 5)
    boxes[3, 1:] = (0, -np.inf, 5, np.inf)
    boxes[4, 1:] = (-40, -24, 40, 72)
    boxes[5, 0] = N
    boxes[6, 0] = np.nan
    boxes[7, 1:] = (3, 3, 3.5, 3.25)
    boxes[8, 1:] = (20, 18, 2, 3)
    boxes[9, 1:] = (-1e30, 3, 1e30, 9)
    return boxes.astype(dtype)


def views(layout, x, result):
    make = LAYOUTS[layout]
    return make(DType.of(x.dtype), x.shape), make(DType.of(x.dtype), result)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("channels", "size", "bins", "ratio", "aligned"),
    [
        (1, (13, 40), (7, 7), 2, True),
        (3, (9, 5), (2, 3), 1, False),
        (5, (30, 19), (4, 18), 4, True),
        (8, (21, 17), (5, 2), 2, False),
        (2, (1, 1), (1, 1), 2, True),
        (18, (6, 33), (8, 4), 4, False),
    ],
)
def test_exact(layout, channels, size, bins, ratio, aligned, *, rng, hold):
    op = RoiAlign(bins, 0.5, ratio, aligned, report=True)
    x = 64 * exact_operands((N, channels, *size), DType.F32, rng)
    boxes = some_boxes(rng)
    extents = np.array(bins[::-1]) / 2.0 * rng.integers(1, 9, (4, 2))
    boxes[10:, 3:] = boxes[10:, 1:3] + extents
    of_x, out = views(layout, x, (len(boxes), channels, *bins))
    _, bad = hold(
        ROI_ALIGN_SEPARABLE, op, (x, boxes[[*range(9), *range(10, 14)]]), k=64,
        inputs=(of_x, row_major(DType.F32, (13, 5))),
        outputs=(out._replace(shape=(13, *out.shape[1:])), REPORT),
    )  # fmt: skip
    assert bad == [2]


def test_bit_for_bit_where_positions_and_weights_are_exact(rng, hold):
    x, boxes = exact_operands((N, 4, 15, 20), DType.F32, rng), some_boxes(rng)
    op = RoiAlign((4, 2), 0.5, 2, True)
    hold(ROI_ALIGN_SEPARABLE, op, (x, boxes), exact=True)


@pytest.mark.parametrize("dtype", [DType.BF16, DType.F16, DType.F64])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_other_types(dtype, layout, *, rng, hold):
    boxes = some_boxes(rng, dtype=np.float64 if dtype is DType.F64 else np.float32)
    x = random_operands((N, 7, 13, 18), dtype, rng)
    make = LAYOUTS[layout]
    hold(
        ROI_ALIGN_SEPARABLE, replace(ALIGN, report=False), (x, boxes), stored=dtype, k=64, runs=FEW,
        inputs=(make(dtype, x.shape), row_major(DType.of(boxes.dtype), boxes.shape)),
        outputs=(make(dtype, (len(boxes), 7, 7, 7)),),
    )  # fmt: skip


@pytest.mark.parametrize("channels", [1, 4, 6])
def test_layouts_agree_bit_by_bit(channels, *, rng):
    x, boxes = random_operands((N, channels, 17, 29), DType.F32, rng), some_boxes(rng, 40)
    boxes[10:, 1:] += rng.random((30, 4), np.float32)
    results = []
    for layout in LAYOUTS:
        of_x, out = views(layout, x, (len(boxes), channels, 7, 7))
        inputs = (of_x, row_major(DType.F32, boxes.shape))
        found = run_kernel(ROI_ALIGN_SEPARABLE, ALIGN, (x, boxes), (out, REPORT), inputs=inputs)
        results.append(found[0])
    assert results[0].tobytes() == results[1].tobytes()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_nan_stays_in_the_bins_that_meet_it(layout, *, rng):
    """Neither neighbouring bins nor samples outside see it."""
    x, boxes = random_operands((N, 3, 24, 24), DType.F32, rng), some_boxes(rng, 60)
    boxes[10:, 1:] += rng.random((50, 4), np.float32)
    x[:, :, 0, 0] = x[:, :, 11, 9] = x[:, :, 17, 23] = np.nan
    of_x, out = views(layout, x, (len(boxes), 3, 7, 7))
    inputs = (of_x, row_major(DType.F32, boxes.shape))
    found, _ = run_kernel(ROI_ALIGN_SEPARABLE, ALIGN, (x, boxes), (out, REPORT), inputs=inputs)
    some = np.isnan(found)
    clean, _ = ALIGN.reference(np.isnan(x).astype(np.float64), boxes.astype(np.float64))
    assert some.any()
    assert (some | (clean < 1e-6)).all()
    assert not (some & outside_of_nan(boxes, x)).any()


def outside_of_nan(boxes, x):
    """Bins none of whose samples has a NaN among its four pixels, whatever their weights."""
    near = np.zeros(x.shape)
    for y, column in zip(*np.nonzero(np.isnan(x[0, 0])), strict=True):
        near[:, :, max(0, y - 1) : y + 2, max(0, column - 1) : column + 2] = 1
    met, _ = ALIGN.reference(near, boxes.astype(np.float64))
    return met == 0


def test_images_of_their_own_and_other_strides(rng, hold):
    """Boxes [K, 4] beside the numbers of their images; maps whose rows lie apart."""
    boxes = some_boxes(rng)
    images = np.nan_to_num(boxes[:, 0], nan=-1).astype(np.int64)
    x = exact_operands((N, 6, 13, 18), DType.F32, rng)
    of_x = nchw_view(DType.F32, (N, 12, 26, 20))._replace(shape=x.shape)
    of_x = of_x._replace(strides=(of_x.strides[0], 2 * 26 * 20, 40, 1))
    inputs = (
        of_x,
        row_major(DType.F32, (len(boxes), 7))._replace(shape=(len(boxes), 4)),
        row_major(DType.I64, images.shape),
    )
    hold(
        ROI_ALIGN_SEPARABLE, RoiAlign((2, 2), 1.0, 1, True), (x, boxes[:, 1:], images),
        inputs=inputs, exact=True, runs=FEW,
    )  # fmt: skip


def test_nothing(hold):
    x, boxes = np.ones((2, 4, 5, 6), np.float32), np.zeros((0, 5), np.float32)
    hold(ROI_ALIGN_SEPARABLE, ALIGN, (x, boxes), exact=True, runs=FEW)


def test_a_mistake_shows(rng, hold):
    x, boxes = exact_operands((N, 4, 13, 11), DType.F32, rng), some_boxes(rng)
    op = RoiAlign((4, 2), 0.5, 2, True)
    for name in ("ph", "pw", "x_n", "x_c", "x_h"):
        with pytest.raises(AssertionError):
            hold(off_by(ROI_ALIGN_SEPARABLE, name, -1), op, (x, boxes), exact=True, runs=FEW[:1])


def test_refusals():
    x, boxes = np.zeros((1, 4, 5, 6), np.float32), np.zeros((2, 5), np.float32)
    out = nchw_view(DType.F32, (2, 4, 2, 2))

    def refused(why, op, x=x, boxes=boxes, out=out, **more):
        with pytest.raises(ValueError, match=why):
            run_kernel(ROI_ALIGN_SEPARABLE, op, (x, boxes), (out,), **more)

    op = RoiAlign((2, 2), 1.0, 2)
    refused("0 samples", replace(op, ratio=0))
    refused("5 samples", replace(op, ratio=5))
    refused("mode max", replace(op, mode="max"))
    refused("boxes of type int64", op, boxes=boxes.astype(np.int64))
    refused("float64 from float32", op, out=nchw_view(DType.F64, out.shape))
    refused("not dense, or unlike", op, out=nhwc_view(DType.F32, out.shape))
    apart = nhwc_view(DType.F32, x.shape, 5), row_major(DType.F32, boxes.shape)
    refused("not dense, or unlike", op, inputs=apart)
    many = np.zeros((1, 1601, 1, 1), np.float32)
    refused("1601 channels", op, x=many, out=nchw_view(DType.F32, (2, 1601, 2, 2)))
    refused("no images", op, x=x[:0])
