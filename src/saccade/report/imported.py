"""The graph as it was read, and which step each of its nodes became part of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from saccade.errors import printable
from saccade.ir import Dim, Graph, Node
from saccade.ir.dim import evaluate
from saccade.ir.printer import format_op
from saccade.report.types import ImportedNode

__all__ = ["LONGEST", "imported_nodes"]

LONGEST = 300
"""Characters of an operator's attributes."""


def imported_nodes(
    graph: Graph, steps: Sequence[str], sizes: Mapping[str, int]
) -> tuple[ImportedNode, ...]:
    """The nodes of a graph.

    Args:
        graph: As the frontend made it.
        steps: Names of the steps of the plan.
        sizes: Of its symbols; those that are not among them stay symbols.
    """
    owners = _owners(graph, steps)
    makers: dict[object, int] = {value: -1 - i for i, value in enumerate(graph.inputs)}
    makers |= {value: i for i, node in enumerate(graph.nodes) for value in node.outputs}
    return tuple(
        ImportedNode(
            printable(_name(node)),
            node.op.family,
            printable(format_op(node.op), LONGEST),
            node.outputs[0].dtype.value,
            "x".join(str(_size(dim, sizes)) for dim in node.outputs[0].shape) or "scalar",
            tuple(dict.fromkeys(makers[v] for v in node.inputs if v in makers)),
            owners.get(i),
        )
        for i, node in enumerate(graph.nodes)
    )


def _owners(graph: Graph, steps: Sequence[str]) -> dict[int, int]:
    """For nodes by number the step that computes them.

    A step bears the name of the last node that it computes; nodes before that one, back to those
    that are steps themselves, were fused into it.
    """
    first = {name: i for i, name in reversed(list(enumerate(steps)))}
    makers = {value: i for i, node in enumerate(graph.nodes) for value in node.outputs}
    found: dict[int, int] = {}
    for last, node in enumerate(graph.nodes):
        step = first.get(_name(node))
        if step is None:
            continue
        waiting = [last]
        while waiting:
            at = waiting.pop()
            name = _name(graph.nodes[at])
            # What several steps read goes to the first of them.
            if at in found or (name in first and first[name] != step):
                continue
            found[at] = step
            waiting += [makers[v] for v in graph.nodes[at].inputs if v in makers]
    return found


def _name(node: Node) -> str:
    return node.name or node.outputs[0].name


def _size(dim: Dim, sizes: Mapping[str, int]) -> Dim:
    try:
        return evaluate(dim, sizes)
    except (KeyError, ZeroDivisionError):  # a symbol that passes replaced by another one
        return dim
