"""Cheapest states of variables whose costs come in tables: min-sum variable elimination.

A table gives the cost of the joint states of a few variables. Eliminating a variable adds up the
tables that name it, takes the least over its states, and leaves a table over its neighbours; going
back in the other order reads off its best state. That is the shortest path where the graph is a
chain, exact dynamic programming where it is series-parallel, and exact wherever the tables stay
small. Where one would not, its parts are minimised one by one (mini-buckets): the sum is then a
lower bound, and the states are the better of what going back gives and of the given start, both
improved one variable at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from saccade.ir import Array

__all__ = ["Solution", "Table", "minimise"]

MOST_ENTRIES = 4096
"""Of a table; one with more is split, and the minimum is no longer exact."""


@dataclass(frozen=True, slots=True)
class Table:
    """Costs of the joint states of some variables.

    Attributes:
        scope: The variables, ascending.
        costs: One axis for each of them; infinite where states exclude each other.
    """

    scope: tuple[int, ...]
    costs: Array


@dataclass(frozen=True, slots=True)
class Solution:
    """States that were found.

    Attributes:
        states: One for each variable.
        cost: Of these states.
        bound: What no states can be cheaper than; equals `cost` where the search was exact.
    """

    states: tuple[int, ...]
    cost: float
    bound: float

    @property
    def gap(self) -> float:
        """How much cheaper other states could be at most; 0 if there are none."""
        return max(0.0, self.cost - self.bound)


def minimise(
    sizes: Sequence[int],
    tables: Sequence[Table],
    start: Sequence[int],
    most: int = MOST_ENTRIES,
) -> Solution:
    """The cheapest joint states.

    Args:
        sizes: How many states each variable has.
        tables: Costs; what a state of all variables costs is the sum over them.
        start: States to compare with; a solution is never dearer.
        most: Entries that a table may have before it is split.
    """
    buckets, exact, bound = _eliminate(sizes, tables, most)
    states = [0] * len(sizes)
    # Backwards: besides its own, a bucket names only variables that were eliminated after it.
    for variable, parts in reversed(buckets):
        states[variable] = _best(variable, parts, states, sizes[variable])
    cost = _total(tables, states)
    # Exact and yet dearer than the start is rounding; both are compared below.
    if exact and cost <= _total(tables, start):
        return Solution(tuple(states), cost, cost)
    found = min(
        (_descend(sizes, tables, begin) for begin in (start, states)), key=lambda pair: pair[1]
    )
    # A bound that was rounded up must not exceed the cost.
    return Solution(*found, found[1] if exact else min(bound, found[1]))


Bucket = tuple[int, list[Table]]


def _eliminate(
    sizes: Sequence[int], tables: Sequence[Table], most: int
) -> tuple[list[Bucket], bool, float]:
    """Sums of each variable's tables in order of elimination; whether none was split; the bound."""
    left = list(tables)
    waiting = set(range(len(sizes)))
    buckets: list[Bucket] = []
    exact = True
    while waiting:
        # The smallest sum first keeps tables small. Equals go in order, so that plans repeat.
        variable = min(waiting, key=lambda v: (_width(v, left, sizes), v))
        waiting.remove(variable)
        parts = _joined([t for t in left if variable in t.scope], sizes, most)
        exact = exact and len(parts) <= 1
        buckets.append((variable, parts))
        left = [t for t in left if variable not in t.scope]
        for part in parts:
            rest = tuple(v for v in part.scope if v != variable)
            left.append(Table(rest, part.costs.min(axis=part.scope.index(variable))))
    return buckets, exact, float(sum(t.costs for t in left))


def _width(variable: int, tables: Sequence[Table], sizes: Sequence[int]) -> int:
    scope = {v for t in tables if variable in t.scope for v in t.scope}
    return prod(sizes[v] for v in scope)


def _joined(tables: list[Table], sizes: Sequence[int], most: int) -> list[Table]:
    """The tables added up, in as few sums as have no more than `most` entries each."""
    parts: list[Table] = []
    # The largest first, each into the first sum with room for it: that leaves few sums.
    for table in sorted(tables, key=lambda t: -t.costs.size):
        for i, part in enumerate(parts):
            scope = tuple(sorted({*part.scope, *table.scope}))
            if prod(sizes[v] for v in scope) <= most:
                parts[i] = Table(scope, _spread(part, scope) + _spread(table, scope))
                break
        else:
            parts.append(table)
    return parts


def _spread(table: Table, scope: tuple[int, ...]) -> Array:
    """The costs with an axis for every variable of a wider scope."""
    sizes = dict(zip(table.scope, table.costs.shape, strict=True))
    # Scopes ascend, so that axes keep their order.
    return table.costs.reshape([sizes.get(v, 1) for v in scope])


def _best(variable: int, tables: Sequence[Table], states: Sequence[int], size: int) -> int:
    """The cheapest state of one variable among those of the others; the first of equals."""
    costs = np.zeros(size)
    for table in tables:
        at = tuple(slice(None) if v == variable else states[v] for v in table.scope)
        costs = costs + table.costs[at]
    return int(costs.argmin())


def _total(tables: Sequence[Table], states: Sequence[int]) -> float:
    return float(sum(t.costs[tuple(states[v] for v in t.scope)] for t in tables))


def _descend(
    sizes: Sequence[int], tables: Sequence[Table], start: Sequence[int]
) -> tuple[tuple[int, ...], float]:
    """Change one variable at a time for the better until none is left that can be."""
    states = list(start)
    # Other tables cost the same whatever the variable's state.
    near = [[t for t in tables if v in t.scope] for v in range(len(sizes))]
    cost, before = _total(tables, states), np.inf
    while cost < before:
        before = cost
        for variable, size in enumerate(sizes):
            states[variable] = _best(variable, near[variable], states, size)
        cost = _total(tables, states)
    return tuple(states), cost
