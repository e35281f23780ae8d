"""--allow-reference, and what the commands say of steps that ONNX's reference computes."""

from __future__ import annotations

import onnx
import pytest
from onnx import TensorProto, helper


@pytest.fixture
def model(tmp_path):
    nodes = [
        helper.make_node("Binarizer", ["x"], ["bits"], "cut", domain="ai.onnx.ml"),
        helper.make_node("Neg", ["bits"], ["y"], "negated"),
    ]
    sides = [[helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 3])] for n in "xy"]
    sets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 4)]
    graph = helper.make_graph(nodes, "g", *sides)
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=sets, ir_version=10), path)
    return path


@pytest.mark.parametrize("command", ["run", "inspect", "profile"])
def test_without_it_the_error_tells_of_it(command, model, saccade_cli):
    result = saccade_cli(command, model)
    assert result.exit_code == 2
    assert "ai.onnx.ml.Binarizer" in result.stderr and "allow_reference=True" in result.stderr


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["run"], "y: float32 2x3"),
        (["inspect"], "note: 1 ai.onnx.ml.Binarizer by ONNX's reference implementation"),
        (["inspect", "--plan"], "onnx.reference (host)"),
        (["inspect", "--reasons"], "Binarizer cut: onnx.reference, chosen: on the host\n"),
        (["profile", "--repeat", "2"], "onnx.reference"),
        (["compare", "--against", "reference"], "ok"),
    ],
)
def test_with_it_commands_name_the_step(command, says, model, saccade_cli):
    name, *more = command
    result = saccade_cli(name, model, *more, "--allow-reference", "--threads", "1")
    assert result.exit_code == 0, result.stderr
    assert says in result.stdout


def test_bundles_are_built_with_it(model, saccade_cli, tmp_path):
    built = saccade_cli("build", model, "--output", tmp_path / "b", "--allow-reference")
    assert built.exit_code == 0, built.stderr
    ran = saccade_cli("run", tmp_path / "b")
    assert ran.exit_code == 0 and "y: float32 2x3" in ran.stdout


def test_what_no_file_holds_is_not_drawn(saccade_cli, tmp_path):
    node = helper.make_node("StringConcat", ["a", "a"], ["y"])
    sides = [[helper.make_tensor_value_info(n, TensorProto.STRING, [2])] for n in "ay"]
    graph = helper.make_graph([node], "g", *sides)
    path = tmp_path / "s.onnx"
    sets = [helper.make_opsetid("", 20)]
    onnx.save(helper.make_model(graph, opset_imports=sets, ir_version=10), path)
    result = saccade_cli("run", path, "--allow-reference")
    assert result.exit_code == 2 and "use Python" in result.stderr
    shown = saccade_cli("inspect", path, "--allow-reference")
    assert "input a: string ..." in shown.stdout
