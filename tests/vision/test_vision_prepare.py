"""What networks get of an image, where its boxes lie, and what scores say."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from saccade import vision
from saccade.errors import InputError

RNG = np.random.default_rng(1)
IMAGE = RNG.integers(0, 256, (60, 90, 3), np.uint8)
MEAN, STD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])


def test_an_image_as_it_is():
    found = vision.prepare(IMAGE, "none")
    assert found.values.dtype == np.float32 and found.values.flags.c_contiguous
    expected = (IMAGE.astype(np.float32) / np.float32(255)).transpose(2, 0, 1)[None]
    np.testing.assert_array_equal(found.values, expected)
    assert (found.scale, found.offset, found.size) == ((1.0, 1.0), (0.0, 0.0), (90, 60))


def test_imagenet_is_what_pillow_scales_and_the_middle_of_it():
    found = vision.prepare(IMAGE, "imagenet", (28, 28))
    # 32 of the shorter side for 28, as 256 for 224.
    scaled = Image.fromarray(IMAGE).resize((48, 32), Image.Resampling.BILINEAR)
    middle = np.asarray(scaled)[2:30, 10:38].transpose(2, 0, 1) / 255
    expected = (middle - MEAN[:, None, None]) / STD[:, None, None]
    np.testing.assert_allclose(found.values[0], expected, atol=1e-6)
    assert vision.imagenet(IMAGE).values.shape == (1, 3, 224, 224)


def test_a_letterbox_holds_the_whole_image():
    found = vision.prepare(IMAGE, "letterbox", (64, 48))
    assert found.values.shape == (1, 3, 64, 48)
    inner = np.asarray(Image.fromarray(IMAGE).resize((48, 32), Image.Resampling.BILINEAR))
    np.testing.assert_allclose(found.values[0, :, 16:48], inner.transpose(2, 0, 1) / 255, atol=1e-6)
    grey = np.delete(found.values[0], np.s_[16:48], axis=1)
    np.testing.assert_allclose(grey, 114 / 255, atol=1e-6)
    assert found.offset == (0, 16)


@pytest.mark.parametrize("kind", vision.KINDS)
def test_an_image_however_it_is_given_and_one_number_for_a_square(kind, tmp_path):
    Image.fromarray(IMAGE).save(tmp_path / "image.png")
    wanted = vision.prepare(IMAGE, kind, (32, 32))
    data = (tmp_path / "image.png").read_bytes()
    for given in (str(tmp_path / "image.png"), data, BytesIO(data), Image.fromarray(IMAGE)):
        found = vision.prepare(given, kind, np.int64(32))
        np.testing.assert_array_equal(found.values, wanted.values)
        assert (found.scale, found.offset, found.size) == (
            wanted.scale, wanted.offset, wanted.size
        )  # fmt: skip


@pytest.mark.parametrize("kind", vision.KINDS)
@pytest.mark.parametrize("shape", [(60, 90), (91, 33), (48, 200)])
def test_boxes_come_back_to_where_they_were(kind, shape):
    image = np.zeros((*shape, 3), np.uint8)
    # A bright block far from the edges, so that each preparation keeps it.
    y1, y2 = round(0.4 * shape[0]), round(0.6 * shape[0])
    middle, half = shape[1] // 2, max(2, min(shape) // 8)
    x1, x2 = middle - half, middle + half
    image[y1:y2, x1:x2] = 255
    found = vision.prepare(image, kind, None if kind == "none" else (64, 64))
    bright = np.argwhere(found.values[0, 0] > found.values[0, 0].max() / 2)
    (top, left), (bottom, right) = bright.min(axis=0), bright.max(axis=0) + 1
    boxes = found.boxes(np.array([[left, top, right, bottom]], np.float32))
    per_pixel = max(1 / found.scale[0], 1 / found.scale[1], 1.0)
    np.testing.assert_allclose(boxes[0], [x1, y1, x2, y2], atol=1.5 * per_pixel)


def test_boxes_stay_inside_of_the_image():
    found = vision.letterbox(IMAGE, (64, 64))
    boxes = found.boxes(np.array([[-9, -9, 99, 99]], np.float32))
    assert boxes.tolist() == [[0, 0, 90, 60]]


@pytest.mark.parametrize(
    ("image", "kind", "more", "says"),
    [
        (IMAGE, "blur", {}, "no preprocessing 'blur'; there is none, imagenet, letterbox"),
        (IMAGE.astype(np.float32), "none", {}, "not float32 60x90x3"),
        (IMAGE[..., :2], "none", {}, "not uint8 60x90x2"),
        (IMAGE[:0], "none", {}, "not uint8 0x90x3"),
        (IMAGE, "letterbox", {"size": (0, 4)}, "an input of 0x4 pixels has none"),
        (IMAGE, "letterbox", {"size": (4, 4, 4)}, "height and width, or one number for both, not"),
        (IMAGE, "none", {"size": "4"}, "height and width, or one number for both, not '4'"),
        (IMAGE, "imagenet", {"size": 0}, "an input of 0x0 pixels has none"),
        (None, "none", {}, "not from a NoneType"),
        (IMAGE, "none", {"mean": (1, 2)}, "2 numbers of mean for 3 channels"),
        (IMAGE, "none", {"std": (1, 0, 1)}, "a std of 0 divides by zero"),
    ],
)
def test_what_cannot_be_prepared(image, kind, more, says):
    with pytest.raises(InputError, match=says):
        vision.prepare(image, kind, **more)


def test_the_most_probable_classes():
    logits = np.log(np.array([[0.1, 0.6, 0.3], [0.5, 0.25, 0.25]])) + 7
    first, second = vision.top(logits, 2, ["a", "b", "c"])
    assert [(one.number, one.label) for one in first] == [(1, "b"), (2, "c")]
    np.testing.assert_allclose([one.probability for one in first], [0.6, 0.3])
    assert [one.label for one in second] == ["a", "b"], "of equal ones the first"
    (same,) = vision.top(np.array([0.1, 0.6, 0.3]), 9)
    np.testing.assert_allclose([one.probability for one in same], [0.6, 0.3, 0.1])
    assert same[0].label == "1" and len(same) == 3


@pytest.mark.parametrize(
    ("scores", "more", "says"),
    [
        (np.zeros((1, 2, 3)), {}, "are not those of classes"),
        ([np.zeros((1, 2))], {}, r"shape \(1, 1, 2\) are not"),
        (np.zeros((1, 0)), {}, "are not those of classes"),
        (np.array([np.nan, 1]), {}, "hold NaN"),
        (np.zeros(3), {"labels": ["a"]}, "1 labels for 3 classes"),
        (np.zeros(3), {"k": 0}, "are none"),
    ],
)
def test_what_are_no_scores(scores, more, says):
    with pytest.raises(InputError, match=says):
        vision.top(scores, **more)


def test_labels_are_lines(tmp_path):
    (tmp_path / "labels.txt").write_text("tabby cat\nÄlpler\n", "utf-8")
    for path in (tmp_path / "labels.txt", str(tmp_path / "labels.txt")):
        assert vision.read_labels(path) == ["tabby cat", "Älpler"]
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe\x00")
    for name in ("bytes.txt", "missing.txt"):
        with pytest.raises(InputError, match="labels cannot be read"):
            vision.read_labels(tmp_path / name)
