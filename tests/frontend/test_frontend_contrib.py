# ruff: noqa: E501 - tables with one model a line
"""What ONNX Runtime's optimiser writes, against ONNX Runtime; NumPy where that has no kernel."""

from __future__ import annotations

import math

import numpy as np
import pytest
from contrib_nodes import close, draw, integers, number, one_node, ours
from onnx import TensorProto

from saccade.errors import ModelError, UnsupportedModelError
from saccade.frontend import onnx as frontend
from saccade.ir import DType
from saccade.passes import run
from saccade.testing.tolerance import assert_close

ACTIVATIONS = [
    ("Relu", None), ("Tanh", None), ("Sigmoid", None), ("LeakyRelu", [0.3]), ("Clip", [-0.5, 0.7]),
    ("HardSigmoid", [0.3, 0.4]), (None, None),
]  # fmt: skip
WINDOW = {"pads": [1, 0, 2, 1], "strides": [2, 1], "dilations": [1, 2], "kernel_shape": [3, 2]}
WEIGHTS = {"w": draw(5, 3, 3, 2), "b": draw(5)}


def families(model):
    """Operators after the passes."""
    graph = run(frontend.load(model), check=True)
    return [node.op.family for node in graph.nodes]


@pytest.mark.parametrize(("name", "numbers"), ACTIVATIONS)
@pytest.mark.parametrize("added", [False, True])
def test_a_convolution_with_what_is_behind_it(name, numbers, added):
    operands = {"X": draw(2, 3, 7, 10), **WEIGHTS, "Z": draw(2, 5, 4, 9) if added else None}
    attributes = {"activation": name, "activation_params": numbers, **WINDOW}
    close(one_node("FusedConv", operands, free="X", **attributes), operands)


@pytest.mark.parametrize("op", ["FusedConv", "NhwcFusedConv"])
def test_what_is_fused_is_one_convolution(op):
    shapes = ((2, 3, 7, 10), (2, 5, 4, 9)) if op == "FusedConv" else ((2, 7, 10, 3), (2, 4, 9, 5))
    operands = {"X": draw(*shapes[0]), **WEIGHTS, "Z": draw(*shapes[1])}
    model = one_node(op, operands, kind=TensorProto.FLOAT, activation="Relu", **WINDOW)
    assert [family for family in families(model) if family != "Move"] == ["Conv2d"]


def test_convolutions_of_sequences_and_groups():
    operands = {"X": draw(2, 4, 11), "w": draw(6, 2, 3), "b": None}
    close(one_node("FusedConv", operands, group=2, activation="Relu"), operands)


@pytest.mark.parametrize("op", ["NhwcConv", "NhwcFusedConv"])
def test_a_convolution_with_channels_last(op):
    """As the one with channels first, which ONNX Runtime runs."""
    first = {"X": draw(2, 3, 7, 10), "w": WEIGHTS["w"], "b": WEIGHTS["b"]}
    last = {**first, "X": np.ascontiguousarray(first["X"].transpose(0, 2, 3, 1))}
    model = one_node(op, last, kind=TensorProto.FLOAT, **WINDOW)
    (expected,) = ours(
        one_node("FusedConv", first, kind=TensorProto.FLOAT, **WINDOW), first
    ).values()
    np.testing.assert_array_equal(ours(model, last)["y"].transpose(0, 3, 1, 2), expected)


@pytest.mark.parametrize("batch_a", [0, 1])
@pytest.mark.parametrize("batch_b", [0, 1])
@pytest.mark.parametrize("rows_a", [0, 1])
@pytest.mark.parametrize("rows_b", [0, 1])
def test_a_product_in_every_order(rows_a, rows_b, batch_a, batch_b):
    def shape(matrix, transposed, behind):
        rows, columns = reversed(matrix) if transposed else matrix
        return (rows, 2, 3, columns) if behind else (2, 3, rows, columns)

    operands = {
        "A": draw(*shape((4, 5), rows_a, batch_a)),
        "B": draw(*shape((5, 6), rows_b, batch_b)),
    }
    model = one_node(
        "FusedMatMul", operands, transA=rows_a, transB=rows_b, transBatchA=batch_a,
        transBatchB=batch_b, alpha=0.3,
    )  # fmt: skip
    close(model, operands)


@pytest.mark.parametrize(
    ("a", "b", "attributes"),
    [((5,), (3, 5, 6), {"transA": 1}), ((3, 4, 5), (5,), {"transB": 1}), ((5,), (5,), {})],
)
def test_vectors_have_nothing_to_transpose(a, b, attributes):
    operands = {"A": draw(*a), "B": draw(*b)}
    close(one_node("FusedMatMul", operands, alpha=2.0, **attributes), operands)


def test_the_older_name_of_a_product():
    operands = {"A": draw(3, 4, 5), "B": draw(3, 4, 6)}
    close(one_node("TransposeMatMul", operands, free="A", transA=1), operands)


def test_a_scaled_product_is_one_step():
    operands = {"A": draw(2, 4, 5), "B": draw(2, 6, 5)}
    model = one_node("FusedMatMul", operands, kind=TensorProto.FLOAT, transB=1, alpha=0.25)
    assert families(model) == ["MatMul"]


def test_a_product_with_an_activation():
    operands = {"A": draw(2, 4, 5), "B": draw(2, 6, 5)}
    model = one_node(
        "FusedMatMulActivation", operands, kind=TensorProto.FLOAT, transB=1, alpha=0.5,
        activation="LeakyRelu", activation_alpha=0.25,
    )  # fmt: skip
    truth = 0.5 * (operands["A"].astype(np.float64) @ operands["B"].transpose(0, 2, 1))
    truth = np.where(truth < 0, 0.25 * truth, truth)
    assert_close(ours(model, operands)["y"], truth, dtype=DType.F32, k=5)
    assert families(model) == ["MatMul"]


GEMMS = {
    "Relu": {}, "Sigmoid": {}, "Softplus": {}, "Softsign": {}, "Tanh": {},
    "Celu": {"alpha": 1.7}, "Elu": {"alpha": 0.7}, "HardSigmoid": {"alpha": 0.2, "beta": 0.6},
    "LeakyRelu": {"alpha": 0.2}, "Selu": {"alpha": 1.5, "gamma": 1.1},
    "ThresholdedRelu": {"alpha": 0.4},
}  # fmt: skip


@pytest.mark.parametrize("name", GEMMS)
def test_a_gemm_with_an_activation(name):
    operands = {"A": draw(5, 4), "b": draw(6, 5), "c": draw(6)}
    numbers = {f"activation_{letter}": value for letter, value in GEMMS[name].items()}
    model = one_node(
        "FusedGemm", operands, transA=1, transB=1, alpha=0.5, beta=0.7, activation=name, **numbers
    )
    close(model, operands)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_a_pool_with_channels_last(dtype):
    operands = {"X": integers((2, 7, 9, 5), dtype)}
    window = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1], "ceil_mode": 1}
    close(one_node("NhwcMaxPool", operands, **window), operands)


X = draw(3, 4, 10, scale=2)


@pytest.mark.parametrize(
    ("op", "bias", "attributes"),
    [
        ("Gelu", None, {}), ("BiasGelu", draw(10), {}), ("FastGelu", None, {}),
        ("FastGelu", draw(10), {}), ("QuickGelu", None, {}), ("QuickGelu", None, {"alpha": 1.0}),
    ],
)  # fmt: skip
def test_the_gelu_family(op, bias, attributes):
    operands = {"X": X} | ({} if bias is None else {"b": bias})
    close(one_node(op, operands, free="X", **attributes), operands)


def gelu(x):
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def test_operators_without_a_kernel_on_cpus():
    x, bias = X.astype(np.float64), draw(10).astype(np.float64)
    left, right = np.split(x + bias, 2, axis=-1)
    truths = {"BiasSplitGelu": left * gelu(right), "BiasAdd": x + bias + x}
    for op, truth in truths.items():
        operands = {"X": X, "b": draw(10)} | ({"S": X} if op == "BiasAdd" else {})
        model = one_node(op, operands, kind=TensorProto.FLOAT)
        assert_close(ours(model, operands)["y"], truth, dtype=DType.F32, k=4)
    operands = {"X": X, "w": draw(10, 7), "b": draw(7)}
    model = one_node("GemmFastGelu", operands, kind=TensorProto.FLOAT)
    y = x @ draw(10, 7).astype(np.float64) + draw(7)
    truth = 0.5 * y * (1 + np.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y**3)))
    assert_close(ours(model, operands)["y"], truth, dtype=DType.F32, k=64)


@pytest.mark.parametrize("bias", [None, draw(10)])
@pytest.mark.parametrize("shape", [(3, 4, 10), (1, 4, 10), (4, 10)])
def test_a_residual_and_a_normalisation(shape, bias):
    operands = {"X": X, "S": draw(*shape), "g": draw(10), "be": draw(10), "b": bias}
    outputs = ("y", "", "", "s")
    close(one_node("SkipLayerNormalization", operands, outputs, epsilon=1e-3), operands)


@pytest.mark.parametrize("bias", [None, draw(10)])
def test_a_residual_and_a_normalisation_by_squares(bias):
    operands = {"X": X, "S": draw(3, 4, 10), "g": draw(10), "b": bias}
    model = one_node("SkipSimplifiedLayerNormalization", operands, ("y", "", "", "s"))
    close(model, operands)


def test_no_shift_need_be_given():
    operands = {"X": X, "S": draw(3, 4, 10), "g": draw(10)}
    model = one_node("SkipLayerNormalization", operands, free="X")
    close(model, operands)
    assert families(one_node("SkipLayerNormalization", operands, kind=1)) == [
        "Pointwise", "LayerNorm",
    ]  # fmt: skip


@pytest.mark.parametrize(("axis", "shape"), [(-1, (10,)), (1, (4, 10))])
def test_normalisations_in_a_domain_that_has_none(axis, shape):
    operands = {"X": X, "g": draw(*shape)}
    attributes = {"axis": axis, "epsilon": 1e-3, "stash_type": 1, "domain": "", "version": 13}
    close(one_node("SimplifiedLayerNormalization", operands, free="X", **attributes), operands)
    operands |= {"b": draw(*shape)}
    close(one_node("LayerNormalization", operands, free="X", **attributes), operands)


@pytest.mark.parametrize("segments", [True, False])
@pytest.mark.parametrize("places", [True, False])
def test_embeddings(segments, places):
    ids = np.random.default_rng(0).integers(0, 6, (3, 5)).astype(np.int32)
    operands = {
        "I": ids, "S": ids % 2 if segments else None, "w": draw(9, 12), "p": draw(6, 12),
        "s": draw(2, 12) if segments else None, "g": draw(12), "b": draw(12), "m": None,
        "P": 5 - ids if places else None,
    }  # fmt: skip
    close(one_node("EmbedLayerNormalization", operands, ("y", ""), epsilon=1e-5), operands)


def grouped(x, groups, scale, shift, epsilon):
    n, *sizes, c = x.shape
    parts = x.reshape(n, -1, groups, c // groups)
    mean = parts.mean(axis=(1, 3), keepdims=True)
    variance = parts.var(axis=(1, 3), keepdims=True)
    return ((parts - mean) / np.sqrt(variance + epsilon)).reshape(n, *sizes, c) * scale + shift


@pytest.mark.parametrize("last", [1, 0])
@pytest.mark.parametrize("silu", [1, 0])
def test_groups(last, silu):
    def order(x):
        return x if last else np.ascontiguousarray(np.moveaxis(x, -1, 1))

    x, skip, bias = draw(2, 3, 5, 6), draw(2, 6), draw(6)
    scale, shift = draw(6, seed=1), draw(6, seed=2)
    attributes = {"activation": silu, "channels_last": last, "groups": 3, "epsilon": 1e-3}
    total = x.astype(np.float64) + skip[:, None, None] + bias
    for operands, outputs, data in (
        ({"X": order(x), "g": scale, "b": shift}, ("y",), x.astype(np.float64)),
        ({"X": order(x), "g": scale, "b": shift, "S": skip, "c": bias}, ("y", "s"), total),
    ):
        op = "GroupNorm" if len(outputs) == 1 else "SkipGroupNorm"
        model = one_node(op, operands, outputs, kind=TensorProto.FLOAT, **attributes)
        truth = grouped(data, 3, scale, shift, 1e-3)
        truth = truth / (1 + np.exp(-truth)) if silu else truth
        made = ours(model, operands)
        assert_close(made["y"], order(truth), dtype=DType.F32, k=90)
        if len(outputs) == 2:
            assert_close(made["s"], order(total), dtype=DType.F32, k=3)


AGAIN = {
    "GridSample": ({"X": draw(2, 3, 5, 7), "G": draw(2, 4, 3, 2)}, {"padding_mode": "border", "align_corners": 1}),
    "Pad": ({"X": draw(2, 3, 5), "p": np.array([0, 1, 2, 0, 0, 1]), "v": number(0.5)}, {"mode": "constant"}),
    "Trilu": ({"X": draw(2, 4, 5), "k": np.array([1])}, {"upper": 0}),
    "Range": ({"a": number(1.0), "b": number(7.5), "c": number(2.0)}, {}),
    "GatherND": ({"X": draw(2, 3, 4), "i": np.array([[0, 1], [1, 2]])}, {}),
    "ExpandDims": ({"X": draw(2, 3, 4), "i": number(-1, np.int32)}, {}),
    "QuantizeLinear": ({"X": draw(3, 4, scale=500), "s": number(0.5), "z": number(3, np.int16)}, {}),
    "DequantizeLinear": ({"X": integers((3, 4), np.int8), "s": draw(4) ** 2, "z": integers((4,), np.int8)}, {"axis": 1}),
}  # fmt: skip


@pytest.mark.parametrize("op", AGAIN)
def test_what_the_standard_has_too(op):
    operands, attributes = AGAIN[op]
    close(one_node(op, operands, **attributes), operands)


def test_forms_that_the_standard_has_not():
    operands = {"X": draw(2, 3, 5), "p": np.array([[0, 1, 2, 0, 0, 1]]), "v": None}
    close(one_node("Pad", operands, mode="reflect"), operands)
    operands = {"a": number(1, np.int32), "b": number(7, np.int32), "c": None}
    close(one_node("Range", operands), operands)


UNHEARD = {
    "an unknown activation": ("FusedConv", {"X": X[None], **WEIGHTS}, {"activation": "Erf"}, "activation 'Erf'"),
    "an unknown attribute": ("Gelu", {"X": X}, {"approximate": "tanh"}, "attribute 'approximate'"),
    "an input too many": ("QuickGelu", {"X": X, "b": draw(10)}, {}, "its input 1"),
    "a clipped gemm": ("FusedGemm", {"X": X[0], "w": draw(10, 3)}, {"activation": "Clip"}, "activation 'Clip'"),
    "blocked data": ("Conv", {"X": X[None], **WEIGHTS}, {"domain": "com.microsoft.nchwc"}, "ORT_ENABLE_EXTENDED"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNHEARD)
def test_what_is_not_done_is_named(name):
    op, operands, attributes, reason = UNHEARD[name]
    model = one_node(op, operands, kind=TensorProto.FLOAT, **attributes)
    with pytest.raises(UnsupportedModelError) as caught:
        frontend.load(model)
    (row,) = caught.value.rows
    assert reason in row.reason
    assert row.operator.startswith("com.microsoft")


def test_statistics_of_a_normalisation_are_for_training():
    operands = {"X": X, "S": X, "g": draw(10)}
    model = one_node("SkipLayerNormalization", operands, ("y", "mean"), kind=TensorProto.FLOAT)
    with pytest.raises(UnsupportedModelError, match="its output mean"):
        frontend.load(model)


@pytest.mark.parametrize("numbers", [None, [1.0], [1.0, 2.0, 3.0]])
def test_a_clip_has_two_bounds(numbers):
    operands = {"X": draw(2, 3, 7, 10), **WEIGHTS}
    model = one_node(
        "FusedConv", operands, kind=1, activation="Clip", activation_params=numbers, **WINDOW
    )
    with pytest.raises(ModelError, match="activation_params"):
        frontend.load(model)
