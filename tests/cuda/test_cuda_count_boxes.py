"""Regions are computed of as many boxes as a step found, where that is known."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pass_graphs import Build

from saccade.backends.cuda.passes import count_boxes, passes_of
from saccade.ir import Count, DType, Factor, IndexMap, Node, Value
from saccade.ir.dim import minimum, mul, symbol
from saccade.ir.verify import verify
from saccade.opdefs import Move, NonZero, RoiAlign
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
    made = b.graph()
    made = replace(
        made, nodes=tuple(order), outputs=(y, number), output_names=("y", "found"),
        counts=(Count("found", 40),),
    )  # fmt: skip
    verify(made)
    return made, number


@pytest.mark.parametrize("rows", [FOUND, minimum(FOUND, 20)])
def test_the_number_of_boxes_is_an_operand(rows):
    before, number = graph(rows)
    after, _ = apply(count_boxes.PASS, before)
    verify(after)
    (node,) = (n for n in after.nodes if isinstance(n.op, RoiAlign))
    assert node.op == RoiAlign((7, 7), counted=True)
    assert node.inputs[-1] is number
    again, _ = apply(count_boxes.PASS, after)
    assert again.nodes == after.nodes


@pytest.mark.parametrize(
    ("rows", "late"), [(40, False), (mul(FOUND, 2), False), (minimum(FOUND, 20), True)]
)
def test_other_boxes_stay(rows, late):
    before, _ = graph(rows, late=late)
    after, _ = apply(count_boxes.PASS, before)
    assert after.nodes == before.nodes


def test_it_is_the_last_of_the_passes():
    assert passes_of(Options(device="cuda", machine="h200"))[-1] is count_boxes.PASS
