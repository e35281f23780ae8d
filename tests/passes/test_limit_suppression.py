"""Suppression ends when there are as many boxes as are read."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest
from pass_graphs import Build

from saccade.ir import DType, Factor, Graph, IndexMap, Node, Value
from saccade.ir.counts import Count
from saccade.ir.dim import minimum, mul, symbol
from saccade.ir.verify import verify
from saccade.opdefs import Gather, Move, NonMaxSuppression
from saccade.passes import STANDARD, apply
from saccade.passes.limit_suppression import PASS

BOXES, FOUND, CHOSEN = 40, symbol("found"), symbol("chosen")
NUMBER = "where($0, 0.0, $1)"


class Detector(Build):
    """Boxes that are suppressed, as torchvision's detectors are exported."""

    def __init__(self, *, classes=1, most=1 << 30):
        super().__init__()
        self.boxes, self.scores = self.input(1, BOXES, 4), self.input(1, classes, BOXES)
        self.op_ = NonMaxSuppression(FOUND, most, 0.5)
        kinds = self.op_.infer([self.boxes.type, self.scores.type])
        self.rows, self.number = (
            Value(name, kind.dtype, kind.shape)
            for name, kind in zip(("rows", "number"), kinds, strict=True)
        )
        node = Node(self.op_, (self.boxes, self.scores), (self.rows, self.number), "nms")
        self.nodes.append(node)
        self.counts = [(Count("found", mul(classes, min(most, BOXES))), self.number)]

    def column(self, size=FOUND):
        """The boxes of the rows."""
        factors = (Factor(1, 1, 2), Factor(size, 0))
        return self.op(Move(IndexMap(((FOUND,), (3,)), factors, (2,))), self.rows)

    def none_of(self, empty):
        """As many as are found, or none."""
        number = self.map(NUMBER, empty, self.number, dtype=DType.I64)
        self.counts.append((Count("chosen", BOXES), number))
        return number

    def first(self, x, most, *, start=0, step=1, size=None):
        (extent,) = x.shape
        factor = Factor(minimum(most, extent) if size is None else size, 0, start, step)
        return self.op(Move(IndexMap(((extent,),), (factor,), (1,))), x)

    def graph(self, *outputs):
        counts, numbers = zip(*self.counts, strict=True)
        outputs = (*outputs, *numbers)
        graph = Graph(
            tuple(self.inputs), outputs, tuple(self.nodes), MappingProxyType(self.constants),
            tuple(f"y{i}" for i in range(len(outputs))), counts=counts,
        )  # fmt: skip
        verify(graph)
        return graph


def empty(b):
    return b.const([False], np.bool_)


def limited(graph):
    after, notes = apply(PASS, graph)
    assert not notes
    verify(after)
    return after


def most_of(graph):
    (found,) = [n.op.most for n in graph.nodes if isinstance(n.op, NonMaxSuppression)]
    return found


def best_boxes(b, most=10):
    return b.op(Gather(0), b.op(Move(first_axis(b.boxes)), b.boxes), b.first(b.column(), most))


def first_axis(boxes):
    """Without the axis of images."""
    sizes = tuple((size,) for size in boxes.shape)
    return IndexMap(sizes, (Factor(BOXES, 1), Factor(4, 2)), (1, 1))


def values(graph, boxes, scores):
    """The outputs, node by node, for the numbers that were found."""
    known = dict(graph.constants) | dict(zip(graph.inputs, (boxes, scores), strict=True))
    sizes = graph.with_bounds({})
    for node in graph.nodes:
        results = node.op.bind(sizes).reference(*(known[value] for value in node.inputs))
        known |= dict(zip(node.outputs, results, strict=True))
    return [known[value] for value in graph.outputs]


def feeds(classes=1, seed=0):
    rng = np.random.default_rng(seed)
    corners = rng.random((1, BOXES, 2)) * 20
    boxes = np.concatenate([corners, corners + 4 + rng.random((1, BOXES, 2))], axis=2)
    return boxes, rng.random((1, classes, BOXES))


@pytest.mark.parametrize("most", [1, 10, 39])
def test_what_is_cut_off_is_not_looked_for(most):
    b = Detector()
    before = b.graph(best_boxes(b, most))
    after = limited(before)
    assert most_of(after) == most
    assert after.counts == (Count("found", most),)
    for seed in range(4):
        (one, one_number), (two, two_number) = (
            values(graph, *feeds(seed=seed)) for graph in (before, after)
        )
        # Rows beyond the number mean nothing.
        assert two_number[0] == min(one_number[0], most)
        np.testing.assert_array_equal(one[: two_number[0]], two[: two_number[0]])


def test_a_limit_that_is_smaller_stays():
    b = Detector(most=5)
    graph = b.graph(best_boxes(b, 10))
    assert limited(graph).nodes == graph.nodes
    b = Detector(most=5)
    assert most_of(limited(b.graph(best_boxes(b, 3)))) == 3


def test_as_many_as_there_are_boxes_is_no_limit():
    b = Detector()
    assert most_of(limited(b.graph(best_boxes(b, BOXES)))) == 1 << 30


def test_rows_class_by_class_begin_alike():
    b = Detector(classes=3)
    before = b.graph(b.first(b.column(), 10))
    after = limited(before)
    # Each class has so many, and how many they are together is as it was.
    assert most_of(after) == 10 and after.counts == before.counts
    for seed in range(4):
        (one, all_of_them), (two, number) = (
            values(graph, *feeds(3, seed)) for graph in (before, after)
        )
        assert number[0] >= min(10, all_of_them[0])
        np.testing.assert_array_equal(one[: min(10, number[0])], two[: min(10, number[0])])


def test_numbers_that_are_the_same_or_none_go_along():
    """`chosen` are the boxes that stay where there are any."""
    b = Detector()
    b.none_of(empty(b))
    after = limited(b.graph(b.first(b.column(CHOSEN), 10)))
    assert most_of(after) == 10
    assert after.counts == (Count("found", 10), Count("chosen", 10))


@pytest.mark.parametrize(
    ("work", "found"),
    [
        ("min(10.0, $0)", 10), ("mul(min($0, 7.0), 4.0)", 10), ("min(11.0, $0)", 1 << 30),
        ("add(min(10.0, $0), $0)", 1 << 30), ("mul($0, 2.0)", 1 << 30), ("max(10.0, $0)", 1 << 30),
    ],
)  # fmt: skip
def test_what_else_is_made_of_the_number(work, found):
    b = Detector()
    other = b.map(work, b.number, dtype=DType.I64)
    assert most_of(limited(b.graph(b.first(b.column(), 10), other))) == found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("where($1, $0, $0)", 10), ("where(less($0, 3.0), 0.0, $0)", 1 << 30),
        ("where($1, $2, $0)", 1 << 30), ("where($1, 20.0, $0)", 1 << 30),
    ],
)  # fmt: skip
def test_numbers_that_hang_on_it_otherwise(text, expected):
    """Another one may be larger than the limit."""
    b = Detector()
    number = b.map(text, b.number, empty(b), b.const([30], np.int64), dtype=DType.I64)
    b.counts.append((Count("chosen", BOXES), number))
    assert most_of(limited(b.graph(b.first(b.column(CHOSEN), 10)))) == expected


def test_rows_that_are_read_beyond():
    b = Detector()
    column = b.column()
    assert most_of(limited(b.graph(b.first(column, 10), b.first(column, 20)))) == 20
    b = Detector()
    column = b.column()
    assert most_of(limited(b.graph(b.first(column, 10), column))) == 1 << 30
    b = Detector()
    column = b.column()
    other = b.map("add($0, 1.0)", column)
    assert most_of(limited(b.graph(b.first(column, 10), other))) == 1 << 30


@pytest.mark.parametrize("how", [{"start": 1, "size": 9}, {"step": -1, "start": 9, "size": 10}])
def test_rows_that_are_read_in_another_way(how):
    b = Detector()
    assert most_of(limited(b.graph(b.first(b.column(), 10, **how)))) == 1 << 30


def test_sizes_that_hang_on_the_number():
    b = Detector()
    repeated = Move(IndexMap((), (Factor(FOUND, None),), (1,)))
    ones = b.op(repeated, b.const(1, np.int64))
    assert most_of(limited(b.graph(b.first(b.column(), 10), ones))) == 1 << 30
    b = Detector()
    repeated = Move(IndexMap((), (Factor(minimum(10, FOUND), None),), (1,)))
    ones = b.op(repeated, b.const(1, np.int64))
    assert most_of(limited(b.graph(b.first(b.column(), 10), ones))) == 10
    b = Detector()
    b.counts.append((Count("other", mul(FOUND, 2)), b.map("add($0, 1.0)", b.const([1], np.int64))))
    assert most_of(limited(b.graph(b.first(b.column(), 10)))) == 1 << 30


def test_a_number_that_the_caller_gets():
    b = Detector()
    assert most_of(limited(b.graph(b.first(b.column(), 10), b.number))) == 1 << 30


def test_two_suppressions():
    b = Detector()
    one = b.first(b.column(), 10)
    node = b.nodes[0]
    rows = Value("rows2", DType.I64, (symbol("more"), 3))
    number = Value("number2", DType.I64, (1,))
    op = replace(node.op, rows=symbol("more"))
    b.nodes.append(Node(op, node.inputs, (rows, number), "nms2"))
    b.counts.append((Count("more", BOXES), number))
    factors = (Factor(1, 1, 2), Factor(minimum(4, symbol("more")), 0))
    two = b.op(Move(IndexMap(((symbol("more"),), (3,)), factors, (2,))), rows)
    after = limited(b.graph(one, two))
    assert [n.op.most for n in after.nodes if isinstance(n.op, NonMaxSuppression)] == [10, 4]
    assert after.counts == (Count("found", 10), Count("more", 4))


def test_it_comes_behind_movements_that_were_put_together():
    names = [step.name for step in STANDARD]
    assert names.index("compose_moves") < names.index("limit_suppression")
