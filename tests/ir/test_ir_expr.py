"""Expressions: text, sharing, substitution."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.ir.expr import ARITY, IDENTITY, Expr, apply, arg, const, fold, parse, substitute
from saccade.opdefs.expr_numpy import evaluate

NUMBERS = st.floats(allow_nan=False)


@st.composite
def applications(draw, children):
    op = draw(st.sampled_from(sorted(ARITY)))
    return apply(op, *(draw(children) for _ in range(ARITY[op])))


EXPRS = st.recursive(
    st.one_of(st.integers(0, 3).map(arg), NUMBERS.map(const)), applications, max_leaves=12
)


@given(EXPRS)
def test_text_round_trip(expr):
    again = parse(str(expr))
    assert again == expr
    assert hash(again) == hash(expr)
    assert str(again) == str(expr)
    assert pickle.loads(pickle.dumps(expr)) == expr


@given(EXPRS)
def test_operands(expr):
    named = [int(part[0]) for part in str(expr).split("$")[1:]]
    assert expr.operands == max(named, default=-1) + 1


def test_nan_is_written():
    assert np.isnan(parse("add($0, nan)").args[1].value)


def test_substitution_composes():
    inner, outer = parse("add($0, $1)"), parse("mul(relu($0), $1)")
    composed = substitute(outer, {0: inner, 1: arg(2)})
    assert composed == parse("mul(relu(add($0, $1)), $2)")
    x, y, z = np.array([-1.0, 2.0]), np.array([0.5, 0.5]), np.array([3.0, 4.0])
    separate = evaluate(outer, [evaluate(inner, [x, y]), z])
    np.testing.assert_array_equal(evaluate(composed, [x, y, z]), separate)
    assert substitute(outer, {}) == outer
    assert substitute(IDENTITY, {0: inner}) == inner


def test_fold_visits_each_distinct_subtree_once():
    e = IDENTITY
    for _ in range(100):  # 2^100 paths
        e = Expr("mul", (e, e))
    visited: list[str] = []
    fold(e, lambda _: None, lambda _: None, lambda op, _: visited.append(op))
    assert len(visited) == 100
    assert e.operands == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "add($0)",
        "add($0, $1",
        "add($0)$1)",
        "add($0 $1)",
        "nothing($0)",
        "$0 $1",
        "relu",
        "$",
        "1..2",
    ],
)
def test_broken_texts(text):
    with pytest.raises(ValueError, match=r"expression|lacks|convert"):
        parse(text)


def test_wrong_applications():
    with pytest.raises(ValueError, match="relu over 2 operands"):
        apply("relu", arg(0), arg(1))
    with pytest.raises(ValueError, match="nothing over 0"):
        apply("nothing")
