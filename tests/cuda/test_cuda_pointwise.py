"""Operators of expressions as GPUs compute them, one by one, and chains over any storage."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from saccade.backends.cuda.codegen.expressions import (
    FLOAT_OPERATORS,
    INTEGER_OPERATORS,
    WIDE_OPERATORS,
    missing_operator,
)
from saccade.ir import DType
from saccade.ir.expr import ARITY, BIT_OPERATORS, parse
from saccade.kernels.base import Call, View
from saccade.kernels.cuda import kernel_named
from saccade.opdefs import Pointwise
from saccade.opdefs.expr_numpy import evaluate as reference
from saccade.testing.kernels import anyhow, nhwc_view, row_major
from saccade.testing.triton import H200, interpret

CHAIN = kernel_named("pointwise.chain")
SPECIAL = np.float32([np.nan, np.inf, -np.inf, 0, -0.0, 1, -1, 0.5, 3, -7, 2.5, -2.5, 1e-3, 100])
CORNERS = np.float32(
    [0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1.1754942e-38, 3.4028235e38,
     -3.4028235e38, 1e-20, -1e-20, 88.72283, 88.72284, -87.33655, -103.97, -104.0, 0.5, -0.5, 1.5,
     2.5, -2.5, 8388607.5, 8388609.0, 1e10, -1e10, 0.62, -0.62, 0.41421354]
)  # fmt: skip


def call_of(text, arrays, dtype=None, views=None, out=None):
    kinds = [DType.of(a.dtype) for a in arrays]
    op = Pointwise(parse(text), dtype or next(k for k in kinds if k is not DType.BOOL))
    views = views or [row_major(k, a.shape) for k, a in zip(kinds, arrays, strict=True)]
    shape = np.broadcast_shapes(*(a.shape for a in arrays))
    out = out or row_major(op.dtype, shape)
    return Call(op, tuple(views), (out,), (False,) * len(arrays), H200)


def evaluate(text, *arrays, dtype=None):
    return interpret(CHAIN, call_of(text, arrays, dtype), arrays)[0]


def called(name):
    return f"{name}({', '.join(f'${i}' for i in range(ARITY[name]))})"


def grid(values, name):
    return [a.ravel() for a in np.meshgrid(*[values] * ARITY[name])]


def dense(low, high, count=3001):
    return np.linspace(low, high, count).astype(np.float32)


def spread(count=1501):
    magnitudes = np.linspace(0x00000001, 0x7F7FFFFF, count).astype(np.uint32).view(np.float32)
    return np.concatenate([magnitudes, -magnitudes])


def ulps(actual, exact):
    with np.errstate(all="ignore"):
        rounded = exact.astype(np.float32)
        unit = np.spacing(np.maximum(np.abs(np.nan_to_num(rounded, posinf=3.4e38)), 1e-45))
        distance = np.abs(actual.astype(np.float64) - exact) / unit.astype(np.float64)
    same = (np.isnan(actual) & np.isnan(exact)) | (actual == rounded)
    return np.where(same, 0.0, np.where(np.isfinite(distance), distance, np.inf))


erf = np.vectorize(math.erf, otypes=[np.float64])


def softplus(x):
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


FUNCTIONS = {
    "exp": (np.exp, (-105, 89.5), 2),
    "tanh": (np.tanh, (-10, 10), 4),
    "softplus": (softplus, (-80, 80), 4),
    "round": (np.rint, (-10, 10), 0),
    "sign": (np.sign, (-10, 10), 0),
    "relu": (lambda x: np.maximum(x, 0), (-10, 10), 0),
    "reciprocal": (lambda x: 1 / x, (-100, 100), 0.51),
    "softsign": (lambda x: x / (1 + np.abs(x)), (-100, 100), 2),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_within_ulps(name):
    exact, ends, limit = FUNCTIONS[name]
    for x in (dense(*ends), dense(-1, 1), spread(), CORNERS):
        with np.errstate(all="ignore"):
            truth = np.asarray(exact(x.astype(np.float64)), np.float64)
        distance = ulps(evaluate(f"{name}($0)", x), truth)
        worst = int(distance.argmax())
        assert distance[worst] <= limit, (x[worst], truth[worst], distance[worst])


GATES = {
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), 1e-30),
    "silu": (lambda x: x / (1 + np.exp(-x)), 1e-28),
    "mish": (lambda x: x * np.tanh(softplus(x)), 1e-28),
    "hardswish": (lambda x: x * np.clip(x / 6 + 0.5, 0, 1), 1e-6),
    "gelu": (lambda x: 0.5 * x * (1 + erf(x / math.sqrt(2))), 1e-6),
    "elu": (lambda x: np.where(x < 0, 0.7 * np.expm1(np.minimum(x, 0)), x), 1e-45),
}


@pytest.mark.parametrize("name", GATES)
def test_activations(name):
    exact, room = GATES[name]
    text = "elu($0, 0.7)" if name == "elu" else f"{name}($0)"
    for x in (dense(-30, 30), dense(-120, 120)):
        truth = exact(x.astype(np.float64))
        error = np.abs(evaluate(text, x).astype(np.float64) - truth)
        # Half an ulp for each unit on the way to the hardware's exponential.
        most = 6 - np.minimum(x, 0) / 2 if name in ("sigmoid", "silu") else 6
        assert (error <= most * 2**-23 * np.abs(truth) + room).all()


def test_gelu_of_epilogues_whose_results_have_16_bits(monkeypatch):
    from saccade.backends.cuda.codegen import elementary  # noqa: PLC0415 - it imports Triton

    monkeypatch.setattr(elementary, "gelu", elementary.gelu_rounded)
    for x in (dense(-4.75, 12), dense(-1, 1), dense(-40, 40)):
        truth = GATES["gelu"][0](x.astype(np.float64))
        error = np.abs(evaluate("gelu($0)", x).astype(np.float64) - truth)
        assert (error <= 1.3e-4 * np.minimum(np.abs(truth), 1) + 1e-7 * np.abs(truth) + 1e-7).all()
    special = evaluate("gelu($0)", np.float32([np.nan, np.inf, -np.inf, 0, 3e38]))
    assert np.isnan(special[0]) and (special[1:] == np.float32([np.inf, 0, 0, 3e38])).all()


@pytest.mark.parametrize("name", sorted(ARITY.keys() - BIT_OPERATORS))
def test_special_values(name):
    arrays = grid(SPECIAL, name)
    with np.errstate(all="ignore"):
        wide = reference(parse(called(name)), [a.astype(np.float64) for a in arrays])
        truth = np.asarray(wide, np.float32)
    result = evaluate(called(name), *arrays, dtype=DType.F32)
    room = 5e-7 if name == "gelu" else 1e-7
    np.testing.assert_allclose(result, truth, rtol=1e-6, atol=room)


def test_powers_and_remainders():
    rng = np.random.default_rng(3)
    x = np.exp(rng.uniform(-80, 80, 4000)).astype(np.float32)
    y = rng.uniform(-5, 5, 4000).astype(np.float32)
    with np.errstate(all="ignore"):
        truth = np.power(x.astype(np.float64), y.astype(np.float64))
    assert ulps(evaluate("pow($0, $1)", x, y), truth).max() <= 2
    x = np.exp2(rng.uniform(-140, 127, 4000)).astype(np.float32) * rng.choice([-1, 1], 4000)
    y = np.exp2(rng.uniform(-140, 127, 4000)).astype(np.float32) * rng.choice([-1, 1], 4000)
    x, y = x.astype(np.float32), y.astype(np.float32)
    np.testing.assert_array_equal(evaluate("fmod($0, $1)", x, y), np.fmod(x, y))
    np.testing.assert_array_equal(evaluate("mod($0, $1)", x, y), np.mod(x, y))


@pytest.mark.parametrize("kind", ["int64", "int32", "int8", "uint8", "uint32"])
def test_integers_as_the_reference_has_them(kind):
    signed = [-1, -3, -7, -100] if kind[0] == "i" else [200, 255]
    values = np.array([0, 1, 2, 3, 7, 100, 120, *signed], kind)
    for name in sorted(INTEGER_OPERATORS):
        arrays = grid(values, name)
        with np.errstate(all="ignore"):
            truth = np.asarray(reference(parse(called(name)), arrays)).astype(kind)
        result = evaluate(called(name), *arrays, dtype=DType(kind))
        np.testing.assert_array_equal(result, truth, err_msg=name)


def test_float64():
    arrays = [np.random.default_rng(i).standard_normal(50) for i in range(3)]
    for name in sorted(WIDE_OPERATORS):
        with np.errstate(all="ignore"):
            truth = np.asarray(reference(parse(called(name)), arrays[: ARITY[name]]), np.float64)
        result = evaluate(called(name), *arrays[: ARITY[name]], dtype=DType.F64)
        np.testing.assert_allclose(result, truth, rtol=1e-15, err_msg=name)


MIXED = (
    "less($0, $1)", "equal($0, $1)", "where($0, $1, not($1))", "add($0, mul($1, $2))",
    "where(and($0, not($1)), $2, 3.0)", "and(less($2, 2.0), xor($0, $1))", "equal($0, $2)",
    "add($2, greater(2.0, 1.0))", "where(1.0, exp(1.0), $2)", "pow($2, 2.5)", "pow(2.0, $2)",
    "mod($2, 3.0)", "clip($2, -inf, inf)", "mul($2, 1e-42)", "min($2, 1e300)", "pow($2, 2.0)",
)  # fmt: skip


@pytest.mark.parametrize("to", [DType.F32, DType.BOOL, DType.I32])
@pytest.mark.parametrize("text", MIXED)
def test_truth_values_and_literals(text, to):
    arrays = (
        np.array([0, 1, 0, 1, 1], bool),
        np.array([0, 0, 1, 1, 0], bool),
        np.float32([1, 2, 3, 0, np.nan if to is not DType.I32 else 4]),
    )
    (truth,) = Pointwise(parse(text), to).reference(*arrays)
    result = evaluate(text, *arrays, dtype=to)
    np.testing.assert_allclose(result.astype(float), truth.astype(float), rtol=1e-6)


def test_a_chain_of_literals_alone():
    x = np.zeros((3, 5), np.float32)
    np.testing.assert_array_equal(evaluate("2.5", x), np.full((3, 5), 2.5, np.float32))
    np.testing.assert_array_equal(evaluate("less(1.0, 2.0)", x, dtype=DType.BOOL), x == 0)


def test_what_numbers_do_not_have():
    assert frozenset(ARITY) - FLOAT_OPERATORS == BIT_OPERATORS
    assert missing_operator(parse("bit_and($0, $1)"), "float32") == "bit_and"
    assert missing_operator(parse("exp(add($0, 1.0))"), "int32") == "exp"
    assert missing_operator(parse("exp(add($0, 1.0))"), "float32") is None
    x = np.arange(4)
    assert CHAIN.supports(call_of("exp($0)", (x,))) == "exp of int64"
    huge = View(DType.F32, (2, 2**30), (2**30, 1))
    call = Call(Pointwise(parse("neg($0)"), DType.F32), (huge,), (huge,), (False,), H200)
    assert CHAIN.supports(call) == "2^31 elements or more"


@pytest.mark.parametrize("seed", range(12))
def test_every_variant_over_any_storage(seed):
    chance, rng = random.Random(seed), np.random.default_rng(seed)
    shape = [chance.choice([1, 2, 3, 8, 5, 16]) for _ in range(chance.randint(1, 4))]
    other = [n if chance.random() < 0.7 else 1 for n in shape]
    dtype = chance.choice([DType.F32, DType.U8, DType.I64])
    arrays = [rng.integers(0, 100, s).astype(dtype.numpy) for s in (shape, other)]
    call = call_of(
        "add($0, mul($1, 2.0))", arrays, dtype,
        [anyhow(chance, dtype, shape), anyhow(chance, dtype, other)], anyhow(chance, dtype, shape),
    )  # fmt: skip
    (truth,) = call.op.reference(*arrays)
    for variant in CHAIN.variants(call):
        np.testing.assert_array_equal(interpret(CHAIN, call, arrays, variant.launches)[0], truth)


@pytest.mark.parametrize("pitch", [72, 96])
@pytest.mark.parametrize("side", [1, 2])
def test_other_sizes_of_a_chain_have_code(pitch, side):
    """Whatever the batch and the height, down to one."""
    found = set()
    for n, h, w in ((1, 14, 14), (8, 14, 14), (3, 7, 9), (1, 1, 16)):
        shape, scales = (n, 72, h, w), (n, 72, 1, 1) if side == 1 else (n, 72, h, w)
        views = [nhwc_view(DType.F16, shape, pitch), nhwc_view(DType.F16, scales, 72)]
        out = nhwc_view(DType.F16, shape, 72)
        op = Pointwise(parse("mul($0, sigmoid($1))"), DType.F32)
        call = Call(op, tuple(views), (out,), (False, False), H200)
        (config,) = CHAIN.generic_configs(call)
        assert config in {variant.launches[0].config for variant in CHAIN.variants(call)}
        found.add(config)
    assert len(found) == 1


@pytest.mark.parametrize("dtype", [d for d in DType if d.is_narrow], ids=lambda d: d.value)
def test_elements_of_few_bits_are_refused(dtype):
    wide, few = (row_major(kind, (64,)) for kind in (DType.F32, dtype))
    for views, out, to in (((few,), wide, DType.F32), ((wide,), few, dtype)):
        call = Call(Pointwise(parse("$0"), to), views, (out,), (False,), H200)
        assert CHAIN.supports(call) == f"elements of type {dtype.value}"
