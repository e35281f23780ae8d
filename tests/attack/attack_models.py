"""What is attacked: a small model, and what it runs on."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def network(seed=0, channels=8):
    """A small model of free size: two convolutions, one of them Winograd's, and a mean."""
    rng = np.random.default_rng(seed)
    first = rng.standard_normal((channels, 3, 3, 3)).astype(np.float32)
    second = rng.standard_normal((channels, channels, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w1"], ["c"], pads=[1] * 4),
        helper.make_node("ReduceMean", ["c"], ["y"], axes=[2, 3], keepdims=1),
    ]
    graph = helper.make_graph(
        nodes,
        "attacked",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, "H", "W"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", channels, 1, 1])],
        [numpy_helper.from_array(first, "w0"), numpy_helper.from_array(second, "w1")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model.SerializeToString()


def image(*shape):
    """The same for every test of a shape."""
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)
