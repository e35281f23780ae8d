from __future__ import annotations

import numpy as np
import pytest
from pass_graphs import Build, assert_refused, fused, ops

from saccade.ir import DType
from saccade.passes import apply
from saccade.passes.merge_sums import PASS as SUMS


def windows(b, first, then, *, x=(6, 4, 5, 5), apart=(2, 3, 4, 5, 5)):
    """Scores of windows, positions, images and windows apart, a mask."""
    scored = b.map("add($0, $1)", b.input(*x), first)
    return b.map("add($0, $1)", b.reshape(scored, *apart), then)


@pytest.mark.parametrize("first", [(1, 4, 5, 5), (4, 5, 5), (4, 1, 5), (5,), ()])
@pytest.mark.parametrize("then", [(1, 3, 1, 5, 5), (3, 4, 1, 1), (2, 3, 1, 1, 1), ()])
def test_two_constants_around_a_reshape_are_one(first, then):
    b = Build()
    graph = b.graph(windows(b, b.weights(*first), b.weights(*then)))
    after = fused(graph, SUMS)
    assert ops(after) == "Move Pointwise"
    assert after.nodes[0].inputs == after.inputs


def test_the_constant_may_stand_first_and_what_follows_reads_the_sum():
    b = Build()
    scored = b.map("add($0, $1)", b.weights(4, 5, 5), b.input(6, 4, 5, 5))
    masked = b.map("add($0, $1)", b.weights(3, 1, 5, 5), b.reshape(scored, 2, 3, 4, 5, 5))
    after = fused(b.graph(b.map("exp($0)", masked)), SUMS)
    assert ops(after) == "Move Pointwise Pointwise"


def test_infinities_stay_what_they_are():
    b = Build()
    mask = np.zeros((3, 1, 5, 5))
    mask[1, 0, 2] = -np.inf
    graph = b.graph(windows(b, b.weights(4, 5, 5), b.const(mask)))
    after, _ = apply(SUMS, graph)
    assert ops(after) == "Move Pointwise"
    (constant,) = after.constants.values()
    assert np.isneginf(constant[1, :, 2]).all() and np.isinf(constant).sum() == 4 * 5


def _windows_vary(b):
    return windows(b, b.weights(6, 4, 5, 5), b.weights(3, 1, 5, 5))


def _heads_are_split(b):
    return windows(b, b.weights(4, 5, 5), b.weights(5, 5), apart=(6, 2, 2, 5, 5))


def _read_elsewhere(b):
    scored = b.map("add($0, $1)", b.input(6, 4, 5, 5), b.weights(4, 5, 5))
    masked = b.map("add($0, $1)", b.reshape(scored, 2, 3, 4, 5, 5), b.weights(5, 5))
    return masked, b.map("exp($0)", scored)


def _large(b):
    first, then = b.weights(1024, 1, 1), b.weights(4097, 1, 1, 1)
    return windows(b, first, then, x=(4097, 1024, 1, 1), apart=(1, 4097, 1024, 1, 1))


def _overflows(b):
    first = b.const(np.full((4, 5, 5), -64), np.float16)
    scored = b.map("add($0, $1)", b.input(6, 4, 5, 5, dtype=DType.F16), first)
    then = b.const(np.full((3, 1, 5, 5), -65504), np.float16)
    return b.map("add($0, $1)", b.reshape(scored, 2, 3, 4, 5, 5), then)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (_windows_vary, "changes axes along which the first constant varies"),
        (_heads_are_split, "changes axes along which the first constant varies"),
        (_read_elsewhere, "also read elsewhere"),
        (_large, "together they would have 4195328 elements"),
        (_overflows, "their sum overflows"),
    ],
)
def test_left_alone(make, reason):
    b = Build()
    outputs = make(b)
    assert_refused(b.graph(*(outputs if isinstance(outputs, tuple) else (outputs,))), SUMS, reason)


def _computed(b):
    return windows(b, b.input(4, 5, 5), b.weights(5, 5))


def _transposed(b):
    scored = b.map("add($0, $1)", b.input(6, 4, 5, 5), b.weights(4, 5, 5))
    return b.map("add($0, $1)", b.transpose(scored, 0, 2, 1, 3), b.weights(4, 5))


def _broadcast(b):
    scored = b.map("add($0, $1)", b.input(1, 5, 5), b.weights(4, 5, 5))
    return b.map("add($0, $1)", b.reshape(scored, 1, 4, 5, 5), b.weights(5, 5))


def _multiplied(b):
    scored = b.map("mul($0, $1)", b.input(6, 4, 5, 5), b.weights(4, 5, 5))
    return b.map("add($0, $1)", b.reshape(scored, 2, 3, 4, 5, 5), b.weights(5, 5))


@pytest.mark.parametrize("make", [_computed, _transposed, _broadcast, _multiplied])
def test_other_graphs_do_not_match(make):
    b = Build()
    graph = b.graph(make(b))
    assert fused(graph, SUMS).nodes == graph.nodes
