"""Networks whose sizes a run finds out, from their files to results on a fake GPU."""

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).parent))
from cuda_programs import held_by_the_reference

ROWS, COLUMNS = 40, 5


def saved(path, nodes, shape, outputs, constants):
    graph = helper.make_graph(
        nodes, "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


def selection(path):
    """The best of those rows whose first number is positive, by it; and rows that are added."""
    nodes = [
        helper.make_node("Gather", ["x", "zero"], ["first"], axis=1),
        helper.make_node("Greater", ["first", "level"], ["mask"]),
        helper.make_node("NonZero", ["mask"], ["found"]),
        helper.make_node("Squeeze", ["found", "axis0"], ["places"]),
        helper.make_node("Gather", ["x", "places"], ["rows"], axis=0),
        helper.make_node("TopK", ["first", "three"], ["best", "where"]),
        helper.make_node("ScatterND", ["x", "targets", "added"], ["summed"], reduction="add"),
    ]
    rng = np.random.default_rng(1)
    constants = {
        "zero": np.array(0), "level": np.array(0, np.float32), "axis0": np.array([0]),
        "three": np.array([3]), "targets": np.array([[3], [0], [3], [39]]),
        "added": rng.standard_normal((4, COLUMNS)).astype(np.float32),
    }  # fmt: skip
    floats, whole = TensorProto.FLOAT, TensorProto.INT64
    outputs = {"rows": floats, "best": floats, "where": whole, "summed": floats}
    return saved(path, nodes, [ROWS, COLUMNS], outputs, constants)


def recogniser(path):
    """A sampled image, read by an LSTM in both directions and a GRU."""
    rng = np.random.default_rng(2)

    def small(*shape):
        return (0.4 * rng.standard_normal(shape)).astype(np.float32)

    nodes = [
        helper.make_node("GridSample", ["x", "grid"], ["sampled"], padding_mode="border"),
        helper.make_node("Reshape", ["sampled", "sequence"], ["steps"]),
        helper.make_node(
            "LSTM", ["steps", "w", "r", "b"], ["both"], hidden_size=7, direction="bidirectional"
        ),
        helper.make_node("Squeeze", ["last"], ["result"]),
        helper.make_node("Transpose", ["both"], ["turned"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["turned", "joined"], ["second"]),
        helper.make_node("GRU", ["second", "gw", "gr"], ["", "last"], hidden_size=4),
    ]
    nodes.append(nodes.pop(3))
    constants = {
        "grid": rng.uniform(-1.2, 1.2, (1, 3, 4, 2)).astype(np.float32),
        "sequence": np.array([3, 1, 8]), "joined": np.array([3, 1, 14]),
        "w": small(2, 28, 8), "r": small(2, 28, 7), "b": small(2, 56),
        "gw": small(1, 12, 14), "gr": small(1, 12, 4),
    }  # fmt: skip
    return saved(path, nodes, [1, 2, 6, 5], {"result": TensorProto.FLOAT}, constants)


def kernels(*wanted):
    def look(plan):
        assert {*wanted} <= {step.kernel for step in plan.steps}

    return look


def test_a_selection(tmp_path):
    x = np.random.default_rng(0).standard_normal((ROWS, COLUMNS)).astype(np.float32)
    look = kernels("select.non_zero", "select.top_k", "movement.scatter", "movement.gather")
    path = selection(tmp_path / "selection.onnx")
    held_by_the_reference(path, "fp32", 1e-6, [x, np.abs(x)], look)


@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-5), ("fp16", 5e-3)])
def test_a_recogniser(tmp_path, precision, tolerance):
    x = np.random.default_rng(0).standard_normal((1, 2, 6, 5)).astype(np.float32)
    look = kernels("sample.grid", "recurrent.walk")
    path = recogniser(tmp_path / "recogniser.onnx")
    held_by_the_reference(path, precision, tolerance, [x], look)
