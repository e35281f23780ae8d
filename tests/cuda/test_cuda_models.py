"""A small network from its file to results on a fake GPU, kernels in Triton's interpreter."""

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).parent))
from cuda_programs import held_by_the_reference

SHAPE = (1, 3, 12, 10)


def network():
    """Convolutions, a residual, pools, a classifier."""
    rng = np.random.default_rng(0)
    sizes = {"w1": (16, 3, 3, 3), "b1": (16,), "w2": (16, 16, 3, 3), "wd": (16, 1, 3, 3),
             "w3": (16, 5), "b3": (5,)}  # fmt: skip
    constants = [
        numpy_helper.from_array(0.3 * rng.standard_normal(shape).astype(np.float32), name)
        for name, shape in sizes.items()
    ]
    padded = {"pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], **padded),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("MaxPool", ["r1"], ["p1"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["p1", "w2"], ["c2"], **padded),
        helper.make_node("Add", ["c2", "p1"], ["a2"]),
        helper.make_node("Conv", ["a2", "wd"], ["d2"], group=16, **padded),
        helper.make_node("Sigmoid", ["d2"], ["s2"]),
        helper.make_node("GlobalAveragePool", ["s2"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("Gemm", ["f", "w3", "b3"], ["m"]),
        helper.make_node("Softmax", ["m"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", *SHAPE[1:]])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 5]),
         helper.make_tensor_value_info("a2", TensorProto.FLOAT, None)],
        constants,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    found = tmp_path_factory.mktemp("model") / "small.onnx"
    onnx.save(network(), found)
    return found


@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-5), ("fp16", 5e-3)])
def test_a_network(path, precision, tolerance):
    inputs = [
        np.random.default_rng(batch).standard_normal((batch, *SHAPE[1:])).astype(np.float32)
        for batch in (1, 2)
    ]
    held_by_the_reference(path, precision, tolerance, inputs)
