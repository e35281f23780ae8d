"""Suppression in strips: more strips than one, long chains, few that may stay."""

import numpy as np
import pytest

from saccade.ir import DType
from saccade.kernels.base import Call
from saccade.kernels.cuda.nms import suppress
from saccade.kernels.cuda.nms.suppress import NMS_SUPPRESS
from saccade.opdefs import Nms, NonMaxSuppression
from saccade.testing.kernels import row_major
from saccade.testing.triton import H200, interpret


def call_of(op, arrays):
    inputs = tuple(row_major(DType.of(a.dtype), a.shape) for a in arrays)
    with np.errstate(all="ignore"):
        truth = op.reference(*arrays)
    outputs = tuple(row_major(DType.of(a.dtype), a.shape) for a in truth)
    return Call(op, inputs, outputs, (False,) * len(arrays), H200), truth


def strip_of(variant):
    return max(launch.config.strip for launch in variant.launches)


def chosen(call, strip):
    return next(v.launches for v in NMS_SUPPRESS.variants(call) if strip_of(v) == strip)


def boxes_of(count, room=30.0, seed=0):
    rng = np.random.default_rng(seed)
    first = rng.uniform(0, room, (count, 2))
    boxes = np.concatenate([first, first + rng.uniform(1, 12, (count, 2))], 1)
    return boxes.astype(np.float32), rng.integers(0, 20, count).astype(np.float32)


@pytest.mark.parametrize("grouped", [False, True])
def test_strips(grouped):
    boxes, scores = boxes_of(150)
    groups = [np.arange(150) % 3 - 1] if grouped else []
    arrays = [boxes, scores, *groups]
    call, (truth,) = call_of(Nms(0.3), arrays)
    (found,) = interpret(NMS_SUPPRESS, call, arrays, chosen(call, 64))
    assert np.array_equal(found, truth)


@pytest.mark.parametrize("kinds", [1, 3, 40])
def test_boxes_by_group(kinds, monkeypatch):
    """Groups shorter and longer than a strip; scores are not looked at."""
    monkeypatch.setattr(suppress, "_LATER", 2)  # programs that go on, block after block
    boxes, _ = boxes_of(200)
    groups = np.sort(np.random.default_rng(2).integers(-kinds, 0, 200))
    arrays = [boxes, np.zeros(200, np.float32), groups]
    call, (truth,) = call_of(Nms(0.3, ordered=True), arrays)
    for strip in (64, 128):
        (found,) = interpret(NMS_SUPPRESS, call, arrays, chosen(call, strip))
        assert np.array_equal(found, truth)
    assert truth[-1] < 200
    assert np.array_equal(truth[: truth[-1]], np.sort(truth[: truth[-1]]))


def test_a_chain_is_followed_to_its_end():
    # Each box drops the next one unless it is dropped itself: every other one stays.
    count = 80
    left = np.arange(count, dtype=np.float32)
    boxes = np.stack([left, left * 0, left + 2, left * 0 + 1], 1)
    arrays = [boxes, -left]
    call, (truth,) = call_of(Nms(0.3), arrays)
    assert truth[-1] == count // 2
    for strip in (64, 128):
        (found,) = interpret(NMS_SUPPRESS, call, arrays, chosen(call, strip))
        assert np.array_equal(found, truth)


@pytest.mark.parametrize("most", [3, 70])
def test_no_more_stay_than_may(most):
    boxes, _ = boxes_of(130)
    scores = np.random.default_rng(1).random((1, 2, 130), np.float32)
    arrays = [boxes[None], scores]
    op = NonMaxSuppression(2 * most + 5, most, 0.4, 0.1)  # and there is room for more
    call, truth = call_of(op, arrays)
    found = interpret(NMS_SUPPRESS, call, arrays, chosen(call, 64))
    assert all(np.array_equal(f, t) for f, t in zip(found, truth, strict=True))


@pytest.fixture
def short(monkeypatch):
    """What takes thousands of boxes, of hundreds."""
    monkeypatch.setattr(suppress, "_PARTS", (64,))
    monkeypatch.setattr(suppress, "_SHORT", 1)
    monkeypatch.setattr(suppress, "_LISTED", 100)
    monkeypatch.setattr(suppress, "_LIST_BLOCK", 32)
    monkeypatch.setattr(suppress, "_PROGRAMS", 24)  # so that each has several turns


def thresholds(share, count, problems):
    """Scores of which some are above 0.5, at any places; equal ones among them."""
    rng = np.random.default_rng(int(100 * share))
    scores = rng.integers(0, 40, (1, problems, count)) / 80
    return np.where(rng.random(scores.shape) < share, scores + 0.51, scores).astype(np.float32)


def only(call):
    (variant,) = NMS_SUPPRESS.variants(call)
    return variant.launches


@pytest.mark.parametrize("share", [0.0, 0.02, 0.4, 1.0])
@pytest.mark.parametrize("longer", [1, 2, 8])
def test_boxes_that_take_part_are_listed(short, monkeypatch, share, longer):
    monkeypatch.setattr(suppress, "_LONGER", longer)
    boxes, _ = boxes_of(300)
    arrays = [boxes[None], thresholds(share, 300, 2)]
    call, truth = call_of(NonMaxSuppression(600, 300, 0.3, 0.5), arrays)
    launches = only(call)
    assert [launch.config.phase for launch in launches[:3]] == ["members", "gather", "order_listed"]
    # The longer the strips behind the first one the fewer launches that no box reaches.
    assert len(launches) == 4 + 2 * (1 + -(-(300 - 64) // (64 * longer)))
    found = interpret(NMS_SUPPRESS, call, arrays, launches)
    assert all(np.array_equal(f, t) for f, t in zip(found, truth, strict=True))


def test_lists_end_where_scores_are_no_numbers(short):
    """What is planned for a bound, of which a run has less."""
    boxes, scores = boxes_of(250)
    scores[97:] = np.nan
    arrays = [boxes[None], scores[None, None]]
    call, truth = call_of(NonMaxSuppression(250, 250, 0.4), arrays)
    found = interpret(NMS_SUPPRESS, call, arrays, only(call))
    assert all(np.array_equal(f, t) for f, t in zip(found, truth, strict=True))


@pytest.mark.parametrize("most", [1, 70, 130])
def test_strips_of_parts_end_with_what_may_stay(short, most):
    boxes, _ = boxes_of(300, room=90)
    arrays = [boxes[None], thresholds(0.9, 300, 1)]
    call, truth = call_of(NonMaxSuppression(most + 3, most, 0.4, 0.5), arrays)
    found = interpret(NMS_SUPPRESS, call, arrays, only(call))
    assert all(np.array_equal(f, t) for f, t in zip(found, truth, strict=True))


@pytest.mark.parametrize("longer", [1, 2, 8])
def test_chains_through_parts(short, monkeypatch, longer):
    """Each box drops the next one unless it is dropped itself, across parts and strips."""
    monkeypatch.setattr(suppress, "_LONGER", longer)
    count = 300
    left = np.arange(count, dtype=np.float32)
    boxes = np.stack([left, left * 0, left + 2, left * 0 + 1], 1)
    arrays = [boxes[None], -left[None, None]]
    call, truth = call_of(NonMaxSuppression(count, count, 0.3), arrays)
    assert truth[1] == count // 2
    found = interpret(NMS_SUPPRESS, call, arrays, only(call))
    assert all(np.array_equal(f, t) for f, t in zip(found, truth, strict=True))


@pytest.mark.parametrize(
    ("classes", "count", "sizes"),
    [
        (1, 90_000, [1024] * 4 + [8192] * 11),
        (1, 2100, [1024] * 3),
        # Pairs of all of a strip are kept: of eighty classes that would be gigabytes.
        (80, 5000, None),
        (1, 1500, None),
    ],
)
def test_strips_grow_where_few_boxes_come(classes, count, sizes):
    views = (row_major(DType.F32, (1, count, 4)), row_major(DType.F32, (1, classes, count)))
    results = (row_major(DType.I64, (100, 3)), row_major(DType.I64, (1,)))
    call = Call(NonMaxSuppression(100, 50, 0.5), views, results, (False, False), H200)
    launches = next(iter(NMS_SUPPRESS.variants(call))).launches
    strips = [one.config.strip for one in launches if one.config.phase == "resolve"]
    if sizes is None:  # whatever estimates prefer, all are as long
        assert len(set(strips)) == 1 and sum(strips) >= count
    else:
        assert strips == sizes


def test_a_threshold_between_two_numbers():
    # Float32 rounds a third up, so that an overlap of a third exceeds the threshold's neighbour.
    boxes = np.array([[0, 0, 2, 1], [1, 0, 3, 1]], np.float32)
    arrays = [boxes, np.array([2, 1], np.float32)]
    for threshold in (1 / 3, float(np.float32(1 / 3)), 0.3333333):
        call, (truth,) = call_of(Nms(threshold), arrays)
        (found,) = interpret(NMS_SUPPRESS, call, arrays)
        assert np.array_equal(found, truth)


def test_refusals():
    boxes, scores = boxes_of(3)
    call, _ = call_of(Nms(float("nan")), [boxes, scores])
    assert NMS_SUPPRESS.supports(call) == "a threshold of nan"
