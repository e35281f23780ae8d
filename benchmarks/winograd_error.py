"""Winograd's error on real layers: `python -m benchmarks.winograd_error --models DIR`.

Every 3x3 convolution of a model for which a plan takes Winograd or short lattices runs alone on its
own weights and on what the model feeds it (random images in, ONNX Runtime between), and is held
against float64. Prints each model's worst layer, with the direct sum (`exact=True`) beside it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import saccade
from benchmarks.cases import CASES, Case
from benchmarks.models import prepare
from saccade.opdefs import Conv2d

SEED = 7
_TRANSFORMED = ("conv2d.winograd", "conv2d.lattice")
Array = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Layer:
    """One convolution: its node, its weights, and what the model feeds it."""

    node: onnx.NodeProto
    weights: Array
    image: Array

    def attribute(self, name: str, default: list[int]) -> tuple[int, ...]:
        """Integers of an attribute of the node."""
        found = [a for a in self.node.attribute if a.name == name]
        return tuple(found[0].ints) if found else tuple(default)

    @property
    def op(self) -> Conv2d:
        """What the layer computes, without its bias."""
        dilation, padding = self.attribute("dilations", [1, 1]), self.attribute("pads", [0] * 4)
        stride = self.attribute("strides", [1, 1])
        return Conv2d(padding=padding, stride=stride, dilation=dilation)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Error:
    """Relative L2 distances from float64."""

    layer: str
    variant: str
    winograd: float
    direct: float


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.winograd_error")
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--filled", type=Path)
    options = parser.parse_args()
    cases = {case.model: case for case in CASES if case.shape[0] == 1}
    paths = prepare(options.models, cases, options.filled or options.models)
    print("| model | worst layer | variant | Winograd | direct |\n|---|---|---|---|---|")
    for model, case in cases.items():
        errors = list(_errors(paths[model], case))
        if errors:
            worst = max(errors, key=lambda error: error.winograd)
            figures = f"{worst.winograd:.1e} | {worst.direct:.1e}"
            print(f"| {model} | {worst.layer} | {worst.variant} | {figures} |", flush=True)
    return 0


def _errors(path: Path, case: Case) -> Iterator[Error]:
    for layer in _layers(path, case):
        alone = _alone(layer)
        model = saccade.compile(alone)
        plan = model.plan(layer.image.shape)
        step = next((s for s in plan.steps if s.kernel in _TRANSFORMED), None)
        if step is None:
            continue
        wide = (layer.image.astype(np.float64), layer.weights.astype(np.float64))
        (truth,) = layer.op.reference(*wide)
        shape = "x".join(map(str, (*layer.image.shape[1:], len(layer.weights))))
        m = getattr(step.phases[0].config, "m", None)
        variant = f"F({m}x{m})" if m else "short lattices"
        variant += ", stride 2" if layer.op.stride == (2, 2) else ""
        exact = saccade.compile(alone, exact=True)
        yield Error(
            f"{layer.node.name} ({shape})",
            variant,
            _distance(model(layer.image), truth),
            _distance(exact(layer.image), truth),
        )


def _distance(found: Array, truth: NDArray[np.float64]) -> float:
    return float(np.linalg.norm(found - truth) / np.linalg.norm(truth))


def _layers(path: Path, case: Case) -> Iterator[Layer]:
    """3x3 convolutions of one group, with what ONNX Runtime feeds them on a random image."""
    model = onnx.load(str(path))
    weights = {one.name: one for one in model.graph.initializer}
    nodes = [
        node
        for node in model.graph.node
        if node.op_type == "Conv"
        and node.input[1] in weights
        and list(weights[node.input[1]].dims[2:]) == [3, 3]
        and _plain(node)
    ]
    if not nodes:
        return
    source = model.graph.input[0].name
    wanted = list(dict.fromkeys(n.input[0] for n in nodes if n.input[0] != source))
    model.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in wanted)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    image = np.random.default_rng(SEED).standard_normal(case.shape).astype(np.float32)
    fed = dict(zip(wanted, session.run(wanted, {source: image}), strict=True))
    fed[source] = image
    for node in nodes:
        kernel = numpy_helper.to_array(weights[node.input[1]]).astype(np.float32)
        yield Layer(node, kernel, fed[node.input[0]])


def _plain(node: onnx.NodeProto) -> bool:
    """Stride 1 or 2 and one group."""
    attributes = {a.name: list(a.ints) or a.i for a in node.attribute}
    strides = attributes.get("strides", [1, 1])
    return strides in ([1, 1], [2, 2]) and attributes.get("group", 1) == 1


def _alone(layer: Layer) -> bytes:
    """A model of the one convolution."""
    op = layer.op
    node = helper.make_node(
        "Conv", ["x", "w"], ["y"], pads=list(op.padding), dilations=list(op.dilation),
        strides=list(op.stride),
    )  # fmt: skip
    graph = helper.make_graph(
        [node],
        "alone",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, layer.image.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(layer.weights, "w")],
    )
    opset = [helper.make_opsetid("", 18)]
    content: bytes = helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString()
    return content


if __name__ == "__main__":
    sys.exit(main())
