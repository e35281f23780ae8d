from __future__ import annotations

import pytest
from pass_graphs import Build, assert_refused, fused, ops

from saccade.ir import DType
from saccade.ir.expr import parse
from saccade.opdefs import Conv2d
from saccade.passes.fuse_prologue import PASS as FUSE


def _norm(b, x):
    c = x.shape[1]
    return b.map("relu(add(mul($0, $1), $2))", x, b.weights(c, 1, 1), b.weights(1, c, 1, 1))


def test_a_norm_and_relu_go_into_every_reader():
    b = Build()
    x = b.input(2, 3, 5, 4)
    y = _norm(b, x)
    one = b.conv(y, 6, bias=True, stride=(2, 2))
    after = fused(b.graph(one, b.conv(y, 2)), FUSE)
    assert ops(after) == "Conv2d Conv2d"
    assert [node.op.n_prologue for node in after.nodes] == [2, 2]
    assert after.nodes[0].inputs[0] is x
    assert [v.shape for v in after.nodes[0].inputs[2:]] == [(1, 3, 1, 1)] * 2 + [(1, 6, 1, 1)]


def test_a_gate_per_image_and_channel():
    b = Build()
    x, gate = b.input(2, 3, 5, 4), b.input(2, 3, 1, 1)
    after = fused(b.graph(b.conv(b.map("mul($0, $1)", gate, x), 6, bias=True)), FUSE)
    assert ops(after) == "Conv2d"
    assert str(after.nodes[0].op.prologue) == "mul($1, $0)"


def test_an_activation_alone():
    b = Build()
    after = fused(b.graph(b.conv(b.map("silu($0)", b.input(2, 3, 5, 4)), 6)), FUSE)
    assert after.nodes[0].op.n_prologue == 0


@pytest.mark.parametrize(
    ("attributes", "r", "reason"),
    [
        ({}, 3, "larger than 1x1"),
        ({"padding": (0, 0, 0, 1)}, 1, "pads"),
        ({"groups": 3}, 1, "3 groups"),
        ({"prologue": parse("neg($0)")}, 1, "prologue already"),
    ],
)
def test_convolutions_that_take_no_prologue(attributes, r, reason):
    b = Build()
    graph = b.graph(b.conv(_norm(b, b.input(2, 3, 5, 4)), 6, r, **attributes))
    assert_refused(graph, FUSE, reason)


def _again(b, y):
    return b.op(Conv2d(epilogue=parse("add($0, $1)")), y, b.weights(3, 3, 1, 1), y)


@pytest.mark.parametrize(
    ("other", "reason", "count"),
    [
        (lambda b, y: b.conv(y, 6, 3), "larger than 1x1", 2),
        (lambda b, y: y, "output of the graph", 1),
        (lambda b, y: b.map("exp($0)", y), "also read by Pointwise", 1),
        (_again, "also read by Conv2d", 2),
    ],
)
def test_one_reader_that_cannot_keeps_the_step(other, reason, count):
    b = Build()
    y = _norm(b, b.input(2, 3, 5, 4))
    assert_refused(b.graph(b.conv(y, 6), other(b, y)), FUSE, reason, count)


def test_operands_that_are_not_per_channel():
    def graph(*shapes, dtype=DType.F64, text="add($0, $1)"):
        b = Build()
        x = b.input(2, 3, 5, 4)
        others = [b.input(*shape, dtype=dtype) for shape in shapes]
        return b.graph(b.conv(b.map(text, x, *others), 6))

    assert_refused(graph((2, 3, 5, 4)), FUSE, "no single operand is the feature map")
    assert_refused(graph((3, 1, 1)), FUSE, "has 3 axes")
    assert_refused(graph((1, 1, 5, 1)), FUSE, "is not per channel")
    flags = graph((1, 3, 1, 1), dtype=DType.BOOL, text="where($1, $0, 0.0)")
    assert_refused(flags, FUSE, "another element type")
