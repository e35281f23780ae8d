from __future__ import annotations

import numpy as np
import onnx
import pytest
from fake_engine import save_model
from onnx import TensorProto

from saccade.cli._reference import every_value, onnxruntime_answers
from saccade.errors import OptionError

pytestmark = pytest.mark.usefixtures("engine")


def compare(saccade_cli, path, *more):
    return saccade_cli("compare", path, "--against", "reference", "--shape", "1x3x40x40", *more)


def test_equal_answers_exit_with_zero(saccade_cli, engine, model_file):
    result = compare(saccade_cli, model_file)
    assert result.exit_code == 0, result.stderr
    assert [device for _, device, _, _ in engine.compiled] == ["cpu", "reference"]
    line = result.stdout.splitlines()[1]
    assert line.split() == ["output", "0.00e+00", "0.00e+00", "0.00e+00", "ok"]


@pytest.mark.parametrize(("error", "code"), [(1.9e-5, 0), (2.1e-5, 1)])
def test_the_tolerance_of_fp32(saccade_cli, engine, model_file, error, code):
    def scale(results):
        results["output"] = (results["output"].astype(np.float64) * (1 + error)).astype(np.float32)

    engine.model.corrupt = scale
    result = compare(saccade_cli, model_file)
    assert result.exit_code == code, result.stdout
    assert ("above 2e-05" in result.stdout) == bool(code)


@pytest.mark.parametrize(("error", "code"), [(4e-3, 0), (6e-3, 1)])
def test_files_of_fp16_have_a_tolerance_of_their_own(saccade_cli, engine, tmp_path, error, code):
    path = save_model(tmp_path / "half.onnx", dtype=TensorProto.FLOAT16)

    def scale(results):
        results["output"] *= np.float32(1 + error)

    engine.model.corrupt = scale
    assert compare(saccade_cli, path).exit_code == code


@pytest.mark.parametrize(("error", "code"), [(4e-2, 0), (6e-2, 1)])
def test_bf16_has_a_tolerance_of_its_own(saccade_cli, engine, model_file, error, code):
    def scale(results):
        results["output"] *= np.float32(1 + error)

    engine.model.corrupt = scale
    assert compare(saccade_cli, model_file, "--precision", "bf16").exit_code == code


@pytest.mark.parametrize("precision", ["fp16", "tf32"])
@pytest.mark.parametrize(("error", "code"), [(4e-3, 0), (6e-3, 1)])
def test_precisions_of_gpus_too(saccade_cli, engine, model_file, precision, error, code):
    def scale(results):
        results["output"] *= np.float32(1 + error)

    engine.model.corrupt = scale
    asked = ("--device", "cuda", "--precision", precision)
    assert compare(saccade_cli, model_file, *asked).exit_code == code


@pytest.mark.parametrize(("floor", "code"), [(None, 1), ("1e-3", 0), ("1e-5", 1)])
def test_a_floor_excuses_what_is_small_in_itself(saccade_cli, engine, model_file, floor, code):
    def spoil(results):
        results["output"][0, 0, 0, 0] += 5e-4
        results["output"][0, 0, 1, 1] += 5e-4

    engine.model.corrupt = spoil
    more = () if floor is None else ("--floor", floor)
    result = compare(saccade_cli, model_file, *more, "--tolerance", "1e-7")
    assert result.exit_code == code, result.stdout
    assert "5.00e-04" in result.stdout and f"more than {float(floor or 1e-6):.0e}" in result.stdout


def test_zeros_but_for_rounding_are_equal(saccade_cli, engine, model_file):
    """What is 0 has no relative error: 1e-30 beside it is infinitely far by that."""

    def small(results):
        results["output"][:] = 1e-30

    def zero(results):
        results["output"][:] = 0

    engine.model.corrupt, engine.reference.corrupt = small, zero
    result = compare(saccade_cli, model_file)
    assert result.exit_code == 0 and " inf " in result.stdout
    assert compare(saccade_cli, model_file, "--floor", "0").exit_code == 1


def test_columns_are_explained(saccade_cli, model_file):
    text = " ".join(compare(saccade_cli, model_file).stdout.split())
    for word in ("relative L2:", "outer ring:", "largest:", "ok: both norms at most 2e-05"):
        assert word in text


def test_a_wrong_border_fails_although_the_whole_is_close(saccade_cli, engine, model_file):
    def spoil(results):
        results["output"][0, 0, 0, 0] += 1e-3  # 1e-3 in a norm of 69: 1.4e-5 of the whole

    engine.model.corrupt = spoil
    result = compare(saccade_cli, model_file)
    assert result.exit_code == 1
    _, whole, ring, *_ = result.stdout.splitlines()[1].split()
    assert float(whole) < 2e-5 < float(ring)


def test_nan_fails(saccade_cli, engine, model_file):
    def spoil(results):
        results["output"][0, 1, 20, 20] = np.nan

    engine.model.corrupt = spoil
    result = compare(saccade_cli, model_file)
    assert result.exit_code == 1
    assert "1 NaN or infinite element(s) on one side only" in result.stdout


def test_a_missing_output_fails(saccade_cli, engine, model_file):
    engine.model.corrupt = lambda results: results.pop("output")
    result = compare(saccade_cli, model_file)
    assert result.exit_code == 1
    assert "missing" in result.stdout


def test_onnxruntime_gives_the_expected_answers(saccade_cli, engine, model_file):
    pytest.importorskip("onnxruntime")

    def relu_of_negation(results):
        results["output"] = np.maximum(-results["output"], 0)

    arguments = ("compare", model_file, "--against", "onnxruntime", "--shape", "1x3x8x8")
    assert saccade_cli(*arguments).exit_code == 1
    engine.model.corrupt = relu_of_negation
    assert saccade_cli(*arguments).exit_code == 0
    unnamed = saccade_cli("compare", model_file, "--shape", "1x3x8x8")
    assert unnamed.exit_code == 0 and "onnxruntime's" in unnamed.stdout


def test_what_onnxruntime_does_not_run_is_told_in_one_line(tmp_path):
    pytest.importorskip("onnxruntime")
    gather = onnx.helper.make_node("Gather", ["x", "i"], ["y"])
    kinds = {"x": TensorProto.FLOAT, "i": TensorProto.INT64, "y": TensorProto.FLOAT}
    x, i, y = (onnx.helper.make_tensor_value_info(n, kind, [3]) for n, kind in kinds.items())
    graph = onnx.helper.make_graph([gather], "g", [x, i], [y])
    opsets = [onnx.helper.make_opsetid("", 17)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)
    feeds = {"x": np.zeros(3, np.float32), "i": np.array([0, 1, 7])}
    with pytest.raises(OptionError, match=r"onnxruntime does not run this: .*out of") as caught:
        onnxruntime_answers(model, feeds)
    assert "\n" not in str(caught.value)
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    with pytest.raises(OptionError, match="does not run this"):
        onnxruntime_answers(tmp_path / "broken.onnx", feeds)


def test_layers_compares_the_hidden_values_too(saccade_cli, engine, model_file):
    pytest.importorskip("onnxruntime")

    def answer(results):
        x = results.pop("output")
        results |= {"hidden": -x, "output": np.maximum(-x, 0)}

    engine.model.corrupt = answer
    arguments = (
        "compare",
        model_file,
        "--against",
        "onnxruntime",
        "--layers",
        "--shape",
        "1x3x8x8",
    )
    result = saccade_cli(*arguments)
    assert result.exit_code == 0, result.stdout + result.stderr
    table = result.stdout.partition("\n\n")[0].splitlines()
    assert [line.split()[0] for line in table[1:]] == ["hidden", "output"]
    source = engine.compiled[-1][0]
    assert isinstance(source, onnx.ModelProto), "the compiler got the model with all its values"


def test_every_value_declares_outputs_in_order_once(model_file):
    model = every_value(model_file)
    assert [value.name for value in model.graph.output] == ["hidden", "output"]
    onnx.checker.check_model(model)


def test_every_value_is_none_of_constants_alone(tmp_path):
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 18]> g (float[2] x) => (float[2] y)
        <float[2] w = {1, 2}> { a = Identity(w)  b = Constant<value_float = 2.0>()
        c = Mul(a, b)  d = Add(x, c)  y = Relu(d) }"""
    )
    onnx.save(model, tmp_path / "weights.onnx")
    found = every_value(tmp_path / "weights.onnx")
    assert [value.name for value in found.graph.output] == ["d", "y"]


def test_unknown_peers_are_refused(refused, model_file):
    line = refused("compare", model_file, "--against", "tensorrt")
    assert "'tensorrt' is not one of onnxruntime, reference" in line


def test_a_file_that_is_not_onnx_is_refused(refused, tmp_path):
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"\xff\xff not a model")
    line = refused("compare", broken, "--against", "reference")
    assert f"{broken} is not an ONNX file" in line
