"""Chains of elements of 64 bits: float64, and integers without a sign."""

from __future__ import annotations

import numpy as np
import pytest

from saccade.backends.cpu.codegen.expressions import DOUBLE
from saccade.ir import DType
from saccade.ir.expr import parse
from saccade.kernels.cpu.pointwise.chain import CHAIN
from saccade.opdefs import Pointwise

RNG = np.random.default_rng(11)
LARGE = np.array(
    [0, 1, 2, 7, 2**53 + 1, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 2, 2**64 - 1], np.uint64
)
PAIRS = [np.repeat(LARGE[:, None], 10, 1), np.repeat(LARGE[None], 10, 0)]
SPECIAL = np.array([0.0, -0.0, 1.5, -2.5, 1e30, -1e-30, np.inf, -np.inf, np.nan, 0.5, -1, 3])
FLOATS = [np.repeat(SPECIAL[:, None], 12, 1), np.repeat(SPECIAL[None], 12, 0)]


def op(text: str, dtype: DType) -> Pointwise:
    return Pointwise(parse(text), dtype)


@pytest.mark.parametrize(
    "name",
    ["add", "sub", "mul", "div", "mod", "fmod", "min", "max", "bit_and", "bit_or", "bit_xor",
     "shift_left", "shift_right"],
)  # fmt: skip
def test_pairs_without_a_sign(hold, name):
    x, y = PAIRS
    hold(CHAIN, op(f"{name}($0, $1)", DType.U64), [x, np.maximum(y, 1)], exact=True)


@pytest.mark.parametrize("name", ["equal", "less", "less_equal", "greater", "greater_equal", "and"])
def test_conditions_without_a_sign(hold, name):
    hold(CHAIN, op(f"{name}($0, $1)", DType.BOOL), PAIRS, exact=True)


@pytest.mark.parametrize("text", ["abs($0)", "relu($0)", "sign($0)", "neg($0)", "bit_not($0)"])
def test_one_without_a_sign(hold, text):
    hold(CHAIN, op(text, DType.U64), [LARGE], exact=True)


def test_divisions_by_zero_do_not_trap(hold):
    hold(CHAIN, op("div($0, $1)", DType.U64), [LARGE, LARGE * np.uint64(0)], exact=True)


def test_bounds_without_a_sign(hold):
    hold(CHAIN, op("clip($0, -inf, 9007199254740992.0)", DType.U64), [LARGE], exact=True)
    hold(CHAIN, op("clip($0, 7.0, inf)", DType.U64), [LARGE], exact=True)


@pytest.mark.parametrize("dtype", ["U64", "U8", "I64", "I32", "F32", "F64", "BOOL"])
def test_casts_from_and_to_integers_without_a_sign(hold, dtype):
    hold(CHAIN, op("$0", DType[dtype]), [LARGE], exact=True)
    source = np.array([0, 1, 3, 100, 101], DType[dtype].numpy)
    hold(CHAIN, op("$0", DType.U64), [source], exact=True)


def test_floats_beyond_the_signed_integers(hold):
    x = np.array([0, 1.9, 2.0**63, 2.0**63 + 2.0**40, 2.0**64 - 2.0**40])
    hold(CHAIN, op("$0", DType.U64), [x], exact=True)
    hold(CHAIN, op("$0", DType.U64), [x.astype(np.float32)], exact=True)


_ARITY = {"where": 3, "clip": 3, "hard_sigmoid": 3}
_UNARY = {
    "neg", "abs", "sqrt", "rsqrt", "reciprocal", "floor", "ceil", "round", "sign", "relu",
    "softsign", "hardswish", "not", "isnan",
}  # fmt: skip
_CONDITIONS = {
    "not", "isnan", "equal", "less", "less_equal", "greater", "greater_equal", "and", "or", "xor",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(DOUBLE - {"exp", "log"}))
def test_what_float64_computes(hold, name):
    arity = 1 if name in _UNARY else _ARITY.get(name, 2)
    # Bounds are numbers.
    operands = ("$0", "-0.5" if name == "clip" else "$1", "0.25")[:arity]
    text = f"{name}({', '.join(operands)})"
    kind = DType.BOOL if name in _CONDITIONS else DType.F64
    hold(CHAIN, op(text, kind), FLOATS if "$1" in text else FLOATS[:1], k=4)


def test_float64_in_another_order(hold):
    x = RNG.normal(size=(2, 37, 21))
    hold(
        CHAIN,
        op("mul($0, $1)", DType.F64),
        [x.transpose(0, 2, 1), x[:, 0, :, None].copy().reshape(2, 21, 1)],
        exact=True,
    )


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16", "F8E4M3FN", "I32", "U32", "I8", "BOOL"])
def test_casts_from_float64(hold, dtype):
    x = np.array([0.0, 1.0, 7.75, 100.25, 3.0, 12.5], np.float64)
    hold(CHAIN, op("$0", DType[dtype]), [x], exact=True)


def test_float64_is_rounded_once(hold):
    """Float32 ends at what lies between two float16, and would be rounded to the even one."""
    x = np.array(
        [1 + 2.0**-11 + 2.0**-40, 1 + 2.0**-11 - 2.0**-40, 65519.9999999, 2.0**-25 + 2.0**-70]
    )
    (half,) = hold(CHAIN, op("$0", DType.F16), [np.r_[x, -x, np.nan, np.inf, 1e300]], exact=True)
    assert half[0] == np.float16(1 + 2.0**-10) and half[1] == 1 and half[2] == 65504


@pytest.mark.parametrize("dtype", ["F32", "F16", "I64", "I8", "U8", "BOOL"])
def test_casts_to_float64(hold, dtype):
    hold(CHAIN, op("$0", DType.F64), [np.array([0, 1, 5, 100], DType[dtype].numpy)], exact=True)


def test_float32_is_computed_with_before_it_is_cast(hold):
    x = RNG.normal(size=(3, 21)).astype(np.float32)
    hold(CHAIN, op("min(mul($0, 3.0), 0.5)", DType.F64), [x], exact=True)


def test_choices_of_float64(hold):
    mask = RNG.integers(0, 2, (3, 45)).astype(bool)
    hold(CHAIN, op("where($0, $1, 0.1)", DType.F64), [mask, RNG.normal(size=(3, 45))], exact=True)
    hold(CHAIN, op("where($0, 0.1, 0.7)", DType.F64), [mask], exact=True)


def test_exponentials_and_logarithms_of_float64(hold):
    """Each to some units in the last place, from the least to the largest."""
    x = np.r_[RNG.uniform(-700, 300, 400), RNG.normal(size=100), -708.5, -745.2, -800]
    special = [0.0, -0.0, np.inf, -np.inf, np.nan]
    (found,) = hold(CHAIN, op("exp($0)", DType.F64), [np.r_[x, special]], k=16)
    large = np.array([709.7, 709.78, 709.79, 710, 1e9])
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(found, np.exp(np.r_[x, special]), 2e-15, 1e-320)
        hold(CHAIN, op("mul(exp($0), 1e-300)", DType.F64), [large], k=16)
        y = np.r_[np.exp(x[:400]), 1 + RNG.normal(size=100) * 1e-9, 5e-324, 1.0, -1.0, special]
        (found,) = hold(CHAIN, op("log($0)", DType.F64), [y], k=16)
        np.testing.assert_allclose(found, np.log(y), 1e-15)
