"""What is drawn is where it should be, can be read, and fits images of any size."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from saccade import vision
from saccade.errors import InputError
from saccade.vision.draw import colour_of

F32 = np.float32


def detections(boxes, labels=None, **more):
    count = len(boxes)
    return vision.Detections(
        np.array(boxes, F32).reshape(-1, 4),
        np.linspace(0.9, 0.5, count, dtype=F32),
        np.array(range(count) if labels is None else labels, np.int64),
        **more,
    )


def test_a_box_has_its_class_s_colour_along_its_edges():
    image = np.full((200, 300, 3), 128, np.uint8)
    drawn = vision.draw(image, detections([[50, 60, 150, 160]], [4]))
    assert (image == 128).all() and drawn.shape == image.shape
    assert tuple(drawn[100, 50]) == tuple(drawn[160, 100]) == colour_of(4)
    assert (drawn[70:150, 60:140] == 128).all(), "what is inside can still be seen"
    assert (drawn[165:] == 128).all() and (drawn[:, 155:] == 128).all()


def test_pictures_are_drawn_into_however_they_are_given(tmp_path):
    image = np.full((20, 30, 3), 128, np.uint8)
    Image.fromarray(image).save(tmp_path / "a.png")
    found, classes = detections([[5, 6, 15, 16]]), np.ones((20, 30), np.int64)
    for given in (tmp_path / "a.png", Image.fromarray(image)):
        np.testing.assert_array_equal(vision.draw(given, found), vision.draw(image, found))
        np.testing.assert_array_equal(
            vision.overlay(given, classes), vision.overlay(image, classes)
        )


def test_names_stand_above_and_are_legible():
    image = np.full((200, 300, 3), 128, np.uint8)
    one = detections([[50, 60, 150, 160]], [1])
    named, numbered = (vision.draw(image, one, labels) for labels in (["a", "horse"], []))
    label = named[40:60, 50:120]
    assert (named != numbered).any()
    # Letters stand out from their ground, the class's colour.
    ground = (label == colour_of(1)).all(axis=2)
    letters = (label < 50).all(axis=2) | (label > 205).all(axis=2)
    assert 20 < letters.sum() < ground.sum()
    top = vision.draw(image, detections([[50, 0, 150, 160]], [1]), ["a", "horse"])
    assert (top[2:14, 52:100] != 128).any(), "at the upper edge, names stand inside"


def test_neighbouring_classes_differ():
    colours = np.array([colour_of(label) for label in range(80)], np.int64)
    assert len({tuple(c) for c in colours.tolist()}) == 80
    assert (np.abs(np.diff(colours, axis=0)).sum(axis=1) > 100).all()
    assert colour_of(-1) and colour_of(10**9)


def test_the_best_lies_on_top():
    image = np.zeros((100, 100, 3), np.uint8)
    drawn = vision.draw(image, detections([[20, 40, 80, 80], [20, 40, 80, 80]], [0, 1]))
    assert tuple(drawn[70, 20]) == colour_of(0)


def test_masks_are_translucent_and_keypoints_dots():
    image = np.full((100, 100, 3), 100, np.uint8)
    masks = np.zeros((1, 100, 100), bool)
    masks[0, 50:60, 50:60] = True
    points = np.array([[[30, 30, 1], [80, 80, 0]]], F32)
    one = detections([[20, 20, 90, 90]], [0], masks=masks, keypoints=points)
    drawn = vision.draw(image, one)
    inside = drawn[55, 55].astype(int)
    assert (inside != 100).any() and (inside != np.array(colour_of(0))).any()
    assert (drawn[45, 55] == 100).all()
    assert tuple(drawn[30, 30]) == colour_of(0)
    assert (drawn[80, 80] == 100).all(), "a point that is not seen is not drawn"


@pytest.mark.parametrize("size", [(1, 1), (1, 40), (40, 1), (3, 5), (2000, 1500)])
@pytest.mark.parametrize("channels", [1, 3])
def test_images_of_any_size(size, channels):
    image = np.zeros((*size, channels), np.uint8)
    far = [[0, 0, size[1], size[0]], [-9, -9, 9e9, 9e9], [0.4, 0.4, 0.4, 0.4]]
    drawn = vision.draw(image, detections(far), ["a long name of a class"])
    assert drawn.shape == (*size, 3) and drawn.dtype == np.uint8 and drawn.any()


def test_letters_grow_with_the_image():
    def height(size):
        image = np.zeros((size, size, 3), np.uint8)
        drawn = vision.draw(image, detections([[size / 2, size / 2, size - 1, size - 1]]))
        return np.flatnonzero(drawn[: size // 2].any(axis=(1, 2))).size

    assert 12 <= height(100) < height(1000) < height(3000)


def test_nothing_is_drawn_of_nothing():
    image = np.random.default_rng(0).integers(0, 256, (9, 8, 3), np.uint8)
    empty = detections([], masks=np.zeros((0, 9, 8), bool))
    np.testing.assert_array_equal(vision.draw(image, empty), image)


def test_what_is_nowhere_is_not_drawn():
    image = np.zeros((40, 50, 3), np.uint8)
    boxes = [[float("nan"), 0, 9, 9], [0, 0, float("inf"), 9]]
    np.testing.assert_array_equal(vision.draw(image, detections(boxes)), image)
    points = np.array([[[float("nan"), 4, 1], [4, float("inf"), 1]]], F32)
    one = [[20, 20, 30, 30]]
    np.testing.assert_array_equal(
        vision.draw(image, detections(one, keypoints=points)), vision.draw(image, detections(one))
    )


def test_what_does_not_fit_is_refused():
    image = np.zeros((9, 8, 3), np.uint8)
    with pytest.raises(InputError, match="masks of"):
        vision.draw(image, detections([[0, 0, 1, 1]], masks=np.zeros((1, 8, 9), bool)))
    for wrong in (image[..., :2], image.astype(F32), image[:0], image[0]):
        with pytest.raises(InputError, match="an image is"):
            vision.draw(wrong, detections([]))
        with pytest.raises(InputError, match="an image is"):
            vision.overlay(wrong, np.zeros((9, 8), np.int64))
    with pytest.raises(InputError, match="classes of"):
        vision.overlay(image, np.zeros((8, 9), np.int64))


def test_classes_of_pixels():
    image = np.full((30, 60, 3), 100, np.uint8)
    prepared = vision.letterbox(image, (16, 16))
    scores = np.zeros((1, 7, 16, 16), F32)
    scores[0, 0] = 1
    scores[0, 5, :, 8:] = 2
    classes = vision.segmentation_of({"out": scores, "aux": scores * 0}, prepared)
    assert classes.shape == (30, 60) and classes.dtype == np.int64
    assert (classes[:, :30] == 0).all() and (classes[:, 30:] == 5).all()
    drawn = vision.overlay(image, classes)
    assert (drawn[:, :30] == 100).all() and (drawn[:, 30:] != 100).any()
    mixed = 0.55 * 100 + 0.45 * np.array(colour_of(5))
    np.testing.assert_array_equal(drawn[0, 45], np.rint(mixed))


@pytest.mark.parametrize(
    "outputs",
    [
        {},
        {"image": np.zeros((1, 3, 16, 16), F32)},
        {"maps": np.zeros((1, 4, 16, 16), F32)},
        {"smaller": np.zeros((1, 21, 8, 8), F32)},
        {"batch": np.zeros((2, 21, 16, 16), F32)},
        {"labels": np.zeros((1, 21, 16, 16), np.int64)},
        {"out": np.zeros((1, 21, 16, 16), F32), "more": np.zeros(3, F32)},
    ],
    ids=lambda outputs: "".join(outputs) or "none",
)
def test_what_may_be_something_else_is_no_segmentation(outputs):
    prepared = vision.letterbox(np.zeros((30, 60, 3), np.uint8), (16, 16))
    assert vision.segmentation_of(outputs, prepared) is None
