from __future__ import annotations

import pytest
from pass_graphs import Build, assert_refused, fused, ops

from saccade.ir import DType
from saccade.ir.dim import sub, symbol
from saccade.opdefs import Concat, Move
from saccade.passes import apply
from saccade.passes.compose_moves import PASS as COMPOSE
from saccade.passes.fuse_pointwise import PASS as POINTWISE
from saccade.passes.split_rotations import PASS as SPLIT

HEADS, TOKENS, WIDTH = 2, 5, 6


def turned(b, x, size=WIDTH // 2, axis=-1, work="neg($0)"):
    """The second part of x, negated, and the first one behind it."""
    axis %= x.rank
    rest = x.shape[axis] - size
    second = b.map(work, b.slice(x, axis, size, rest))
    return b.op(Concat(axis), second, b.slice(x, axis, 0, size))


def rotary(b, x, *, cos=None, sin=None, beside=None, **options):
    cos, sin = (w if w is not None else b.weights(TOKENS, WIDTH) for w in (cos, sin))
    kept = b.map("mul($0, $1)", beside if beside is not None else x, cos)
    other = b.map("mul($0, $1)", turned(b, x, **options), sin)
    return b.map("add($0, $1)", kept, other)


def heads(b):
    return b.input(1, HEADS, TOKENS, WIDTH)


def test_positions_are_rotated_half_by_half():
    b = Build()
    after = fused(b.graph(rotary(b, heads(b))), POINTWISE, SPLIT, POINTWISE, COMPOSE)
    assert ops(after).split().count("Pointwise") == 2
    assert after.nodes[-1].op == Concat(3)
    # Slices of the input are what is left of the turned copy.
    moves = [node for node in after.nodes if isinstance(node.op, Move)]
    assert moves and all(node.inputs == after.inputs for node in moves)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_parts_of_any_sizes(size):
    b = Build()
    fused(b.graph(rotary(b, heads(b), size=size)), POINTWISE, SPLIT)


def test_along_any_axis():
    b = Build()
    cos, sin = b.weights(TOKENS, 1), b.weights(HEADS, 1, 1)
    after = fused(b.graph(rotary(b, heads(b), axis=2, size=2, cos=cos, sin=sin)), POINTWISE, SPLIT)
    assert after.nodes[-1].op == Concat(2)
    # A constant that does not vary along the axis is as it was.
    assert sin in after.constants and cos not in after.constants


def test_computed_angles_are_sliced():
    b = Build()
    x, angles = heads(b), b.input(TOKENS, WIDTH)
    cos = b.map("sub($0, 1.0)", angles)
    after = fused(b.graph(rotary(b, x, cos=cos, sin=angles)), POINTWISE, SPLIT)
    assert after.nodes[-1].op == Concat(3)


def test_what_is_rotated_may_be_a_view():
    b = Build()
    tokens = b.reshape(b.input(1, TOKENS, HEADS * WIDTH), 1, TOKENS, HEADS, WIDTH)
    rotated = rotary(b, b.transpose(tokens, 0, 2, 1, 3))
    after = fused(b.graph(rotated), COMPOSE, POINTWISE, SPLIT, POINTWISE, COMPOSE)
    assert ops(after).split().count("Pointwise") == 2


def _read_twice(b):
    joint = turned(b, heads(b))
    return b.map("add($0, $1)", joint, b.inputs[0]), b.map("neg($0)", joint)


def _given(b):
    joint = turned(b, heads(b))
    return b.map("add($0, $1)", joint, b.inputs[0]), joint


def _broadcast(b):
    joint = turned(b, heads(b))
    return (b.map("add($0, add($1, $2))", joint, b.inputs[0], b.input(3, HEADS, TOKENS, WIDTH)),)


def _other_type(b):
    return (b.map("less($0, $1)", turned(b, heads(b)), b.inputs[0], dtype=DType.BOOL),)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (_read_twice, "is also read elsewhere"),
        (_given, "is also read elsewhere"),
        (_broadcast, "is broadcast or changes its type"),
        (_other_type, "is broadcast or changes its type"),
    ],
)
def test_refuses(make, reason):
    b = Build()
    assert_refused(b.graph(*make(b)), SPLIT, reason)


def test_refuses_parts_of_unknown_sizes():
    b = Build()
    x = b.input(2, symbol("n"))
    joint = b.op(Concat(1), b.slice(x, 1, 1, sub(symbol("n"), 1)), b.slice(x, 1, 0, 1))
    assert_refused(b.graph(b.map("add($0, $1)", joint, x)), SPLIT, "are not known")


def _another_value(b):
    x, y = heads(b), heads(b)
    return b.map("add($0, $1)", turned(b, x), y)


def _no_slices(b):
    x = heads(b)
    return b.map("add($0, $1)", b.op(Concat(1), b.map("neg($0)", x)), x)


def _three(b):
    x = heads(b)
    parts = (b.slice(x, 3, at, 2) for at in (4, 2, 0))
    return b.map("add($0, $1)", b.op(Concat(3), *parts), x)


def _costly(b):
    x = heads(b)
    return b.map("add($0, $1)", turned(b, x, work="exp($0)"), x)


@pytest.mark.parametrize("make", [_another_value, _no_slices, _three, _costly])
def test_leaves_alone(make):
    b = Build()
    graph = b.graph(make(b))
    after, notes = apply(SPLIT, graph)
    assert after.nodes == graph.nodes and not notes
