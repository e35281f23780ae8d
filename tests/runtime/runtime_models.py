"""Small ONNX models, and programs over the IR, for tests of the runtime."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import saccade

RNG = np.random.default_rng(7)


def weights(name, shape):
    values = np.random.default_rng(len(name)).standard_normal(shape).astype(np.float32)
    return numpy_helper.from_array(values * 0.2, name)


def tensor(name, shape, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def model_of(nodes, inputs, outputs, constants=()):
    graph = helper.make_graph(nodes, "small", inputs, outputs, list(constants))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    return model


def convolutions(channels=16):
    """x [N, 3, H, W] -> three convolutions with a residual."""
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w1"], ["c"], pads=[1] * 4),
        helper.make_node("Add", ["c", "b"], ["d"]),
        helper.make_node("Conv", ["d", "w2"], ["y"]),
    ]
    constants = [
        weights("w0", (channels, 3, 3, 3)),
        weights("w1", (channels, channels, 3, 3)),
        weights("w2", (5, channels, 1, 1)),
    ]
    return model_of(
        nodes,
        [tensor("x", ["N", 3, "H", "W"])],
        [tensor("y", ["N", 5, "H", "W"])],
        constants,
    )


def two_inputs():
    """y = a + b, z = a - b over [N, 4], and n = the ids, untouched."""
    nodes = [
        helper.make_node("Add", ["a", "b"], ["y"]),
        helper.make_node("Sub", ["a", "b"], ["z"]),
        helper.make_node("Add", ["ids", "ids"], ["n"]),
    ]
    return model_of(
        nodes,
        [tensor("a", ["N", 4]), tensor("b", ["N", 4]), tensor("ids", [3], TensorProto.INT64)],
        [tensor("y", ["N", 4]), tensor("z", ["N", 4]), tensor("n", [3], TensorProto.INT64)],
    )


def compiled(model, **options):
    return saccade.compile(model.SerializeToString(), **options)


def image(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)
