from __future__ import annotations

import numpy as np
import pytest
from fake_engine import FakeModel, Info
from PIL import Image

import saccade
from saccade.cli._app import app
from saccade.errors import InputError, Unsupported, UnsupportedModelError

pytestmark = pytest.mark.usefixtures("engine")


def image_of(path, mode="RGB", size=(16, 16)):
    count = size[0] * size[1] * (3 if mode == "RGB" else 1)
    values = (np.arange(count) % 256).astype(np.uint8)
    shape = (size[1], size[0], 3) if mode == "RGB" else (size[1], size[0])
    pixels = values.reshape(shape)
    Image.fromarray(pixels).save(path)
    return pixels


def test_a_image_survives_the_way_through_the_identity(saccade_cli, engine, model_file, tmp_path):
    pixels = image_of(tmp_path / "in.png", size=(17, 13))
    result = saccade_cli(
        "run", model_file, "--input", tmp_path / "in.png", "--output", tmp_path / "out.png"
    )
    assert result.exit_code == 0, result.stderr
    (feeds,) = engine.model.calls
    assert feeds["input"].shape == (1, 3, 13, 17)
    assert feeds["input"].dtype == np.float32
    expected = pixels.transpose(2, 0, 1)[None].astype(np.float32) / np.float32(255)
    np.testing.assert_array_equal(feeds["input"], expected)
    with Image.open(tmp_path / "out.png") as image:
        assert image.mode == "RGB"
        np.testing.assert_array_equal(np.asarray(image), pixels)


def test_every_grey_level_survives_in_fp16_too(saccade_cli, engine, model_file, tmp_path):
    shape = (1, 1, "H", "W")
    engine.model = FakeModel((Info("x", "float16", shape),), (Info("y", "float16", shape),))
    pixels = image_of(tmp_path / "in.png", "L")
    assert set(pixels.ravel()) == set(range(256))
    result = saccade_cli(
        "run", model_file, "-i", f"x={tmp_path / 'in.png'}", "-o", tmp_path / "out.png"
    )
    assert result.exit_code == 0, result.stderr
    assert engine.model.calls[0]["x"].dtype == np.float16
    with Image.open(tmp_path / "out.png") as image:
        assert image.mode == "L"
        np.testing.assert_array_equal(np.asarray(image), pixels)


def test_a_colour_image_becomes_grey_for_a_model_of_one_channel(
    saccade_cli, engine, model_file, tmp_path
):
    shape = (1, 1, "H", "W")
    engine.model = FakeModel((Info("x", "float32", shape),), (Info("y", "float32", shape),))
    image_of(tmp_path / "in.png")
    assert saccade_cli("run", model_file, "--input", tmp_path / "in.png").exit_code == 0
    with Image.open(tmp_path / "in.png") as image:
        grey = np.asarray(image.convert("L"))
    np.testing.assert_array_equal(
        engine.model.calls[0]["x"][0, 0], grey.astype(np.float32) / np.float32(255)
    )


def test_image_values_are_clipped_and_rounded(saccade_cli, model_file, tmp_path):
    values = np.array([-3.0, -1e-9, 0.4999 / 255, 0.5001 / 255, 254.6 / 255, 1.0, 7.0, np.inf])
    array = np.broadcast_to(values.astype(np.float32), (1, 3, 1, 8))
    np.save(tmp_path / "in.npy", array)
    result = saccade_cli(
        "run", model_file, "--input", tmp_path / "in.npy", "--output", tmp_path / "out.png"
    )
    assert result.exit_code == 0, result.stderr
    with Image.open(tmp_path / "out.png") as image:
        row = np.asarray(image)[0, :, 1]
    np.testing.assert_array_equal(row, [0, 0, 0, 1, 255, 255, 255, 255])


def test_arrays_pass_unchanged_through_npy_and_npz(saccade_cli, model_file, tmp_path):
    array = np.random.default_rng(3).standard_normal((2, 3, 5, 7))
    np.save(tmp_path / "in.npy", array)
    np.savez(tmp_path / "in.npz", input=array)
    for source in ("in.npy", "in.npz", "input=in.npy", "input=in.npz"):
        name, _, file = source.rpartition("=")
        text = f"{name}={tmp_path / file}" if name else tmp_path / file
        for target in ("out.npy", "out.npz", "folder"):
            result = saccade_cli("run", model_file, "--input", text, "--output", tmp_path / target)
            assert result.exit_code == 0, result.stderr
        wanted = array.astype(np.float32)
        np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), wanted, strict=True)
        np.testing.assert_array_equal(np.load(tmp_path / "out.npz")["output"], wanted, strict=True)
        np.testing.assert_array_equal(
            np.load(tmp_path / "folder" / "output.npy"), wanted, strict=True
        )


def test_several_inputs_take_named_and_nameless_files(saccade_cli, engine, model_file, tmp_path):
    infos = tuple(Info(name, "float32", (2,)) for name in ("a", "b", "c"))
    outs = tuple(Info(f"out/{name}", "float32", (2,)) for name in "abc")
    engine.model = FakeModel(infos, outs)
    for value in (1, 2):
        np.save(tmp_path / f"{value}.npy", np.full(2, value, np.float32))
    result = saccade_cli(
        "run", model_file, "--input", tmp_path / "1.npy", "--input", f"a={tmp_path / '2.npy'}",
        "--output", tmp_path / "folder",
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    (feeds,) = engine.model.calls
    np.testing.assert_array_equal(feeds["a"], [2, 2])
    np.testing.assert_array_equal(feeds["b"], [1, 1])
    assert feeds["c"].std() > 0, "the input without a file is random"
    names = sorted(path.name for path in (tmp_path / "folder").iterdir())
    assert names == ["out_a.npy", "out_b.npy", "out_c.npy"]


def test_inputs_without_a_file_are_random_and_repeatable(saccade_cli, engine, model_file):
    for _ in range(2):
        result = saccade_cli("run", model_file)
        assert result.exit_code == 0, result.stderr
        assert "input has no fixed shape, assuming 1x3x224x224" in result.stderr
    first, second = (feeds["input"] for feeds in engine.model.calls)
    assert first.shape == (1, 3, 224, 224)
    assert abs(first.mean()) < 0.02
    assert abs(first.std() - 1) < 0.02
    np.testing.assert_array_equal(first, second)


def test_shape_sets_the_size_of_random_data_and_nothing_is_assumed(saccade_cli, engine, model_file):
    for text in ("input=2x3x8x9", "2x3x8x9"):
        result = saccade_cli("run", model_file, "--shape", text)
        assert result.exit_code == 0, result.stderr
        assert result.stderr == ""
        assert engine.model.calls[-1]["input"].shape == (2, 3, 8, 9)


def test_options_reach_the_compiler(saccade_cli, engine, model_file):
    result = saccade_cli(
        "run", model_file, "--threads", 3, "--device", "reference", "--precision", "fp32"
    )
    assert result.exit_code == 0, result.stderr
    assert engine.compiled == [(model_file, "reference", "fp32", 3)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("input=1x3x*x4", "'input=1x3x*x4' is not of the form NAME=1x3x224x224"),
        ("input=", "is not of the form"),
        ("input=1x3x-4x4", "is not of the form"),
        ("input=1,3x4", "is not of the form"),
        ("input=1x3x²x4", "is not of the form"),
        ("other=1x3x4x4", "the model has no input 'other'; it has input"),
        ("input=1x3x4", "input 'input' has shape Nx3xHxW, which 1x3x4 does not fit"),
        ("input=1x4x4", "which 1x4x4 does not fit"),
    ],
)
def test_a_bad_shape_is_refused_in_one_line(refused, model_file, text, says):
    assert says in refused("run", model_file, "--shape", text)


def test_a_shape_that_contradicts_the_file_is_refused(refused, model_file, tmp_path):
    np.save(tmp_path / "in.npy", np.zeros((1, 3, 4, 4), np.float32))
    line = refused("run", model_file, "--input", tmp_path / "in.npy", "--shape", "input=1x3x5x5")
    assert "the file for input 'input' is 1x3x4x4, which --shape contradicts" in line


def test_sizes_of_a_file_that_do_not_fit_have_a_way_out(refused, model_file, tmp_path):
    np.save(tmp_path / "in.npy", np.zeros((1, 4, 4, 4), np.float32))
    line = refused("run", model_file, "--input", tmp_path / "in.npy")
    assert "which 1x4x4x4 does not fit: --shape gives the input another" in line


def test_a_file_that_does_not_fit_is_refused(refused, engine, model_file, tmp_path):
    np.save(tmp_path / "rank.npy", np.zeros((3, 4, 4), np.float32))
    np.save(tmp_path / "text.npy", np.array(["a"]))
    np.save(tmp_path / "int.npy", np.zeros((1, 3, 4, 4), np.int64))
    np.savez(tmp_path / "foreign.npz", other=np.zeros((1, 3, 4, 4)))
    (tmp_path / "broken.npy").write_bytes(b"\x93NUMPY broken")
    (tmp_path / "broken.npz").write_bytes(b"PK broken")
    (tmp_path / "broken.png").write_bytes(b"no image")
    (tmp_path / "table.csv").write_text("1,2")
    says = {
        "rank.npy": "has shape Nx3xHxW, which 3x4x4 does not fit",
        "text.npy": "does not fit",
        "int.npy": "takes float32, not int64",
        "foreign.npz": "'other' is no input; the model has input",
        "broken.npy": "is not a NumPy array",
        "broken.npz": "is not a NumPy archive",
        "broken.png": "is not an image that can be read",
        "table.csv": "an input is a .npy or .npz file, or an image",
        "missing.npy": "no such file",
    }
    for file, message in says.items():
        line = refused("run", model_file, "--input", tmp_path / file)
        assert message in line, line
        named = "input 'input'" if file in ("rank.npy", "text.npy") else str(tmp_path / file)
        assert named in line, line
    assert engine.model.calls == []


def test_input_naming_mistakes_are_refused(refused, model_file, tmp_path):
    np.save(tmp_path / "in.npy", np.zeros((1, 3, 4, 4), np.float32))
    file = tmp_path / "in.npy"
    assert "no input 'data'; it has input" in refused("run", model_file, "--input", f"data={file}")
    twice = refused("run", model_file, "--input", file, "--input", file)
    assert "the model has 1 input(s) only" in twice
    again = refused("run", model_file, "--input", f"input={file}", "--input", f"input={file}")
    assert "input 'input' is given twice" in again


def test_outputs_that_make_no_image_are_refused(refused, engine, model_file, tmp_path):
    two = refused("run", model_file, "--shape", "2x3x4x4", "--output", tmp_path / "out.png")
    assert "is not one image" in two
    strange = refused("run", model_file, "--shape", "1x3x4x4", "--output", tmp_path / "out.tiff")
    assert "an output is a .npy, .npz, .png, .jpg or .webp file or a folder" in strange
    engine.model.offset = float("nan")
    nan = refused("run", model_file, "--shape", "1x3x4x4", "--output", tmp_path / "out.png")
    assert "holds NaN" in nan
    engine.model = FakeModel(
        tuple(Info(n, "float32", (2,)) for n in "ab"), tuple(Info(n, "float32", (2,)) for n in "cd")
    )
    several = refused("run", model_file, "--output", tmp_path / "out.npy")
    assert "takes one output of 2" in several
    assert not list(tmp_path.glob("out.*"))


def test_what_the_compiler_refuses_is_one_error(refused, saccade_cli, engine, model_file):
    engine.error = InputError("input 'x' has the wrong dtype")
    assert refused("run", model_file).endswith("error: input 'x' has the wrong dtype")
    row = Unsupported("Loop", "FLOAT", "control flow", 2, ("loop1",))
    engine.error = UnsupportedModelError([row])
    result = saccade_cli("run", model_file)
    assert result.exit_code == 2
    assert result.stderr.startswith("saccade: error: 2 node(s) of this model are not supported:\n")
    assert "Loop" in result.stderr.splitlines()[2]


def test_a_bug_is_a_traceback_and_not_an_error_line(saccade_cli, engine, model_file):
    engine.error = ZeroDivisionError("bug")
    assert isinstance(saccade_cli("run", model_file).exception, ZeroDivisionError)


def test_mistakes_on_the_command_line_are_one_line(refused, model_file, tmp_path):
    assert "Missing argument 'MODEL'" in refused("run")
    assert "No such command" in refused("fly")
    assert "no such file" in refused("run", tmp_path / "missing.onnx")
    assert f"{tmp_path}: this is a folder, not a model" in refused("run", tmp_path)
    for options in (("--threads", 0), ("--threads", "two"), ("--threshold", 2), ("--top", 0.5),
                    ("--threshold", "high"), ("--preprocess", "imagent")):  # fmt: skip
        line = refused("run", model_file, *options)
        assert f"Invalid value for '{options[0]}'" in line
        assert "Input should" not in line and "Value error" not in line
    assert "--bogus" in refused("run", model_file, "--bogus")


def test_an_unwritable_output_is_one_line_before_any_work(
    refused, engine, model_file, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").touch()
    for target, says in (
        ("missing/out.npy", "there is no such folder as"),
        ("missing/out.png", "there is no such folder as"),
        ("text.txt/folder", "text.txt is no folder"),
        ("-", "--output -: results go to files; --json - prints what is said of them"),
        ("/dev/full", "/dev/full: an output is a .npy"),
    ):
        assert says in refused("run", model_file, "--output", target), target
    same = refused("run", model_file, "--output", "out.npz", "--json", "out.npz")
    assert "--output is the same file" in same
    assert sorted(path.name for path in tmp_path.iterdir()) == ["text.txt", model_file.name]

    def full(**_arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("saccade.cli._outputs.TemporaryFile", full)
    assert "cannot be written to: No space" in refused("run", model_file, "--output", "new/folder")
    assert not engine.compiled


@pytest.mark.parametrize("name", ["in.png", "in.npy", "in.npz"])
def test_a_result_takes_the_place_of_no_input(refused, engine, model_file, tmp_path, name):
    file = tmp_path / name
    if name == "in.npz":
        np.savez(file, input=np.zeros((1, 3, 4, 4), np.float32))
    elif name == "in.npy":
        np.save(file, np.zeros((1, 3, 4, 4), np.float32))
    else:
        image_of(file)
    before = file.read_bytes()
    for option in ("--output", "--json"):
        for text in (file, f"input={file}"):
            line = refused("run", model_file, "--input", text, option, file)
            assert f"{option} {file}: the result would take the place of what is read" in line
    assert "this is the model itself" in refused("run", model_file, "--json", model_file)
    assert file.read_bytes() == before and not engine.compiled


def test_nor_does_a_result_in_a_folder(refused, engine, model_file, tmp_path):
    np.save(tmp_path / "output.npy", np.zeros((1, 3, 4, 4), np.float32))
    more = ("--input", tmp_path / "output.npy", "--output", tmp_path)
    assert "take the place of what is read" in refused("run", model_file, *more)
    assert not engine.model.calls


@pytest.mark.parametrize(
    ("shapes", "options", "says"),
    [
        ([("N", 10)], ("--output", "out.png"), "output 'y0' of shape Nx10 is not one image"),
        ([(1, 3, "H", "W")], ("--top", 5), "'y0' of shape 1x3xHxW is not scores of classes"),
        ([(2,), (2,)], ("--output", "out.npy"), "a .npy takes one output of 2"),
    ],
)
def test_what_a_signature_tells_is_told_before_the_run(
    refused, engine, model_file, tmp_path, monkeypatch, shapes, options, says
):
    monkeypatch.chdir(tmp_path)
    outputs = tuple(Info(f"y{i}", "float32", shape) for i, shape in enumerate(shapes))
    engine.model = FakeModel(outputs=outputs)
    assert says in refused("run", model_file, *options)
    assert not engine.model.calls


@pytest.mark.parametrize("name", ["out.npy", "out.npz", "out.png"])
def test_a_full_disk_leaves_the_output_that_was_there(
    refused, model_file, tmp_path, monkeypatch, name
):
    def full(_file):
        raise OSError(28, "No space left on device")

    target = tmp_path / "outputs" / name
    target.parent.mkdir()
    target.write_text("old")
    monkeypatch.setattr("saccade.files.os.fsync", full)
    line = refused("run", model_file, "--shape", "1x3x4x4", "--output", target)
    assert line == f"saccade: error: {target}: No space left on device"
    assert target.read_text() == "old"
    assert list(target.parent.iterdir()) == [target]


def test_ctrl_c_is_one_line(saccade_cli, engine, model_file):
    engine.error = KeyboardInterrupt()
    result = saccade_cli("run", model_file)
    assert (result.exit_code, result.stderr) == (130, "saccade: interrupted\n")


def test_the_version_is_told(capsys):
    with pytest.raises(SystemExit) as ended:
        app(["--version"])
    assert (ended.value.code, capsys.readouterr().out) == (0, f"saccade {saccade.__version__}\n")
