"""What `verify` lets pass and what it refuses; how graphs print."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest

from saccade.errors import SaccadeError
from saccade.ir import DType, Factor, Graph, IndexMap, Node, Value
from saccade.ir.dim import floordiv, mul, symbol
from saccade.ir.expr import arg, parse
from saccade.ir.printer import format_graph, format_map
from saccade.ir.verify import VerifyError, verify
from saccade.opdefs import Conv2d, Move, Pointwise

F32 = DType.F32
N, H = symbol("N"), symbol("H")
X = Value("x", F32, (N, 3, H, 8))
W = Value("w", F32, (4, 3, 3, 3))
B = Value("b", F32, (4, 1, 1))
Y = Value("y", F32, (N, 4, H, 8))
Z = Value("z", F32, (N, 4, H, 8))
CONV = Node(
    Conv2d(padding=(1, 1, 1, 1), epilogue=parse("relu(add($0, $1))")), (X, W, B), (Y,), "conv_1"
)
NEG = Node(Pointwise(parse("neg($0)"), F32), (Y,), (Z,), "neg_1")


def frozen(shape):
    array = np.zeros(shape, np.float32)
    array.setflags(write=False)
    return array


GRAPH = Graph(
    inputs=(X,),
    outputs=(Z, Y, Z),
    nodes=(CONV, NEG),
    constants=MappingProxyType({W: frozen(W.shape), B: frozen(B.shape)}),
    output_names=("out", "side", "again"),
    name="small",
)


def test_a_whole_graph_passes():
    verify(GRAPH)
    verify(Graph((X,), (X, W), (), {W: frozen(W.shape)}))  # an input and a constant as outputs


def test_undecided_equalities_pass():
    halves = Value("z", F32, (N, 4, mul(floordiv(H, 2), 2), 8))
    verify(replace(GRAPH, nodes=(CONV, replace(NEG, outputs=(halves,))), outputs=(halves, Y, Y)))


def broken(**changes):
    return replace(GRAPH, **changes)


TWIN = Value("y", F32, (N, 4, H, 8))
STRANGER = Value("s", F32, (N, 4, H, 8))
CASES = {
    "two of a name": (
        broken(nodes=(CONV, replace(NEG, outputs=(TWIN,)))),
        "two values are called 'y'",
    ),
    "order": (broken(nodes=(NEG, CONV)), r"'neg_1' .*reads %y.* before it is known"),
    "stranger": (broken(nodes=(replace(CONV, inputs=(X, W, STRANGER)),)), "'conv_1' .*reads %s"),
    "own result": (broken(nodes=(replace(NEG, inputs=(Z,)),)), "reads %z"),
    "gives an input": (broken(nodes=(replace(NEG, inputs=(X,), outputs=(X,)),)), "called 'x'"),
    "wrong shape": (
        broken(nodes=(CONV, replace(NEG, outputs=(Value("z", F32, (N, 5, H, 8)),)))),
        r"%z: float32\[N, 5, H, 8\] should be float32\[N, 4, H, 8\]",
    ),
    "wrong rank": (
        broken(nodes=(CONV, replace(NEG, outputs=(Value("z", F32, (N, 4)),)))),
        r"should be float32\[N, 4, H, 8\]",
    ),
    "wrong dtype": (
        broken(nodes=(CONV, replace(NEG, outputs=(Value("z", DType.F64, Z.shape),)))),
        "should be float32",
    ),
    "misfit": (broken(nodes=(replace(CONV, inputs=(X, W)),)), "'conv_1' .*lacks operands"),
    "two outputs": (broken(nodes=(CONV, replace(NEG, outputs=(Z, STRANGER)))), "2 outputs"),
    "output unknown": (broken(outputs=(STRANGER,), output_names=()), "output %s.* is not known"),
    "names": (broken(output_names=("one",)), "3 outputs but 1 names"),
    "constant shape": (broken(constants={W: frozen((4, 3, 3)), B: GRAPH.constants[B]}), "holds"),
    "constant dtype": (
        broken(constants={**GRAPH.constants, W: GRAPH.constants[W].astype(np.float64)}),
        "holds float64",
    ),
    "writable": (
        broken(constants={**GRAPH.constants, W: np.zeros(W.shape, np.float32)}),
        "can be written to",
    ),
    "input and constant": (broken(inputs=(X, W)), "called 'w'"),
    "negative dim": (broken(inputs=(X, Value("v", F32, (-1,)))), "negative dim"),
}


@pytest.mark.parametrize("case", CASES)
def test_broken_graphs_are_refused(case):
    graph, message = CASES[case]
    with pytest.raises(VerifyError, match=message) as caught:
        verify(graph)
    assert isinstance(caught.value, SaccadeError)


def test_a_graph_prints_one_line_a_node():
    text = format_graph(GRAPH)
    assert text == (
        "graph small\n"
        "  input %x: float32[N, 3, H, 8]\n"
        "  const %w: float32[4, 3, 3, 3]\n"
        "  const %b: float32[4, 1, 1]\n"
        "  %y: float32[N, 4, H, 8] = Conv2d<padding=(1, 1, 1, 1), epilogue=relu(add($0, $1))>"
        "(%x, %w, %b)  # conv_1\n"
        "  %z: float32[N, 4, H, 8] = Pointwise<expr=neg($0), dtype=float32>(%y)  # neg_1\n"
        "  output out = %z\n"
        "  output side = %y\n"
        "  output again = %z\n"
    )


def test_maps_print():
    shuffle = IndexMap(
        ((2,), (2, 3), ()), (Factor(2, 0), Factor(3, 2), Factor(2, 1), Factor(4, None)), (1, 2, 1)
    )
    assert format_map(shuffle) == "[a=2, (b=2 c=3), ()] -> [a, (c b), *4]"
    part = IndexMap(((8,), (9,)), (Factor(3, 0, 1), Factor(4, 1, 8, -2)), (1, 1))
    assert format_map(part) == "[a=8, b=9] -> [a1:3, b8:4:-2]"


def test_graph_helpers():
    assert [v.name for v in GRAPH.values()] == ["x", "w", "b", "y", "z"]
    assert GRAPH.producers() == {Y: CONV, Z: NEG}
    assert GRAPH.uses()[Y] == [NEG]
    double = Node(Pointwise(parse("mul($0, $1)"), F32), (Y, Y), (Z,))
    assert replace(GRAPH, nodes=(CONV, double)).uses()[Y] == [double, double]
    without = GRAPH.with_nodes((Node(Pointwise(arg(0), F32), (X,), (Z,)),), outputs=(Z, W))
    assert set(without.constants) == {W}


def test_binding_reaches_into_attributes():
    move = Move(IndexMap(((H,),), (Factor(floordiv(H, 2), 0, 1, 2),), (1,)))
    bound = move.bind({"H": 9})
    assert bound.map == IndexMap(((9,),), (Factor(4, 0, 1, 2),), (1,))
    assert CONV.op.bind({"H": 9}) is CONV.op


def test_dtypes():
    for dtype in DType:
        assert DType.of(dtype.numpy) is dtype
        assert dtype.itemsize == dtype.numpy.itemsize
        assert dtype.is_float == (dtype.arithmetic.numpy.kind == "f")
    with pytest.raises(SaccadeError, match="complex64"):
        DType.of(np.complex64)
