"""What is found out about a graph is found out once, and lives as long as the graph."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import numpy as np

from saccade.ir import DType, Graph, Value
from saccade.ir.derived import derived


def graph():
    value = Value("w", DType.F32, (4,))
    return Graph((), (), (), {value: np.zeros(4, np.float32)})


class Fact:
    """Something that a weak reference can watch."""


def test_it_is_found_out_once_for_each_graph_and_argument():
    asked = []

    @derived
    def fact(of: Graph, number: int) -> Fact:
        asked.append(number)
        return Fact()

    one, two = graph(), graph()
    assert fact(one, 1) is fact(one, 1)
    assert fact(one, 1) is not fact(one, 2)
    assert fact(one, 1) is not fact(two, 1)
    assert asked == [1, 2, 1]


def test_functions_do_not_share_results():
    @derived
    def one(of: Graph) -> int:
        return 1

    @derived
    def two(of: Graph) -> int:
        return 2

    same = graph()
    assert (one(same), two(same), one(same)) == (1, 2, 1)


def test_another_graph_made_of_it_knows_nothing():
    @derived
    def fact(of: Graph) -> Fact:
        return Fact()

    first = graph()
    assert fact(replace(first, name="other")) is not fact(first)


def test_results_go_with_the_graph():
    @derived
    def nodes(of: Graph) -> Fact:
        return Fact()

    watched = weakref.ref(nodes(kept := graph()))
    gc.collect()
    assert watched() is not None
    del kept
    gc.collect()
    assert watched() is None


def test_the_oldest_results_of_many_go():
    @derived
    def fact(of: Graph, number: int) -> Fact:
        return Fact()

    same = graph()
    found = [weakref.ref(fact(same, number)) for number in range(100)]
    alive = [number for number, ref in enumerate(found) if ref() is not None]
    assert alive == list(range(84, 100))
