# ruff: noqa: E501 - tables with one model a line
"""What ONNX Runtime's quantiser writes, bit by bit against ONNX Runtime's kernels.

Weights have 7 bits where data is unsigned: before AVX-512's dot products, ONNX Runtime adds two
products in 16 bits, which saturate.
"""

from __future__ import annotations

import numpy as np
import pytest
from contrib_nodes import close, draw, fed, integers, number, one_node, ours
from frontend_models import run_onnxruntime

import saccade
from saccade.errors import ModelError, UnsupportedModelError
from saccade.frontend import onnx as frontend
from saccade.ir import DType
from saccade.testing.tolerance import assert_close

TYPES = [np.uint8, np.int8]
SCALES = [(0.03, 0.05, 0.07), (0.25, 0.5, 1.0)]


def zero(value, dtype):
    """A zero point in the middle of a type."""
    return number(value if dtype is np.uint8 else value - 128, dtype)


def levels(a, dtype, seed=0):
    """Both operands and the result of an operator with two, by names of its inputs."""
    sizes = {"A": (3, 17, 23), "B": (3, 17, 23)}
    made = {name: integers(shape, dtype, seed + i) for i, (name, shape) in enumerate(sizes.items())}
    return {
        "A": made["A"], "sa": number(a[0]), "za": zero(120, dtype), "B": made["B"],
        "sb": number(a[1]), "zb": zero(90, dtype), "sc": number(a[2]), "zc": zero(131, dtype),
    }  # fmt: skip


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
def test_sums_and_products(op, scales, dtype):
    operands = levels(scales, dtype)
    close(one_node(op, operands, free="A"), operands | {"B": operands["B"]})
    close(
        one_node(op, operands | {"B": operands["B"][0, 0]}), operands | {"B": operands["B"][0, 0]}
    )


def test_zero_points_may_be_left_out():
    operands = levels(SCALES[1], np.uint8)
    for op in ("QLinearAdd", "QLinearMul"):
        without = operands | {"za": None, "zb": None, "zc": None}
        zeros = operands | dict.fromkeys(("za", "zb", "zc"), number(0, np.uint8))
        given = ours(one_node(op, without, kind=2), without)["y"]
        np.testing.assert_array_equal(given, ours(one_node(op, zeros), zeros)["y"])
        close(one_node(op, zeros), zeros)


def unary(dtype, scale=0.03, middle=128, x=None):
    data = integers((3, 17, 23), dtype, 5) if x is None else x
    return {
        "X": data, "sx": number(0.05), "zx": zero(120, dtype), "sy": number(scale),
        "zy": zero(middle, dtype),
    }  # fmt: skip


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    ("op", "scale", "middle", "attributes"),
    [
        ("QLinearLeakyRelu", 0.03, 128, {"alpha": 0.3}), ("QLinearSigmoid", 1 / 256, 0, {}),
        ("QLinearSoftmax", 1 / 256, 0, {"axis": 1, "opset": 13}),
        ("QLinearSoftmax", 1 / 256, 0, {"axis": -1, "opset": 11}),
        ("QLinearSoftmax", 1 / 256, 0, {"axis": 1, "opset": 11}),
    ],
)  # fmt: skip
def test_functions(op, scale, middle, attributes, dtype):
    operands = unary(dtype, scale, middle)
    close(one_node(op, operands, free="X", **attributes), operands)


@pytest.mark.parametrize("dtype", TYPES)
def test_selections_and_concatenations(dtype):
    a = levels((0.05, 0.04, 0.06), dtype)
    x = {"X": a["A"], "sx": a["sa"], "zx": a["za"]}
    y = {"Y": a["B"], "sy": a["sb"], "zy": a["zb"]}
    z = {"sz": a["sc"], "zz": a["zc"]}
    operands = {"C": a["A"] > a["B"], **x, **y, **z}
    close(one_node("QLinearWhere", operands), operands)
    operands = {**z, **x, **y}
    close(one_node("QLinearConcat", operands, axis=1), operands)


IMAGES = (2, 5, 9, 7)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("last", [0, 1])
def test_means(last, dtype):
    operands = unary(dtype, x=integers(IMAGES, dtype, 4))
    close(one_node("QLinearGlobalAveragePool", operands, channels_last=last), operands)
    window = {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "strides": [2, 1]}
    for include in (0, 1):
        model = one_node(
            "QLinearAveragePool", operands, channels_last=last, count_include_pad=include, **window
        )
        expected = run_onnxruntime(model, fed(operands))["y"]
        # A sixth is no float32 number, and what is half a level may go either way.
        apart = np.abs(ours(model, operands)["y"].astype(int) - expected)
        assert apart.max() <= 1
        assert np.count_nonzero(apart) <= 0.03 * apart.size


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("middle", [127, 128, None])
def test_means_that_are_halves_of_a_level(middle, last, dtype):
    operands = unary(dtype, 0.5, x=integers(IMAGES, dtype, 4)) | {"sx": number(0.5)}
    operands["zy"] = number(0, dtype) if middle is None else zero(middle, dtype)
    window = {"kernel_shape": [2, 2], "strides": [2, 2]}
    model = one_node("QLinearAveragePool", operands, channels_last=last, **window)
    close(model, operands)
    if middle is None:
        without = operands | {"zx": None, "zy": None}
        zeros = operands | {"zx": number(0, dtype)}
        model = one_node("QLinearAveragePool", without, kind=2, **window)
        expected = run_onnxruntime(one_node("QLinearAveragePool", zeros, **window), fed(zeros))
        if dtype is np.uint8:
            np.testing.assert_array_equal(ours(model, without)["y"], expected["y"])


@pytest.mark.parametrize("keepdims", [0, 1])
def test_means_along_axes(keepdims):
    operands = unary(np.uint8, x=integers(IMAGES, np.uint8, 4))
    model = one_node("QLinearReduceMean", operands, kind=2, axes=[-1, 1], keepdims=keepdims)
    mean = (operands["X"].astype(np.float64) - 120).mean(axis=(1, 3), keepdims=bool(keepdims))
    truth = np.clip(np.round(mean * (np.float32(0.05) / np.float32(0.03))) + 128, 0, 255)
    np.testing.assert_array_equal(ours(model, operands)["y"], truth.astype(np.uint8))


PAIRS = [(np.uint8, np.uint8), (np.uint8, np.int8), (np.int8, np.int8)]


def weights(shape, dtype, seed=0):
    """See above."""
    return (integers(shape, dtype, seed) // 2).astype(dtype)


def gemm(a, b, turned):
    return {
        "A": integers((13, 7) if turned else (7, 13), a), "sa": number(0.03), "za": number(3, a),
        "b": weights((5, 13), b), "sb": draw(5) ** 2 + np.float32(0.01), "zb": weights((5,), b),
        "c": np.arange(5, dtype=np.int32) * 100, "sy": number(0.4), "zy": number(7, a),
    }  # fmt: skip


@pytest.mark.parametrize(("a", "b"), PAIRS)
@pytest.mark.parametrize("turned", [0, 1])
def test_products_with_sums(a, b, turned):
    every = gemm(a, b, turned)
    one = every | {"sb": number(0.02), "zb": number(5, b), "c": None}
    for operands in (every, one):
        close(one_node("QGemm", operands, transA=turned, transB=1), operands)
        plain = operands | {"sy": None, "zy": None}
        close(one_node("QGemm", plain, transA=turned, transB=1, alpha=1.5), plain)


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_products_that_become_numbers(a, b):
    operands = {
        "A": integers((3, 7, 13), a), "b": weights((13, 5), b), "sa": number(0.03),
        "sb": draw(5) ** 2, "za": number(9, a), "zb": weights((5,), b), "c": draw(5),
    }  # fmt: skip
    close(one_node("MatMulIntegerToFloat", operands, free="A"), operands)
    bare = operands | {"za": None, "zb": None, "c": None, "sb": number(0.2)}
    close(one_node("MatMulIntegerToFloat", bare), bare)


@pytest.mark.parametrize("dtype", TYPES)
def test_products_that_are_quantised_on_the_way(dtype):
    operands = {
        "A": draw(3, 7, 13), "b": weights((13, 5), dtype), "sb": draw(5) ** 2,
        "zb": weights((5,), dtype), "c": draw(5),
    }  # fmt: skip
    close(one_node("DynamicQuantizeMatMul", operands, free="A"), operands)
    for a in (np.abs(draw(7, 13)), -np.abs(draw(7, 13)), np.zeros((7, 13), np.float32)):
        bare = operands | {"A": a, "zb": None, "c": None, "sb": number(0.1)}
        close(one_node("DynamicQuantizeMatMul", bare), bare)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("block", [16, 32])
@pytest.mark.parametrize("offset", [None, "packed", "numbers"])
def test_weights_of_few_bits(bits, block, offset):
    k, n = 45, 6
    blocks = -(-k // block)
    zeros = {
        None: None, "packed": integers((n, -(-blocks * bits // 8)), np.uint8),
        "numbers": draw(n, blocks) * 2 + np.float32(3),
    }[offset]  # fmt: skip
    operands = {
        "A": draw(2, 3, k), "b": integers((n, blocks, block * bits // 8), np.uint8),
        "s": draw(n, blocks), "z": zeros, "g": None, "c": draw(n) if offset else None,
    }  # fmt: skip
    flat = operands | {"s": operands["s"].ravel(), "z": None if zeros is None else zeros.ravel()}
    sizes = {"K": k, "N": n, "bits": bits, "block_size": block}
    if (bits, offset) == (8, "numbers"):  # ONNX Runtime has no such kernel
        levels = operands["b"].reshape(n, blocks, block).astype(np.float64) - zeros[..., None]
        numbers = (levels * operands["s"][..., None]).reshape(n, -1)[:, :k]
        truth = operands["A"].astype(np.float64) @ numbers.T + operands["c"]
        made = ours(one_node("MatMulNBits", operands, kind=1, **sizes), operands)["y"]
        assert_close(made, truth, dtype=DType.F32, k=k)
        return
    close(one_node("MatMulNBits", operands, free="A", **sizes), operands)
    close(one_node("MatMulNBits", flat, **sizes), flat)


def lstm(directions, each):
    units, size = 5, 7
    count = (directions, 4 * units) if each else (directions,)
    return {
        "X": draw(4, 3, size), "w": weights((directions, size, 4 * units), np.int8),
        "r": weights((directions, units, 4 * units), np.int8), "b": draw(directions, 40) * 0.1,
        "l": None, "h": draw(directions, 3, units) * 0.1, "c": draw(directions, 3, units) * 0.1,
        "p": None, "ws": np.abs(draw(*count)) * 0.004, "wz": integers(count, np.int8, 1) // 8,
        "rs": np.abs(draw(*count, seed=1)) * 0.005, "rz": integers(count, np.int8, 2) // 8,
    }  # fmt: skip


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("each", [False, True])
def test_a_recurrent_layer_is_that_of_its_weights(directions, each):
    operands = lstm(directions, each)
    direction = "bidirectional" if directions == 2 else "forward"
    attributes = {"hidden_size": 5, "direction": direction}
    outputs = ("y", "h1", "c1")
    made = ours(one_node("DynamicQuantizeLSTM", operands, outputs, kind=1, **attributes), operands)
    numbers = {}
    for name in "wr":
        scale, offset = (operands[f"{name}{kind}"].reshape(directions, 1, -1) for kind in "sz")
        values = (operands[name].astype(np.float32) - offset) * scale
        numbers[name] = np.ascontiguousarray(values.transpose(0, 2, 1))
    plain = {n: operands[n] for n in ("X", "w", "r", "b", "l", "h", "c", "p")} | numbers
    model = one_node("LSTM", plain, outputs, domain="", **attributes)
    for name, expected in run_onnxruntime(model, fed(plain)).items():
        np.testing.assert_allclose(made[name], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("directions", [1, 2])
def test_a_recurrent_layer_is_about_what_onnxruntime_makes_of_it(directions):
    """It quantises inputs and states, too, and its kernels know no zero points."""
    operands = lstm(directions, each=False)
    operands |= {name: np.zeros(directions, np.int8) for name in ("wz", "rz")}
    model = one_node(
        "DynamicQuantizeLSTM", operands, ("y", "h1", "c1"), kind=1, hidden_size=5,
        direction="bidirectional" if directions == 2 else "forward",
    )  # fmt: skip
    made = ours(model, operands)
    for name, expected in run_onnxruntime(model, fed(operands)).items():
        np.testing.assert_allclose(made[name], expected, atol=0.02)


@pytest.mark.parametrize("last", [0, 1])
def test_a_quantised_convolution_of_either_order(last):
    shape = (2, 9, 11, 4) if last else (2, 4, 9, 11)
    operands = {
        "X": integers(shape, np.uint8), "sx": number(0.02), "zx": number(99, np.uint8),
        "w": weights((8, 4, 3, 3), np.int8), "sw": np.linspace(0.01, 0.2, 8, dtype=np.float32),
        "zw": np.zeros(8, np.int8), "sy": number(0.7), "zy": number(77, np.uint8),
        "b": np.arange(8, dtype=np.int32) * 500 - 1500,
    }  # fmt: skip
    model = one_node(
        "QLinearConv", operands, free="X", channels_last=last, pads=[1, 1, 1, 1], strides=[2, 1]
    )
    close(model, operands)


def test_kernels_give_what_the_graph_says():
    operands = levels(SCALES[0], np.uint8)
    model = one_node("QLinearAdd", operands, kind=2)
    made = saccade.compile(model, threads=1).run(fed(operands))["y"]
    np.testing.assert_array_equal(made, run_onnxruntime(model, fed(operands))["y"])


FEW = {
    "A": draw(2, 32), "b": integers((3, 2, 8), np.uint8), "s": draw(3, 2), "z": None,
    "g": None,
}  # fmt: skip
SIZES = {"K": 32, "N": 3, "bits": 4, "block_size": 16}
REFUSED = {
    "another order of rows": ("MatMulNBits", FEW | {"g": np.zeros(32, np.int32)}, SIZES, "g_idx"),
    "packed for one machine": ("MatMulNBits", FEW, SIZES | {"weight_prepacked": 1}, "weight_prepacked"),
    "three bits": ("MatMulNBits", FEW, SIZES | {"bits": 3}, "weights of 3 bits"),
    "scales of an axis": ("QLinearAdd", levels(SCALES[0], np.uint8) | {"sa": draw(23) ** 2}, {}, "more than one number"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_done_is_named(name):
    op, operands, attributes, reason = REFUSED[name]
    with pytest.raises(UnsupportedModelError, match=reason):
        frontend.load(one_node(op, operands, kind=1, **attributes))


BROKEN = {
    "weights that are not there": ({"K": 1 << 40}, "weights in"),
    "no block": ({"block_size": 0}, "blocks of 0"),
    "blocks that are no power of two": ({"block_size": 24}, "blocks of 24"),
    "rows below none": ({"N": -3}, "-3 by 32"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_sizes_are_checked_before_anything_is_made(name):
    sizes, message = BROKEN[name]
    with pytest.raises(ModelError, match=message):
        frontend.load(one_node("MatMulNBits", FEW, kind=1, **SIZES | sizes))


def test_parts_of_a_concatenation_come_in_threes():
    operands = {"sz": number(0.5), "zz": number(3, np.uint8), "X": integers((2, 3), np.uint8)}
    with pytest.raises(ModelError, match="3 inputs"):
        frontend.load(one_node("QLinearConcat", operands, kind=2, axis=0))
