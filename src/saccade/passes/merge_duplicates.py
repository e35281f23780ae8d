"""Compute the same thing once.

    y1 = op(x…), y2 = op(x…)  ->  y1 for both

Operators are frozen values, so two nodes do the same when operator and operands are equal. Must not
touch nodes whose results go to the caller under two names (each output keeps its own node), or
that draw random numbers.
"""

from __future__ import annotations

from saccade.ir import Node
from saccade.passes._editor import Editor
from saccade.passes._pass import Pass, Rule

__all__ = ["PASS"]


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


PASS = Pass("merge_duplicates", (Rule(match, refuse, rewrite),))
