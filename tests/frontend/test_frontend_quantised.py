"""Quantised operators against onnxruntime and NumPy's integers, bit by bit."""

from __future__ import annotations

import numpy as np
import pytest
from frontend_models import run_onnxruntime, text_model

import saccade
from saccade.errors import ModelError, UnsupportedModelError
from saccade.frontend import onnx as frontend
from saccade.opdefs import Conv2d, MatMul


def _f(*values):
    return np.asarray(values, np.float32)


def _s(value, dtype=np.float32):
    return np.asarray(value, dtype)


def _integers(shape, dtype, seed=0):
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(info.min, info.max + 1, shape, dtype)


def _narrow(shape, seed=0):
    """Weights of 7 bits: ONNX Runtime may add two products in 16 bits, which saturate."""
    return (_integers(shape, np.int8, seed) // 2).astype(np.int8)


def _same(model, inputs):
    """The outputs of both, which are equal, the integers and their types exactly."""
    ours = saccade.compile(model, threads=2).run(inputs)
    theirs = run_onnxruntime(model, inputs)
    for name, expected in theirs.items():
        assert ours[name].dtype == expected.dtype
        np.testing.assert_array_equal(ours[name], expected, err_msg=name)
    return ours


@pytest.mark.parametrize("zero", [_s(3, np.uint8), _s(-7, np.int8), _s(40000, np.uint16), None])
@pytest.mark.parametrize("scale", [_s(0.037), _s(1.5)])
def test_numbers_become_the_nearest_level_and_come_back(zero, scale):
    kind = "uint8" if zero is None else zero.dtype.name
    tail = "" if zero is None else ", z"
    body = f"q = QuantizeLinear(x, s{tail}) y = DequantizeLinear(q, s{tail})"
    weights = {"s": scale} | ({} if zero is None else {"z": zero})
    model = text_model(body, "float[N, 5, W] x", f"{kind} q, float y", 21, weights)
    x = np.random.default_rng(1).normal(0, 9, (2, 5, 7)).astype(np.float32)
    # Halves of a level, and what no level reaches.
    x[0, 0] = _f(0.5, 1.5, 2.5, -0.5, 1e9, -1e9, 0) * scale
    _same(model, {"x": x})


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_each_element_of_an_axis_has_its_own_scale(axis):
    shape = (3, 4, 5)
    count = shape[axis]
    weights = {"s": np.linspace(0.01, 0.3, count, dtype=np.float32)}
    weights["z"] = _integers(count, np.uint8)
    body = f"q = QuantizeLinear<axis={axis}>(x, s, z) y = DequantizeLinear<axis={axis}>(q, s, z)"
    model = text_model(body, "float[3, 4, 5] x", "uint8 q, float y", 17, weights)
    _same(model, {"x": np.random.default_rng(2).normal(0, 9, shape).astype(np.float32)})


def test_blocks_need_not_end_where_the_axis_does():
    scales = np.linspace(0.1, 0.9, 6, dtype=np.float32).reshape(2, 3)
    body = "y = DequantizeLinear<axis=1, block_size=3>(x, s)"
    model = text_model(body, "int8[2, 7] x", "float y", 21, {"s": scales})
    x = _integers((2, 7), np.int8)
    (y,) = saccade.compile(model).run({"x": x}).values()
    np.testing.assert_array_equal(y, x * np.repeat(scales, 3, axis=1)[:, :7])


def test_what_is_quantised_only_to_come_back_is_one_step():
    body = "q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) y = Relu(d)"
    model = text_model(body, "float[N, 8] x", weights={"s": _s(0.1), "z": _s(4, np.uint8)})
    assert {node.op.family for node in frontend.load(model).nodes[:-3]} <= {"Pointwise"}
    compiled = saccade.compile(model)
    x = np.random.default_rng(0).normal(size=(3, 8)).astype(np.float32)
    np.testing.assert_array_equal(
        compiled.run({"x": x})["y"], run_onnxruntime(model, {"x": x})["y"]
    )
    assert len(compiled.plan(x=(3, 8)).steps) == 1


@pytest.mark.parametrize(
    ("a", "b"), [(np.uint8, np.int8), (np.uint8, np.uint8), (np.int8, np.int8)], ids=str
)
@pytest.mark.parametrize("inner", [3, 700, 2100])
def test_products_of_integer_matrices(a, b, inner):
    weights = {"w": _integers((inner, 9), b, 3), "za": _s(5, a), "zb": _integers(9, b, 4)}
    kind = np.dtype(a).name
    body = "y = MatMulInteger(x, w, za, zb)"
    model = text_model(body, f"{kind}[N, 4, {inner}] x", "int32 y", 17, weights)
    x = _integers((2, 4, inner), a)
    (y,) = saccade.compile(model, threads=2).run({"x": x}).values()
    wide = x.astype(np.int64) - int(weights["za"])
    expected = wide @ (weights["w"].astype(np.int64) - weights["zb"].astype(np.int64))
    np.testing.assert_array_equal(y, expected)


def test_both_matrices_may_be_computed():
    model = text_model(
        "y = MatMulInteger(x, v)", "uint8[2, 3, 600] x, int8[2, 600, 5] v", "int32 y", 17
    )
    x, v = _integers((2, 3, 600), np.uint8), _integers((2, 600, 5), np.int8, 1)
    (y,) = saccade.compile(model).run({"x": x, "v": v}).values()
    np.testing.assert_array_equal(y, x.astype(np.int64) @ v.astype(np.int64))


@pytest.mark.parametrize("channels", [3, 64, 200])
@pytest.mark.parametrize("group", [1, 2])
def test_sums_of_a_convolution_of_integers_are_exact(channels, group):
    channels *= group
    weights = {"w": _integers((8, channels // group, 3, 3), np.int8, 5), "z": _s(131, np.uint8)}
    body = f"y = ConvInteger<pads=[1,1,1,1], group={group}>(x, w, z)"
    shape = (1, channels, 9, 13)
    model = text_model(body, f"uint8[1, {channels}, 9, 13] x", "int32 y", 17, weights)
    x = _integers(shape, np.uint8)
    (y,) = saccade.compile(model, threads=2).run({"x": x}).values()
    padded = np.pad(x.astype(np.float64) - 131, ((0, 0), (0, 0), (1, 1), (1, 1)))
    expected = Conv2d(groups=group).reference(padded, weights["w"].astype(np.float64))[0]
    np.testing.assert_array_equal(y, expected)


def test_products_of_quantised_matrices_are_onnxruntimes():
    weights = {
        "sa": _s(0.03), "za": _s(120, np.uint8), "w": _narrow((40, 6)), "sb": _s(0.011),
        "zb": _s(-3, np.int8), "sy": _s(0.5), "zy": _s(100, np.uint8),
    }  # fmt: skip
    body = "y = QLinearMatMul(x, sa, za, w, sb, zb, sy, zy)"
    model = text_model(body, "uint8[N, 40] x", "uint8 y", 17, weights)
    _same(model, {"x": _integers((5, 40), np.uint8)})


@pytest.mark.parametrize("each", [False, True])
def test_quantised_convolutions_are_onnxruntimes(each):
    count = 8
    weights = {
        "sx": _s(0.02), "zx": _s(99, np.uint8), "w": _narrow((count, 4, 3, 3), 7),
        "sw": np.linspace(0.01, 0.2, count, dtype=np.float32) if each else _s(0.1),
        "zw": np.zeros(count, np.int8) if each else _s(0, np.int8),
        "sy": _s(0.7), "zy": _s(77, np.uint8),
        "b": np.arange(count, dtype=np.int32) * 500 - 1500,
    }  # fmt: skip
    body = (
        "y = QLinearConv<pads=[1,1,1,1], strides=[2,1]>(x, sx, zx, w, sw, zw, sy, zy, b)\n"
        "f = DequantizeLinear(y, sy, zy)"
    )
    model = text_model(body, "uint8[N, 4, 9, 11] x", "uint8 y, float f", 17, weights)
    _same(model, {"x": _integers((2, 4, 9, 11), np.uint8)})


def test_reduced_precision_leaves_sums_of_integers_exact():
    weights = {"w": _integers((64, 8), np.int8)}
    model = text_model("y = MatMulInteger(x, w)", "uint8[3, 64] x", "int32 y", 17, weights)
    x = _integers((3, 64), np.uint8)
    (y,) = saccade.compile(model, precision="bf16").run({"x": x}).values()
    np.testing.assert_array_equal(y, x.astype(np.int64) @ weights["w"].astype(np.int64))


def test_sums_over_an_axis_that_varies_are_refused():
    model = text_model("y = MatMulInteger(x, v)", "uint8[2, K] x, int8[K, 5] v", "int32 y", 17)
    with pytest.raises(UnsupportedModelError, match="axis that varies"):
        frontend.load(model)


@pytest.mark.parametrize("known", [True, False])
def test_sums_that_no_cut_makes_exact_are_refused(known):
    weights = {"w": np.full((1, 1, 40, 40), -128, np.int8)}
    inputs = "uint8[1, 1, 50, 50] x" + ("" if known else ", int8[1, 1, 40, 40] w")
    model = text_model("y = ConvInteger(x, w)", inputs, "int32 y", 17, weights if known else {})
    with pytest.raises(UnsupportedModelError, match="very many taps"):
        frontend.load(model)


def test_parameters_that_do_not_fit_are_told():
    body = "y = DequantizeLinear<axis=3>(x, s)"
    model = text_model(body, "int8[2, 3] x", weights={"s": _f(1, 2, 3)})
    with pytest.raises(ModelError, match="no such axis"):
        frontend.load(model)


def test_short_sums_are_one_product():
    model = text_model(
        "y = MatMulInteger(x, w)", "uint8[2, 3] x", "int32 y", 17, {"w": _integers((3, 4), np.int8)}
    )
    assert sum(isinstance(node.op, MatMul) for node in frontend.load(model).nodes) == 1
