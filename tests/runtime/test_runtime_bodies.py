# ruff: noqa: E501 - the text of a model
"""Programs with bodies of loops and branches: kept for later starts, and in bundles."""

import gc
import weakref

import numpy as np
import onnx
import onnx.parser
import pytest
from runtime_models import image

import saccade
from saccade.backends.cpu.store.identity import machine_identity

pytestmark = pytest.mark.skipif(machine_identity() is None, reason="no bundles on this machine")

RNG = np.random.default_rng(2)
TEXT = """<ir_version: 10, opset_import: ["": 21]>
g (float[1, 3, H, 9] x, int64 n, bool q) => (float[1, 3, H, 9] y, float[k, 1, 3, H, 9] r, float[1, 5, H, 9] z) {
  y, r = Loop(n, t, x) <body = turns (int64 i, bool c, float[1, 3, H, 9] v) => (bool c2, float[1, 3, H, 9] v2, float[1, 3, H, 9] o) {
    c2 = Identity(c)
    a = Conv<pads = [1, 1, 1, 1]>(v, w)
    m = Loop(i, t, a) <body = inner (int64 j, bool e, float[1, 3, H, 9] u) => (bool e2, float[1, 3, H, 9] u2) {
      e2 = Identity(e) s = Conv(u, w1) u2 = Mul(s, half) }>
    v2 = Tanh(m)
    o = Neg(v2) }>
  z = If(q) <
    then_branch = yes () => (float[1, 5, H, 9] z1) { b = Conv<pads = [1, 1, 1, 1]>(y, w5) z1 = Relu(b) },
    else_branch = no () => (float[1, 5, H, 9] z2) { d = Conv(y, w6) z2 = Tanh(d) }>
}"""  # fmt: skip
WEIGHTS = {
    "w": RNG.normal(0, 0.2, (3, 3, 3, 3)), "w1": RNG.normal(0, 0.5, (3, 3, 1, 1)),
    "w5": RNG.normal(0, 0.2, (5, 3, 3, 3)), "w6": RNG.normal(0, 0.5, (5, 3, 1, 1)), "half": np.array(0.5),
}  # fmt: skip


def loops():
    model = onnx.parser.parse_model(TEXT)
    known = [(name, array.astype(np.float32)) for name, array in WEIGHTS.items()]
    known.append(("t", np.array(True)))
    model.graph.initializer.extend(onnx.numpy_helper.from_array(a, name) for name, a in known)
    onnx.checker.check_model(model)
    return model.SerializeToString()


RUNS = [
    (image(1, 3, rows, 9), np.array(turns), np.array(branch))
    for rows, turns, branch in ((7, 3, True), (7, 0, False), (7, 5, False))
]
SHAPES = {"x": (1, 3, 7, 9), "n": (), "q": ()}


def same(model, wanted):
    for given, results in zip(RUNS, wanted, strict=True):
        found = model(*given)
        assert all(np.array_equal(a, b) for a, b in zip(found, results, strict=True))


@pytest.fixture(scope="module")
def wanted():
    model = saccade.compile(loops(), threads=2, cache=False)
    found = [model(*given) for given in RUNS]
    assert found[0][1].shape[0] == 3 and not np.array_equal(found[0][0], found[2][0])
    return found


def test_a_second_start_needs_no_engine(cache, wanted):
    first = saccade.compile(loops(), threads=2)
    same(first, wanted)
    second = saccade.compile(loops(), threads=2)
    same(second, wanted)
    assert second.profile(*RUNS[0], repeat=2).total > 0
    assert second._engine is None
    assert second.plan(**SHAPES) == first.plan(**SHAPES)
    programs = [model._program(tuple(SHAPES.values())) for model in (first, second)]
    assert sum(bool(step.bodies) for step in programs[1].plan.steps) == 2
    one, two = (
        {
            name: a.ctypes.data
            for name, a in zip(p.tables.all_constants, p.all_constants, strict=True)
        }
        for p in programs
    )
    inside = one.keys() - set(programs[0].tables.constants)
    assert inside and all(one[name] == two[name] for name in inside), "held once"


def test_another_size(cache, wanted):
    first = saccade.compile(loops(), threads=2)
    same(first, wanted)
    other = (image(1, 3, 12, 9), *RUNS[0][1:])
    expected = saccade.compile(loops(), threads=2, cache=False)(*other)
    for model in (first, saccade.compile(loops(), threads=2)):
        assert all(np.array_equal(a, b) for a, b in zip(model(*other), expected, strict=True))
        same(model, wanted)


def test_a_bundle(cache, wanted, tmp_path):
    path = tmp_path / "loops.saccade"
    saccade.compile(loops(), threads=2).save(path, SHAPES)
    found = saccade.compile(path)
    same(found, wanted)
    assert sum(bool(step.bodies) for step in found.plan(**SHAPES).steps) == 2


def test_a_bundle_for_another_machine(cache, wanted, tmp_path):
    """What is packed without this machine's code gives the same numbers, within rounding."""
    path = tmp_path / "loops.saccade"
    saccade.compile(loops(), threads=2).save(path, SHAPES, machines=["desktop-avx2"])
    model = saccade.compile(path)
    for given, results in zip(RUNS, wanted, strict=True):
        for a, b in zip(model(*given), results, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_nothing_keeps_a_program_of_bodies_alive(cache):
    model = saccade.compile(loops(), threads=1)
    model(*RUNS[0])
    program = model._program(tuple(SHAPES.values()))
    inside = [weakref.ref(body) for bodies in program._bodies.values() for body in bodies]
    gc.collect()
    gc.disable()
    try:
        del program, model
        assert inside and all(ref() is None for ref in inside), "no cycle waits for a collection"
    finally:
        gc.enable()
