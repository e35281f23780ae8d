from __future__ import annotations

import numpy as np
from pass_graphs import Build, assert_refused, fused, ops

from saccade.ir import DType, Factor, IndexMap
from saccade.ir.dim import symbol
from saccade.opdefs import Move, OnnxReference
from saccade.passes import apply
from saccade.passes.fold_constants import PASS as FOLD
from saccade.passes.merge_duplicates import PASS as MERGE


def test_a_chain_of_constants_becomes_one():
    b = Build()
    x, scale = b.input(2, 3), b.map("sqrt(add($0, 1.0))", b.const([3.0, 8.0, 15.0]))
    graph = b.graph(b.map("mul($0, $1)", x, b.map("neg($0)", scale)))
    after = fused(graph, FOLD)
    assert ops(after) == "Pointwise"
    (value,) = after.constants
    np.testing.assert_array_equal(after.constants[value], [-2.0, -3.0, -4.0])
    assert not after.constants[value].flags.writeable


def test_a_constant_output_stays_an_output():
    b = Build()
    b.input(2)
    graph = b.graph(b.map("neg($0)", b.const([1.0, 2.0])))
    after = fused(graph, FOLD)
    assert ops(after) == ""
    assert after.output_names == graph.output_names


def test_results_much_larger_than_their_operands_stay():
    b = Build()
    spread = Move(IndexMap(((1,),), (Factor(100_000, None),), (1,)))
    x = b.input(100_000)
    graph = b.graph(b.map("add($0, $1)", x, b.op(spread, b.const([1.0]))))
    assert_refused(graph, FOLD, "800000 bytes in place of 8")


def drawn():
    """A node whose results are random: three numbers like its operand."""
    shapes, types = ((3,),), (DType.F64,)
    return OnnxReference("Drawn", "", "", types, types, shapes, (-1,), steady=False)


def test_random_numbers_stay():
    b = Build()
    graph = b.graph(b.map("add($0, $1)", b.input(3), b.op(drawn(), b.const([1.0, 2.0, 3.0]))))
    assert_refused(graph, FOLD, "each run has results of its own")


def test_random_numbers_have_no_twins():
    b = Build()
    x = b.input(3)
    graph = b.graph(b.map("sub($0, $1)", b.op(drawn(), x), b.op(drawn(), x)))
    assert_refused(graph, MERGE, "each has results of its own")


def test_symbolic_results_stay():
    b = Build()
    n = symbol("N")
    spread = Move(IndexMap(((1,),), (Factor(n, None),), (1,)))
    graph = b.graph(b.map("add($0, $1)", b.input(n), b.op(spread, b.const([1.0]))))
    assert_refused(graph, FOLD, "not known yet")


def test_none_of_so_many_that_nobody_knows_stay():
    b = Build()
    n = symbol("N")
    none = Move(IndexMap(((0,),), (Factor(0, 0), Factor(n, None)), (1, 1)))
    graph = b.graph(b.op(none, b.const(np.zeros(0, np.float32))))
    assert_refused(graph, FOLD, "depends on sizes")


def test_twins_are_computed_once_and_so_are_their_readers():
    b = Build()
    x = b.input(2, 3)
    left, right = (b.map("exp($0)", b.map("neg($0)", x)) for _ in range(2))
    graph = b.graph(b.map("add($0, $1)", left, right))
    assert ops(fused(graph, MERGE)) == "Pointwise Pointwise Pointwise"


def test_readers_of_equal_constants_are_twins():
    b = Build()
    x = b.input(2, 3)
    left, right = (b.map("mul($0, $1)", x, b.const([1.0, -0.0, 3.0])) for _ in range(2))
    other = b.map("mul($0, $1)", x, b.const([1.0, 0.0, 3.0]))  # of other bits
    after = fused(b.graph(b.map("add($0, $1)", b.map("add($0, $1)", left, right), other)), MERGE)
    assert ops(after) == "Pointwise Pointwise Pointwise Pointwise"
    assert len(after.constants) == 2


def test_constants_that_are_large_or_of_another_shape_stay():
    b = Build()
    x = b.input(1, 3)
    wide = [b.map("mul($0, $1)", x, b.const(np.ones((4000, 3)))) for _ in range(2)]
    rows = [b.map("mul($0, $1)", x, b.const(np.ones(shape))) for shape in ((3,), (1, 3))]
    graph = b.graph(*wide, *rows)
    assert fused(graph, MERGE).constants.keys() == graph.constants.keys()


def test_operators_that_differ_in_an_attribute_are_no_twins():
    b = Build()
    x = b.input(2, 3)
    left, right = b.map("exp($0)", x), b.map("neg($0)", x)
    other = b.map("exp($0)", x, dtype=DType.F32)
    graph = b.graph(b.map("add($0, $1)", left, right), other)
    after, notes = apply(MERGE, graph)
    assert len(after.nodes) == 4
    assert not notes


def test_outputs_keep_their_own_nodes():
    b = Build()
    x = b.input(2, 3)
    graph = b.graph(b.map("exp($0)", x), b.map("exp($0)", x))
    assert_refused(graph, MERGE, "output of the graph")


def test_dead_nodes_disappear():
    b = Build()
    x = b.input(2, 3)
    b.map("exp($0)", b.map("neg($0)", x))
    graph = b.graph(b.map("abs($0)", x))
    assert ops(fused(graph, MERGE)) == "Pointwise"
