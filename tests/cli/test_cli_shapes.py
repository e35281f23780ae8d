"""`--shape` for sizes that a file declares otherwise, in every command that takes it."""

from __future__ import annotations

import json

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper
from PIL import Image

import saccade
from saccade.cli._shape_texts import parse_programs, parse_shapes
from saccade.cli._shapes import declared_as, redeclared, sizes_in
from saccade.cli._signature import InputInfo
from saccade.errors import OptionError

TEXT = (
    '<ir_version: 8, opset_import: ["" : 18]> g (float[1, 3, 8, 8] x) => (float[1, 4, 8, 8] y)'
    "{ a = Conv<pads=[1, 1, 1, 1]>(x, w)  y = Relu(a) }"
)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    model = onnx.parser.parse_model(TEXT)
    weights = np.random.default_rng(0).normal(size=(4, 3, 3, 3)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    file = tmp_path_factory.mktemp("shapes") / "m.onnx"
    onnx.save(model, file)
    return file


def ran(saccade_cli, *arguments):
    result = saccade_cli(*arguments)
    assert result.exit_code == 0, (result.stdout, result.stderr, result.exception)
    return result


@pytest.mark.parametrize(
    "command",
    [
        ("run", "--shape", "2x3x5x7"),
        ("profile", "--repeat", 1, "--shape", "x=2x3x5x7"),
        ("inspect", "--plan", "--shape", "x=2x3x5x7"),
        ("tune", "--seconds", 0, "--shape", "x=2x3x5x7"),
        ("compare", "--against", "onnxruntime", "--shape", "x=2x3x5x7"),
        ("compare", "--layers", "--against", "onnxruntime", "--shape", "x=2x3x5x7"),
        ("warm", "--shape", "x=2x3x5x7"),
    ],
)
def test_a_size_that_the_file_fixes_otherwise(command, path, saccade_cli):
    ran(saccade_cli, command[0], path, *command[1:])


def test_run_saves_what_the_other_shape_gives(path, saccade_cli, tmp_path):
    np.save(tmp_path / "x.npy", x := np.ones((2, 3, 5, 7), np.float32))
    files = ("--input", tmp_path / "x.npy", "--output", tmp_path / "y.npy")
    ran(saccade_cli, "run", path, "--shape", "Nx3xHxW", *files)
    expected = saccade.compile(path, shapes={"x": x.shape}, threads=1)(x)
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), expected, rtol=1e-5)


def test_names_leave_sizes_to_defaults(path, saccade_cli):
    result = ran(saccade_cli, "run", path, "--shape", "x=2x3xHx?")
    assert "y: float32 2x4x224x224" in result.stdout
    assert "assuming 2x3x224x224" in result.stderr


def test_bench_has_the_peer_run_the_same(path, saccade_cli, tmp_path):
    json_file = tmp_path / "times.json"
    how = ("--rounds", 1, "--seconds", 0.01, "--threads", 1, "--json", json_file)
    ran(saccade_cli, "bench", path, "--shape", "x=2x3x5x7", "--against", "onnxruntime", *how)
    document = json.loads(json_file.read_text())
    assert document["shape"] == {"x": [2, 3, 5, 7]}
    assert [row["engine"] for row in document["results"]] == ["saccade", "onnxruntime"]


def test_a_bundle_of_sizes_that_the_file_does_not_have(path, saccade_cli, tmp_path):
    bundle = tmp_path / "m.saccade"
    ran(saccade_cli, "build", path, "--shape", "x=2x3x5x7", "--shape", "x=1x3x6x7", "-o", bundle)
    model = saccade.compile(bundle)
    assert model.inputs[0].shape == ("x_dim_0", 3, "x_dim_2", 7)
    assert model(np.ones((1, 3, 6, 7), np.float32)).shape == (1, 4, 6, 7)


def test_warm_says_how_they_are_found(path, saccade_cli):
    stdout = ran(saccade_cli, "warm", path, "--shape", "x=2x3x5x7").stdout
    assert "shapes={'x': (2, 3, 5, 7)}" in stdout
    # Those of the file are found as they are.
    assert "shapes=" not in ran(saccade_cli, "warm", path, "--shape", "x=1x3x8x8").stdout


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ("q=1x3x8x8", "no input 'q'"),
        ("q=1x3xHx8", "no input 'q'"),
        ("x=1x3x8", "1x3x8"),
        ("x=1x3xH", "given are 3"),
        ("x=0x3x8x8", "cannot have a size of 0"),
        ("x=1x3x-8x8", "not of the form"),
        ("x=1x3xx8", "not of the form"),
        ("x=1x4x8x8", "channels is 4 on one side and 3 on the other"),
    ],
)
def test_shapes_that_do_not_fit(shape, message, path, refused):
    for command in (("run",), ("warm",), ("bench", "--rounds", 1, "--seconds", 0)):
        assert message in refused(command[0], path, *command[1:], "--shape", shape)


def test_the_spelling():
    assert parse_shapes(["a=b=1xHx?x-1", "7"]) == {"a=b": (1, "H", None, None), "": (7,)}
    assert parse_programs(["x=1,y=H", "x=2"]) == [{"x": (1,), "y": ("H",)}, {"x": (2,)}]
    assert parse_programs(["", "x=1,y=2"]) == [{"x": (1,), "y": (2,)}]
    assert parse_programs(None) == [{}]


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("1,3,?,-1", {"": (1, 3, None, None)}),
        ("N,3,H,W", {"": ("N", 3, "H", "W")}),
        ("[1,3,8,8]", {"": (1, 3, 8, 8)}),
        ("[1, 3, H, 8]", {"": (1, 3, "H", 8)}),
        ("x:1x3xHx8", {"x": (1, 3, "H", 8)}),
        ("input:0:1x3", {"input:0": (1, 3)}),
        ("input:0=1x3", {"input:0": (1, 3)}),
        ("x[1,3,8,8]", {"x": (1, 3, 8, 8)}),
        ("x=[1,3],y:[2]", {"x": (1, 3), "y": (2,)}),
        ("x[0][1,3]", {"x[0]": (1, 3)}),
        ("x[0]=1x3", {"x[0]": (1, 3)}),
        ("x=1,3,8,y=2", {"x": (1, 3, 8), "y": (2,)}),
        ("a=1x4,b=3x4", {"a": (1, 4), "b": (3, 4)}),
        ("a:1x4,b:3x4", {"a": (1, 4), "b": (3, 4)}),
        ("a[1,4],b[3,4]", {"a": (1, 4), "b": (3, 4)}),
    ],
)
def test_the_spellings_of_others(text, shapes):
    assert parse_shapes([text]) == shapes
    assert parse_programs([text]) == [shapes]


@pytest.mark.parametrize(
    "text",
    ["", "x=", "x:", "x=1x", "x=1.5", "x=²", "1x3,4", "1,3x4", "a=1x4,3x4", "a=1x4,3", "[1,3", "[]",
     "1,3]", "x[]", "[1x3]", "x[1,3]4", "[1,3],", "1,,3", ",1", "1,", "H,WxC", "a=1,b="],
)  # fmt: skip
def test_what_is_no_shape(text):
    with pytest.raises(OptionError, match="is not of the form NAME=1x3x224x224"):
        parse_shapes([text])


@pytest.mark.parametrize(
    "texts", [["1x3", "4x5"], ["x=1", "x:2"], ["[1,3],[2]"], ["x=1,x=2"], ["x[1],x[2]"]]
)
def test_an_input_has_one_shape(texts):
    with pytest.raises(OptionError, match="twice"):
        parse_shapes(texts)


TWO = (
    '<ir_version: 8, opset_import: ["" : 18]> g (float[A, 4] a, float[B, 4] b) => (float[C, 4] y)'
    "{ y = Concat<axis=0>(a, b) }"
)


@pytest.fixture
def two(tmp_path):
    onnx.save(onnx.parser.parse_model(TWO), tmp_path / "two.onnx")
    return tmp_path / "two.onnx"


def test_several_inputs_of_one_option(two, saccade_cli):
    assert "y: float32 4x4" in ran(saccade_cli, "run", two, "--shape", "a=1x4,b=3x4").stdout
    ran(saccade_cli, "warm", two, "--shape", "a=1x4,b=3x4", "--shape", "a[2,4],b[5,4]")


@pytest.mark.parametrize("command", ["warm", "build"])
def test_programs_are_told_apart(command, two, refused, tmp_path):
    more = () if command == "warm" else ("-o", tmp_path / "two.saccade")
    line = refused(command, two, *more, "--shape", "a=1x4", "--shape", "b=3x4")
    assert "choose sizes with --shape b=…" in line
    assert "each --shape is a program of its own, whose inputs are separated by commas" in line
    assert "a program of its own" not in refused(command, two, *more, "--shape", "a=1x4")


def test_names_that_a_model_does_not_have(two, path, refused, tmp_path):
    line = refused("run", path, "--shape", "x1=1x3x8x8")
    assert line.endswith("the model has no input 'x1' (is x meant?); it has x")
    assert "which input it is for: a, b" in refused("run", two, "--shape", "1x4")
    np.save(tmp_path / "x.npy", np.ones((1, 3, 8, 8), np.float32))
    more = ("--shape", "q=1x3x8x8", "--input", tmp_path / "x.npy")
    assert "no input 'q'; it has x" in refused("run", path, *more)


@pytest.mark.parametrize("preprocess", ["imagenet", "letterbox"])
def test_a_shape_without_a_name_is_the_only_input_s(preprocess, path, saccade_cli, tmp_path):
    Image.fromarray(np.zeros((20, 30, 3), np.uint8)).save(tmp_path / "in.png")
    more = ("--input", tmp_path / "in.png", "--shape", "1x3x10x10", "--preprocess", preprocess)
    assert "y: float32 1x4x10x10" in ran(saccade_cli, "run", path, *more).stdout


def test_also_where_a_file_is_compared(path, saccade_cli, refused, tmp_path):
    np.save(tmp_path / "x.npy", np.ones((2, 3, 5, 7), np.float32))
    more = ("--against", "reference", "--input", tmp_path / "x.npy")
    ran(saccade_cli, "compare", path, *more, "--shape", "2x3x5x7")
    assert "which 2x3x5x7 does not fit" in refused("compare", path, *more, "--shape", "2x3x5x8")


def test_pictures_keep_their_size_where_nothing_is_done_with_them(path, refused, tmp_path):
    Image.fromarray(np.zeros((20, 30, 3), np.uint8)).save(tmp_path / "in.png")
    line = refused("run", path, "--input", tmp_path / "in.png", "--shape", "1x3x10x10")
    assert line.endswith(
        "which 1x3x20x30 does not fit: --preprocess scales images to it, --shape gives the input "
        "another"
    )
    line = refused("run", path, "--input", tmp_path / "in.png", "--shape", "x=1x3x10x10")
    assert "which 1x3x20x30 does not fit: --preprocess" in line


def test_what_fits_is_not_declared_anew():
    """Its programs are those that other starts find."""
    info = InputInfo("x", "float32", ("N", 3, 8))
    assert declared_as([info], [{"x": (2, 3, 8)}, {}]) is None
    assert declared_as([info], [{"": (2, 3, 8)}]) is None
    assert declared_as([info], [{"x": (2, 3, 9)}]) == {"x": (2, 3, 9)}
    assert declared_as([info], [{"x": (2, 3, 9)}, {"x": (1, 3, 9)}]) == {"x": (None, 3, 9)}
    assert declared_as([info], [{"x": ("M", 3, 8)}]) == {"x": ("M", 3, 8)}
    assert sizes_in([{"x": (2, "H"), "y": (3,)}]) == [{"y": (3,)}]


def test_the_file_for_others_says_nothing_of_before(path):
    model = redeclared(path, {"x": (2, 3, "H", None)})
    dims = model.graph.input[0].type.tensor_type.shape.dim
    assert [d.dim_value or d.dim_param for d in dims] == [2, 3, "H", ""]
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    assert inferred.graph.output[0].type.tensor_type.shape.dim[0].dim_value == 2
