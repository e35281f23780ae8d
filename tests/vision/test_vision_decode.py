"""Detections out of outputs of every family that is known, and no others."""

from __future__ import annotations

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from saccade import vision
from saccade.errors import InputError

F32 = np.float32
IMAGE = np.zeros((60, 120, 3), np.uint8)
BOX = vision.letterbox(IMAGE, (64, 64))
"""Scaled by 8/15 to 64x32 pixels, 16 rows below the top."""
POINTS = 8 * 8 + 4 * 4 + 2 * 2  # of a YOLO's three maps


def in_image(boxes):
    return BOX.boxes(np.array(boxes, F32))


def torchvision(boxes=(), labels=(), scores=(), **more):
    return {
        "11": np.array(boxes, F32).reshape(-1, 4),
        "12": np.array(labels, np.int64),
        "13": np.array(scores, F32),
    } | more


FOUND = ([[10, 20, 30, 40], [0, 16, 64, 48]], [3, 1], [0.6, 0.9])
WANTED = [[0, 16, 64, 48], [10, 20, 30, 40]]


@pytest.mark.parametrize("order", [("11", "12", "13"), ("13", "11", "12"), ("12", "13", "11")])
def test_torchvision_in_any_order(order):
    outputs = torchvision(*FOUND)
    found = vision.decode({name: outputs[name] for name in order}, BOX)
    assert found.labels.tolist() == [1, 3] and found.scores.tolist() == [F32(0.9), F32(0.6)]
    assert found.labels.dtype == np.int64 and found.boxes.dtype == found.scores.dtype == F32
    np.testing.assert_array_equal(found.boxes, in_image(WANTED))
    np.testing.assert_allclose(found.boxes[0], [0, 0, 120, 60], rtol=1e-6)
    assert found.masks is None and found.keypoints is None and len(found) == 2


def test_outputs_as_a_call_or_a_session_gives_them():
    outputs = torchvision(*FOUND)
    wanted = vision.decode(outputs, BOX)
    listed = list(outputs.values())
    for some in (listed, tuple(listed), {name: Tensor(one) for name, one in outputs.items()}):
        assert vision.detector_of(some, BOX) == "torchvision"
        np.testing.assert_array_equal(vision.decode(some, BOX).boxes, wanted.boxes)
    one = np.array([[[10, 20, 30, 40, 0.9, 2]]], F32)
    assert vision.decode(one, BOX, "yolov10").labels.tolist() == [2]
    scores = np.ones((1, 7, 64, 64), F32)
    assert vision.segmentation_of([scores], BOX).shape == (60, 120)
    with pytest.raises(InputError, match="output 1 is a str, not an array"):
        vision.decode([one, "a"], BOX)


class Tensor:
    """Another library's array."""

    def __init__(self, array):
        self.array = array

    def __array__(self, dtype=None, copy=None):
        return self.array


def test_masks_and_keypoints():
    masks = np.zeros((2, 1, 64, 64), F32)
    masks[0, 0, 20:40, 10:30] = 0.9
    points = np.array([[[10, 20, 1], [30, 40, 0]]] * 2, F32)
    outputs = torchvision(*FOUND, masks=masks, points=points, sure=np.ones((2, 2), F32))
    found = vision.decode(outputs, BOX)
    assert found.masks.shape == (2, 60, 120) and found.masks.dtype == bool
    assert not found.masks[0].any()
    rows, columns = np.nonzero(found.masks[1])
    left, top, right, bottom = in_image([10, 20, 30, 40])
    assert abs(columns.min() - left) <= 1 and abs(columns.max() + 1 - right) <= 1
    assert abs(rows.min() - top) <= 1 and abs(rows.max() + 1 - bottom) <= 1
    wanted = [[left, top, 1], [right, bottom, 0]]
    np.testing.assert_allclose(found.keypoints[1], wanted, rtol=1e-6)


def test_nothing_found_is_no_error():
    empty = torchvision(masks=np.zeros((0, 1, 64, 64), F32), points=np.zeros((0, 5, 3), F32))
    found = vision.decode(empty, BOX)
    assert len(found) == 0
    assert found.boxes.shape == (0, 4) and found.masks.shape == (0, 60, 120)
    assert found.keypoints.shape == (0, 5, 3)
    assert len(vision.decode(torchvision(*FOUND), BOX, threshold=0.95)) == 0


def rows_of(count, columns, entries):
    """Rows of zeros but for some, at places."""
    rows = np.zeros((count, columns), F32)
    for place, row in entries.items():
        rows[place, : len(row)] = row
    return rows


MIDDLES = {3: [20, 30, 20, 20], 7: [21, 30, 20, 20], 50: [20, 30, 20, 20], 60: [32, 32, 64, 32]}
"""Two that overlap, one at the same place, and one around all."""


def yolo(columns, count, scores):
    first = columns - 3
    rows = {}
    for place, box in MIDDLES.items():
        row = [*box] + [0.0] * (columns - 4)
        sure, label, score = scores[place]
        row[4:first] = [sure] * (first - 4)
        row[first + label] = score
        rows[place] = row
    return rows_of(count, columns, rows)


SCORES = {3: (1, 0, 0.8), 7: (1, 0, 0.9), 50: (1, 2, 0.7), 60: (1, 1, 0.6)}
KEPT = ([[11, 20, 31, 40], [10, 20, 30, 40], [0, 16, 64, 48]], [0, 2, 1], [0.9, 0.7, 0.6])


def assert_kept(found):
    boxes, labels, scores = KEPT
    assert found.labels.tolist() == labels
    np.testing.assert_allclose(found.scores, scores, rtol=1e-6)
    np.testing.assert_allclose(found.boxes, in_image(boxes), rtol=1e-5, atol=1e-4)


def test_yolo_v5_with_anchors():
    rows = yolo(8, 3 * POINTS, SCORES)
    maps = {"map": np.zeros((1, 3, 8, 8, 8), F32)}
    assert vision.detector_of({"out": rows[None]}, BOX) == "yolov5"
    assert_kept(vision.decode({"out": rows[None]} | maps, BOX))
    rows[7, 4] = 0.1  # how sure it is that there is anything
    assert vision.decode({"out": rows[None]}, BOX).scores[0] == F32(0.8)


@pytest.mark.parametrize("along", [True, False])
def test_yolo_v8_and_its_overlaps(along):
    rows = yolo(7, POINTS, SCORES)
    out = (rows.T if along else rows)[None]
    assert vision.detector_of({"out": out}, BOX) == "yolov8"
    assert_kept(vision.decode({"out": out}, BOX))
    assert len(vision.decode({"out": out}, BOX, overlap=0.99)) == 4
    assert len(vision.decode({"out": out}, BOX, most=1)) == 1
    odd = vision.prepare(IMAGE, "none")  # an input that no kind of map divides
    assert len(vision.decode({"out": out}, odd, "yolov8")) == 3


def test_yolo_v8_with_masks():
    rows = yolo(7, POINTS, SCORES)
    shares = np.zeros((POINTS, 2), F32)
    shares[7, 0], shares[60, 1] = 9, 9
    prototypes = np.full((1, 2, 16, 16), -1, F32)
    prototypes[0, 0, :, 4:6] = 1
    prototypes[0, 1] = 1
    found = vision.decode(
        {"out": np.concatenate([rows, shares], 1).T[None], "prototypes": prototypes}, BOX
    )
    assert_kept(found)
    rows_there, columns_there = np.nonzero(found.masks[0])
    # Columns 16 to 24 of the input, within the box that begins at row 20.
    assert columns_there.min() >= 28 and columns_there.max() < 48
    assert rows_there.min() >= 5 and rows_there.max() < 47
    assert found.masks[2].mean() > 0.95 and not found.masks[1].any()


def test_yolo_v10_needs_no_suppression():
    rows = rows_of(300, 6, {0: [10, 20, 30, 40, 0.6, 3], 5: [0, 16, 64, 48, 0.9, 1]})
    assert vision.detector_of({"out": rows[None]}, BOX) == "yolov10"
    found = vision.decode({"out": rows[None]}, BOX)
    assert found.labels.tolist() == [1, 3]
    np.testing.assert_array_equal(found.boxes, in_image(WANTED))


def queries(count, classes, high):
    logits = np.full((1, count, classes), -4, F32)
    boxes = np.full((1, count, 4), 0.5, F32)
    boxes[0, 2] = [20 / 64, 30 / 64, 20 / 64, 20 / 64]
    logits[0, 2, 3], logits[0, 9, 1] = high, high + 2
    boxes[0, 9] = [0.5, 0.5, 1, 0.5]
    return logits, boxes


def test_detr():
    logits, boxes = queries(100, 92, 5)
    logits[0, :, 91] = 2  # none
    outputs = {"logits": logits, "pred_boxes": boxes, "state": np.zeros((1, 100, 256), F32)}
    found = vision.decode(outputs, BOX)
    assert found.labels.tolist() == [1, 3]
    np.testing.assert_allclose(found.boxes, in_image(WANTED), rtol=1e-5)
    powers = np.exp(logits[0, 9].astype(np.float64))
    assert found.scores[0] == pytest.approx(powers[1] / powers.sum(), rel=1e-5)


def test_rt_detr_and_what_cannot_be_told_apart():
    logits, boxes = queries(300, 80, 1)
    found = vision.decode({"a": boxes, "b": logits}, BOX)
    assert found.labels.tolist() == [1, 3]
    assert found.scores[0] == pytest.approx(1 / (1 + np.exp(-3.0)), rel=1e-6)
    logits, boxes = queries(77, 81, 5)
    outputs = {"logits": logits, "pred_boxes": boxes}
    with pytest.raises(InputError, match="no detector that is known"):
        vision.decode(outputs, BOX)
    # Softmax, with the last class for none, or each class by itself: the user says.
    assert len(vision.decode(outputs, BOX, "detr")) == 2
    assert len(vision.decode(outputs, BOX, "rtdetr")) == 2


def test_tensorflow_and_tensorrt():
    boxes = np.array([[[20, 10, 40, 30], [16, 0, 48, 64], [0, 0, 0, 0]]], F32) / 64
    scores, classes = np.array([[0.6, 0.9, 0]], F32), np.array([[3, 1, 0]], F32)
    named = {"detection_boxes:0": boxes, "detection_scores:0": scores,
             "detection_classes:0": classes, "num_detections:0": np.array([2], F32)}  # fmt: skip
    found = vision.decode(named, BOX)
    assert found.labels.tolist() == [1, 3]
    np.testing.assert_allclose(found.boxes, in_image(WANTED), rtol=1e-6)
    pixels = boxes[..., [1, 0, 3, 2]] * 64
    listed = {"num_dets": np.array([[1]], np.int32), "det_boxes": pixels, "det_scores": scores,
              "det_classes": classes.astype(np.int32)}  # fmt: skip
    found = vision.decode(listed, BOX)
    assert found.labels.tolist() == [3]
    np.testing.assert_allclose(found.boxes, in_image(WANTED[1:]), rtol=1e-6)


def test_yunet():
    outputs = {}
    for stride in (8, 16, 32):
        count = (64 // stride) ** 2
        for name, width in (("cls", 1), ("obj", 1), ("bbox", 4), ("kps", 10)):
            outputs[f"{name}_{stride}"] = np.zeros((1, count, width), F32)
    # Row 2, column 3 of the map whose points are 8 pixels apart.
    place = 2 * 8 + 3
    outputs["cls_8"][0, place], outputs["obj_8"][0, place] = 0.8, 0.9
    outputs["bbox_8"][0, place] = [0.5, 0.25, np.log(2), np.log(1)]
    outputs["kps_8"][0, place] = np.arange(10) / 10
    outputs["cls_16"][0, 5], outputs["obj_16"][0, 5] = 0.8, 0.1
    assert vision.detector_of(outputs, BOX) == "yunet"
    found = vision.decode(outputs, BOX)
    assert found.labels.tolist() == [0]
    assert found.scores[0] == pytest.approx(np.sqrt(0.72))
    np.testing.assert_allclose(found.boxes, in_image([[20, 14, 36, 22]]), rtol=1e-5)
    second = BOX.points(np.array([24 + 1.6, 16 + 2.4], F32))
    np.testing.assert_allclose(found.keypoints[0, 1], [*second, 1], rtol=1e-5)
    assert vision.detector_of(outputs, vision.prepare(IMAGE, "none")) is None
    del outputs["kps_32"]
    assert vision.detector_of(outputs, BOX) is None


def test_what_is_not_finite_is_left_out():
    nan, inf = float("nan"), float("inf")
    boxes = [[nan, 0, 1, 1], [0, 0, inf, 1], [1, 2, 3, 4], [1, 2, 3, 4]]
    found = vision.decode(torchvision(boxes, [1, 2, 3, 4], [0.9, 0.9, nan, 0.8]), BOX)
    assert found.labels.tolist() == [4]


def test_what_is_no_probability_is_refused():
    rows = rows_of(POINTS, 56, {4: [20, 30, 9, 9, 0.9, 300]})  # a pose: pixels, and no classes
    with pytest.raises(InputError, match="a score of 300 is no probability"):
        vision.decode({"out": rows.T[None]}, BOX)


UNKNOWN = {
    "nothing": {},
    "classes": {"y": np.zeros((1, 1000), F32)},
    "an image": {"y": np.zeros((1, 3, 64, 64), F32)},
    "a batch": {"y": np.zeros((2, 84, POINTS), F32)},
    "other points": {"y": np.zeros((1, 30, POINTS + 2), F32)},
    "integers": {"y": np.zeros((1, 84, POINTS), np.int64)},
    "two of one": torchvision(*FOUND) | {"more": np.zeros((2, 4), F32)},
    "lengths": torchvision(FOUND[0], [1], FOUND[2]),
    "no scores": {"a": np.zeros((2, 4), F32), "b": np.zeros(2, np.int64)},
    "stray": torchvision(*FOUND) | {"sure": np.zeros((2, 17), F32)},
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_other_outputs_are_refused(name):
    assert vision.detector_of(UNKNOWN[name], BOX) is None
    with pytest.raises(InputError, match="no detector that is known"):
        vision.decode(UNKNOWN[name], BOX)


@pytest.mark.parametrize("kind", vision.DETECTORS)
@pytest.mark.parametrize("name", ["nothing", "classes", "an image", "integers"])
def test_a_kind_that_the_outputs_do_not_fit_is_refused(kind, name):
    with pytest.raises(InputError, match=f"the outputs are not those of {kind}"):
        vision.decode(UNKNOWN[name], BOX, kind)


def test_there_is_no_other_kind():
    with pytest.raises(InputError, match="no detector 'yolo'; there is torchvision"):
        vision.decode(torchvision(*FOUND), BOX, "yolo")


ARRAYS = hnp.arrays(
    st.sampled_from([np.float32, np.float16, np.int64, np.int32, np.float64]),
    st.one_of(
        hnp.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=9),
        st.sampled_from([
            (1, 3 * POINTS, 8), (1, 7, POINTS), (1, POINTS, 5), (1, 30, 6), (1, 100, 4),
            (1, 100, 3), (1, 300, 4), (5, 4), (5,), (5, 1, 8, 8), (1, 2, 8, 8), (0, 4), (0,),
        ]),
    ),
    elements=st.just(0) | st.integers(-3, 3),
)  # fmt: skip
NAMES = st.sampled_from(
    ["a", "b", "c", "logits", "pred_boxes", "det_boxes", "det_scores", "det_classes", "num_dets",
     "detection_boxes", "detection_scores", "detection_classes", "cls_8", "bbox_8"]
)  # fmt: skip


@settings(max_examples=400)
@given(
    st.dictionaries(NAMES, ARRAYS, max_size=5),
    st.sampled_from([None, *vision.DETECTORS]),
    st.sampled_from([0.0, 0.5]),
)
def test_any_outputs_are_detections_or_refused(outputs, kind, threshold):
    try:
        found = vision.decode(outputs, BOX, kind, threshold=threshold)
    except InputError:
        return
    count = len(found)
    assert found.boxes.shape == (count, 4) and found.labels.shape == (count,) and count <= 100
    assert (found.scores >= threshold).all() and (np.diff(found.scores) <= 0).all()
    assert (found.boxes >= 0).all() and (found.boxes <= [120, 60, 120, 60]).all()
    assert found.masks is None or found.masks.shape == (count, 60, 120)
    vision.draw(IMAGE, found, ["one"])
