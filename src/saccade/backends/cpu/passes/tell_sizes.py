"""Steps that are told how much of their result there is, where rows do not say it.

Steps behind a number may run for fewer rows (`plan/rows.py`), which are the outermost axis. A map
that is enlarged to a box is smaller than it could be along axes inside of that: what walks it
(`fusions/counted_walks.py`) is told their sizes as operands.

    Pointwise(x), Gather(x, i)  ->  GatheredPointwise<counted>(x, …, numbers)

Must not touch results of which rows alone are found out.
"""

from __future__ import annotations

from saccade.backends.fusions.counted_walks import FoundNumbers, tell_walk
from saccade.ir import Graph
from saccade.passes import Pass
from saccade.passes._editor import Editor

__all__ = ["PASS", "tell"]


def tell(graph: Graph) -> Graph:
    """The graph with sizes as operands of what walks results of these sizes."""
    if not graph.counts:
        return graph
    numbers, editor = FoundNumbers.of(graph), Editor(graph)
    for node in editor.nodes():
        if editor.alive(node):
            tell_walk(editor, node, numbers, inside=True)
    return editor.graph()


PASS = Pass("tell_sizes", whole=tell)
