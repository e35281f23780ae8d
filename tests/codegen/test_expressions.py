from __future__ import annotations

import numpy as np
import pytest

from saccade.backends.cpu.codegen.expressions import emit_expr
from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.backends.cpu.target import host_target
from saccade.ir.expr import ARITY, BIT_OPERATORS, parse
from saccade.opdefs.expr_numpy import evaluate as reference

RNG = np.random.default_rng(15)
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, 3.0, -7.0], np.float32)


def operands(count):
    return [RNG.standard_normal(333).astype(np.float32) for _ in range(count)]


@pytest.mark.parametrize("lanes", [1, 4, 8, 16])
@pytest.mark.parametrize("name", sorted(ARITY.keys() - BIT_OPERATORS))
def test_every_operator_on_every_width(evaluate, name, lanes):
    arrays = operands(ARITY[name])
    text = f"{name}({', '.join(f'${i}' for i in range(ARITY[name]))})"
    with np.errstate(all="ignore"):
        wide = reference(parse(text), [a.astype(np.float64) for a in arrays])
    actual = evaluate(text, *arrays, lanes=lanes)
    np.testing.assert_allclose(actual, np.asarray(wide, np.float32), rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize(
    "text",
    ["relu($0)", "clip($0, -0.5, 2.0)", "max($0, $1)", "min($0, $1)", "max($0, 0.25)",
     "min($0, 0.25)", "where(less($0, $1), $0, $1)", "not($0)", "and($0, $1)", "or($0, $1)",
     "xor($0, $1)", "equal($0, $1)", "less_equal($0, $1)", "greater($0, $1)",
     "greater_equal($0, $1)", "sign($0)",
     "leaky_relu($0, 0.5)", "hard_sigmoid($0, 0.25, 0.5)", "isnan($0)"],
)  # fmt: skip
@pytest.mark.parametrize("isa", ["avx512", "avx2"])
def test_nan_and_infinities(evaluate, text, isa):
    a, b = (g.ravel() for g in np.meshgrid(SPECIAL, SPECIAL))
    expected = np.asarray(reference(parse(text), [a, b]), np.float32)
    np.testing.assert_array_equal(evaluate(text, a, b, isa=isa), np.broadcast_to(expected, a.shape))


@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0, 3.0, -1.0, 0.5, 0.75, -2.5])
def test_constant_powers(evaluate, exponent):
    x = np.abs(operands(1)[0]) + np.float32(0.01)
    expected = np.power(x.astype(np.float64), exponent).astype(np.float32)
    np.testing.assert_allclose(evaluate(f"pow($0, {exponent})", x), expected, rtol=3e-7)


def test_nested_expression(evaluate):
    text = "mul(add(mul($0, $1), $2), sigmoid(add(mul($0, $1), $2)))"
    arrays = operands(3)
    wide = reference(parse(text), [a.astype(np.float64) for a in arrays])
    np.testing.assert_allclose(evaluate(text, *arrays), wide, rtol=1e-5, atol=1e-6)


def test_products_in_sums_round_once(evaluate):
    # 1 + 2^-12 squared is 1 + 2^-11 + 2^-24: the last bit survives only in a fused multiply-add.
    x = np.full(16, 1 + 2.0**-12, np.float32)
    y = np.full(16, -1 - 2.0**-11, np.float32)
    for text in ("add(mul($0, $0), $1)", "add($1, mul($0, $0))"):
        np.testing.assert_array_equal(evaluate(text, x, y), np.full(16, 2.0**-24, np.float32))


def test_equal_subtrees_are_emitted_once():
    def size(text):
        k = KernelBuilder("kernel", host_target())
        p = k.pointer("x")
        p.store(emit_expr(k, parse(text), [p.vec()]))
        return str(k.finish()).count("fdiv")

    assert size("sigmoid($0)") == 1
    assert size("mul(sigmoid($0), sigmoid($0))") == 1


def test_a_constant_takes_the_lanes_it_is_told():
    k = KernelBuilder("kernel", host_target())
    assert emit_expr(k, parse("2.5"), [], lanes=4).lanes == 4
    assert emit_expr(k, parse("2.5"), []).lanes == k.lanes
