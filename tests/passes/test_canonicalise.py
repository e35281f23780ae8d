from __future__ import annotations

import pytest
from pass_graphs import Build, assert_refused, assert_same, fused, ops

from saccade.ir import DType
from saccade.ir.expr import parse
from saccade.opdefs import Concat, Conv2d, Pad, Pointwise, Pool2d, Reduce, Resize
from saccade.passes.canonicalise import PASS as CANONICAL
from saccade.passes.fold_padding import PASS as PADDING
from saccade.passes.normalise_operands import PASS as OPERANDS


def test_numbers_and_repeated_operands_leave_the_operand_list():
    b = Build()
    x = b.input(2, 3)
    y = b.map("add(mul($0, $1), $2)", x, x, b.const([[0.5]]))
    after = fused(b.graph(y), OPERANDS)
    (node,) = after.nodes
    assert node.inputs == (x,)
    assert node.op.expr == parse("add(mul($0, $0), 0.5)")


@pytest.mark.parametrize(
    ("expr", "shape", "array", "reason"),
    [
        ("add($0, $1)", (), [[1.0]], "shape of the result"),
        ("where($0, $1, $2)", None, [1.0], "in which type"),
    ],
)
def test_numbers_that_are_needed_stay(expr, shape, array, reason):
    b = Build()
    if shape is None:
        x = b.input(3, dtype=DType.BOOL)
        graph = b.graph(b.map(expr, x, b.const(array), b.const([2.0]), dtype=DType.F64))
    else:
        graph = b.graph(b.map(expr, b.input(*shape), b.const(array)))
    assert_refused(graph, OPERANDS, reason)


def test_integers_beyond_a_double_stay():
    b = Build()
    x = b.input(3, dtype=DType.I64)
    big, small = b.const([(1 << 53) + 1], "int64"), b.const([7], "int64")
    graph = b.graph(b.map("add($0, $1)", x, big), b.map("add($0, $1)", x, small))
    after = fused(graph, OPERANDS)
    assert [len(node.inputs) for node in after.nodes] == [2, 1]


@pytest.mark.parametrize(
    ("expr", "gone"),
    [
        ("add($0, 0.0)", True),
        ("mul($0, 1.0)", True),
        ("sub($0, 0.0)", True),
        ("add($0, 1.0)", False),
    ],
)
def test_integers_that_stay_as_they_are(expr, gone):
    b = Build()
    x = b.input(3, dtype=DType.I64)
    after = fused(b.graph(b.map("neg($0)", b.map(expr, x))), CANONICAL)
    assert len(after.nodes) == (1 if gone else 2)


@pytest.mark.parametrize(
    "op",
    [
        Pointwise(parse("$0"), DType.F64),
        Concat(1),
        Pad(((0, 0),) * 4, "reflect"),
        Pool2d("average", (1, 1)),
        Resize((1, 2, 4, 5), mode="linear"),
        Resize((1, 2, 4, 5), (1.0, 1.0, 1.0, 1.0), mode="cubic"),
    ],
)
def test_operators_that_do_nothing_go(op):
    b = Build()
    x = b.input(1, 2, 4, 5)
    after = fused(b.graph(b.map("exp($0)", b.op(op, b.map("neg($0)", x)))), CANONICAL)
    assert ops(after) == "Pointwise Pointwise"


@pytest.mark.parametrize(
    "op",
    [
        Pointwise(parse("$0"), DType.F32),
        Pad(((0, 0), (0, 0), (0, 0), (0, 1))),
        Pool2d("max", (1, 1), (2, 2)),
        Pool2d("max", (1, 1), epilogue=parse("relu($0)")),
        Resize((1, 2, 8, 5)),
    ],
)
def test_operators_that_look_idle_but_are_not_stay(op):
    b = Build()
    graph = b.graph(b.op(op, b.input(1, 2, 4, 5)))
    after = fused(graph, CANONICAL)
    assert after.nodes == graph.nodes


def test_an_idle_node_between_input_and_output():
    b = Build()
    x = b.input(2)
    after = fused(b.graph(b.map("$0", x)), CANONICAL)
    assert after.outputs == (x,)
    assert not after.nodes


def test_concats_of_concats_are_flat():
    b = Build()
    x, y = b.input(1, 2, 3), b.input(1, 3, 3)
    inner = b.op(Concat(1), x, y)
    after = fused(b.graph(b.op(Concat(1), y, inner, b.op(Concat(1), inner))), CANONICAL)
    assert [node.inputs for node in after.nodes][-1][0] is y
    b = Build()
    x, y = b.input(1, 2, 3), b.input(1, 3, 3)
    after = fused(b.graph(b.op(Concat(1), y, b.op(Concat(1), x, y), x)), CANONICAL)
    assert after.nodes[0].inputs == (y, x, y, x)


def test_concats_on_another_axis_or_with_other_readers_stay():
    b = Build()
    x = b.input(1, 2, 3)
    inner = b.op(Concat(1), x, x)
    graph = b.graph(b.op(Concat(1), inner, x), inner)
    assert_refused(graph, CANONICAL, "inner Concat is also read elsewhere")
    b = Build()
    x = b.input(1, 2, 3)
    inner = b.op(Concat(2), x, x)
    after = fused(b.graph(b.op(Concat(1), inner, inner)), CANONICAL)
    assert ops(after) == "Concat Concat"


@pytest.mark.parametrize("kind", ["average", "max"])
def test_pooling_over_the_whole_image_is_a_reduction(kind):
    b = Build()
    x = b.input(2, 3, 4, 5)
    after = fused(b.graph(b.op(Pool2d(kind, (4, 5), (4, 5)), x)), CANONICAL)
    assert ops(after) == "Reduce"


def test_pooling_over_the_whole_image_with_padding_stays():
    b = Build()
    x = b.input(2, 3, 4, 5)
    graph = b.graph(b.op(Pool2d("average", (4, 5), padding=(1, 0, 1, 0)), x))
    assert_refused(graph, CANONICAL, "reaches into padding")


def test_squeezing_a_reduction_is_part_of_it():
    b = Build()
    y = b.op(Reduce("mean", (2, 3)), b.input(2, 3, 4, 5))
    after = fused(b.graph(b.reshape(y, 2, 3)), CANONICAL)
    assert ops(after) == "Reduce"
    assert not after.nodes[0].op.keepdims


def test_other_reshapes_of_a_reduction_stay():
    b = Build()
    y = b.op(Reduce("mean", (2, 3)), b.input(2, 3, 4, 5))
    assert ops(fused(b.graph(b.reshape(y, 6)), CANONICAL)) == "Reduce Move"


def test_squeezes_with_other_readers_or_operands_stay():
    b = Build()
    y = b.op(Reduce("mean", (2, 3)), b.input(2, 3, 4, 5))
    assert_refused(b.graph(b.reshape(y, 2, 3), y), CANONICAL, "also read elsewhere")
    b = Build()
    op = Reduce("mean", (2, 3), epilogue=parse("add($0, $1)"))
    y = b.op(op, b.input(2, 3, 4, 5), b.weights(1, 3, 1, 1))
    assert_refused(b.graph(b.reshape(y, 2, 3)), CANONICAL, "operands with the reduced axes")


def _pad(b, x, pads, **more):
    top, left, bottom, right = pads
    return b.op(Pad(((0, 0), (0, 0), (top, bottom), (left, right)), **more), x)


def test_zero_padding_goes_into_the_window():
    b = Build()
    x = _pad(b, b.input(1, 3, 6, 7), (0, 1, 2, 3))
    after = fused(b.graph(b.conv(x, 4, 3, padding=(1, 1, 1, 1), stride=(2, 2))), PADDING)
    assert ops(after) == "Conv2d"
    assert after.nodes[0].op.padding == (1, 2, 3, 4)


@pytest.mark.parametrize("counted", [False, True])
def test_zero_padding_goes_into_a_mean(counted):
    b = Build()
    x = _pad(b, b.input(1, 3, 6, 7), (1, 0, 0, 1))
    own = (0, 1, 1, 0) if counted else (0, 0, 0, 0)
    op = Pool2d("average", (2, 2), (2, 2), own, count_include_pad=counted)
    after = fused(b.graph(b.op(op, x)), PADDING)
    assert ops(after) == "Pool2d"
    assert after.nodes[0].op.count_include_pad


@pytest.mark.parametrize(
    ("pad", "op", "reason"),
    [
        (Pad(((0, 0), (0, 0), (1, 1), (1, 1)), "reflect"), Conv2d(), "not zero but reflect"),
        (Pad(((0, 0), (0, 0), (1, 1), (1, 1)), value=1.0), Conv2d(), "not zero but constant 1"),
        (Pad(((0, 0), (1, 0), (1, 1), (1, 1))), Conv2d(), "not around the feature map"),
        (Pad(((0, 0), (0, 0), (1, 1), (1, 1))), Pool2d("max", (3, 3)), "win a maximum"),
        (
            Pad(((0, 0), (0, 0), (1, 1), (1, 1))),
            Pool2d("average", (3, 3), (2, 2), ceil_mode=True),
            "rounded up",
        ),
        (
            Pad(((0, 0), (0, 0), (1, 1), (1, 1))),
            Pool2d("average", (3, 3), padding=(1, 1, 1, 1)),
            "does not count its own padding",
        ),
        (Pad(((0, 0), (0, 0), (3, 0), (0, 0))), Pool2d("average", (3, 3)), "whole windows"),
        (
            Pad(((0, 0), (0, 0), (1, 1), (1, 1))),
            Conv2d(prologue=parse("add($0, 1.0)")),
            "prologue applies to the padding",
        ),
    ],
)
def test_padding_that_must_stay(pad, op, reason):
    b = Build()
    x = b.op(pad, b.input(1, 3, 5, 5))
    extra = [b.weights(2, x.shape[1], 1, 1)] if isinstance(op, Conv2d) else []
    assert_refused(b.graph(b.op(op, x, *extra)), PADDING, reason)


def test_padding_with_other_readers_stays():
    b = Build()
    x = _pad(b, b.input(1, 3, 6, 7), (1, 1, 1, 1))
    graph = b.graph(b.conv(x, 2), x)
    assert_refused(graph, PADDING, "also read elsewhere")


def test_the_comparison_notices_a_small_difference():
    b = Build()
    x = b.input(2, 3)
    graph = b.graph(b.map("mul($0, 1.0)", x))
    wrong = b.graph(b.map("mul($0, 1.00000000001)", x))
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        assert_same(graph, wrong)
