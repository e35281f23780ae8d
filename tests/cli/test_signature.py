from __future__ import annotations

import numpy as np
import onnx
import pytest
from fake_engine import Info, save_model
from onnx import TensorProto, helper, numpy_helper

from saccade.cli._signature import (
    fixed_shapes,
    is_half,
    random_inputs,
    read_inputs,
    symbol_values,
)
from saccade.errors import InputError, ModelError


def test_inputs_are_read_without_those_that_have_defaults(tmp_path):
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT16, ["N", 3, None, 0]),
            helper.make_tensor_value_info("w", TensorProto.FLOAT16, [1]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT16, None)],
        [numpy_helper.from_array(np.ones(1, np.float16), "w")],
    )
    onnx.save(helper.make_model(graph), tmp_path / "m.onnx")
    (info,) = read_inputs(tmp_path / "m.onnx")
    assert (info.name, info.dtype, info.shape) == ("x", "float16", ("N", 3, "x_dim_2", 0))
    assert is_half(tmp_path / "m.onnx")


def test_a_file_of_fp32_is_not_half(tmp_path):
    assert not is_half(save_model(tmp_path / "m.onnx"))


def test_missing_and_foreign_files_are_model_errors(tmp_path):
    with pytest.raises(ModelError, match="no such file"):
        read_inputs(tmp_path / "none.onnx")
    (tmp_path / "text.onnx").write_bytes(b"\xff\xff\xff")
    with pytest.raises(ModelError, match="is not an ONNX file"):
        read_inputs(tmp_path / "text.onnx")
    (tmp_path / "text.json").write_text("{}")
    with pytest.raises(ModelError, match="is not an ONNX file"):
        read_inputs(tmp_path / "text.json")


def test_defaults_are_batch_one_and_224_pixels(capsys):
    infos = [
        Info("a", "float32", ("N", 3, "H", "W")),
        Info("b", "float32", (3, "H", "W")),
        Info("c", "int64", (2, 5)),
        Info("d", "float32", (4, 1, 8, "W")),
    ]
    assert fixed_shapes(infos, {}) == {
        "a": (1, 3, 224, 224), "b": (3, 224, 224), "c": (2, 5), "d": (4, 1, 8, 224)
    }  # fmt: skip
    said = capsys.readouterr().err.splitlines()
    assert [line.split()[1] for line in said] == ["a", "b", "d"]


@pytest.mark.parametrize("shape", [("N", "C", "H", "W"), ("N", "T"), ("N",), ("N", 3, 4, 4, "D")])
def test_no_default_is_guessed_for_anything_else(shape):
    with pytest.raises(InputError, match="choose sizes with --shape x="):
        fixed_shapes([Info("x", "float32", shape)], {})


def test_a_nameless_shape_needs_a_single_input():
    infos = [Info("a", "float32", ("N",)), Info("b", "float32", ("N",))]
    assert fixed_shapes(infos[:1], {"": (7,)}) == {"a": (7,)}
    with pytest.raises(InputError, match="which input it is for: a, b"):
        fixed_shapes(infos, {"": (7,)})


def test_symbols_take_the_values_of_the_shapes():
    infos = [Info("a", "float32", ("N", 3, "W")), Info("b", "float32", ("N",))]
    assert symbol_values(infos, {"a": (2, 3, 5), "b": (2,)}) == {"N": 2, "W": 5}
    with pytest.raises(InputError, match="N cannot be both 2 and 4"):
        symbol_values(infos, {"a": (2, 3, 5), "b": (4,)})


def test_random_data_depends_on_name_and_shape_alone():
    infos = [Info("a", "float32", (64, 64)), Info("b", "float16", (64, 64))]
    shapes = {"a": (64, 64), "b": (64, 64)}
    both = random_inputs(infos, shapes)
    alone = random_inputs(infos[1:], shapes)
    np.testing.assert_array_equal(both["b"], alone["b"])
    assert both["b"].dtype == np.float16
    assert abs(np.corrcoef(both["a"].ravel(), both["b"].ravel())[0, 1]) < 0.1
    kinds = random_inputs(
        [Info("i", "int64", (99,)), Info("t", "bool", (99,)), Info("u", "uint8", (99,))],
        {"i": (99,), "t": (99,), "u": (99,)},
    )
    assert set(kinds["i"]) == set(range(10))
    assert set(kinds["t"]) == {False, True}
    assert kinds["u"].dtype == np.uint8
