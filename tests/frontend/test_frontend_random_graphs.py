"""Random small graphs, valid but strange: the kernels, checked, against ONNX's reference.

`SACCADE_ATTACK=20` draws 20 times as many as CI does. What it found is below, one test each.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import count

import numpy as np
import onnx
import pytest
from frontend_models import text_model
from hypothesis import HealthCheck, Phase, given, settings
from random_graphs import DrawnGraph, difference, drawn_graph
from random_nodes import RECIPES

from saccade import layout, plan
from saccade.backends.cpu.backend import CpuBackend
from saccade.devices import device_named
from saccade.errors import PlanError, UnsupportedModelError
from saccade.frontend import onnx as frontend
from saccade.ir import Array
from saccade.options import Options
from saccade.passes import run
from saccade.processes import Processes
from saccade.testing.interpret import interpret, sizes_of

LENGTH = int(os.environ.get("SACCADE_ATTACK") or 1)
DRAWN = settings(
    suppress_health_check=list(HealthCheck),
    derandomize=LENGTH == 1,  # the same ones for every change
    phases=[Phase.generate, Phase.shrink] if LENGTH > 1 else [Phase.generate],
)
IDENTITIES = count()
"""What constants are kept under."""
OPTIONS = Options.make(threads=1, checked=True, cache=False)


@pytest.fixture(scope="module")
def backend() -> CpuBackend:
    """One for all graphs: what several need is compiled once."""
    return CpuBackend(OPTIONS, Processes())


def computed(backend: CpuBackend, model: onnx.ModelProto, feeds: Mapping[str, Array]):
    """What the kernels make of it, in this process."""
    graph = run(frontend.load(model), device_named("cpu").passes(OPTIONS), check=True)
    sizes = sizes_of(graph, feeds)
    laid = layout.assign(graph, sizes, backend, threads=1)
    made = plan.make(graph, laid, sizes, 1, backend.target.isa)
    program = backend.build(made, graph, f"random-{next(IDENTITIES)}")
    results = program.run([feeds[value.name] for value in graph.inputs])
    return dict(zip(graph.output_names, results, strict=True))


def check(found: Mapping[str, Array], graph: DrawnGraph) -> None:
    wrong = [difference(found[name], name, graph) for name in graph.wanted]
    assert not any(wrong), "\n".join(filter(None, wrong))


def test_what_is_imported_means_what_the_reference_says() -> None:
    held = []

    @settings(DRAWN, max_examples=100 * LENGTH)
    @given(drawn_graph(RECIPES, named=False))
    def one(graph: DrawnGraph) -> None:
        try:
            imported = frontend.load(graph.model)
        except UnsupportedModelError:
            return
        check(interpret(imported, graph.feeds), graph)
        held.append(graph)

    one()
    assert len(held) >= 80 * LENGTH, "most are refused"


def test_kernels_compute_what_the_reference_says(backend: CpuBackend) -> None:
    held = []

    @settings(DRAWN, max_examples=25 * LENGTH)
    @given(graph=drawn_graph(RECIPES, named=True))
    def one(graph: DrawnGraph) -> None:
        try:
            found = computed(backend, graph.model, graph.feeds)
        except UnsupportedModelError:
            return
        except PlanError:
            # Sizes that are none of the file may be too small for it.
            if not graph.named:
                raise
            return
        check(found, graph)
        held.append(graph)

    one()
    assert len(held) >= 15 * LENGTH, "most are refused"


TOO_SMALL = {
    "begins before the first element": ("y = Slice(x, a, b, c)", (-7, -2, 0)),
    "goes back beyond the first element": ("y = Slice(x, a, b, c, d)", (-1, -9, 0, -1)),
    "begins behind the last element": ("y = Slice(x, a, b, c, d)", (9, 0, 0, -1)),
    "is cut again": ("s = Slice(x, a, b, c) y = Slice(s, d, b, c)", (-5, 99, 0, 3)),
}


@pytest.mark.parametrize("name", TOO_SMALL)
def test_a_slice_of_an_axis_that_is_too_short_is_refused(backend: CpuBackend, name: str) -> None:
    """Its kernels would read what lies around the operand."""
    body, numbers = TOO_SMALL[name]
    weights = {k: np.array([n]) for k, n in zip("abcd", numbers, strict=False)}
    model = text_model(body, "float[N] x", weights=weights)
    with pytest.raises(PlanError, match="does not fit: Move: the map reads"):
        computed(backend, model, {"x": np.arange(3, dtype=np.float32)})
    computed(backend, model, {"x": np.arange(20, dtype=np.float32)})


def test_a_slice_to_the_first_element_is_empty_wherever_it_begins(backend: CpuBackend) -> None:
    """Its size was `8 - N`, which no plan took."""
    weights = {"a": np.array([-8]), "b": np.array([0])}
    model = text_model("y = Slice(x, a, b, b)", "float[N] x", weights=weights)
    for size in (5, 8, 20):
        found = computed(backend, model, {"x": np.arange(size, dtype=np.float32)})
        assert found["y"].shape == (0,)


def test_nothing_of_an_axis_of_one_is_moved(backend: CpuBackend) -> None:
    """A movement of nothing lost the factor that it reads, and a pass failed on it."""
    weights = {"w": np.array([0, 1]), "i": np.array([2, 1], np.int32), "t": np.array([0, 1])}
    body = "a, b = Split<axis=-1>(x, w) c = Gather<axis=0>(a, i) y = Tile(c, t)"
    model = text_model(body, "double[3,1] x", "double a, double b, double y", 18, weights)
    found = computed(backend, model, {"x": np.ones((3, 1))})
    assert {name: array.shape for name, array in found.items()} == {
        "a": (3, 0), "b": (3, 1), "y": (0, 0),
    }  # fmt: skip


def test_bytes_that_are_nothing_compile(backend: CpuBackend) -> None:
    weights = {"w": np.full((1, 1, 1), 6, np.uint8)}
    model = text_model("y = Add(w, x)", "uint8[A, B, 0] x", "uint8 y", weights=weights)
    found = computed(backend, model, {"x": np.zeros((3, 5, 0), np.uint8)})
    assert found["y"].shape == (3, 5, 0)
