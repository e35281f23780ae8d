"""Compute the same thing once.

    y1 = op(x…), y2 = op(x…)  ->  y1 for both

Operators are frozen values, so two nodes do the same when operator and operands are equal. Small
constants of equal bits are one. Must not touch nodes whose results go to the caller under two names
(each output keeps its own node), or that draw random numbers.
"""

from __future__ import annotations

from dataclasses import replace

from saccade.ir import Dim, DType, Graph, Node, Value
from saccade.passes._editor import Editor
from saccade.passes._pass import Pass, Rule

__all__ = ["PASS", "merge_constants"]

_SMALL = 64 << 10
"""Bytes of constants that are worth a comparison: more of equal weights would be seldom."""


def match(editor: Editor, node: Node) -> tuple[Node, Node] | None:
    """An earlier twin, and the node."""
    if not node.inputs:
        return None
    # A twin reads the same first operand, so that few nodes are compared.
    for other in editor.readers(node.inputs[0]):
        if (
            other is not node
            and other.inputs == node.inputs
            and type(other.op) is type(node.op)
            and other.op == node.op
            and editor.before(other, node)
        ):
            return other, node
    return None


def refuse(editor: Editor, found: tuple[Node, Node]) -> str | None:
    """Two outputs of the graph, or two draws of random numbers."""
    _, node = found
    if not node.op.pure:
        return "each has results of its own"
    if any(editor.is_output(value) for value in node.outputs):
        return "its result is an output of the graph"
    return None


def rewrite(editor: Editor, found: tuple[Node, Node]) -> None:
    """Read the earlier node's results."""
    first, node = found
    for old, new in zip(node.outputs, first.outputs, strict=True):
        editor.alias(old, new)


def merge_constants(graph: Graph) -> Graph:
    """The graph with the first of small constants that are equal in place of the others."""
    first: dict[tuple[DType, tuple[Dim, ...], bytes], Value] = {}
    kept: dict[Value, Value] = {}
    for value, array in graph.constants.items():
        if array.nbytes <= _SMALL:
            one = first.setdefault((value.dtype, value.shape, array.tobytes()), value)
            if one is not value:
                kept[value] = one
    if not kept:
        return graph
    nodes = (
        replace(node, inputs=tuple(kept.get(value, value) for value in node.inputs))
        if any(value in kept for value in node.inputs)
        else node
        for node in graph.nodes
    )
    return graph.with_nodes(tuple(nodes))


PASS = Pass("merge_duplicates", (Rule(match, refuse, rewrite),), whole=merge_constants)
