"""Suppression of every class by itself: row for row, between teams, and what is behind the rows."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.ir import DType
from saccade.kernels.base import Call, View
from saccade.kernels.cpu.nms import classes
from saccade.kernels.cpu.nms.classes import NMS_CLASSES
from saccade.kernels.cpu.nms.classes_rows import PADDED
from saccade.opdefs import NonMaxSuppression
from saccade.testing.kernels import launched_as, row_major, run_kernel
from saccade.testing.targets import ZEN4

RNG = np.random.default_rng(0)
ONCE = (("avx512", False, 2, (1, 0)),)


def boxes_on_a_grid(*shape, size=7):
    """Any two corners, many pairs exactly at simple thresholds."""
    return RNG.integers(0, size, (*shape, 4)).astype(np.float32)


def scores_with_ties(*shape, steps=9):
    return (RNG.integers(0, steps, shape) / steps).astype(np.float32)


def suppression(scores, most=2**31 - 1, iou=0.5, score=None, centred=False):
    images, groups, count = scores.shape
    rows = images * groups * min(most, count)
    return NonMaxSuppression(rows, most, float(np.float32(iou)), score, centred)


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("count", [1, 2, 16, 17, 33, 200])
def test_grids(hold, count, centred):
    boxes, scores = boxes_on_a_grid(2, count), scores_with_ties(2, 3, count)
    op = suppression(scores, 12, 1 / 3, 0.25, centred)
    hold(NMS_CLASSES, op, [boxes, scores], exact=True)


@pytest.mark.parametrize("iou", [0.0, 0.25, 1.0])
@pytest.mark.parametrize("most", [1, 5, 1000])
def test_limits_and_thresholds(hold, most, iou):
    boxes, scores = boxes_on_a_grid(1, 150), scores_with_ties(1, 2, 150)
    hold(NMS_CLASSES, suppression(scores, most, iou), [boxes, scores], exact=True, runs=ONCE)


def test_many_strips(hold):
    corner = RNG.random((1, 1500, 2)) * 1000
    boxes = np.concatenate([corner, corner + RNG.random((1, 1500, 2)) * 100], 2).astype(np.float32)
    scores = RNG.random((1, 1, 1500), np.float32)
    hold(NMS_CLASSES, suppression(scores, iou=0.4), [boxes, scores], exact=True)


LARGEST = float(np.finfo(np.float32).max)


@pytest.mark.parametrize("score", [None, -np.inf, 0.0, -0.0, 3e38, LARGEST, np.inf, np.nan])
@pytest.mark.parametrize("centred", [False, True])
def test_what_is_no_box_and_no_score(hold, score, centred):
    special = np.array([0, 1, 3, -0.0, -2, np.inf, -np.inf, np.nan, 3e38, -3e38, 1e-45], np.float32)
    boxes = boxes_on_a_grid(2, 120)
    odd = RNG.random((2, 120)) < 0.5
    boxes[odd] = special[RNG.integers(0, len(special), (odd.sum(), 4))]
    scores = special[RNG.integers(0, len(special), (2, 2, 120))]
    op = suppression(scores, 60, 0.3, score, centred)
    hold(NMS_CLASSES, op, [boxes, scores], exact=True, runs=ONCE)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_halves(hold, dtype):
    boxes, scores = boxes_on_a_grid(2, 70).astype(dtype), scores_with_ties(2, 2, 70).astype(dtype)
    hold(NMS_CLASSES, suppression(scores, 20, score=0.5), [boxes, scores], exact=True, runs=ONCE)


@pytest.mark.parametrize("shape", [(0, 3, 5), (2, 0, 5), (2, 3, 0)])
def test_nothing(hold, shape):
    images, _, count = shape
    boxes, scores = boxes_on_a_grid(images, count), scores_with_ties(*shape)
    hold(NMS_CLASSES, suppression(scores), [boxes, scores], exact=True)


def test_nothing_stays_and_much_room(hold):
    """More chunks of padding than classes; the memory behind the rows was poisoned."""
    scores = scores_with_ties(1, 3, PADDED)
    boxes = boxes_on_a_grid(1, PADDED)
    hold(NMS_CLASSES, suppression(scores, score=2.0), [boxes, scores], exact=True, runs=ONCE)


@pytest.mark.parametrize("alike", [1, 40, 500])
@pytest.mark.parametrize("most", [1, 20])
def test_the_best_alone_first(hold, most, alike):
    """Few are wanted of many, which drop each other now and then, or nearly always."""
    corner = np.repeat(RNG.random((1, 3000 // alike, 2)) * 900, alike, 1)
    boxes = np.concatenate([corner, corner + RNG.random(corner.shape) + 50], 2).astype(np.float32)
    scores = RNG.random((1, 2, boxes.shape[1]), np.float32)
    scores[0, 1, ::3] = np.nan
    for score in (None, 0.97):
        op = suppression(scores, most, 0.5, score)
        (phase, *_) = NMS_CLASSES.launch(call_of(op, boxes, scores))
        assert phase.integers["rank"] > 0
        hold(NMS_CLASSES, op, [boxes, scores], exact=True, runs=ONCE)


def call_of(op, *arrays):
    outputs = row_major(DType.I64, (op.rows, 3)), row_major(DType.I64, (1,))
    views = tuple(row_major(DType.F32, a.shape) for a in arrays)
    return Call(op, views, outputs, (False, False), ZEN4)


def test_strides(hold):
    inputs = [
        View(DType.F32, (2, 90, 4), (1000, 1, 103)), View(DType.F32, (2, 3, 90), (91, 2 * 91, 1)),
    ]  # fmt: skip
    arrays = [boxes_on_a_grid(2, 90), scores_with_ties(2, 3, 90)]
    hold(NMS_CLASSES, suppression(arrays[1], 30), arrays, inputs=inputs, exact=True)


def call(**changes):
    scores = row_major(DType.F32, (1, 2, 30))
    boxes, op = row_major(DType.F32, (1, 30, 4)), NonMaxSuppression(60, 30)
    outputs = row_major(DType.I64, (60, 3)), row_major(DType.I64, (1,))
    usual = Call(op, (boxes, scores), outputs, (False, False), None)
    return replace(usual, **changes)


def test_what_it_refuses():
    boxes, scores = call().inputs
    assert NMS_CLASSES.supports(call()) is None
    wide = boxes._replace(dtype=DType.F64)
    assert "float64" in NMS_CLASSES.supports(call(inputs=(wide, scores)))
    transposed = View(DType.F32, (1, 2, 30), (60, 1, 2))
    assert "side by side" in NMS_CLASSES.supports(call(inputs=(boxes, transposed)))
    apart = View(DType.I64, (60, 3), (4, 1)), call().outputs[1]
    assert "not contiguous" in NMS_CLASSES.supports(call(outputs=apart))


def run(arrays, op, kernel=NMS_CLASSES, checked=False):
    outputs = [row_major(DType.I64, (op.rows, 3)), row_major(DType.I64, (1,))]
    return run_kernel(kernel, op, arrays, outputs, checked=checked)


NUMBERS = st.floats(width=32)


@settings(max_examples=60)
@given(st.data())
def test_any_contents(data):
    images, groups, count = (data.draw(st.integers(1, top)) for top in (2, 3, 24))
    near = st.one_of(NUMBERS, st.integers(0, 3).map(float))
    draw = lambda n: np.array(data.draw(st.lists(near, min_size=n, max_size=n)), np.float32)  # noqa: E731
    boxes = draw(images * count * 4).reshape(images, count, 4)
    scores = draw(images * groups * count).reshape(images, groups, count)
    score = data.draw(st.one_of(st.none(), NUMBERS))
    iou = data.draw(st.floats(0, 1, width=32))
    op = suppression(scores, data.draw(st.integers(1, 30)), iou, score, data.draw(st.booleans()))
    with np.errstate(all="ignore"):
        wanted = op.reference(boxes, scores)
    for result, true in zip(run([boxes, scores], op, checked=True), wanted, strict=True):
        np.testing.assert_array_equal(result, true)


MISTAKES = {  # phase, name of the integer, what becomes of it
    "one box fewer of a class": (0, "most", lambda word: word - 1),
    "classes that share scores": (0, "score_class", lambda _: 0),
    "equality exceeds": (0, "least", lambda _: classes.real_word(0.5)),
    "a higher threshold": (0, "threshold", lambda word: word + (1 << 48)),
    "a bound that leaves pairs out": (0, "factor", lambda word: word + (1 << 49)),
    "the last class is left out": (2, "runs", lambda word: word - 1),
    "images of another number of classes": (2, "classes", lambda word: word + 1),
    "no zeros behind the rows": (2, "fill", lambda _: 0),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_planted_mistakes_are_caught(name):
    phase, integer, change = MISTAKES[name]

    def wrong(call):
        phases = list(NMS_CLASSES.launch(call))
        words = phases[phase].integers
        words = {**words, integer: change(words[integer])}
        phases[phase] = replace(phases[phase], integers=words)
        return tuple(phases)

    boxes, scores = boxes_on_a_grid(2, 300, size=12), scores_with_ties(2, 3, 300, steps=10)
    scores[0, 0] = 0
    op = suppression(scores, 3 if name.startswith("one box") else 300, 0.5, 0.5)
    true = op.reference(boxes, scores)
    right, bad = run([boxes, scores], op), run([boxes, scores], op, launched_as(NMS_CLASSES, wrong))
    assert all(np.array_equal(a, b) for a, b in zip(right, true, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(bad, true, strict=True))
