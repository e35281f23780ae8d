"""`saccade run` on images: any format, prepared as asked, the classes by name."""

from __future__ import annotations

import json

import numpy as np
import pytest
from fake_engine import FakeModel, Info
from PIL import Image

from saccade import vision

pytestmark = pytest.mark.usefixtures("engine")

SHAPE = (1, 3, 20, 24)


@pytest.fixture
def photo(tmp_path):
    values = np.random.default_rng(0).integers(0, 256, (30, 50, 3), np.uint8)
    path = tmp_path / "photo.tiff"
    Image.fromarray(values).save(path)
    return path


def classifier(engine, shape=SHAPE, dtype="float32"):
    engine.model = FakeModel((Info("x", dtype, shape),), (Info("y", dtype, shape),))
    return engine.model


@pytest.mark.parametrize("kind", ["imagenet", "letterbox"])
@pytest.mark.parametrize("last", [False, True])
def test_images_are_prepared_for_the_model_s_size(
    saccade_cli, engine, model_file, photo, kind, last
):
    model = classifier(engine, (1, 20, 24, 3) if last else SHAPE)
    result = saccade_cli("run", model_file, "--input", photo, "--preprocess", kind)
    assert result.exit_code == 0, result.stderr
    expected = vision.prepare(vision.read(photo), kind, (20, 24)).values
    if last:
        expected = expected.transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(model.calls[0]["x"], expected)


def test_an_image_without_a_suffix(saccade_cli, engine, model_file, photo, tmp_path, refused):
    model = classifier(engine, (1, 3, "H", "W"))
    bare = photo.rename(tmp_path / "photo")
    assert saccade_cli("run", model_file, "--input", bare).exit_code == 0
    np.testing.assert_array_equal(
        model.calls[0]["x"], vision.prepare(vision.read(bare), "none").values
    )
    bare.write_text("words")
    assert "a .npy or .npz file, or an image" in refused("run", model_file, "--input", bare)


def test_mean_and_std(saccade_cli, engine, model_file, photo):
    model = classifier(engine, (1, 3, "H", "W"))
    more = ("--mean", "0.5,0.25,0", "--std", "2")
    assert saccade_cli("run", model_file, "--input", photo, *more).exit_code == 0
    expected = vision.prepare(vision.read(photo), "none", mean=(0.5, 0.25, 0), std=(2,)).values
    np.testing.assert_array_equal(model.calls[0]["x"], expected)


def test_bytes_stay_bytes(saccade_cli, engine, model_file, photo, refused):
    model = classifier(engine, (1, "H", "W", 3), "uint8")
    assert saccade_cli("run", model_file, "--input", photo).exit_code == 0
    np.testing.assert_array_equal(model.calls[0]["x"][0], vision.read(photo))
    line = refused("run", model_file, "--input", photo, "--mean", "0.5")
    assert "takes bytes, which have no mean or std" in line


def test_the_most_probable_classes_by_name(saccade_cli, engine, model_file, tmp_path):
    engine.model = FakeModel((Info("x", "float32", (2, 3)),), (Info("y", "float32", (2, 3)),))
    np.save(tmp_path / "x.npy", np.array([[0, 2, 1], [5, 0, 0]], np.float32))
    (tmp_path / "labels.txt").write_text("ape\nbee\ncat\n")
    arguments = ("run", model_file, "--input", tmp_path / "x.npy", "--top", "2")
    labels = ("--labels", tmp_path / "labels.txt")
    result = saccade_cli(*arguments, *labels, "--json", "-")
    assert result.exit_code == 0, result.stderr
    said = json.loads(result.stdout)
    assert [[one["label"] for one in best] for best in said["top"]] == [
        ["bee", "cat"],
        ["ape", "bee"],
    ]
    assert said["outputs"]["y"]["shape"] == [2, 3] and said["outputs"]["y"]["max"] == 5
    text = saccade_cli(*arguments, *labels).stdout
    assert text.index("image 0:") < text.index("bee") < text.index("image 1:") < text.index("ape")


def test_an_image_is_written_as_its_suffix_says(saccade_cli, model_file, photo, tmp_path):
    for suffix, kind in ((".webp", "WEBP"), (".jpg", "JPEG"), (".png", "PNG")):
        target = tmp_path / f"out{suffix}"
        result = saccade_cli("run", model_file, "--input", photo, "--output", target)
        assert result.exit_code == 0, result.stderr
        with Image.open(target) as image:
            assert image.format == kind


def test_mistakes_are_told_before_the_model_is_compiled(
    refused, engine, model_file, photo, tmp_path
):
    assert "names the classes of --top" in refused("run", model_file, "--labels", photo)
    missing = refused("run", model_file, "--top", "2", "--labels", tmp_path / "none.txt")
    assert "labels cannot be read" in missing
    for text in ("", "a,b", "nan"):
        assert "is not of the form" in refused("run", model_file, "--mean", text)
    assert not engine.compiled
    damaged = tmp_path / "half.tiff"
    damaged.write_bytes(photo.read_bytes()[:900])
    classifier(engine)
    line = refused("run", model_file, "--input", damaged, "--preprocess", "imagenet")
    assert "half.tiff" in line
