"""Greedy suppression, index for index: strips, bounds, ties, groups."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from saccade.ir import DType
from saccade.kernels.base import View
from saccade.kernels.cpu.nms.direct import NMS
from saccade.opdefs import Nms
from saccade.testing.kernels import launched_as, row_major, run_kernel

RNG = np.random.default_rng(0)
ONCE = (("avx512", False, 1, None),)
DTYPES = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]


def boxes_on_a_grid(count, dtype=np.float32, size=6):
    """Small integers, so that many pairs are exactly at simple thresholds."""
    corner = RNG.integers(0, size, (count, 2))
    return np.concatenate([corner, corner + RNG.integers(0, size, (count, 2))], 1).astype(dtype)


def scattered(count, extent=1000.0, side=100.0, dtype=np.float32):
    corner = RNG.random((count, 2)) * extent
    return np.concatenate([corner, corner + RNG.random((count, 2)) * side], 1).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [0, 1, 2, 17, 150, 400])
def test_integer_boxes_and_tied_scores(hold, count, dtype):
    scores = RNG.integers(0, 5, count).astype(dtype)
    hold(NMS, Nms(0.5), [boxes_on_a_grid(count, dtype), scores], exact=True)


@pytest.mark.parametrize("threshold", [0.0, 0.05, 1 / 3, 0.7, 1.0, 1.5, -0.25, float("nan")])
def test_thresholds_that_pairs_meet_exactly(hold, threshold):
    arrays = [boxes_on_a_grid(300), RNG.random(300, np.float32)]
    hold(NMS, Nms(threshold), arrays, exact=True, runs=ONCE)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("threshold", [0.1, 0.5, 0.9])
def test_many_strips(hold, threshold, dtype):
    boxes = scattered(1500, dtype=dtype)
    hold(NMS, Nms(threshold), [boxes, RNG.random(1500).astype(dtype)], exact=True)


@pytest.mark.parametrize("offset", [1e3, 1e6])
def test_centres_that_are_rounded(hold, offset):
    boxes = scattered(600, 40.0, 20.0) + np.float32(offset)
    hold(NMS, Nms(0.6), [boxes, RNG.random(600, np.float32)], exact=True, runs=ONCE)


@pytest.mark.parametrize("scale", [2.0**-74, 2.0**-64, 2.0**60, 2.0**63, 2.0**124])
def test_areas_that_underflow_or_overflow(hold, scale):
    boxes = boxes_on_a_grid(400) * np.float32(scale)
    hold(NMS, Nms(0.4), [boxes, RNG.random(400, np.float32)], exact=True, runs=ONCE)


@pytest.mark.parametrize("threshold", [0.3, 0.0, -1.0])
def test_what_is_no_box(hold, threshold):
    """Inverted, empty, infinite, NaN, with scores of all kinds."""
    special = np.array([0, 1, 3, -0.0, -2, np.inf, -np.inf, np.nan, 3e38, -3e38], np.float32)
    boxes = boxes_on_a_grid(500)
    odd = RNG.random(500) < 0.5
    boxes[odd] = special[RNG.integers(0, len(special), (odd.sum(), 4))]
    scores = special[RNG.integers(0, len(special), 500)]
    hold(NMS, Nms(threshold), [boxes, scores], exact=True)


@pytest.mark.parametrize("dtype", DTYPES)
def test_groups(hold, dtype):
    ids = np.array([-(2**62), -1, 0, 3, 2**40 + 3, 2**62], np.int64)
    groups = ids[RNG.integers(0, 6, 700)]
    boxes = boxes_on_a_grid(700, dtype, 9)
    hold(NMS, Nms(0.5), [boxes, RNG.random(700).astype(dtype), groups], exact=True)


def test_groups_with_strips_of_their_own(hold):
    groups = np.repeat(np.arange(3), [900, 1, 600])
    arrays = [scattered(1501, 500.0), RNG.random(1501, np.float32), RNG.permutation(groups)]
    hold(NMS, Nms(0.5), arrays, exact=True)


@pytest.mark.parametrize("mixed", [(np.float16, np.float64), (np.float64, np.float32)])
def test_scores_of_another_type(hold, mixed):
    boxes, scores = boxes_on_a_grid(90, mixed[0]), RNG.random(90).astype(mixed[1])
    hold(NMS, Nms(0.5), [boxes, scores], exact=True, runs=ONCE)


def test_strides(hold):
    inputs = [
        View(DType.F32, (200, 4), (1, 203)), View(DType.F32, (200,), (3,)),
        View(DType.I64, (200,), (0,)),
    ]  # fmt: skip
    arrays = [boxes_on_a_grid(200), RNG.random(200, np.float32), np.full(200, 5)]
    hold(NMS, Nms(0.5), arrays, inputs=inputs, exact=True)


def test_what_it_refuses():
    with pytest.raises(ValueError, match="elements of type int32"):
        run([boxes_on_a_grid(4).astype(np.int32), np.zeros(4, np.float32)])


def run(arrays, kernel=NMS, threshold=0.5):
    outputs = [row_major(DType.I64, (len(arrays[0]) + 1,))]
    return run_kernel(kernel, Nms(threshold), arrays, outputs)[0]


MISTAKES = {  # phase, name of the integer, what becomes of it
    "scores all the same": (0, "stride", lambda _: 0),
    "strips too narrow": (1, "reach", lambda _: 0),
    "a higher threshold": (1, "threshold", lambda word: word + (1 << 44)),
    "a bound that leaves pairs out": (1, "factor", lambda word: word + (1 << 49)),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_planted_mistakes_are_caught(name):
    phase, integer, change = MISTAKES[name]

    def wrong(call):
        phases = list(NMS.launch(call))
        words = phases[phase].integers
        words = {**words, integer: change(words[integer])}
        phases[phase] = replace(phases[phase], integers=words)
        return tuple(phases)

    boxes = np.concatenate([scattered(1000, 300.0), boxes_on_a_grid(300) + 500])
    boxes[::5, 2:] = boxes[::5, :2]
    arrays = [boxes, RNG.random(1300, np.float32)]
    (true,) = Nms(0.5).reference(*arrays)
    assert (run(arrays) == true).all()
    assert (run(arrays, launched_as(NMS, wrong)) != true).any()
