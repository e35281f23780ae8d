from pass_graphs import Build, assert_refused, fused, ops

from saccade.opdefs import Cube
from saccade.passes.hoist_signs import PASS


def test_a_sign_leaves():
    b = Build()
    after = fused(b.graph(b.op(Cube(2.0), b.map("neg($0)", b.input(2, 3)))), PASS)
    assert ops(after) == "Cube Pointwise"
    assert str(after.nodes[-1].op.expr) == "neg($0)"


def test_every_sign_of_a_row_leaves():
    b = Build()
    x = b.op(Cube(), b.op(Cube(), b.map("neg($0)", b.input(5))))
    assert ops(fused(b.graph(x), PASS)) == "Cube Cube Pointwise"


def test_a_negation_that_is_read_elsewhere_stays():
    b = Build()
    x = b.map("neg($0)", b.input(5))
    assert_refused(b.graph(b.op(Cube(), x), x), PASS, "%v0 is read elsewhere")


def test_other_expressions_are_none_of_its_business():
    b = Build()
    graph = b.graph(b.op(Cube(), b.map("abs($0)", b.input(5))))
    assert fused(graph, PASS).nodes == graph.nodes
