"""Small models that ask for a lot, and a process of bounded memory that compiles them.

    python hostile_sizes.py

Prints a line for each: its name, the type of the error (or `fine`), the message, and the seconds
until it runs.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import saccade
from saccade.errors import SaccadeError

__all__ = ["CASES", "chain", "one_node"]

MEMORY = 2 << 30
FAR = 1 << 40
Shape = list[int | str]


def _model(
    nodes: list[onnx.NodeProto], shape: Shape, weights: dict[str, np.ndarray]
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def one_node(
    op_type: str,
    inputs: list[str],
    weights: dict[str, np.ndarray],
    shape: Shape | None = None,
    **attributes: object,
) -> onnx.ModelProto:
    """A model of one node over x and weights."""
    node = helper.make_node(op_type, inputs, ["y"], **attributes)
    return _model([node], shape or [1, 3, 8, 8], weights)


def chain(count: int, *op_types: str) -> onnx.ModelProto:
    """One operator after the other, in turns."""
    names = ["x", *(f"v{i}" for i in range(count - 1)), "y"]
    nodes = [
        helper.make_node(op_types[i % len(op_types)], [names[i]], [names[i + 1]])
        for i in range(count)
    ]
    return _model(nodes, ["N", 3], {})


def _repeated(count: int, op_type: str) -> onnx.ModelProto:
    """v + v, again and again: few operators, but twice as many terms at each."""
    model = chain(count, op_type)
    for node in model.graph.node:
        node.input.append(node.input[0])
    return model


def _doubled(depth: int, weights: dict[str, np.ndarray]) -> onnx.ModelProto:
    """Concat(v, v), as often as that."""
    first = next(iter(weights), "x")
    names = [first, *(f"v{i}" for i in range(depth))]
    nodes = [
        helper.make_node("Concat", [before, before], [after], axis=0)
        for before, after in pairwise(names)
    ]
    nodes.append(helper.make_node("ReduceMax", [names[-1]], ["m"], keepdims=0))
    nodes.append(helper.make_node("Add", ["x", "m"], ["y"]))
    return _model(nodes, ["N", 3], weights)


def _reduced(op_type: str, inputs: list[str], size: list[int]) -> onnx.ModelProto:
    """The largest element of something large that needs no memory."""
    nodes = [
        helper.make_node(op_type, inputs, ["e"]),
        helper.make_node("ReduceMax", ["e"], ["m"], keepdims=0),
        helper.make_node("Add", ["x", "m"], ["y"]),
    ]
    return _model(nodes, [1, 3], {"s": np.asarray(size, np.int64)})


def _resized(symbolic: bool, sizes: list[int] | None, *scales: float) -> onnx.ModelProto:
    shape: Shape = ["N", 3, "H", "W"] if symbolic else [1, 3, 8, 8]
    if sizes is not None:
        weights = {"s": np.asarray(sizes, np.int64)}
        return one_node("Resize", ["x", "", "", "s"], weights, shape, mode="linear")
    weights = {"s": np.asarray(scales, np.float32)}
    return one_node("Resize", ["x", "", "s"], weights, shape, mode="linear")


def _padded(by: int, shape: Shape | None = None) -> onnx.ModelProto:
    pads = np.asarray([0, 0, 0, 0, 0, 0, by, by], np.int64)
    return one_node("Pad", ["x", "p"], {"p": pads}, shape)


def _transposed(extra: int) -> onnx.ModelProto:
    weights = {"w": np.ones((3, 4, 3, 3), np.float32)}
    return one_node("ConvTranspose", ["x", "w"], weights, output_padding=[extra, 0])


def _long_attribute() -> onnx.ModelProto:
    model = one_node("LeakyRelu", ["x"], {}, alpha=0.5)
    model.graph.node[0].attribute.add(
        name="more", type=onnx.AttributeProto.FLOATS, floats=np.ones(3_000_000, np.float32)
    )
    return model


def _folded_convolution() -> onnx.ModelProto:
    """Constants of a few bytes whose convolution takes more operations than are folded."""
    nodes = [
        helper.make_node("ConstantOfShape", ["a"], ["b"]),
        helper.make_node("ConstantOfShape", ["c"], ["d"]),
        helper.make_node("Conv", ["b", "d"], ["e"]),
        helper.make_node("ReduceMax", ["e"], ["m"], keepdims=0),
        helper.make_node("Add", ["x", "m"], ["y"]),
    ]
    weights = {"a": np.asarray([1, 1, 450, 450]), "c": np.asarray([1, 1, 220, 220])}
    return _model(nodes, [1, 3], weights)


def _strings(kind: int, values: list[object]) -> onnx.ModelProto:
    model = one_node("Add", ["x", "c"], {})
    model.graph.initializer.append(helper.make_tensor("s", kind, [1], values))
    model.graph.node.insert(0, helper.make_node("Cast", ["s"], ["c"], to=1))
    return model


CASES: dict[str, Callable[[], onnx.ModelProto]] = {
    "concat_symbolic": lambda: _doubled(20, {}),
    "concat_constant": lambda: _doubled(20, {"c": np.ones((2, 3), np.float32)}),
    "concat_forever": lambda: _doubled(60, {}),
    "expand": lambda: _reduced("Expand", ["x", "s"], [FAR, 3]),
    "constant_of_shape": lambda: _reduced("ConstantOfShape", ["s"], [FAR]),
    "constant_of_shape_squared": lambda: _reduced("ConstantOfShape", ["s"], [1 << 32, 1 << 32]),
    "output_padding": lambda: _transposed(FAR),
    "resize_sizes": lambda: _resized(False, [1, 3, 8, 1 << 31]),
    "resize_sizes_narrow": lambda: _resized(False, [1, 1, 1, 1 << 31]),
    "resize_to_none": lambda: _resized(False, [1, 3, 0, 8]),
    "resize_to_none_later": lambda: _resized(True, [1, 3, 0, 8]),
    "resize_scale": lambda: _resized(False, None, 1, 1, 1e-30, 1),
    "resize_scale_later": lambda: _resized(True, None, 1, 1, 1e-30, 1),
    "resize_scale_far": lambda: _resized(True, None, 1, 1, 3e4, 3e4),
    "pad": lambda: _padded(1 << 62),
    "pad_far": lambda: _padded(FAR),
    "pad_wide": lambda: _padded(20_000),
    "pad_later": lambda: _padded(1 << 62, ["N", 3, "H", "W"]),
    "tile": lambda: one_node("Tile", ["x", "r"], {"r": np.asarray([1, 1, 1, FAR])}),
    "input": lambda: one_node("Relu", ["x"], {}, [1 << 62, 3]),
    "relu": lambda: chain(2000, "Relu"),
    "mixed": lambda: chain(2000, "Sin", "Tanh", "Exp"),
    "added": lambda: _repeated(300, "Add"),
    "multiplied": lambda: _repeated(300, "Mul"),
    "nodes": lambda: chain(100_001, "Relu"),
    "maximum": lambda: one_node("Max", ["x"] * 5000, {}),
    "sum": lambda: one_node("Sum", ["x"] * 5000, {}),
    "attribute": _long_attribute,
    "folded_convolution": _folded_convolution,
    "string": lambda: _strings(TensorProto.STRING, [b"a"]),
    "complex": lambda: _strings(TensorProto.COMPLEX64, [1j]),
    "float8": lambda: _strings(TensorProto.FLOAT8E4M3FN, [1.0]),
}


def outcome(name: str) -> str:
    """What comes of compiling, planning and running a case; the seconds until it runs."""
    start = time.monotonic()
    ready, result = start, "fine"
    try:
        model = saccade.compile(
            CASES[name]().SerializeToString(), device="reference", threads=1, cache=False
        )
        shapes = [[2 if isinstance(d, str) else d for d in i.shape] for i in model.inputs]
        model.plan(*shapes)
        ready = time.monotonic()
        model(*(np.ones(shape, np.float32) for shape in shapes))
    except SaccadeError as error:
        ready, result = time.monotonic(), f"{type(error).__name__} {str(error)!r}"
    return f"{name} {result} after {ready - start:.1f}"


def main() -> None:
    saccade.compile(one_node("Relu", ["x"], {}).SerializeToString(), device="reference")
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for name in CASES:
        print(outcome(name), flush=True)


if __name__ == "__main__":
    main()
