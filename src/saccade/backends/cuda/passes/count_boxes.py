"""Regions of no more boxes than there are.

    RoiAlign(x, boxes, images)  ->  RoiAlign<counted>(x, boxes, images, number)

where a step finds out how many boxes there are: a plan has room for the most there could be, and
each level of a pyramid for those of all of them. CPUs run steps for fewer rows (`plan/rows.py`); a
graph of launches has as many programs in each run, of which those of no box end at once.

Must not touch boxes whose number comes later, or is a part of another one.
"""

from __future__ import annotations

from dataclasses import replace

from saccade.ir import Graph, Node, Value
from saccade.ir.counts import multiple_of
from saccade.opdefs import RoiAlign
from saccade.passes import Pass

__all__ = ["PASS", "count"]


def count(graph: Graph) -> Graph:
    """The graph with numbers of boxes, where they are known."""
    outputs = graph.outputs[len(graph.results) :]
    numbers = {c.symbol: value for c, value in zip(graph.counts, outputs, strict=True)}
    known = {*graph.inputs, *graph.constants}
    nodes = []
    for node in graph.nodes:
        nodes.append(_counted(node, numbers, known) or node)
        known.update(node.outputs)
    return graph.with_nodes(tuple(nodes))


def _counted(node: Node, numbers: dict[str, Value], known: set[Value]) -> Node | None:
    if not isinstance(node.op, RoiAlign) or node.op.counted:
        return None
    found = multiple_of(node.inputs[1].shape[0], numbers)
    if found is None or found[1] != 1 or numbers[found[0]] not in known:
        return None
    inputs = (*node.inputs, numbers[found[0]])
    return replace(node, op=replace(node.op, counted=True), inputs=inputs)


PASS = Pass("count_boxes", whole=count)
