"""Variable elimination against brute force, and an honest gap where it is not exact."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.layout.elimination import Table, minimise


def brute(sizes, tables):
    def cost(states):
        return sum(t.costs[tuple(states[v] for v in t.scope)] for t in tables)

    return min(cost(states) for states in product(*map(range, sizes)))


def table(rng, sizes, *scope):
    return Table(scope, rng.integers(0, 40, [sizes[v] for v in scope]).astype(float))


@st.composite
def series_parallel(draw):
    """Edges of a random two-terminal series-parallel graph, grown by splitting and doubling."""
    edges, count = [(0, 1)], 2
    for _ in range(draw(st.integers(0, 6))):
        at = draw(st.integers(0, len(edges) - 1))
        a, b = edges[at]
        if draw(st.booleans()):  # in series: a new vertex on the edge
            edges[at : at + 1] = [(a, count), (b, count)]
            count += 1
        else:  # in parallel, by way of a new vertex
            edges += [(a, count), (b, count)]
            count += 1
    sizes = draw(st.lists(st.integers(1, 4), min_size=count, max_size=count))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    tables = [table(rng, sizes, *sorted(e)) for e in edges]
    tables += [table(rng, sizes, v) for v in range(count) if draw(st.booleans())]
    return sizes, tables


@settings(max_examples=60)
@given(series_parallel())
def test_series_parallel_graphs_are_solved_exactly(case):
    sizes, tables = case
    found = minimise(sizes, tables, [0] * len(sizes), most=4**3)
    assert found.cost == brute(sizes, tables)
    assert found.gap == 0


def dense(count, states, seed):
    """Every pair of variables has a table: nothing like series-parallel."""
    rng, sizes = np.random.default_rng(seed), [states] * count
    pairs = [(a, b) for a in range(count) for b in range(a + 1, count)]
    return sizes, [table(rng, sizes, *pair) for pair in pairs]


@pytest.mark.parametrize("seed", range(8))
def test_the_gap_holds_where_tables_are_split(seed):
    sizes, tables = dense(7, 3, seed)
    found = minimise(sizes, tables, [0] * 7, most=9)
    best = brute(sizes, tables)
    assert found.bound <= best <= found.cost
    assert found.gap > 0
    assert minimise(sizes, tables, [0] * 7).cost == best


@pytest.mark.parametrize("seed", range(4))
def test_a_solution_is_never_dearer_than_the_start(seed):
    sizes, tables = dense(8, 3, 100 + seed)
    rng = np.random.default_rng(seed)
    for _ in range(5):
        start = [int(v) for v in rng.integers(0, 3, 8)]
        cost = sum(t.costs[tuple(start[v] for v in t.scope)] for t in tables)
        assert minimise(sizes, tables, start, most=9).cost <= cost


def test_states_that_exclude_each_other():
    same = np.where(np.eye(3, dtype=bool), 0.0, np.inf)
    tables = [Table((0, 1), same), Table((1, 2), same), Table((2,), np.array([5.0, 1.0, 3.0]))]
    found = minimise([3, 3, 3], tables, [0, 0, 0])
    assert found.states == (1, 1, 1) and found.cost == found.bound == 1


def test_equal_costs_take_the_first_state_and_nothing_is_fine():
    assert minimise([2, 2], [Table((0, 1), np.zeros((2, 2)))], [1, 1]).states == (0, 0)
    assert minimise([], [], []).cost == 0
