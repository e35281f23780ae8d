"""Kernels for other sizes: which sizes are asked about, and what becomes of the answers."""

import time

import pytest

import saccade
from saccade.ahead import _FACTORS, kernels_ahead, kernels_of, layouts_ahead
from saccade.engine import sizes_of
from saccade.errors import PlanError
from saccade.ir import DType, Graph, Value
from saccade.ir.dim import symbol
from saccade.limits import Limits

SIZES = {"n": 1, "h": 200, "w": 300}


def graph_of(*shapes):
    values = tuple(Value(f"x{i}", DType.F32, shape) for i, shape in enumerate(shapes))
    return Graph(inputs=values, outputs=values, nodes=(), constants={})


def asked(graph, sizes):
    """The sizes that are planned for."""
    found = []

    def lay_out(around, available):
        del available
        found.append(around)
        raise PlanError("too small")

    assert kernels_ahead(graph, sizes, lay_out, (), Limits()) == []
    return found


def test_images_grow_shrink_and_change_their_form():
    n, h, w = map(symbol, "nhw")
    found = asked(graph_of((n, 3, h, w)), SIZES)
    assert len(found) == 10 and SIZES not in found
    assert all(each["n"] >= 1 for each in found)
    forms = {(each["h"] > 200, each["w"] > 300) for each in found}
    assert forms >= {(False, False), (True, True)} and len(forms) > 2
    assert all(0.5 <= each[name] / SIZES[name] <= 1.5 for each in found for name in "hw")


def test_a_symbol_has_one_size_wherever_it_stands():
    h = symbol("h")
    found = asked(graph_of((1, 3, h, h), (1, h)), {"h": 64})
    assert len(found) == len({each["h"] for each in found}) >= 6


def test_symbols_that_are_called_like_operators():
    low, high = symbol("min"), symbol("max")
    found = asked(graph_of((1, 3, low, high)), {"min": 64, "max": 96})
    assert len(found) > 6 and all(set(each) == {"min", "max"} for each in found)


@pytest.mark.parametrize("sizes", [{}, {"n": 1}])
def test_what_cannot_change_is_not_asked_about(sizes):
    dims = tuple(map(symbol, sizes))
    found = asked(graph_of((*dims, 3, 8, 8)), sizes)
    assert all(each["n"] == 1 for each in found) and len(found) <= 1


def test_known_code_is_preferred_and_not_named_again(zoo):
    engine = saccade.compile(zoo.path("resnet50"), machine="zen4", cache=False)._started()
    sizes = sizes_of(engine.graph, [(1, 3, 224, 224)])
    own = kernels_of(engine._lay_out(sizes, engine.backend.available))
    first = kernels_ahead(engine.graph, sizes, engine._lay_out, own, Limits())
    assert first and not set(first) & set(own) and len(first) < len(set(own)) / 2
    assert kernels_ahead(engine.graph, sizes, engine._lay_out, {*own, *first}, Limits()) == []


def test_planning_for_other_sizes_has_a_deadline_of_its_own():
    asked, graph = [], graph_of((1, 3, symbol("h"), symbol("w")))

    def lay_out(around, available):
        del available
        asked.append(around)
        time.sleep(0.05)
        raise PlanError("too small")

    assert kernels_ahead(graph, SIZES, lay_out, (), Limits(seconds=0.01)) == []
    assert len(asked) == 1


def test_layouts_come_with_their_sizes_and_without_those_that_cannot_be():
    graph, found = graph_of((1, 3, symbol("h"), symbol("w"))), []

    def lay_out(around):
        if around["h"] > 250:
            raise PlanError("too large")
        return f"for {around['h']}x{around['w']}"

    for laid, around in layouts_ahead(graph, SIZES, lay_out, Limits()):
        assert laid == f"for {around['h']}x{around['w']}"
        found.append((around["h"] / 200, around["w"] / 300))
    wanted = [one for one in _FACTORS if one[0] <= 1.25]
    assert found == [pytest.approx(one, abs=0.01) for one in wanted] and len(wanted) > 5
