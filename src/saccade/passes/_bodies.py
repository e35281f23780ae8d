"""Bodies of loops and branches go through the passes as graphs of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from saccade.ir import Array, BodyOp, Graph, Node, Value, embed

__all__ = ["lowered_bodies"]


def lowered_bodies(graph: Graph, lower: Callable[[Graph], Graph]) -> Graph:
    """The graph with what `lower` makes of each body in it.

    Constants that passes make in bodies become constants of the graph around them.
    """
    if not any(isinstance(node.op, BodyOp) for node in graph.nodes):
        return graph
    names = {value.name for value in graph.values()}
    constants = dict(graph.constants)
    nodes = tuple(_lowered(node, lower, constants, names) for node in graph.nodes)
    return graph.with_nodes(nodes, constants)


def _lowered(
    node: Node,
    lower: Callable[[Graph], Graph],
    constants: dict[Value, Array],
    names: set[str],
) -> Node:
    op = node.op
    if not isinstance(op, BodyOp):
        return node
    last: dict[str, tuple[int, Value]] = {}
    bodies = []
    before = {value.name: value for value in node.inputs[len(node.inputs) - op.constants :]}
    for body in map(lower, op.graphs(node.inputs, constants)):
        numbers = {}
        for value, array in body.constants.items():
            old = before.get(value.name)
            # As it was, or made by a pass: under a name that only this body has.
            if old is not None and constants[old] is array:
                kept = last.setdefault(old.name, (len(last), old))
            else:
                fresh = Value(_unique(value.name, names), value.dtype, value.shape)
                constants[fresh] = array
                kept = last.setdefault(fresh.name, (len(last), fresh))
            numbers[value.name] = kept[0]
        bodies.append(embed(body, numbers))
    own = node.inputs[: len(node.inputs) - op.constants]
    known = tuple(value for _, value in last.values())
    changed = replace(op, bodies=tuple(bodies), constants=len(known))
    return Node(changed, (*own, *known), node.outputs, node.name)


def _unique(name: str, names: set[str]) -> str:
    fresh, count = name, 0
    while fresh in names:
        count += 1
        fresh = f"{name}.{count}"
    names.add(fresh)
    return fresh
