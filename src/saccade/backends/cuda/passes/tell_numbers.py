"""Operators that are told how much of an operand there is.

    RoiAlign(x, boxes, images)  ->  RoiAlign<counted>(x, boxes, images, number)
    TopK(x)                     ->  TopK<counted>(x, number)

where a step finds out how many boxes or elements there are: a plan has room for the most there
could be, and each level of a pyramid for those of all of them. CPUs run steps for fewer rows
(`plan/rows.py`); a graph of launches has as many programs in each run, of which those that have
nothing to do end at once.

Must not touch operands whose number comes later, or is a part of another one.
"""

from __future__ import annotations

from dataclasses import replace

from saccade.ir import Dim, Graph, Node, Value
from saccade.ir.counts import multiple_of
from saccade.opdefs import RoiAlign, TopK
from saccade.passes import Pass

__all__ = ["PASS", "tell"]


def tell(graph: Graph) -> Graph:
    """The graph with numbers of boxes and elements, where they are known."""
    outputs = graph.outputs[len(graph.results) :]
    numbers = {c.symbol: value for c, value in zip(graph.counts, outputs, strict=True)}
    known = {*graph.inputs, *graph.constants}
    nodes = []
    for node in graph.nodes:
        nodes.append(_told(node, numbers, known) or node)
        known.update(node.outputs)
    return graph.with_nodes(tuple(nodes))


def _told(node: Node, numbers: dict[str, Value], known: set[Value]) -> Node | None:
    op = node.op
    if not isinstance(op, RoiAlign | TopK) or op.counted:
        return None
    size: Dim = node.inputs[0].shape[op.axis] if isinstance(op, TopK) else node.inputs[1].shape[0]
    found = multiple_of(size, numbers)
    if found is None or found[1] != 1 or numbers[found[0]] not in known:
        return None
    inputs = (*node.inputs, numbers[found[0]])
    return replace(node, op=replace(op, counted=True), inputs=inputs)


PASS = Pass("tell_numbers", whole=tell)
