"""Builds small ONNX models from text and runs them with onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
from onnx import numpy_helper

__all__ = ["interface", "run_onnxruntime", "text_model"]


def text_model(
    body: str,
    inputs: str = "float[N, 3, H, W] x",
    outputs: str = "float y",
    opset: int = 17,
    weights: Mapping[str, np.ndarray] | None = None,
) -> onnx.ModelProto:
    """A model of one graph in ONNX's text form; weights become initializers."""
    header = f'<ir_version: 8, opset_import: ["" : {opset}]>'
    model = onnx.parser.parse_model(f"{header} g ({inputs}) => ({outputs}) {{ {body} }}")
    for name, array in (weights or {}).items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    return model


def run_onnxruntime(
    model: onnx.ModelProto | str, inputs: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Outputs by name, computed one thread wide without graph optimisations."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    given = model if isinstance(model, str) else model.SerializeToString()
    session = ort.InferenceSession(given, options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(inputs)), strict=True))


def interface(model: onnx.ModelProto) -> tuple[list[str], list[str]]:
    """Names of the inputs that are no initializers, and of the outputs."""
    known = {tensor.name for tensor in model.graph.initializer}
    inputs = [value.name for value in model.graph.input if value.name not in known]
    return inputs, [value.name for value in model.graph.output]
