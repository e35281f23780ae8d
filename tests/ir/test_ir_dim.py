"""Dims against integer arithmetic, over random expressions."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from saccade.ir import dim as d
from saccade.ir.dim_parser import parse_dims

SYMBOLS = ("N", "H", "W", "batch size", "a+b", "min", "3", 'q"uote', "dim_0.x", "größe")


def trunc(a, b):
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


OPERATORS = {
    "add": (d.add, lambda a, b: a + b),
    "sub": (d.sub, lambda a, b: a - b),
    "mul": (d.mul, lambda a, b: a * b),
    "floordiv": (d.floordiv, lambda a, b: a // b),
    "ceildiv": (d.ceildiv, lambda a, b: -(-a // b)),
    "truncdiv": (d.truncdiv, trunc),
    "mod": (d.mod, lambda a, b: a % b),
    "min": (d.minimum, min),
    "max": (d.maximum, max),
}
LEAVES = st.one_of(st.integers(-7, 40), st.sampled_from(SYMBOLS))
TREES = st.recursive(
    LEAVES, lambda t: st.tuples(st.sampled_from(sorted(OPERATORS)), t, t), max_leaves=12
)
SIZES = st.fixed_dictionaries({name: st.integers(0, 50) for name in SYMBOLS})


def both(tree, sizes):
    """The tree as a dim and as an integer; the integer is None where a divisor is 0."""
    if isinstance(tree, int):
        return tree, tree
    if isinstance(tree, str):
        return d.symbol(tree), sizes[tree]
    op, left, right = tree
    (left_dim, left_int), (right_dim, right_int) = both(left, sizes), both(right, sizes)
    on_dims, on_ints = OPERATORS[op]
    divides = op in ("floordiv", "ceildiv", "truncdiv", "mod")
    if divides and right_dim == 0:
        right_dim, right_int = 1, 1  # the operator itself refuses a literal 0: tested below
    known = left_int is not None and right_int is not None and not (divides and right_int == 0)
    return on_dims(left_dim, right_dim), on_ints(left_int, right_int) if known else None


@given(TREES, SIZES)
@example(("floordiv", "M", ("mul", "N", 2)), dict.fromkeys((*SYMBOLS, "M"), 5))
@example(("mul", ("add", "N", 1), ("mul", "H", 2)), dict.fromkeys(SYMBOLS, 3))
@example(("mod", ("sub", ("mul", "N", 4), 1), 4), dict.fromkeys(SYMBOLS, 3))
def test_value_and_text(tree, sizes):
    dim, value = both(tree, sizes)
    if value is not None:
        assert d.evaluate(dim, sizes) == value
    assert parse_dims(str(dim)) == dim
    assert pickle.loads(pickle.dumps(dim)) == dim
    assert d.symbols_of(dim) <= set(sizes)
    assert isinstance(dim, int) == d.is_static(dim)


@given(st.lists(TREES, min_size=1, max_size=5), st.integers(0, 4))
@example([-1, "N", ("add", 1, "N")], 1)
def test_order_does_not_matter(trees, turn):
    dims = [both(tree, dict.fromkeys(SYMBOLS, 1))[0] for tree in trees]
    shuffled = (dims[turn:] + dims[:turn])[::-1]
    assert d.product(dims) == d.product(shuffled)
    assert d.total(dims) == d.total(shuffled)
    halves = d.mul(d.product(shuffled[::2]), d.product(shuffled[1::2]))
    assert d.product(dims) == halves


N, H, W = map(d.symbol, "NHW")
HALF = d.sub(d.floordiv(H, 4), d.floordiv(H, 8))  # as what is left of a half


@pytest.mark.parametrize(
    ("got", "want"),
    [
        (d.sub(N, N), 0),
        (d.floordiv(d.mul(N, d.mul(H, W)), d.mul(W, N)), H),
        (d.floordiv(d.product((N, 64, d.add(H, 1))), d.mul(d.add(H, 1), 16)), d.mul(N, 4)),
        (d.floordiv(d.add(d.mul(N, H), d.mul(3, N)), N), d.add(H, 3)),
        (d.floordiv(d.add(d.mul(4, N), 7), 4), d.add(N, 1)),
        (d.add(d.floordiv(d.sub(H, 1), 2), 1), d.ceildiv(H, 2)),
        (d.mod(d.add(d.mul(4, N), 7), 4), 3),
        (d.maximum(d.add(N, 2), N), d.add(N, 2)),
        (d.maximum(N, 0), N),
        (d.maximum(d.maximum(N, H), H), d.maximum(H, N)),
        (d.maximum(N, d.maximum(N, d.maximum(H, N))), d.maximum(H, N)),
        (d.minimum(d.minimum(N, H), N), d.minimum(N, H)),
        (d.minimum(N, d.maximum(H, N)), N),
        (d.maximum(d.minimum(N, H), H), H),
        (d.minimum(d.floordiv(N, 2), -1), -1),
        (d.truncdiv(d.add(N, 3), 2), d.floordiv(d.add(N, 3), 2)),
        (d.mul(d.add(d.mul(2, N), 2), H), d.mul(d.mul(d.add(N, 1), H), 2)),
        (d.floordiv(d.add(d.floordiv(H, 4), 6), 7), d.floordiv(d.add(H, 24), 28)),
        (d.floordiv(d.floordiv(d.sub(H, 9), 4), 7), d.floordiv(d.sub(H, 9), 28)),
        (d.neg(d.floordiv(d.neg(H), 7)), d.ceildiv(H, 7)),
        (d.mod(d.mod(H, 28), 7), d.mod(H, 7)),
        (d.add(H, d.mod(d.neg(d.mod(H, 7)), 7)), d.mul(7, d.ceildiv(H, 7))),
        (d.sub(H, d.mod(H, 7)), d.mul(7, d.floordiv(H, 7))),
        (d.minimum(H, d.mul(7, d.ceildiv(H, 7))), H),
        (d.maximum(d.mod(H, 7), 0), d.mod(H, 7)),
        (d.mod(3, d.mul(7, d.ceildiv(H, 7))), 3),
        (d.mod(-3, d.mul(7, d.ceildiv(H, 7))), d.sub(d.mul(7, d.ceildiv(H, 7)), 3)),
        (d.minimum(HALF, d.mul(7, d.ceildiv(HALF, 7))), HALF),
        (d.total([]), 0),
        (d.product([]), 1),
    ],
)
def test_simplifications(got, want):
    assert got == want


def test_not_simplified_where_it_would_be_wrong():
    assert d.floordiv(H, 2) != d.ceildiv(H, 2)
    assert d.mul(d.floordiv(H, 2), 2) != H
    assert d.truncdiv(d.sub(N, 3), 2) != d.floordiv(d.sub(N, 3), 2)
    assert d.maximum(d.sub(N, 3), 0) != d.sub(N, 3)
    assert d.mod(d.mod(H, 9), 7) != d.mod(H, 7)
    assert d.mod(d.mod(H, 7), 28) != d.mod(H, 28)
    assert d.floordiv(d.mul(2, d.floordiv(H, 4)), 7) != d.floordiv(d.mul(2, H), 28)
    assert d.mod(H, -7) != d.mod(H, 7)
    assert d.mod(7, d.mul(7, d.ceildiv(H, 7))) != 7
    assert d.mod(3, H) != 3
    assert d.mod(3, d.sub(d.mul(7, H), 7)) != 3  # which may be -7
    assert d.floordiv(d.floordiv(H, -4), 7) != d.floordiv(H, -28)


@given(TREES, SIZES)
@example(("sub", ("mul", ("ceildiv", "H", 7), 7), "H"), dict.fromkeys(SYMBOLS, 3))
def test_what_is_said_never_to_be_negative_is_not(tree, sizes):
    dim, value = both(tree, sizes)
    if value is not None and d.is_non_negative(dim):
        assert value >= 0


def test_known_signs():
    missing = d.sub(d.mul(7, d.ceildiv(H, 7)), H)  # from a multiple of 7: 0 to 6
    assert d.is_non_negative(missing) and d.is_non_negative(d.sub(6, missing))
    assert not d.is_non_negative(d.sub(5, missing)) and not d.is_non_negative(d.sub(missing, 1))
    assert not d.is_non_negative(d.sub(H, N))
    filled = d.sub(d.mul(7, d.ceildiv(HALF, 7)), HALF)
    assert d.is_non_negative(filled) and not d.is_non_negative(d.sub(filled, 1))


def test_readable():
    assert str(d.ceildiv(H, 2)) == "((H+1)//2)"
    assert str(d.product((N, 64, H))) == "64*(H*N)"
    assert str(d.maximum(d.sub(N, 3), 0)) == "max((N-3), 0)"
    assert str(d.floordiv(W, d.mul(N, 2))) == "(W//(2*N))"
    assert str(d.symbol("a b")) == '"a b"'


@pytest.mark.parametrize("divide", [d.floordiv, d.truncdiv, d.mod])
def test_division_by_zero(divide):
    for left in (0, 5):
        with pytest.raises(ZeroDivisionError):
            divide(left, 0)
    with pytest.raises(ZeroDivisionError):
        d.evaluate(divide(N, H), {"N": 3, "H": 0})


def test_missing_size():
    with pytest.raises(KeyError, match="H"):
        d.evaluate(d.mul(N, H), {"N": 3})


@pytest.mark.parametrize(
    "text", ["", "N+", "(N", "min(N)", "N H", "1 2", "*", '"', "N$", "2N", ")"]
)
def test_broken_texts(text):
    with pytest.raises(ValueError, match="dim"):
        parse_dims(text)
