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
