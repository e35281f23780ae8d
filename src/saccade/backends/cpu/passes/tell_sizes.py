"""Steps that are told how much of their result there is, where rows do not say it.

Steps behind a number may run for fewer rows (`plan/rows.py`), which are the outermost axis. A map
that is enlarged to a box is smaller than it could be along axes inside of that: what walks it
(`fusions/counted_walks.py`) is told their sizes as operands.

    Pointwise(x), Gather(x, i)  ->  GatheredPointwise<counted>(x, …, numbers)

Must not touch results of which rows alone are found out.
"""

from __future__ import annotations

from functools import partial

from saccade.backends.fusions.counted_walks import tell_each, tell_walk
from saccade.ir import Graph
from saccade.passes import Pass

__all__ = ["PASS", "tell"]


def tell(graph: Graph) -> Graph:
    """The graph with sizes as operands of what walks results of these sizes."""
    return tell_each(graph, partial(tell_walk, inside=True))


PASS = Pass("tell_sizes", whole=tell)
