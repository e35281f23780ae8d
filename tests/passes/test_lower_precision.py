from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from pass_graphs import Build, ops

from saccade.ir import Body, BodyNode, DType, Node, TensorType, Value, storage
from saccade.ir.expr import parse
from saccade.ir.verify import verify
from saccade.opdefs import (
    ArgReduce,
    Concat,
    CumSum,
    DeformConv,
    Gather,
    GridSample,
    Loop,
    Pointwise,
    Softmax,
    TopK,
    WeightedSamples,
)
from saccade.passes import apply
from saccade.passes.lower_precision import PASS

F32, BF16 = DType.F32, DType.BF16


def lowered(build, *outputs):
    """The lowered graph, which keeps the caller's types, and its remarks by node."""
    before = build.graph(*outputs)
    after, _ = apply(PASS, before)
    verify(after)
    assert [v.dtype for v in after.inputs] == [v.dtype for v in before.inputs]
    assert [v.dtype for v in after.outputs] == [v.dtype for v in before.outputs]
    return after, dict(r.split(" stays float32: ") for r in after.remarks)


class Single(Build):
    """Everything in float32."""

    def input(self, *shape, dtype=F32):
        return super().input(*shape, dtype=dtype)

    def const(self, array, dtype=np.float32):
        return super().const(array, dtype)


def dtypes(graph):
    return " ".join(node.outputs[0].dtype.value for node in graph.nodes)


def test_what_lies_between_is_rounded_and_the_caller_s_types_stay():
    b = Single()
    x = b.input(1, 3, 8, 8)
    y = b.conv(b.conv(x, 8, bias=True), 4, bias=True)
    after, remarks = lowered(b, y)
    assert ops(after) == "Conv2d Conv2d"
    assert dtypes(after) == "bfloat16 float32"
    assert remarks == {"n1": "the model gives it"}
    assert all(value.dtype is F32 for value in after.constants)
    assert [v.name for v in after.values()] == [v.name for v in b.graph(y).values()]


def test_lowering_twice_changes_nothing_more():
    b = Single()
    y = b.map("relu($0)", b.map("relu($0)", b.input(2, 3)))
    after, _ = lowered(b, y)
    again, _ = apply(PASS, after)
    assert again.nodes == after.nodes


def test_moves_keep_one_type():
    b = Single()
    x = b.input(1, 4, 6, 6)
    moved = b.reshape(x, 1, 144)
    y = b.op(Concat(1), moved, b.map("relu($0)", moved), b.weights(1, 5))
    after, _ = lowered(b, b.map("neg($0)", y))
    for node in after.nodes:
        if isinstance(node.op, Concat):
            assert {v.dtype for v in (*node.inputs, *node.outputs)} == {BF16}
    counts = Counter(node.op.family for node in after.nodes)
    assert counts == {"Pointwise": 3, "Move": 1, "Concat": 1}  # one cast, at the input
    (rounded,) = (v for v in after.constants if v.shape == (1, 5))
    assert rounded.dtype is BF16


@pytest.mark.parametrize("readers", [1, 2])
def test_operands_of_a_concat_are_rounded_once_whoever_comes_first(readers):
    b = Single()
    x = b.conv(b.input(1, 3, 6, 6), 8)
    part = b.slice(x, 1, 4, 4)
    others = [b.conv(part, 4) for _ in range(readers)]
    y = b.op(Concat(1), b.slice(x, 1, 0, 4), part, *others)
    after, _ = lowered(b, b.map("relu($0)", y))
    assert {n.op.family for n in after.nodes[:-1]} == {"Conv2d", "Move", "Concat"}


def test_what_is_ranked_stays():
    b = Single()
    x = b.map("exp($0)", b.map("relu($0)", b.input(2, 6)))
    values, places = Value("best", F32, (2, 3)), Value("at", DType.I64, (2, 3))
    b.nodes.append(Node(TopK(3, 1), (x,), (values, places), "ranked"))
    after, remarks = lowered(b, b.map("relu($0)", b.map("relu($0)", values)), places)
    assert dtypes(after) == "float32 float32 float32 bfloat16 float32"
    assert remarks["ranked"] == "it gives numbers of what it ranks"


def test_what_bodies_take_and_give_stays():
    b = Single()
    x = b.map("relu($0)", b.map("relu($0)", b.input(2, 6)))
    kind = TensorType(F32, (2, 6))
    numbers = (TensorType(DType.I64, ()), TensorType(DType.BOOL, ()))
    step = BodyNode(Pointwise(parse("add($0, 1)"), F32), (2,), (3,))
    body = Body(("i", "c", "v", "w"), (*numbers, kind, kind), 3, (), (step,), (1, 3))
    loop = Loop((body,), 0, "loop", 1, None, 100)
    most, going = b.const([3], np.int64), b.const([True], np.bool_)
    y, turns = Value("y", F32, (2, 6)), Value("turns", DType.I64, (1,))
    b.nodes.append(Node(loop, (most, going, x), (y, turns), "loop"))
    after, remarks = lowered(b, b.map("relu($0)", b.map("relu($0)", y)))
    assert dtypes(after) == "bfloat16 float32 float32 bfloat16 float32"
    assert remarks["n1"] == "a body takes it"
    assert remarks["loop"] == "a body gives it"


def test_places_of_samples_stay():
    b = Single()
    x, grid = b.conv(b.input(2, 3, 5, 5), 4), b.map("mul($0, 0.5)", b.input(2, 3, 4, 2))
    after, remarks = lowered(b, b.map("relu($0)", b.op(GridSample(), x, grid)))
    assert dtypes(after) == "bfloat16 float32 bfloat16 float32"
    assert remarks["n1"] == "a small error moves samples"


def test_places_of_weighted_samples_stay():
    b = Single()
    x, weights = b.conv(b.input(2, 3, 5, 5), 4), b.map("relu($0)", b.input(2, 6, 2, 3))
    grid = b.map("mul($0, 0.5)", b.input(2, 6, 2, 3, 2))
    y = b.op(WeightedSamples(1, 2), x, grid, weights)
    after, remarks = lowered(b, b.map("relu($0)", y))
    assert dtypes(after) == "bfloat16 bfloat16 float32 bfloat16 float32"
    assert list(remarks.values()).count("a small error moves samples") == 1


def test_parts_of_what_stays_are_not_rounded_for_a_pointwise():
    b = Single()
    boxes = b.map("sigmoid($0)", b.input(2, 6, 4))  # the model gives them
    halves = b.slice(boxes, 2, 0, 2), b.slice(boxes, 2, 2, 2)
    y = b.map("relu($0)", b.map("add($0, $1)", *halves))
    after, remarks = lowered(b, y, boxes)
    assert dtypes(after) == "float32 float32 float32 bfloat16 float32"
    assert list(remarks.values()).count("what it moves stays float32") == 2


def test_parts_of_what_stays_are_rounded_for_products():
    b = Single()
    boxes = b.map("sigmoid($0)", b.input(2, 6, 4))
    y = b.map("relu($0)", b.matmul(b.slice(boxes, 2, 0, 2), 8))
    after, _ = lowered(b, y, boxes)
    assert dtypes(after) == "float32 bfloat16 bfloat16 bfloat16 float32"


def test_gathers_round_what_they_take_from_and_not_indices():
    b = Single()
    indices = b.const([2, 0], np.int64)
    x = b.op(Gather(0), b.weights(4, 3), indices)
    after, _ = lowered(b, b.map("neg($0)", x))
    assert [v.dtype for v in after.nodes[0].inputs] == [BF16, DType.I64]


def test_one_row_of_many_is_not_worth_rounding_all():
    b = Single()
    x, one = b.input(100, 4, 6), b.input(dtype=DType.I64)
    y = b.map("relu($0)", b.map("relu($0)", b.op(Gather(0), x, one)))
    after, remarks = lowered(b, y)
    assert dtypes(after) == "float32 bfloat16 float32"
    assert remarks["n0"] == "what it takes one of stays float32"
    rounded = b.op(Gather(0), b.map("relu($0)", x), one)
    assert dtypes(lowered(b, b.map("relu($0)", rounded))[0]).endswith("bfloat16 bfloat16 float32")


def test_what_moves_on_to_the_caller_stays():
    b = Single()
    x = b.conv(b.input(1, 3, 4, 4), 8)
    y = b.reshape(b.transpose(x, 0, 2, 3, 1), 16, 8)
    after, remarks = lowered(b, y)
    assert dtypes(after) == "float32 float32 float32"
    assert set(remarks) == {"n0", "n1", "n2"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("exp($0)", "exp grow"),
        ("pow(2.0, $0)", "pow grow"),
        ("sin($0)", "its period"),
        ("floor($0)", "decides in floor"),
        ("mul($0, greater($0, 0.5))", "decides in greater"),
    ],
)
def test_sensitive_arithmetic(text, reason):
    b = Single()
    x = b.map("relu($0)", b.input(4, 4))
    y = b.map("neg($0)", b.map(text, x))
    after, remarks = lowered(b, b.map("neg($0)", y))
    assert dtypes(after) == "float32 float32 bfloat16 float32"
    assert reason in remarks["n0"]
    assert reason in remarks["n1"]


def test_arithmetic_that_is_not():
    b = Single()
    x = b.map("relu($0)", b.input(4, 4))
    y = b.map("add(pow($0, 2.0), silu($0))", x)
    after, remarks = lowered(b, b.map("neg($0)", y))
    assert dtypes(after) == "bfloat16 bfloat16 float32"
    assert set(remarks) == {"n2"}


def test_offsets_of_samples_stay():
    b = Single()
    x = b.conv(b.input(1, 3, 6, 6), 8)
    y = b.op(DeformConv(), x, b.weights(4, 8, 1, 1), b.conv(x, 2))
    after, remarks = lowered(b, b.map("neg($0)", y))
    assert dtypes(after) == "bfloat16 float32 bfloat16 float32"
    assert "moves samples" in remarks["n1"]


def test_operators_that_want_their_operands():
    for op, reason in (
        (Softmax(0), "softmax grow"),
        (ArgReduce("argmax", 0), "ranking"),
        (CumSum(0), "running sums"),
    ):
        b = Single()
        x = b.reshape(b.map("relu($0)", b.input(4, 6)), 24, 1)
        _, remarks = lowered(b, b.op(op, x))
        assert reason in remarks["n0"]
        assert reason in remarks["n1"]


def test_integers_that_pass_through_floats():
    b = Single()
    x = b.map("mul($0, 2.0)", b.map("$0", b.input(4, dtype=DType.I64), dtype=F32))
    after, remarks = lowered(b, b.map("$0", x, dtype=DType.I64))
    assert dtypes(after) == "float32 float32 int64"
    assert remarks == {"n0": "it holds integers", "n1": "it holds integers"}


def test_other_types_are_left_alone():
    b = Build()
    after, remarks = lowered(b, b.map("relu($0)", b.map("neg($0)", b.input(3))))
    assert dtypes(after) == "float64 float64"
    assert not remarks


def test_the_values_are_those_of_the_original_rounded():
    b = Single()
    x = b.input(2, 3)
    graph, _ = lowered(b, b.map("mul($0, $0)", b.map("add($0, 1.0)", x)))
    array = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
    known = {graph.inputs[0]: array}
    for node in graph.nodes:
        (result,) = storage.reference(node.op, [known[v] for v in node.inputs])
        known[node.output] = result.astype(node.output.dtype.numpy)
    kept = (array + 1).astype(BF16.numpy).astype(np.float32)
    np.testing.assert_array_equal(known[graph.outputs[0]], kept * kept)
