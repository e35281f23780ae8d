"""Writes the network as an ONNX file, node by node, from its named weights.

Building the graph by hand keeps it as small as the network is: no exporter, no shape arithmetic,
the same file from every version of PyTorch. `train.Upscaler` is the same network for training;
`train.py` checks after the export that the two agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SLOPE = 0.1  # of LeakyReLU below zero
SCALE = 2  # output pixels per input pixel, in each direction
OPSET = 17
IR_VERSION = 8  # the oldest that opset 17 goes with, so that old runtimes read the file


class _Graph:
    """Appends nodes; every method returns the name of the value that it made."""

    def __init__(self, weights: Mapping[str, np.ndarray]) -> None:
        self.weights = weights
        self.nodes: list[onnx.NodeProto] = []

    def node(self, kind: str, inputs: list[str], output: str, **attributes: object) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [output], name=output, **attributes))
        return output

    def conv(self, name: str, value: str) -> str:
        size = self.weights[f"{name}.weight"].shape[-1]
        inputs = [value, f"{name}.weight", f"{name}.bias"]
        pads = [size // 2] * 4
        return self.node("Conv", inputs, f"{name}.out", kernel_shape=[size, size], pads=pads)

    def leaky_relu(self, value: str) -> str:
        return self.node("LeakyRelu", [value], f"{value}.active", alpha=SLOPE)

    def pixel_shuffle(self, value: str) -> str:
        return self.node("DepthToSpace", [value], f"{value}.shuffled", blocksize=SCALE, mode="CRD")

    def add(self, left: str, right: str, output: str) -> str:
        return self.node("Add", [left, right], output)


def export(weights: Mapping[str, np.ndarray], path: Path) -> None:
    """Writes the network to `path`: `image` [N, 3, H, W] to `upscaled` [N, 3, 2H, 2W], in [0, 1].

    Args:
        weights: float32 arrays under the names of `train.Upscaler`'s state dict.
        path: the ONNX file to write; N, H and W are free in it.
    """
    graph = _Graph(weights)
    blocks = len({name.split(".")[1] for name in weights if name.startswith("body.")})
    head = value = graph.conv("head", "image")
    for index in range(blocks):
        inner = graph.leaky_relu(graph.conv(f"body.{index}.first", value))
        inner = graph.conv(f"body.{index}.second", inner)
        value = graph.add(inner, value, f"body.{index}.sum")
    value = graph.add(graph.conv("fuse", value), head, "features")
    value = graph.leaky_relu(graph.pixel_shuffle(graph.conv("expand", value)))
    detail = graph.conv("tail", value)
    coarse = graph.pixel_shuffle(graph.conv("skip", "image"))
    graph.add(detail, coarse, "upscaled")

    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 3, "H", "W"])
    upscaled = helper.make_tensor_value_info(
        "upscaled", TensorProto.FLOAT, ["N", 3, "H_out", "W_out"]
    )
    constants = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    model = helper.make_model(
        helper.make_graph(graph.nodes, "upscale_2x", [image], [upscaled], constants),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="saccade examples/upscale",
    )
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)
