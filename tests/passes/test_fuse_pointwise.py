from __future__ import annotations

import pytest
from pass_graphs import Build, assert_refused, fused, ops

from saccade.ir import DType
from saccade.passes.fuse_pointwise import PASS as FUSE
from saccade.passes.merge_activations import PASS as MERGE


def test_a_gate_over_one_tensor_becomes_one_step():
    b = Build()
    x = b.input(2, 3)
    y = b.map("mul($0, $1)", x, b.map("sigmoid($0)", x))
    after = fused(b.graph(y, x), MERGE)
    assert ops(after) == "Pointwise"
    assert after.nodes[0].inputs == (x,)
    assert str(after.nodes[0].op.expr) == "mul($0, sigmoid($0))"


def test_a_norm_and_its_activation_become_one_step():
    b = Build()
    x = b.input(2, 3, 4)
    y = b.map("add(mul($0, $1), $2)", x, b.weights(3, 1), b.weights(3, 1))
    after = fused(b.graph(b.map("relu($0)", y)), MERGE)
    assert ops(after) == "Pointwise"


def test_activations_leave_sums_of_two_tensors_to_the_epilogues():
    b = Build()
    x, y = b.input(2, 3), b.input(2, 3)
    graph = b.graph(b.map("relu($0)", b.map("add($0, $1)", x, y)))
    assert fused(graph, MERGE).nodes == graph.nodes


def test_activations_leave_gates_that_are_broadcast():
    b = Build()
    gate = b.map("sigmoid($0)", b.input(2, 3, 1))
    graph = b.graph(b.map("add($0, $1)", gate, b.weights(1, 1, 5)))
    assert fused(graph, MERGE).nodes == graph.nodes


def test_a_tree_becomes_one_step():
    b = Build()
    x, y, z = (b.input(4, 5) for _ in range(3))
    left = b.map("mul($0, $1)", x, b.map("exp($0)", y))
    right = b.map("div($0, $1)", z, b.map("add($0, 2.0)", b.map("abs($0)", x)))
    after = fused(b.graph(b.map("sub($0, $1)", left, right)), FUSE)
    assert ops(after) == "Pointwise"
    assert set(after.nodes[0].inputs) == {x, y, z}


def test_cheap_work_is_done_again_where_it_is_broadcast():
    b = Build()
    bias = b.map("add(mul($0, $1), 1.0)", b.input(3, 1), b.input(3, 1))
    after = fused(b.graph(b.map("add($0, $1)", b.input(2, 3, 4), bias)), FUSE)
    assert ops(after) == "Pointwise"


def test_costly_work_is_not_done_again_where_it_is_broadcast():
    b = Build()
    gate = b.map("sigmoid($0)", b.input(3, 1))
    graph = b.graph(b.map("mul($0, $1)", b.input(2, 3, 4), gate))
    assert_refused(graph, FUSE, "broadcast and costly")


def test_what_others_read_stays_and_the_next_operand_is_tried():
    b = Build()
    x = b.input(4)
    shared, own = b.map("exp($0)", x), b.map("abs($0)", x)
    after = fused(b.graph(b.map("add($0, $1)", shared, own), shared), FUSE)
    assert ops(after) == "Pointwise Pointwise"
    assert_refused(after, FUSE, "also read elsewhere")


def test_more_than_eight_operands_stay_apart():
    b = Build()
    total = b.input(3)
    for _ in range(8):
        total = b.map("add($0, $1)", total, b.input(3))
    after = fused(b.graph(total), FUSE)
    assert ops(after) == "Pointwise Pointwise"
    assert_refused(after, FUSE, "have 9 operands")


def test_a_comparison_goes_into_the_choice_that_it_makes():
    b = Build()
    x, y = b.input(3, 4), b.input(3, 4)
    less = b.map("less($0, $1)", x, y, dtype=DType.BOOL)
    after = fused(b.graph(b.map("where($0, $1, exp($2))", less, x, y)), FUSE)
    assert ops(after) == "Pointwise"


def test_a_comparison_goes_into_what_is_concluded_of_truths():
    b = Build()
    known = b.input(3, 4, dtype=DType.BOOL)
    less = b.map("less($0, 2.0)", b.input(3, 4, dtype=DType.I64), dtype=DType.BOOL)
    after = fused(b.graph(b.map("and($0, not($1))", known, less)), FUSE)
    assert ops(after) == "Pointwise"


def test_truths_of_two_types_of_numbers_are_found_apart():
    b = Build()
    one = b.map("less($0, 2.0)", b.input(3, dtype=DType.I64), dtype=DType.BOOL)
    other = b.map("greater($0, 0.5)", b.input(3), dtype=DType.BOOL)
    after = fused(b.graph(b.map("and($0, $1)", one, other)), FUSE)
    assert ops(after) == "Pointwise Pointwise"
    assert_refused(after, FUSE, "changes the element type")


def _cast(b):
    return b.map("exp($0)", b.map("$0", b.input(3), dtype=DType.F32))


def _to_bool(b):
    flag = b.map("$0", b.input(3), dtype=DType.BOOL)
    return b.map("where($0, $1, neg($1))", flag, b.input(3), dtype=DType.F64)


def _untyped(b):
    less = b.map("less($0, 0.0)", b.input(3), dtype=DType.BOOL)
    return b.map("mul($0, 3.0)", less, dtype=DType.I64)


def _other_type(b):
    less = b.map("less($0, 1000.0)", b.input(3, dtype=DType.I32), dtype=DType.BOOL)
    return b.map("where($0, $1, neg($1))", less, b.input(3), dtype=DType.F64)


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (_cast, "changes the element type"),
        (_to_bool, "is a cast to bool"),
        (_untyped, "no type of its own"),
        (_other_type, "changes the element type"),
    ],
)
def test_arithmetic_keeps_its_type(build, reason):
    b = Build()
    assert_refused(b.graph(build(b)), FUSE, reason)
