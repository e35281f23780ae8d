# ruff: noqa: E501 - tables with one model a line
"""Whole files as ONNX Runtime's optimiser and its quantiser write them, against ONNX Runtime."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from contrib_nodes import draw
from frontend_models import run_onnxruntime, text_model
from onnxruntime import quantization
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType

import saccade
from saccade.frontend import onnx as frontend
from saccade.ir import DType
from saccade.passes import run
from saccade.testing.interpret import interpret
from saccade.testing.tolerance import assert_close

EXTENDED = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED


def optimised(path, folder, level=EXTENDED):
    """Where, in a folder, ONNX Runtime has written what it makes of a file."""
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    options.optimized_model_filepath = str(folder / f"{path.stem}.optimised.onnx")
    options.log_severity_level = 3
    ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return options.optimized_model_filepath


def families(graph):
    return Counter(node.op.family for node in graph.nodes)


MODELS = {
    "resnet50": ("FusedConv", (2, 3, 63, 50)),
    "mobilenet_v3_large": ("FusedConv", (1, 3, 65, 70)),
    "efficientnet_b0": ("QuickGelu", (1, 3, 64, 49)),
    "vit_b_16": ("BiasGelu", (1, 3, 224, 224)),
}


@pytest.mark.parametrize("name", MODELS)
def test_an_optimised_file_is_the_graph_of_the_original(filled, name, tmp_path):
    operator, shape = MODELS[name]
    path = filled(name)
    written = onnx.load(optimised(path, tmp_path))
    assert ("com.microsoft", operator) in {(n.domain, n.op_type) for n in written.graph.node}
    graph, original = (run(frontend.load(one)) for one in (written, path))
    # As many steps of each kind: nothing that fuses in the original has stopped to.
    assert families(graph) == families(original)
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    feeds = {written.graph.input[0].name: x}
    # NumPy's error function would take minutes over a transformer.
    given = (
        saccade.compile(written, threads=2).run(feeds)
        if shape[2] == 224
        else interpret(graph, feeds)
    )
    truth = run_onnxruntime(str(path), feeds)
    for array, expected in zip(given.values(), truth.values(), strict=True):
        np.testing.assert_allclose(array, expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())


# -- quantised -----------------------------------------------------------------------------------

NETWORK = """
a = Conv<pads=[1, 1, 1, 1], strides=[2, 2]>(x, w1, b1)
r = Relu(a)
d = Conv<pads=[1, 1, 1, 1], group=8>(r, w2, b2)
s = Sigmoid(d)
m = Mul(d, s)
e = Conv(m, w3, b3)
f = Add(e, r)
l = LeakyRelu<alpha=0.1>(f)
p = AveragePool<kernel_shape=[2, 2], strides=[2, 2]>(l)
q = MaxPool<kernel_shape=[2, 2], strides=[2, 2]>(l)
c = Concat<axis=1>(p, q)
h = GlobalAveragePool(c)
k = Flatten(h)
z = Gemm<transB=1>(k, w4, b4)
y = Softmax(z)
"""
WEIGHTS = {
    "w1": draw(8, 3, 3, 3, scale=0.4), "b1": draw(8), "w2": draw(8, 1, 3, 3, scale=0.4),
    "b2": draw(8, seed=1), "w3": draw(8, 8, 1, 1, scale=0.4), "b3": draw(8, seed=2),
    "w4": draw(7, 16, scale=0.4), "b4": draw(7),
}  # fmt: skip


class _Images(CalibrationDataReader):
    def __init__(self):
        self._left = iter([{"x": draw(2, 3, 16, 18, seed=seed)} for seed in range(4)])

    def get_next(self):
        return next(self._left, None)


@pytest.fixture
def network(tmp_path):
    path = tmp_path / "network.onnx"
    onnx.save(text_model(NETWORK, "float[N, 3, 16, 18] x", weights=WEIGHTS), path)
    return path


FORMS = [
    (form, each, data, weight)
    for form in (QuantFormat.QDQ, QuantFormat.QOperator)
    for each in (True, False)
    for data, weight in (
        (QuantType.QUInt8, QuantType.QInt8), (QuantType.QInt8, QuantType.QInt8), (QuantType.QUInt8, QuantType.QUInt8),
    )
    # Here ONNX Runtime's own sums of products may saturate.
    if (form, each, weight) != (QuantFormat.QOperator, True, QuantType.QUInt8)
]  # fmt: skip


@pytest.mark.parametrize(("form", "each", "data", "weight"), FORMS)
def test_files_of_the_quantiser(network, tmp_path, form, each, data, weight):
    path = tmp_path / "quantised.onnx"
    quantization.quantize_static(
        network, path, _Images(), quant_format=form, per_channel=each, activation_type=data,
        weight_type=weight, reduce_range=data != weight,
    )  # fmt: skip
    kinds = {(node.domain, node.op_type) for node in onnx.load(path).graph.node}
    assert (("com.microsoft", "QLinearAdd") in kinds) == (form is QuantFormat.QOperator)
    feeds = {"x": draw(2, 3, 16, 18, seed=9)}
    (expected,) = run_onnxruntime(str(path), feeds).values()
    (made,) = saccade.compile(path, threads=1).run(feeds).values()
    # Numbers that lie between two levels up to their last bits may round to either.
    np.testing.assert_allclose(made, expected, rtol=0, atol=1 / 256)
    assert np.count_nonzero(made != expected) <= 2


@pytest.mark.parametrize("weight", [QuantType.QInt8, QuantType.QUInt8])
def test_files_that_are_quantised_while_they_run(network, tmp_path, weight):
    path = tmp_path / "dynamic.onnx"
    quantization.quantize_dynamic(
        network, path, weight_type=weight, reduce_range=weight is QuantType.QInt8
    )
    feeds = {"x": draw(2, 3, 16, 18, seed=9)}
    (expected,) = run_onnxruntime(str(path), feeds).values()
    (made,) = saccade.compile(path, threads=1).run(feeds).values()
    assert_close(made, expected.astype(np.float64), dtype=DType.F32, k=64)


def test_dynamic_files_that_are_optimised(network, tmp_path):
    """Products with their scales and biases become DynamicQuantizeMatMul and its like."""
    weights = {"w": draw(24, 7), "b": draw(7)}
    plain = tmp_path / "plain.onnx"
    onnx.save(
        text_model("m = MatMul(x, w) y = Add(m, b)", "float[N, 5, 24] x", weights=weights), plain
    )
    path = tmp_path / "dynamic.onnx"
    quantization.quantize_dynamic(plain, path, weight_type=QuantType.QInt8, reduce_range=True)
    written = optimised(path, tmp_path)
    assert "DynamicQuantizeMatMul" in {node.op_type for node in onnx.load(written).graph.node}
    feeds = {"x": draw(3, 5, 24)}
    (expected,) = run_onnxruntime(str(path), feeds).values()
    (made,) = saccade.compile(written, threads=1).run(feeds).values()
    assert_close(made, expected.astype(np.float64), dtype=DType.F32, k=24)
