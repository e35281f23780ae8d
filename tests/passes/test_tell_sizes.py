"""What walks a result is told its sizes on CPUs, too, where rows alone do not say them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pass_graphs import Build

from saccade.backends.cpu.passes import passes_of, tell_sizes
from saccade.backends.fusions import GatheredPointwise
from saccade.ir import Count, DType, Factor, IndexMap, Node, Value
from saccade.ir.dim import symbol
from saccade.ir.expr import parse
from saccade.ir.verify import verify
from saccade.opdefs import Move, NonZero, Pointwise
from saccade.options import Options
from saccade.passes import apply

FOUND = symbol("found")


def graph(shape):
    """A chain over a part of an array, some of whose sizes are found out."""
    b = Build()
    whole = tuple(n if isinstance(n, int) else 600 for n in shape)
    x, marks = b.input(*whole, dtype=DType.F32), b.input(600, dtype=DType.BOOL)
    number = Value("number", DType.I64, (1,))
    found = Node(
        NonZero(FOUND), (marks,), (Value("places", DType.I64, (1, FOUND)), number), "marks"
    )
    factors = tuple(Factor(n, i) for i, n in enumerate(shape))
    cut = Value("cut", DType.F32, shape)
    moved = Move(IndexMap(tuple((n,) for n in whole), factors, (1,) * len(shape)))
    y = Value("y", DType.F32, shape)
    last = Node(Pointwise(parse("mul($0, 2.0)"), DType.F32), (cut,), (y,), "y")
    made = replace(
        b.graph(), nodes=(found, Node(moved, (x,), (cut,), "cut"), last), outputs=(y, number),
        counts=(Count("found", 600),), output_names=("y", "number"),
    )  # fmt: skip
    verify(made)
    return made, number


@pytest.mark.parametrize("shape", [(17, FOUND, 40), (17, FOUND, FOUND), (FOUND, FOUND)])
def test_sizes_inside_are_operands(shape):
    before, number = graph(shape)
    after, _ = apply(tell_sizes.PASS, before)
    verify(after)
    node = after.nodes[-1]
    assert isinstance(node.op, GatheredPointwise)
    assert node.op.counted == tuple(axis for axis, n in enumerate(shape) if n is FOUND)
    assert set(node.inputs[1:]) == {number}


@pytest.mark.parametrize("shape", [(FOUND, 17, 40), (3, FOUND, 40), (17, 600, 40)])
def test_rows_and_small_results_stay(shape):
    before, _ = graph(shape)
    assert apply(tell_sizes.PASS, before)[0].nodes == before.nodes


def test_it_is_the_last_of_the_passes():
    assert passes_of(Options())[-1] is tell_sizes.PASS
