"""Sizes in operators: what depends on none of a graph's symbols is bound once."""

from __future__ import annotations

from saccade.ir import DType, Graph, Node, Value
from saccade.ir.body import embed
from saccade.ir.dim import add, mul, symbol
from saccade.layout import sizes
from saccade.layout.sizes import bound
from saccade.opdefs import Pad

N, H = symbol("N"), symbol("H")


def padded(*pads):
    """One `Pad` of a row for each amount behind it."""
    x = Value("x", DType.F32, (N,))
    ops = [Pad(((0, pad),), 0.0) for pad in pads]
    ys = [Value(f"y{i}", DType.F32, (add(N, pad),)) for i, pad in enumerate(pads)]
    nodes = tuple(Node(op, (x,), (y,)) for op, y in zip(ops, ys, strict=True))
    return Graph((x,), tuple(ys), nodes)


def test_operators_name_the_symbols_that_they_need():
    graph = padded(3, N, add(mul(H, 2), N))
    assert [node.op.symbols for node in graph.nodes] == [set(), {"N"}, {"N", "H"}]
    for node in graph.nodes:
        known = dict.fromkeys(node.op.symbols, 5)
        assert node.op.bind(known) == node.op.bind({"N": 5, "H": 5})


def test_bodies_need_what_is_in_them():
    assert embed(padded(3), {}).symbols == {"N"}
    assert embed(padded(mul(H, 2)), {}).symbols == {"N", "H"}
    body = embed(padded(mul(H, 2)), {})
    assert body.bind(dict.fromkeys(body.symbols, 4)).types[0].shape == (4,)


def test_an_operator_is_bound_once_for_its_own_symbols():
    graph = padded(3, N, H)
    first = bound(graph, (), {"N": 2, "H": 7})
    assert [op.pads[0][1] for op in first.values()] == [3, 2, 7]
    second = bound(graph, (), {"N": 2, "H": 8})
    assert [op.pads[0][1] for op in second.values()] == [3, 2, 8]
    same = [a is b for a, b in zip(first.values(), second.values(), strict=True)]
    assert same == [True, True, False] and [*first] == [*graph.nodes]
    (other,) = padded(H).nodes
    assert bound(graph, [other], {"N": 2, "H": 9})[other].pads == ((0, 9),)


def test_few_are_kept(monkeypatch):
    monkeypatch.setattr(sizes, "_KEPT", 2)
    graph = padded(N)
    for n in (1, 2, 3, 1):
        (op,) = bound(graph, (), {"N": n}).values()
        assert op.pads == ((0, n),)
    (binding,) = sizes._bindings(graph)
    assert len(binding.known) <= 2
