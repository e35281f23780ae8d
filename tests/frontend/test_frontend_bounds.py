"""Small files that ask for a lot: they run, or are refused in a moment, and nothing else."""

from __future__ import annotations

import importlib
import itertools
import re
import subprocess
import sys
import traceback
from pathlib import Path

import numpy as np
import onnx
import pytest
from frontend_models import run_onnxruntime, text_model
from hostile_sizes import CASES, chain, one_node

import saccade
from saccade import Limits, Options, passes, plan
from saccade.errors import ModelError, PlanError
from saccade.frontend import onnx as frontend
from saccade.ir.expr import Expr
from saccade.layout.sizes import shapes_of
from saccade.opdefs import Concat, Conv2d, Pointwise
from saccade.opdefs._taps import AxisWindows, expr_flops

WITHIN = 30.0
"""Seconds until each runs or is refused, on a loaded machine; without bounds it was 45 to ∞."""
FINE = {
    "concat_symbolic",
    "concat_constant",
    "relu",
    "mixed",
    "maximum",
    "sum",
    "added",
    "multiplied",
    "folded_convolution",
    "float8",
}
SAYS = {
    "concat_forever": "PlanError.*Limits.elements",
    "expand": "ModelError.*Limits.elements",
    "constant_of_shape": "ModelError.*Limits.elements",
    "output_padding": "ModelError.*Limits.extent",
    "resize_sizes_narrow": "ModelError.*Limits.extent",
    "resize_to_none": "MisfitError.*leave nothing",
    "resize_scale_later": "PlanError.*leave nothing",
    "pad_wide": "OutOfMemoryError.*4803840768 bytes",
    "pad_later": "PlanError.*Limits.elements",
    "nodes": r"ModelError.*more than 100000 nodes \(Limits\.nodes\)",
    "attribute": "ModelError.*'more' of LeakyRelu.*3000000.*Limits.attribute",
    "string": r"UnsupportedModelError.*\(initializer\) +STRING.* s['\"]",
    "complex": r"UnsupportedModelError.*\(initializer\) +COMPLEX64.* s['\"]",
}


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    """What came of each, in one process of bounded memory and time."""
    script = Path(__file__).with_name("hostile_sizes.py")
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, (done.stdout, done.stderr[-2000:])
    found = {}
    for line in done.stdout.splitlines():
        (name, _, what), after = line.partition(" "), line.rpartition(" after ")[2]
        assert float(after) < WITHIN, line
        found[name] = what.rpartition(" after ")[0]
    return found


@pytest.mark.parametrize("name", CASES)
def test_it_runs_or_is_refused(name: str, outcomes: dict[str, str]) -> None:
    if name in FINE:
        assert outcomes[name] == "fine"
    else:
        assert re.match(SAYS.get(name, "ModelError|MisfitError|PlanError"), outcomes[name]), (
            outcomes[name]
        )


def test_a_convolution_of_many_operations_is_left_to_each_run() -> None:
    """Its seconds would not tell: it is hardly beyond the limit, so as to be run here as well."""
    graph = passes.run(frontend.load(CASES["folded_convolution"]()))
    assert any(isinstance(node.op, Conv2d) for node in graph.nodes)


# -- algorithms --------------------------------------------------------------------------------


def test_a_concat_that_is_read_twice_is_made_once() -> None:
    graph = passes.run(
        frontend.load(text_model("a = Concat<axis=0>(x, x) y = Concat<axis=0>(a, a)"))
    )
    assert [len(n.inputs) for n in graph.nodes if isinstance(n.op, Concat)] == [2, 2]
    graph = passes.run(
        frontend.load(text_model("a = Concat<axis=0>(x, x) y = Concat<axis=0>(a, x)"))
    )
    assert [len(n.inputs) for n in graph.nodes if isinstance(n.op, Concat)] == [3]


@pytest.mark.parametrize("most", [1, 5, 64])
def test_fused_expressions_are_bounded(most: int) -> None:
    model = text_model(
        "a = Conv(x, w) " + " ".join(f"v{i + 1} = Sin(v{i})" for i in range(200)).replace("v0", "a")
        + " y = Identity(v200)",
        weights={"w": np.ones((4, 3, 1, 1), np.float32)},
    )  # fmt: skip
    graph = passes.run(frontend.load(model), limits=Limits(expression=most))
    expressions: list[Expr] = []
    for node in graph.nodes:
        assert isinstance(node.op, Conv2d | Pointwise)
        expressions.append(node.op.epilogue if isinstance(node.op, Conv2d) else node.op.expr)
    sizes = [expr_flops(e) for e in expressions]
    assert max(sizes) == most and sum(sizes) == 200


def test_a_chain_of_several_expressions_is_right() -> None:
    model = chain(150, "Sin", "Tanh", "Relu")
    x = np.random.default_rng(1).normal(size=(5, 3)).astype(np.float32)
    expected = run_onnxruntime(model, {"x": x})["y"]
    (got,) = saccade.compile(model.SerializeToString(), threads=1).run({"x": x}).values()
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("op_type", ["Sum", "Mean", "Max", "Min"])
@pytest.mark.parametrize("count", [8, 9, 16, 30])
def test_operators_of_many_operands_are_right(op_type: str, count: int) -> None:
    names = ", ".join(f"w{i}" for i in range(count))
    rng = np.random.default_rng(count)
    weights = {f"w{i}": rng.normal(size=(2, 3)).astype(np.float32) for i in range(count)}
    model = text_model(f"y = {op_type}(x, {names})", "float[2, 3] x", weights=weights)
    x = rng.normal(size=(2, 3)).astype(np.float32)
    graph = frontend.load(model)
    assert all(len(node.inputs) <= 9 for node in graph.nodes)
    (got,) = saccade.compile(model, device="reference", threads=1).run({"x": x}).values()
    np.testing.assert_allclose(got, run_onnxruntime(model, {"x": x})["y"], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("taps", [1, 2, 5])
@pytest.mark.parametrize("stride", [1, 3])
@pytest.mark.parametrize("pad", [-2, 0, 4])
@pytest.mark.parametrize("dilation", [1, 2, 7])
def test_valid_taps_are_counted(taps: int, stride: int, pad: int, dilation: int) -> None:
    for size, count in ((0, 3), (1, 4), (9, 6)):
        places = np.arange(count)[:, None] * stride - pad + np.arange(taps)[None, :] * dilation
        expected = np.count_nonzero((places >= 0) & (places < size), axis=1)
        np.testing.assert_array_equal(
            AxisWindows(taps, stride, pad, dilation).valid(size, count), expected
        )


# -- the bounds are options ----------------------------------------------------------------------


def _with(limits: Limits) -> Options:
    return Options(limits=limits)


def test_nodes() -> None:
    frontend.load(chain(10, "Relu"), _with(Limits(nodes=10)))
    with pytest.raises(ModelError, match=r"more than 10 nodes \(Limits\.nodes\)"):
        frontend.load(chain(11, "Relu"), _with(Limits(nodes=10)))


def test_attributes() -> None:
    model = one_node("Transpose", ["x"], {}, perm=[0, 1, 2, 3])
    frontend.load(model, _with(Limits(attribute=4)))
    with pytest.raises(ModelError, match="'perm' of Transpose '' holds 4 elements, more than 3"):
        frontend.load(model, _with(Limits(attribute=3)))


def test_elements() -> None:
    model = one_node("Relu", ["x"], {})
    frontend.load(model, _with(Limits(elements=3 * 64)))
    with pytest.raises(ModelError, match="192 elements, more than 191"):
        frontend.load(model, _with(Limits(elements=3 * 64 - 1)))


def test_elements_of_sizes_that_are_known_later() -> None:
    graph = frontend.load(one_node("Relu", ["x"], {}, ["N", 3]))
    shapes_of(graph, {"N": 4}, Limits(elements=12))
    with pytest.raises(PlanError, match=r"with N=5, %x: the shape \[5, 3\] holds 15 elements"):
        shapes_of(graph, {"N": 5}, Limits(elements=12))


def test_extents_of_sizes_that_are_known_later() -> None:
    model = one_node("MaxPool", ["x"], {}, ["N", 3, "H", 8], kernel_shape=[1, 1], strides=[2, 2])
    graph = frontend.load(model)
    shapes_of(graph, {"N": 99, "H": 20}, Limits(extent=20))
    with pytest.raises(PlanError, match="an axis of 21 elements, more than 20 for Pool2d"):
        shapes_of(graph, {"N": 99, "H": 21}, Limits(extent=20))


def test_extents_are_those_that_windows_run_along() -> None:
    frontend.load(one_node("Relu", ["x"], {}, [1, 1, 1, 1 << 30]))
    model = one_node("MaxPool", ["x"], {}, [1 << 30, 1, 1, 1], kernel_shape=[1, 1])
    frontend.load(model)
    model = one_node("MaxPool", ["x"], {}, [1, 1, 1, 1 << 30], kernel_shape=[1, 1])
    with pytest.raises(ModelError, match=r"Limits\.extent"):
        frontend.load(model)


@pytest.mark.parametrize("most", [1, 1 << 30])
def test_folded_constants(most: int) -> None:
    body = "a = ConstantOfShape(s) b = CumSum(a, i) c = CumSum(b, i) y = Add(x, c)"
    weights = {"s": np.asarray([100, 3]), "i": np.asarray(0)}
    model = text_model(body, "float[100, 3] x", weights=weights)
    graph = frontend.load(model, _with(Limits(folded_bytes=most)))
    graph = passes.run(graph, limits=Limits(folded_bytes=most))
    assert any(v.shape == (100, 3) for v in graph.constants) == (most > 1)


def test_the_arena(monkeypatch: pytest.MonkeyPatch) -> None:
    model = saccade.compile(chain(3, "Softmax"), threads=1, cache=False)
    engine = model._started()
    need = model.plan((1000, 3)).arena_bytes
    assert need > 0
    make = plan.make
    monkeypatch.setattr(plan, "make", lambda *args: make(*args[:-1], Limits(arena_bytes=need - 1)))
    with pytest.raises(PlanError, match=f"with N=1000, .* {need} bytes, more than {need - 1}"):
        engine.plan([(1000, 3)])


def test_seconds_of_the_import() -> None:
    with pytest.raises(PlanError, match="importing the model takes longer than 1e-09 seconds"):
        frontend.load(chain(10, "Relu"), _with(Limits(seconds=1e-9)))


def test_seconds_of_each_part_of_the_import(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock jumps while a part works; whoever comes next does not begin."""
    for part in ("read.read", "check.check", "normalise.normalise"):
        with monkeypatch.context() as patch:
            room, name = part.split(".")
            module = importlib.import_module(f"saccade.frontend.onnx.{room}")
            now, real = [0.0], getattr(module, name)

            def slow(*given: object, **more: object) -> object:
                now[0] += 1e3  # noqa: B023 - called within this turn
                return real(*given, **more)  # noqa: B023

            patch.setattr(module, name, slow)
            patch.setattr("saccade.limits.time.monotonic", lambda: now[0])  # noqa: B023
            patch.setattr("saccade.frontend.onnx.lower.lower", pytest.fail)
            with pytest.raises(PlanError, match="importing the model takes longer than 120"):
                frontend.load(chain(10, "Relu"))


def test_seconds_of_planning(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = " ".join(f"v{i + 1} = Conv(v{i}, w)" for i in range(9)).replace("v0", "x")
    weights = {"w": np.ones((3, 3, 1, 1), np.float32)}
    model = text_model(f"{chain} y = Conv(v9, w)", weights=weights)
    loaded = saccade.compile(model, device="reference", limits=Limits(seconds=8), cache=False)
    shapes = [[2 if isinstance(d, str) else d for d in info.shape] for info in loaded.inputs]
    clock = itertools.count()
    monkeypatch.setattr("saccade.limits.time.monotonic", lambda: float(next(clock)))
    with pytest.raises(PlanError, match="planning takes longer than 8 seconds") as caught:
        loaded.plan(*shapes)
    passed = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert "search" in passed, "it is asked wherever kernels are looked for"


def test_seconds_of_the_passes() -> None:
    graph = frontend.load(chain(10, "Relu"))
    with pytest.raises(PlanError, match="fold_constants: optimising the graph takes longer"):
        passes.run(graph, limits=Limits(seconds=1e-9))


def test_bounds_of_ones_own_are_not_met_by_what_was_kept(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(chain(11, "Sin"), path)
    saccade.compile(path, threads=1)
    with pytest.raises(ModelError, match=r"more than 10 nodes \(Limits\.nodes\)"):
        saccade.compile(path, threads=1, limits=Limits(nodes=10))
    saccade.compile(path, threads=1)
