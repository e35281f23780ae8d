from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pass_graphs import Build, assert_refused, fused

from saccade.ir import DType
from saccade.ir import expr as e
from saccade.ir.expr import Expr, apply, arg, const, parse
from saccade.opdefs.expr_numpy import evaluate
from saccade.passes.simplify_expressions import PASS, simplify

ROOT = 1.4142135381698608  # as float32 holds it


@pytest.mark.parametrize(
    ("long", "short"),
    [
        ("add(add($0, 1.5), 2.0)", "add($0, 3.5)"),
        ("add(2.0, add(1.5, $0))", "add($0, 3.5)"),
        ("sub(add($0, 1.0), 3.0)", "add($0, -2.0)"),
        ("sub(0.0, $0)", "neg($0)"),
        ("add($0, 0.0)", "$0"),
        ("mul(mul(2.0, $0), 0.25)", "mul($0, 0.5)"),
        ("mul(mul($0, 0.5), 2.0)", "$0"),
        ("mul($0, -1.0)", "neg($0)"),
        ("neg(neg($0))", "$0"),
        ("div($0, 4.0)", "mul($0, 0.25)"),
        ("div($0, 3.0)", "div($0, 3.0)"),
        ("div(1.0, $0)", "reciprocal($0)"),
        ("mul($0, 0.0)", "mul($0, 0.0)"),
        ("pow($0, 2.0)", "mul($0, $0)"),
        ("pow($0, 0.5)", "sqrt($0)"),
        ("pow($0, 1.0)", "$0"),
        ("pow($0, 3.0)", "pow($0, 3.0)"),
        ("clip($0, 0.0, inf)", "relu($0)"),
        ("clip($0, -inf, inf)", "$0"),
        ("clip($0, 0.0, $1)", "clip($0, 0.0, $1)"),
        ("clip(relu($0), -1.0, 6.0)", "clip($0, 0.0, 6.0)"),
        ("clip(relu($0), -2.0, -1.0)", "clip(relu($0), -2.0, -1.0)"),
        ("relu(clip($0, -1.0, 2.0))", "clip($0, 0.0, 2.0)"),
        ("relu(relu($0))", "relu($0)"),
        ("max(0.0, $0)", "relu($0)"),
        ("min(max($0, -1.0), 2.0)", "clip($0, -1.0, 2.0)"),
        ("max(min(2.0, $0), -1.0)", "clip($0, -1.0, 2.0)"),
        ("min(max($0, 3.0), 2.0)", "min(max($0, 3.0), 2.0)"),
        ("min(relu($0), 6.0)", "clip($0, 0.0, 6.0)"),
        ("leaky_relu($0, 0.0)", "relu($0)"),
        ("leaky_relu($0, 1.0)", "$0"),
        ("mul(sigmoid($0), $0)", "silu($0)"),
        ("mul(add($0, $1), sigmoid(add($0, $1)))", "silu(add($0, $1))"),
        ("mul($0, sigmoid($1))", "mul($0, sigmoid($1))"),
        ("mul($0, tanh(softplus($0)))", "mish($0)"),
        ("mul($0, hard_sigmoid($0, 0.1666666716337204, 0.5))", "hardswish($0)"),
        ("mul($0, hard_sigmoid($0, 0.2, 0.5))", "mul($0, hard_sigmoid($0, 0.2, 0.5))"),
        ("div(mul($0, clip(add($0, 3.0), 0.0, 6.0)), 6.0)", "hardswish($0)"),
        ("mul($0, div(clip(add($0, 3.0), 0.0, 6.0), 6.0))", "hardswish($0)"),
        (f"mul(mul($0, add(erf(div($0, {ROOT})), 1.0)), 0.5)", "gelu($0)"),
        (f"mul(mul(0.5, $0), add(1.0, erf(mul($0, {1 / ROOT}))))", "gelu($0)"),
        (f"mul($0, add(erf(div($0, {ROOT})), 1.0))", "mul(gelu($0), 2.0)"),
        ("mul(mul($0, add(erf(div($0, 1.5)), 1.0)), 0.5)", None),
    ],
)
def test_short_forms(long, short):
    if short is None:
        assert "gelu" not in str(simplify(parse(long)))
    else:
        assert str(simplify(parse(long))) == short


_NUMBERS = st.sampled_from([-math.inf, -3.0, -1.0, 0.0, 0.5, 1.0, 2.0, 3.0, 6.0, math.inf])
_SOME = ["add", "sub", "mul", "div", "min", "max", "relu", "neg", "clip", "pow", "sigmoid"]


def _extend(inner):
    def make(op):
        return st.tuples(*[inner] * e.ARITY[op]).map(lambda args: apply(op, *args))

    return st.sampled_from(_SOME).flatmap(make)


EXPRESSIONS = st.recursive(
    st.sampled_from([arg(0), arg(1)]) | _NUMBERS.map(const), _extend, max_leaves=8
)


def _finite(expr: Expr, operands):
    """Where no step overflows or divides by zero: there the sign of a zero may show."""
    inner = [_finite(a, operands) for a in expr.args if a.op != "const"]
    here = np.isfinite(np.broadcast_to(evaluate(expr, operands), operands[0].shape))
    return np.logical_and.reduce([here, *inner])


@settings(max_examples=500)
@given(EXPRESSIONS)
def test_the_short_form_has_the_same_value(expr: Expr):
    x = np.linspace(-7, 7, 57)
    operands = (x, np.roll(x, 17))
    both = (np.broadcast_to(evaluate(f, operands), x.shape) for f in (expr, simplify(expr)))
    long, short = (value[_finite(expr, operands)] for value in both)
    assert (np.abs(long - short) <= 1e-9 * np.maximum(np.abs(long), 1)).all()


@settings(max_examples=200)
@given(EXPRESSIONS)
def test_the_short_form_is_final(expr: Expr):
    assert simplify(simplify(expr)) == simplify(expr)


def test_prologues_and_epilogues_are_simplified_too():
    b = Build()
    x = b.conv(
        b.input(1, 2, 3, 3), 4, prologue=parse("max($0, 0.0)"), epilogue=parse("mul($0, 1.0)")
    )
    after = fused(b.graph(b.map("div(mul($0, $0), 2.0)", x)), PASS)
    assert str(after.nodes[0].op.prologue) == "relu($0)"
    assert str(after.nodes[0].op.epilogue) == "$0"
    assert str(after.nodes[1].op.expr) == "mul(mul($0, $0), 0.5)"


@pytest.mark.parametrize("dtype", [DType.I64, DType.U8])
def test_integers_wrap_and_truncate_and_stay(dtype):
    b = Build()
    graph = b.graph(b.map("div(mul($0, 3.0), 2.0)", b.input(5, dtype=dtype)))
    assert_refused(graph, PASS, "not floating point")
