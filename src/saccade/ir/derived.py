"""What follows from a graph, found out once and kept with it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar, TypeVarTuple

from saccade.ir.graph import Graph

__all__ = ["derived"]

R = TypeVar("R")
Ts = TypeVarTuple("Ts")

_KEPT = 16
"""Results of a function about one graph, by its other arguments: as many as a model keeps plans."""


def derived(function: Callable[[Graph, *Ts], R]) -> Callable[[Graph, *Ts], R]:
    """Remember what a function of a graph, and maybe of other hashable values, returns.

    It is kept in the graph and goes with it: a table by graphs would keep their constants alive.
    The oldest results go where there are many.
    """

    @wraps(function)
    def remembered(graph: Graph, *args: *Ts) -> R:
        # Threads may work out the same result twice; the functions are pure, so either will do.
        known = graph.derived.setdefault(function, {})
        found: R | None = known.get(args)
        if found is None:
            found = function(graph, *args)
            known[args] = found
            # A copy, in order of insertion: other threads may change the dict meanwhile.
            for oldest in [*known][:-_KEPT]:
                known.pop(oldest, None)  # another thread may have been faster
        return found

    return remembered
