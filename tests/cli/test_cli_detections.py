"""`saccade run` on detectors and segmentation: said, drawn, and as data; and large images."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from fake_engine import FakeModel, Info
from PIL import Image

import saccade
from saccade import vision

ROOT = Path(__file__).parents[2]
UPSCALER = ROOT / "examples" / "upscale" / "model.onnx"
F32 = np.float32


class Detector(FakeModel):
    """Finds what it is told to, whatever it is given."""

    def __init__(self, **found):
        outputs = tuple(Info(name, str(a.dtype), a.shape) for name, a in found.items())
        super().__init__((Info("x", "float32", (1, 3, 64, 64)),), outputs)
        self.found = found

    def run(self, feeds):
        self.calls.append(feeds)
        return dict(self.found)


BOXES = {
    "boxes": np.array([[8, 24, 40, 40], [0, 16, 64, 48]], F32),
    "labels": np.array([1, 0], np.int64),
    "scores": np.array([0.9, 0.4], F32),
}


@pytest.fixture
def photo(tmp_path):
    path = tmp_path / "in" / "photo.png"
    path.parent.mkdir()
    Image.fromarray(np.full((60, 120, 3), 90, np.uint8)).save(path)
    return path


@pytest.fixture
def labels(tmp_path):
    (tmp_path / "labels.txt").write_text("cat\ndog\n")
    return tmp_path / "labels.txt"


PREPARED = ("--preprocess", "letterbox")


def test_detections_are_said_and_drawn(saccade_cli, engine, model_file, photo, labels, tmp_path):
    engine.model = Detector(**BOXES)
    target = tmp_path / "drawn.png"
    result = saccade_cli(
        "run", model_file, "--input", photo, *PREPARED, "--labels", labels, "--output", target
    )
    assert result.exit_code == 0, result.stderr
    assert "90.00%  dog  15,15 to 75,45" in result.stdout and "cat" not in result.stdout
    found = vision.decode(BOXES, vision.letterbox(vision.read(photo), (64, 64)))
    wanted = vision.draw(vision.read(photo), found, ["cat", "dog"])
    np.testing.assert_array_equal(np.asarray(Image.open(target)), wanted)
    assert (wanted != 90).any()


def test_the_threshold_and_data(saccade_cli, engine, model_file, photo, labels):
    engine.model = Detector(**BOXES)
    more = ("--labels", labels, "--threshold", "0.3", "--json", "-")
    result = saccade_cli("run", model_file, "--input", photo, *PREPARED, *more)
    found = json.loads(result.stdout)["detections"]
    assert [(one["name"], one["label"], round(one["score"], 2)) for one in found] == [
        ("dog", 1, 0.9), ("cat", 0, 0.4),
    ]  # fmt: skip
    np.testing.assert_allclose(found[1]["box"], [0, 0, 120, 60], rtol=1e-6)


def test_nothing_above_the_threshold_is_said(saccade_cli, engine, model_file, photo):
    engine.model = Detector(**BOXES)
    result = saccade_cli("run", model_file, "--input", photo, *PREPARED, "--threshold", "0.95")
    assert "nothing was found with a score of 0.95 or more (--threshold)" in result.stdout


def test_arrays_stay_arrays_where_they_are_asked_for(
    saccade_cli, engine, model_file, photo, tmp_path
):
    engine.model = Detector(**BOXES)
    for target in ("out.npz", "folder"):
        result = saccade_cli(
            "run", model_file, "--input", photo, *PREPARED, "--output", tmp_path / target
        )
        assert result.exit_code == 0, result.stderr
    with np.load(tmp_path / "out.npz") as arrays:
        np.testing.assert_array_equal(arrays["boxes"], BOXES["boxes"])
    assert sorted(p.name for p in (tmp_path / "folder").iterdir()) == [
        "boxes.npy", "labels.npy", "scores.npy",
    ]  # fmt: skip


def test_a_folder_gets_drawn_images(saccade_cli, engine, model_file, photo, tmp_path):
    engine.model = Detector(**BOXES)
    out = tmp_path / "out"
    more = (*PREPARED, "--json", tmp_path / "told.json")
    result = saccade_cli("run", model_file, "--input", photo.parent, "--output", out, *more)
    assert result.exit_code == 0, result.stderr
    assert (np.asarray(Image.open(out / "photo.png")) != 90).any()
    (one,) = json.loads((tmp_path / "told.json").read_text())["files"]
    assert len(one["detections"]) == 1 and one["written"] == [str(out / "photo.png")]
    saccade_cli("run", model_file, "--input", photo.parent, "--output", out / "*.npz", *more)
    assert (out / "photo.npz").exists()


def test_labels_that_name_nothing_are_told_once(saccade_cli, engine, model_file, photo, labels):
    engine.model = Detector(y=np.zeros((1, 2), F32))
    Image.open(photo).save(photo.with_name("twin.png"))
    result = saccade_cli("run", model_file, "--input", photo.parent, *PREPARED, "--labels", labels)
    assert result.exit_code == 0
    assert result.stderr.splitlines() == [
        "saccade: --labels: there are no classes to name; --top asks for the most probable"
    ]


def test_many_detections_are_cut_short(saccade_cli, engine, model_file, photo):
    many = {
        "boxes": np.repeat(BOXES["boxes"], 20, axis=0), "labels": np.arange(40),
        "scores": np.full(40, 0.9, F32),
    }  # fmt: skip
    engine.model = Detector(**many)
    text = saccade_cli("run", model_file, "--input", photo, *PREPARED).stdout
    assert text.count("90.00%") == 20 and "and 20 more" in text


def test_classes_of_pixels_are_laid_over(saccade_cli, engine, model_file, photo, labels, tmp_path):
    scores = np.zeros((1, 6, 64, 64), F32)
    scores[0, 1, :, 32:] = 1
    engine.model = Detector(scores=scores)
    target = tmp_path / "drawn.png"
    more = (*PREPARED, "--labels", labels, "--output", target)
    result = saccade_cli("run", model_file, "--input", photo, *more)
    assert result.exit_code == 0, result.stderr
    assert "50.00%  cat" in result.stdout and "50.00%  dog" in result.stdout
    drawn = np.asarray(Image.open(target))
    assert (drawn[:, :60] == 90).all() and (drawn[:, 60:] != 90).any(axis=2).all()


def test_outputs_of_unknown_networks_make_no_image(refused, engine, model_file, photo, tmp_path):
    engine.model = Detector(a=np.zeros((2, 5), F32), b=np.zeros(2, F32))
    line = refused("run", model_file, "--input", photo, *PREPARED, "--output", tmp_path / "o.png")
    assert "takes one output of 2" in line
    engine.model = Detector(a=np.zeros((2, 5), F32))
    line = refused("run", model_file, "--input", photo, *PREPARED, "--output", tmp_path / "o.png")
    assert "is not one image" in line


def test_arrays_as_inputs_have_no_image_to_draw_into(saccade_cli, engine, model_file, tmp_path):
    engine.model = Detector(**BOXES)
    np.save(tmp_path / "x.npy", np.zeros((1, 3, 64, 64), F32))
    result = saccade_cli("run", model_file, "--input", tmp_path / "x.npy")
    assert result.exit_code == 0 and "%" not in result.stdout


@pytest.fixture
def large(tmp_path):
    values = np.random.default_rng(0).integers(0, 256, (60, 75, 3), np.uint8)
    Image.fromarray(values).save(tmp_path / "large.png")
    return tmp_path / "large.png"


def pixels_of(path):
    return np.asarray(Image.open(path)).astype(int)


def test_tiles_give_the_whole(saccade_cli, large, tmp_path):
    whole = saccade_cli("run", UPSCALER, "--input", large, "--output", tmp_path / "whole.png")
    tiled = saccade_cli(
        "run", UPSCALER, "--input", large, "--output", tmp_path / "tiled.png", "--tile", "40"
    )
    assert (whole.exit_code, tiled.exit_code) == (0, 0), tiled.stderr
    assert "tiles of 40 pixels" in tiled.stderr and "tiles" not in whole.stderr
    first, second = (pixels_of(tmp_path / name) for name in ("whole.png", "tiled.png"))
    assert first.shape == (120, 150, 3) and np.abs(first - second).max() <= 1
    numbers = [result.stdout.splitlines()[0].replace(",", "").split() for result in (whole, tiled)]
    for one, other in zip(*numbers, strict=True):
        assert one == other or float(one) == pytest.approx(float(other), rel=1e-4)


def test_tiles_are_taken_where_the_whole_needs_much(saccade_cli, large, tmp_path, monkeypatch):
    monkeypatch.setattr("saccade.vision.tiles._LEAST_ELEMENTS", 1)
    monkeypatch.setattr("saccade.vision.tiles.MOST_BYTES", 1 << 20)
    monkeypatch.setattr("saccade.vision.tiles._TILE_BYTES", 1 << 20)
    for target in ("one.npy", "out.png", "two.npz"):
        result = saccade_cli("run", UPSCALER, "--input", large, "--output", tmp_path / target)
        assert result.exit_code == 0 and "tiles of 32 pixels" in result.stderr, result.stderr
    off = ("--output", tmp_path / "whole.npy", "--tile", "off")
    result = saccade_cli("run", UPSCALER, "--input", large, *off)
    assert result.exit_code == 0 and result.stderr == ""
    tiled, whole = (np.load(tmp_path / name) for name in ("one.npy", "whole.npy"))
    np.testing.assert_allclose(tiled, whole, atol=5e-5)
    folder = saccade_cli(
        "run", UPSCALER, "--input", large.parent / "large*", "--output", tmp_path / "f"
    )
    assert (
        folder.exit_code == 0
        and np.abs(pixels_of(tmp_path / "f" / "large.png") - pixels_of(tmp_path / "out.png")).max()
        <= 1
    )
    quiet = saccade_cli("run", UPSCALER, "--input", large, "--quiet")
    assert quiet.exit_code == 0 and quiet.stderr == ""


def test_what_cannot_be_cut_is_run_whole_and_told(
    saccade_cli, refused, engine, model_file, photo, monkeypatch
):
    class Whole(Detector):
        @property
        def reach(self):
            raise saccade.OptionError("a (Softmax) takes the softmax of the whole image")

        def run_bytes(self, **_shapes):
            raise saccade.PlanError("too large")

    monkeypatch.setattr("saccade.vision.tiles._LEAST_ELEMENTS", 1)
    engine.model = Whole(**BOXES)
    result = saccade_cli("run", model_file, "--input", photo, *PREPARED)
    assert result.exit_code == 0 and len(engine.model.calls) == 1
    assert "cannot be run in tiles: a (Softmax) takes" in result.stderr
    line = refused("run", model_file, "--input", photo, *PREPARED, "--tile", "32")
    assert "the image cannot be cut into tiles: a (Softmax)" in line
