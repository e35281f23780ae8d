"""`saccade run` on folders, patterns and several images: one result each, mistakes told first."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from fake_engine import FakeModel, Info
from PIL import Image

from saccade.cli._progress import counting

pytestmark = pytest.mark.usefixtures("engine")

RANDOM = np.random.default_rng(2)


def save(path, size=(9, 7), mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    shape = (size[1], size[0], len(mode)) if len(mode) > 1 else size[::-1]
    image = Image.fromarray(RANDOM.integers(0, 256, shape, np.uint8), mode)
    image.save(path)
    return np.asarray(image)


@pytest.fixture
def folder(tmp_path):
    """Images of several sizes and kinds, and what is none."""
    found = tmp_path / "in"
    save(found / "a.png", (9, 7))
    save(found / "b.bmp", (8, 5), "L")
    save(found / "c.png", (4, 6), "RGBA")
    save(found / "dot.gif", (1, 1), "L")
    save(found / ".hidden.png")
    (found / "readme.txt").write_text("no image")
    (found / "below").mkdir()
    save(found / "below" / "deep.png")
    return found


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_each_image_of_a_folder_becomes_one(saccade_cli, engine, model_file, folder, tmp_path):
    out = tmp_path / "new" / "out.1"
    result = saccade_cli("run", model_file, "--input", folder, "--output", out)
    assert result.exit_code == 0, result.stderr
    assert names(out) == ["a.png", "b.png", "c.png", "dot.png"]
    shapes = [feeds["input"].shape for feeds in engine.model.calls]
    assert shapes == [(1, 3, 7, 9), (1, 3, 5, 8), (1, 3, 6, 4), (1, 3, 1, 1)]
    with Image.open(out / "a.png") as written, Image.open(folder / "a.png") as read:
        np.testing.assert_array_equal(np.asarray(written), np.asarray(read))
    assert "a.png: wrote" in result.stdout and result.stderr == ""


def test_what_is_no_image_becomes_arrays(saccade_cli, engine, model_file, folder, tmp_path):
    infos = [Info(n, "float32", ("N", 3, "H", "W")) for n in ("input", "more")]
    engine.model = FakeModel((infos[0],), (infos[0],))
    engine.model.corrupt = lambda results: results.update(more=np.zeros((2, 2), np.float32))
    out = tmp_path / "out"
    assert saccade_cli("run", model_file, "--input", folder, "--output", out).exit_code == 0
    assert names(out) == ["a.npz", "b.npz", "c.npz", "dot.npz"]
    with np.load(out / "a.npz") as arrays:
        assert sorted(arrays.files) == ["input", "more"]


@pytest.mark.parametrize("suffix", [".npz", ".npy", ".jpg", ".png"])
def test_a_pattern_for_results_says_their_kind(saccade_cli, model_file, folder, tmp_path, suffix):
    out = tmp_path / "out"
    result = saccade_cli("run", model_file, "--input", folder, "--output", out / f"*{suffix}")
    assert result.exit_code == 0, result.stderr
    assert names(out) == [f"{name}{suffix}" for name in ("a", "b", "c", "dot")]


def test_patterns_and_several_files(saccade_cli, engine, model_file, folder, tmp_path):
    saccade_cli("run", model_file, "--input", folder / "*.png", "--output", tmp_path / "one")
    assert names(tmp_path / "one") == ["a.png", "c.png"]
    saccade_cli("run", model_file, "--input", folder / "**" / "*.png", "--output", tmp_path / "two")
    assert names(tmp_path / "two") == ["a.png", "c.png", "deep.png"]
    files = ("--input", folder / "b.bmp", "--input", folder / "a.png")
    assert saccade_cli("run", model_file, *files, "--output", tmp_path / "three").exit_code == 0
    assert names(tmp_path / "three") == ["a.png", "b.png"]
    named = ("--input", f"input={folder / 'b.bmp'}", "--input", f"input={folder / 'a.png'}")
    assert saccade_cli("run", model_file, *named, "--output", tmp_path / "four").exit_code == 0
    assert names(tmp_path / "four") == ["a.png", "b.png"]
    both = ("--input", f"input={folder / 'c*'}")
    assert saccade_cli("run", model_file, *both, "--output", tmp_path / "five").exit_code == 0
    assert names(tmp_path / "five") == ["c.png"]
    mixed = ("--input", folder / "below", "--input", folder / "a.png")
    assert saccade_cli("run", model_file, *mixed, "--output", tmp_path / "six").exit_code == 0
    assert names(tmp_path / "six") == ["a.png", "deep.png"]


def test_a_name_with_an_equals_sign_or_brackets_is_a_name(saccade_cli, model_file, tmp_path):
    for name in ("x=1.png", "[a].png"):
        save(tmp_path / "odd" / name)
        result = saccade_cli("run", model_file, "--input", tmp_path / "odd" / name)
        assert result.exit_code == 0, result.stderr
    out = tmp_path / "out"
    assert (
        saccade_cli("run", model_file, "--input", tmp_path / "odd", "--output", out).exit_code == 0
    )
    assert names(out) == ["[a].png", "x=1.png"]


def test_other_inputs_are_the_same_for_all(saccade_cli, engine, model_file, folder, tmp_path):
    infos = (Info("image", "float32", (1, 3, "H", "W")), Info("gain", "float32", (1,)))
    engine.model = FakeModel(infos, infos)
    np.save(tmp_path / "gain.npy", np.array([3], np.float32))
    result = saccade_cli(
        "run", model_file, "--input", folder, "--input", f"gain={tmp_path / 'gain.npy'}"
    )
    assert result.exit_code == 0, result.stderr
    assert len(engine.model.calls) == 4
    assert all(feeds["gain"].tolist() == [3] for feeds in engine.model.calls)
    swapped = FakeModel(infos[::-1], infos[::-1])
    engine.model = swapped
    result = saccade_cli(
        "run", model_file, "--input", f"image={folder}", "--input", tmp_path / "gain.npy"
    )
    assert result.exit_code == 0, result.stderr
    assert len(swapped.calls) == 4


def test_names_that_differ_by_suffix_alone_are_kept_whole(saccade_cli, model_file, tmp_path):
    for name in ("a.png", "A.bmp", "b.png"):
        save(tmp_path / "in" / name)
    out = tmp_path / "out"
    assert (
        saccade_cli("run", model_file, "--input", tmp_path / "in", "--output", out).exit_code == 0
    )
    assert names(out) == ["A.bmp.png", "a.png.png", "b.png"]


def test_an_image_that_cannot_be_read_is_left_out_and_told(
    saccade_cli, model_file, folder, tmp_path
):
    (folder / "b.bmp").write_bytes(b"nothing")
    whole = (folder / "c.png").read_bytes()
    (folder / "c.png").write_bytes(whole[: len(whole) // 2])
    out, told = tmp_path / "out", tmp_path / "told.json"
    result = saccade_cli("run", model_file, "--input", folder, "--output", out, "--json", told)
    assert result.exit_code == 1
    lines = result.stderr.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["saccade"] * 3
    assert "left out" in lines[0] and "b.bmp is not an image" in lines[0]
    assert "c.png is damaged" in lines[1] and "2 of 4 images were left out" in lines[2]
    assert names(out) == ["a.png", "dot.png"]
    document = json.loads(told.read_text())
    assert [one["file"] for one in document["files"]] == [
        str(folder / n) for n in ("a.png", "dot.gif")
    ]
    assert [one["file"] for one in document["left_out"]] == [
        str(folder / n) for n in ("b.bmp", "c.png")
    ]


def test_an_image_that_does_not_fit_is_left_out(saccade_cli, engine, model_file, folder):
    info = Info("input", "float32", (1, 3, 7, 9))
    engine.model = FakeModel((info,), (info,))
    result = saccade_cli("run", model_file, "--input", folder)
    assert result.exit_code == 1
    text = "b.bmp: input 'input' has shape 1x3x7x9, which 1x3x5x8 does not fit"
    assert f"{text}: --preprocess scales images to it, --shape gives" in result.stderr
    assert len(engine.model.calls) == 1


def test_top_and_json_have_one_entry_for_each(saccade_cli, engine, model_file, folder, tmp_path):
    info = Info("input", "float32", (1, 3, "H", "W"))
    engine.model = FakeModel((info,), (Info("y", "float32", (1, 3)),))
    engine.model.corrupt = lambda results: results.update(y=np.eye(1, 3, 1, np.float32))
    (tmp_path / "labels.txt").write_text("ape\nbee\ncat\n")
    more = ("--top", "1", "--labels", tmp_path / "labels.txt")
    result = saccade_cli("run", model_file, "--input", folder, *more, "--json", "-")
    assert result.exit_code == 0, result.stderr
    files = json.loads(result.stdout)["files"]
    assert [one["top"][0][0]["label"] for one in files] == ["bee"] * 4
    assert files[0]["written"] == [] and files[0]["outputs"]["y"]["shape"] == [1, 3]
    text = saccade_cli("run", model_file, "--input", folder, *more).stdout.splitlines()
    assert len(text) == 8 and text[1].endswith("bee")


def test_a_model_without_images_refuses_them_all_at_once(refused, engine, model_file, folder):
    engine.model = FakeModel((Info("x", "float32", (2, 5)),), (Info("y", "float32", (2, 5)),))
    assert "is not an image of 1 or 3 channels" in refused("run", model_file, "--input", folder)
    assert "no input 'y'; it has x" in refused("run", model_file, "--input", f"y={folder}")


@pytest.mark.parametrize(
    ("inputs", "output", "says"),
    [
        (["empty"], None, "empty: there is no image in this folder"),
        (["videos"], None, "no image in this folder; videos are given one by one"),
        (["in/*.tif"], None, "no file fits this pattern"),
        (["in/*.txt"], None, "none of 1 files that fit is an image"),
        (["missing"], None, "missing: no such file"),
        (["in"], "there.txt", "results of several images go into a folder"),
        (["in"], "out.png", "results of several images go into a folder"),
        (["in"], "out.npz", "results of several images go into a folder"),
        (["in"], "out/*.tiff", "an output is a .npy, .npz, .png, .jpg or .webp file, or a folder"),
        (["in"], "there.txt/*.png", "this is a file, and results go into a folder"),
        (["in"], "in", "a.png: the result would take the place of what is read"),
        (["in"], "in/*.png", "a.png: the result would take the place of what is read"),
        (["in", "in/below/../a.*", "twin/a.png"], "out", "would become one file"),
        (["a=in", "b=in"], None, "only one input of a model may have several files"),
        (
            ["in/a.png"],
            "out.tiff",
            "an output is a .npy, .npz, .png, .jpg or .webp file or a folder",
        ),
        (["in/a.png"], "out.mp4", "a video is made of a video alone"),
    ],
)
def test_mistakes_are_told_before_anything_is_compiled(
    refused, engine, model_file, folder, tmp_path, monkeypatch, inputs, output, says
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "videos").mkdir()
    (tmp_path / "videos" / "a.mp4").touch()
    (tmp_path / "there.txt").touch()
    save(tmp_path / "twin" / "a.png")
    more = [word for text in inputs for word in ("--input", text)]
    more += [] if output is None else ["--output", output]
    assert says in refused("run", model_file, *more)
    assert not engine.compiled


def test_several_files_for_two_inputs_are_as_before(
    saccade_cli, refused, engine, model_file, folder
):
    infos = tuple(Info(name, "float32", (1, 3, "H", "W")) for name in "ab")
    engine.model = FakeModel(infos, infos)
    files = ("--input", folder / "a.png", "--input", folder / "b.bmp")
    assert saccade_cli("run", model_file, *files).exit_code == 0
    assert len(engine.model.calls) == 1
    line = refused("run", model_file, *files, "--input", folder / "c.png")
    assert "the model has 2 input(s) only" in line


def test_ctrl_c_says_how_many_are_done(saccade_cli, engine, model_file, folder):
    def stop(_results):
        if len(engine.model.calls) == 3:
            raise KeyboardInterrupt

    engine.model.corrupt = stop
    result = saccade_cli("run", model_file, "--input", folder)
    assert result.exit_code == 130
    assert result.stderr == "saccade: interrupted: 2 of 4 images are done\n"


def test_a_bug_in_a_run_is_no_image_left_out(saccade_cli, engine, model_file, folder):
    def broken(_results):
        raise ZeroDivisionError

    engine.model.corrupt = broken
    assert isinstance(
        saccade_cli("run", model_file, "--input", folder).exception, ZeroDivisionError
    )


@pytest.mark.parametrize("text", ["0", "-4", "many", "", "1.5"])
def test_tiles_have_a_size(refused, model_file, text):
    line = refused("run", model_file, f"--tile={text}")
    assert "is none of a number of pixels, auto and off" in line


def test_a_bar_shows_how_far_it_is(monkeypatch):
    told = []

    class Terminal(io.StringIO):
        def isatty(self):
            return True

        def write(self, text):
            told.append(text)
            return len(text)

    monkeypatch.setattr("sys.stderr", Terminal())
    with counting("images", 3) as report:
        report(1, "one\x1b.png")
    assert "images" in "".join(told) and "1/3" in "".join(told)
    assert "\x1b.png" not in "".join(told)


def test_a_pattern_for_results_takes_one_image_too(saccade_cli, model_file, tmp_path):
    save(tmp_path / "one.jpg")
    given = f"input={tmp_path / 'one.jpg'}"
    result = saccade_cli("run", model_file, "-i", given, "-o", tmp_path / "out" / "*.png")
    assert result.exit_code == 0, result.stderr
    assert names(tmp_path / "out") == ["one.png"]


def test_a_pattern_for_results_wants_an_image(refused, model_file, tmp_path):
    told = refused("run", model_file, "--output", tmp_path / "out" / "*.png")
    assert "--output DIR/*.png names results after images" in told
    assert not (tmp_path / "out").exists()
