"""Regions and ranks are of as many boxes and elements as a step found, where that is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from pass_graphs import Build

from saccade.backends.cuda.passes import passes_of, tell_numbers
from saccade.backends.fusions import GatheredPointwise
from saccade.errors import ModelError
from saccade.ir import Count, DType, Factor, IndexMap, Node, TensorType, Value
from saccade.ir.dim import minimum, mul, symbol
from saccade.ir.expr import parse
from saccade.ir.verify import verify
from saccade.opdefs import Gather, Move, NonZero, Pointwise, RoiAlign, TopK
from saccade.options import Options
from saccade.passes import apply

FOUND = symbol("found")


def graph(rows, *, late=False):
    """Regions of boxes, as many as there are marks."""
    b = Build()
    x, marks = b.input(1, 8, 16, 16, dtype=DType.F32), b.input(40, dtype=DType.BOOL)
    boxes = b.input(40, 4, dtype=DType.F32)
    images = b.input(40, dtype=DType.I64)
    places = Value("places", DType.I64, (1, FOUND))
    number = Value("number", DType.I64, (1,))
    nodes = [Node(NonZero(FOUND), (marks,), (places, number), "marks")]
    for value, name in ((boxes, "boxes"), (images, "images")):
        sizes = tuple((n,) for n in value.shape)
        factors = (Factor(rows, 0), *(Factor(n, i + 1) for i, n in enumerate(value.shape[1:])))
        cut = Value(f"{name}_cut", value.dtype, (rows, *value.shape[1:]))
        nodes.append(
            Node(Move(IndexMap(sizes, factors, (1,) * value.rank)), (value,), (cut,), name)
        )
    y = Value("y", DType.F32, (rows, 8, 7, 7))
    regions = Node(RoiAlign((7, 7)), (x, *(n.output for n in nodes[1:])), (y,), "regions")
    order = [*nodes[1:], regions, nodes[0]] if late else [*nodes, regions]
    return counted(b, order, (y, number)), number


def counted(b, nodes, outputs):
    """A graph of nodes, the last of whose outputs is a number."""
    made = replace(
        b.graph(), nodes=tuple(nodes), outputs=outputs, counts=(Count("found", 40),),
        output_names=tuple(value.name for value in outputs),
    )  # fmt: skip
    verify(made)
    return made


@pytest.mark.parametrize("rows", [FOUND, minimum(FOUND, 20)])
def test_the_number_of_boxes_is_an_operand(rows):
    before, number = graph(rows)
    after, _ = apply(tell_numbers.PASS, before)
    verify(after)
    (node,) = (n for n in after.nodes if isinstance(n.op, RoiAlign))
    assert node.op == RoiAlign((7, 7), counted=True)
    assert node.inputs[-1] is number
    again, _ = apply(tell_numbers.PASS, after)
    assert again.nodes == after.nodes


@pytest.mark.parametrize(
    ("rows", "late"), [(40, False), (mul(FOUND, 2), False), (minimum(FOUND, 20), True)]
)
def test_other_boxes_stay(rows, late):
    before, _ = graph(rows, late=late)
    after, _ = apply(tell_numbers.PASS, before)
    assert after.nodes == before.nodes


WIDE = 1 << 13  # elements of each of forty rows, which are worth telling


def walked(made, rows=FOUND, *, width=WIDE, late=False, dtype=DType.F32):
    """What `made` gives of as many rows as there are marks, and their number."""
    b = Build()
    x, marks = b.input(40, width, dtype=dtype), b.input(40, dtype=DType.BOOL)
    number = Value("number", DType.I64, (1,))
    found = Node(
        NonZero(FOUND), (marks,), (Value("places", DType.I64, (1, FOUND)), number), "marks"
    )
    cut = Value("cut", dtype, (rows, width))
    factors = Factor(rows, 0), Factor(width, 1)
    moved = Node(Move(IndexMap(((40,), (width,)), factors, (1, 1))), (x,), (cut,), "cut")
    at = Value("at", DType.I64, (rows,))
    column = IndexMap(((1,), (FOUND,)), (Factor(rows, 1),), (1,))
    columns = Node(Move(column), (found.outputs[0],), (at,), "at")
    op, operands = made(cut, at, x)
    (kind,) = op.infer([value.type for value in operands])
    y = Value("y", kind.dtype, kind.shape)
    last = Node(op, operands, (y,), "y")
    # What nobody reads passes take out.
    read = [maker for maker in (moved, columns) if maker.output in operands]
    nodes = [*read, last, found] if late else [found, *read, last]
    return counted(b, nodes, (y, number)), number


def doubled(cut, at, x):
    return Pointwise(parse("mul($0, 2.0)"), DType.F32), (cut,)


def taken(cut, at, x):
    return Gather(0), (x, at)


def summed(cut, at, x):
    op = GatheredPointwise(parse("add($0, $1)"), DType.F32, ((0, 0), (-1, -1)))
    return op, (x, cut, at)


@pytest.mark.parametrize("rows", [FOUND, minimum(FOUND, 37)])
@pytest.mark.parametrize(
    ("made", "picks"),
    [(doubled, ((-1, -1),)), (taken, ((0, 0),)), (summed, ((0, 0), (-1, -1)))],
)
def test_the_number_of_rows_of_a_result_is_an_operand(made, picks, rows):
    before, number = walked(made, rows)
    after, _ = apply(tell_numbers.PASS, before)
    verify(after)
    node = after.nodes[-1]
    assert isinstance(node.op, GatheredPointwise)
    assert (node.op.picks, node.op.counted) == (picks, (0,))
    assert node.inputs == (*before.nodes[-1].inputs, number)
    again, _ = apply(tell_numbers.PASS, after)
    assert again.nodes == after.nodes


def test_small_results_and_unknown_numbers_stay():
    late = walked(doubled, late=True), walked(doubled, mul(FOUND, 2)), walked(doubled, 40)
    for before, _ in (*late, walked(doubled, width=100), walked(taken, width=100)):
        assert apply(tell_numbers.PASS, before)[0].nodes == before.nodes


def test_results_of_an_image_that_may_have_any_size_are_told_by_how_large_it_usually_is():
    for width, told in ((symbol("w"), False), (mul(symbol("w"), symbol("h")), True)):
        before, _ = walked(doubled, width=width)
        after, _ = apply(tell_numbers.PASS, before)
        assert isinstance(after.nodes[-1].op, GatheredPointwise) == told


def test_slices_of_what_arithmetic_does_not_know_stay():
    before, _ = walked(taken, dtype=DType.U8)
    assert apply(tell_numbers.PASS, before)[0].nodes == before.nodes


def test_it_is_the_last_of_the_passes():
    assert passes_of(Options(device="cuda", machine="h200"))[-1] is tell_numbers.PASS


def ranked(size, *, axis=0):
    """The best of as many numbers as there are marks."""
    b = Build()
    marks, x = b.input(40, dtype=DType.BOOL), b.input(3, 40, dtype=DType.F32)
    number = Value("number", DType.I64, (1,))
    found = Node(
        NonZero(FOUND), (marks,), (Value("places", DType.I64, (1, FOUND)), number), "marks"
    )
    cut = Value("cut", DType.F32, (size, 3))
    moved = Move(IndexMap(((3,), (40,)), (Factor(size, 1), Factor(3, 0)), (1, 1)))
    nodes = [found, Node(moved, (x,), (cut,), "cut")]
    op = TopK(2, axis)
    results = tuple(
        Value(name, kind.dtype, kind.shape)
        for name, kind in zip(("best", "where"), op.infer([cut.type]), strict=True)
    )
    nodes.append(Node(op, (cut,), results, "best"))
    return counted(b, nodes, (*results, number)), number


@pytest.mark.parametrize("size", [FOUND, minimum(FOUND, 20)])
def test_the_number_of_elements_is_an_operand(size):
    before, number = ranked(size)
    after, _ = apply(tell_numbers.PASS, before)
    verify(after)
    assert after.nodes[-1].op == TopK(2, 0, counted=True)
    assert after.nodes[-1].inputs == (*before.nodes[-1].inputs, number)


def test_other_rankings_stay():
    for case in (ranked(FOUND, axis=1), ranked(mul(FOUND, 2)), ranked(40)):
        assert apply(tell_numbers.PASS, case[0])[0].nodes == case[0].nodes


def test_the_first_elements_are_ranked_alone():
    x = np.array([[3.0, 1, 4, 1, 5], [2, 7, 1, 8, 2]], np.float32)
    values, places = TopK(3, 1, counted=True).reference(x, np.array([3]))
    assert values.tolist() == [[4, 3, 1], [7, 2, 1]] and places.tolist() == [[2, 0, 1], [1, 0, 2]]
    values, places = TopK(3, 1, False, counted=True).reference(x, np.array([1]))
    # The first one stands behind those that there are.
    assert values.tolist() == [[3, 3, 3], [2, 2, 2]] and not places.any()
    with pytest.raises(ModelError, match=r"a number of elements must be int64 \[1\]"):
        TopK(3, 1, counted=True).infer([TensorType(DType.F32, (2, 5)), TensorType(DType.I32, (1,))])
