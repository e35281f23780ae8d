"""Boxes that are anything: enormous ones, image numbers that are none."""

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from saccade.errors import ModelError
from saccade.ir import DType, TensorType
from saccade.kernels.base import Call, Out
from saccade.kernels.cuda.roi.align import ROI_ALIGN
from saccade.kernels.cuda.roi.pool import ROI_POOL
from saccade.kernels.cuda.roi.pool_windows import ROI_POOL_WINDOWS
from saccade.kernels.cuda.roi.ps import PS_ROI
from saccade.kernels.select import Candidates
from saccade.layout.views import channels_last
from saccade.opdefs import PsRoi, RoiAlign, RoiPool
from saccade.testing.kernels import row_major
from saccade.testing.triton import H200, interpret

HUGE = [
    (1, -3e7, -5, 8, 6e7),  # the image at the end of a row of bins
    (0, -1e6, -1e6, 1e6 + 12, 1e6 + 10),  # and across the border of two
    (0, -3e38, -3e38, 3e38, 3e38),
    (0, 9, 9, -2e9, -2e9),
]
LARGE = [(1, -20, -5, 8, 15), (0, -10, -14, 12, 10), (1, 7, 1, 9, 30)]
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
    x = rng.standard_normal((2, channels, 4, 3)).astype(np.float32)
    arrays = [x, np.array(rows, np.float32)]
    with np.errstate(all="ignore"):
        truth = op.reference(*arrays)
    outputs = tuple(row_major(DType.of(a.dtype), a.shape) for a in truth)
    inputs = tuple(row_major(DType.F32, a.shape) for a in arrays)
    found = interpret(kernel, Call(op, inputs, outputs, (False, False), H200), arrays)
    for have, true in zip(found, truth, strict=True):
        assert np.allclose(have, true, rtol=1e-4, atol=1e-5, equal_nan=True)


def test_enormous_boxes_are_sampled_where_the_image_is():
    check(ROI_ALIGN, RoiAlign((2, 1)), HUGE, 2)
    check(PS_ROI, PsRoi((1, 2)), HUGE, 4)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("number", [0, 2, 5, 9])
def test_boxes_beyond_their_number_take_no_time(last, number):
    """Their results are left as they were: here as what guarded memory begins with."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((2, 5, 6, 7)).astype(np.float32)
    boxes = np.array([(0, 0, 5, 4), (1, 2, 6, 6), (0, 1, 3, 3), (2, 2, 4, 5), (1, 1, 2, 2)])
    images = np.array([0, 1, 1, 0, 1])
    arrays = [x, boxes.astype(np.float32), images, np.array([number])]
    op = RoiAlign((3, 2), counted=True)
    (truth,) = op.reference(*arrays)
    assert np.array_equal(truth, RoiAlign((3, 2)).reference(*arrays[:3])[0])
    order = channels_last if last else row_major
    inputs = (
        order(DType.F32, x.shape),
        *(row_major(DType.of(a.dtype), a.shape) for a in arrays[1:]),
    )
    call = Call(op, inputs, (order(DType.F32, truth.shape),), (False,) * 4, H200)
    for variant in ROI_ALIGN.variants(call):
        (found,) = interpret(ROI_ALIGN, call, arrays, variant.launches)
        assert np.allclose(found[:number], truth[:number], rtol=1e-4, atol=1e-5)
        assert np.isnan(found[number:]).all()


def test_a_number_of_boxes_is_one_integer():
    views = [TensorType(DType.F32, (1, 3, 8, 8)), TensorType(DType.F32, (4, 5))]
    with pytest.raises(ModelError, match="takes their number"):
        RoiAlign((2, 2), counted=True).infer([*views, TensorType(DType.F32, (1,))])
    with pytest.raises(ModelError, match="takes x and boxes"):
        RoiAlign((2, 2), counted=True).infer(views[:2])


def test_what_is_not_visited_counts_as_zero():
    check(ROI_ALIGN, RoiAlign((2, 1), mode="max"), LARGE, 2)


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


_CONTRACTED = """
from dataclasses import replace
from saccade.backends.cuda.codegen.compile import compile_entry
from saccade.kernels.cuda.roi.ps import PS_ROI, CudaPsRoiConfig
config = CudaPsRoiConfig(
    ("fp32", "fp32", "fp32"), (2, 2), 0.3, 1, True, False, False, False, True, (32, 1, 1)
)
entry = PS_ROI.entry(config)
exact, fused = (compile_entry(replace(entry, contract=c), 90, ()) for c in (False, True))
print(entry.contract, exact.code == fused.code)
"""


def test_places_are_not_contracted():
    # The interpreter never does; a process that ran it compiles nothing.
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    run = subprocess.run(
        [sys.executable, "-c", _CONTRACTED],
        capture_output=True, text=True, check=True, env=environment,
    )  # fmt: skip
    assert run.stdout.split() == ["False", "False"]


def pooling(count, layout=(0, 1, 2, 3), dtype=DType.F32, shape=(2, 256, 200, 304)):
    """A call of RoiPool whose image lies in an order of its axes."""
    strides, step = [0] * 4, 1
    for axis in reversed(layout):
        strides[axis] = step
        step *= shape[axis]
    x = row_major(dtype, shape)._replace(strides=tuple(strides))
    boxes, y = row_major(DType.F32, (count, 5)), row_major(dtype, (count, shape[1], 7, 7))
    return Call(RoiPool((7, 7), 0.25), (x, boxes), (y,), (False, False), H200)


LAST = (0, 2, 3, 1)


@pytest.mark.parametrize("dtype", [DType.F32, DType.F16])
def test_windows_are_found_for_many_boxes(dtype):
    kernels = (ROI_POOL, ROI_POOL_WINDOWS)
    few, many = pooling(50, LAST, dtype), pooling(1000, LAST, dtype)
    chosen = [Candidates.of(call, kernels, 1).cheapest.kernel for call in (few, many)]
    assert chosen == [ROI_POOL, ROI_POOL_WINDOWS]


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (pooling(9), "channels that are no neighbours"),
        (pooling(9, LAST, shape=(2, 256, 3, 304)), "an image without 4 rows and columns"),
        (pooling(9, LAST, shape=(2, 256, 200, 3)), "an image without 4 rows and columns"),
        (pooling(9, LAST, shape=(0, 256, 200, 304)), "an image without 4 rows and columns"),
        (pooling(9, LAST, shape=(64, 256, 200, 304)), "windows of more than 1 GiB"),
    ],
)
def test_images_without_windows(call, reason):
    assert ROI_POOL_WINDOWS.supports(call) == reason
    assert ROI_POOL.supports(call) is None


def test_what_has_windows():
    smallest = pooling(9, LAST, shape=(1, 1, 4, 4))
    assert ROI_POOL_WINDOWS.supports(smallest) is None


@pytest.mark.parametrize(
    ("side", "count", "pays"),
    [
        (11, 12, True),  # 12 images full of pixels: as many as windows want
        (11, 11, False),
        (7, 60, True),  # bins of just four rows: 60 times 64 of 144 pixels
        (6, 60, False),
        (np.inf, 60, False),
    ],
)
def test_whether_windows_pay(side, count, pays):
    rows = np.array([(i % 2, 0, 0, side, side) for i in range(2 * count)], np.float32)
    rows = np.concatenate([rows, [(5, 0, 0, 11, 11), (np.nan, 0, 0, 11, 11)] * 9])  # of no image
    boxes = rows.astype(np.float32)
    x = np.zeros((2, 1, 12, 12), np.float32)
    inputs = (row_major(DType.F32, x.shape), row_major(DType.F32, boxes.shape))
    pooled = row_major(DType.F32, (len(boxes), 1, 2, 2))
    first, *_ = ROI_POOL_WINDOWS.launch(
        Call(RoiPool((2, 2), 1.0), inputs, (pooled,), (False, False), H200)
    )
    # By itself, with its temporary as a result.
    alone = replace(first, operands={**first.operands, "worth": Out(0)})
    call = Call(RoiPool((2, 2), 1.0), inputs, (row_major(DType.I32, (1,)),), (False, False), H200)
    kernel = replace(ROI_POOL_WINDOWS, supports=lambda _: None)
    assert interpret(kernel, call, [x, boxes], (alone,))[0].tolist() == [pays]
