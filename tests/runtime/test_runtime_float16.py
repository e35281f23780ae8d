"""float16 on the CPU: what its pass makes of it, bit by bit, and whom its cache is for."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser
from runtime_models import compiled, image, two_inputs

import saccade
from saccade import lowered
from saccade.backends.cpu import backend
from saccade.compile import _identity
from saccade.devices import device_named
from saccade.options import Options

HALF = np.float16
RNG = np.random.default_rng(11)


def weight(*shape):
    return RNG.standard_normal(shape).astype(HALF)


# Name -> nodes in float16, and those of the same in float32 between casts at the ends.
BODIES = {
    "convolutions": (
        "a = Conv<pads=[1,1,1,1]>(x, w, b) r = Relu(a) "
        "n = BatchNormalization(r, s, s, b, s) y = Conv(n, v)",
    ),
    "casts": (
        "a = Cast<to=1>(x) e = Exp(a) f = Cast<to=10>(e) m = Mul(f, p) y = Neg(m)",
        "e = Exp(x) m = Mul(e, p) y = Neg(m)",
    ),
    "clip": ("m = Mul(x, p) y = Clip(m, p, q)",),
    "resize": ('k = Cast<to=1>(z) y = Resize<mode="nearest">(x, , k)',),
    "constants": (
        "c = Constant<value=float16[1] {11878}>() m = Mul(c, w) t = Mul(m, m) y = Conv(x, t)",
        "c = Cast<to=1>(h) m = Mul(c, w) t = Mul(m, m) y = Conv(x, t)",
    ),
    "where": ("e = Equal(x, p) l = Less(x, q) a = Where(e, q, x) y = Where(l, a, p)",),
    "weights": ("c = Cast<to=1>(w) d = Cast<to=10>(c) y = Conv(x, d)", "y = Conv(x, w)"),
    "sums": ("g = ReduceMean<axes=[2, 3]>(x) m = Softmax(g) y = Mul(x, m)",),
    "moves": ("t = Transpose<perm=[0, 2, 3, 1]>(x) y = Concat<axis=0>(t, t)",),
}
WEIGHTS = {
    "w": weight(4, 3, 3, 3), "b": weight(4), "s": np.abs(weight(4)) + HALF(0.5),
    "v": weight(5, 4, 1, 1), "p": HALF(0.1), "q": HALF(1.1), "h": HALF([0.1]),
    "z": HALF([1, 1, 2, 3]),
}  # fmt: skip


def model_of(body, kind, weights):
    text = (
        f'<ir_version: 8, opset_import: ["" : 15]> g ({kind}[1, 3, H, W] x) => ({kind} y) '
        f"{{ {body} }}"
    )
    model = parser.parse_model(text)
    named = [(name, array) for name, array in weights.items() if name in names_in(body)]
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(a), n) for n, a in named)
    return model


def names_in(body):
    return set(body.replace("(", " ").replace(")", " ").replace(",", " ").split())


@pytest.mark.parametrize("options", [{}, {"device": "reference"}], ids=str)
@pytest.mark.parametrize("name", BODIES)
def test_gives_the_bits_of_float32_between_casts_at_the_ends(name, options):
    """As it has always been on the CPU: nothing is rounded to float16 in between."""
    body, *twin = BODIES[name]
    wide = {n: a.astype(np.float32) for n, a in WEIGHTS.items()}
    one = compiled(model_of(body, "float16", WEIGHTS), threads=1, **options)
    other = compiled(model_of((twin or [body])[0], "float", wide), threads=1, **options)
    x = (image(1, 3, 9, 11) - 0.5).astype(HALF)
    x[0, 0, 0, :2] = HALF(0.1)
    (given,), (made,) = one.inputs, one.outputs
    assert given.dtype == made.dtype == "float16"
    with np.errstate(over="ignore"):
        wanted = other(x.astype(np.float32)).astype(HALF)
    np.testing.assert_array_equal(one(x), wanted, strict=True)


def test_a_graph_has_no_float16_but_at_its_ends():
    model = compiled(model_of(BODIES["convolutions"][0], "float16", WEIGHTS))
    assert "widen_float16" in model.stages and "float16" in model.graph("frontend")
    lines = model.graph("widen_float16").splitlines()
    assert sum("float16" in line for line in lines if "Conv2d" in line) == 0


# -- whom a cache is for ---------------------------------------------------------------------------


def test_identities_and_graphs_name_the_device(cache, monkeypatch):
    options = Options()
    cpu, other = (_identity("digest", device, options) for device in ("cpu", "another"))
    assert cpu != other and "cpu" in cpu.split("/")
    places = [lowered._place(identity, options).name for identity in (cpu, other)]
    rooms = []
    monkeypatch.setattr(lowered, "sources_digest", lambda *names: rooms.append(names) or "")
    monkeypatch.setattr(device_named("cpu"), "plans_for", "another", raising=False)
    lowered._place(cpu, options)
    assert places[0] != places[1] and "backends/another/passes" in rooms[0]


def test_a_pass_of_the_cpu_is_part_of_the_code_that_made_a_graph(cache, monkeypatch):
    rooms = []
    monkeypatch.setattr(lowered, "sources_digest", lambda *names: rooms.append(names) or "")
    lowered._place("identity", Options(device="reference"))
    assert rooms == [("frontend", "ir", "opdefs", "passes", "backends/cpu/passes")]


def test_the_reference_plays_the_cpu_s_graphs(cache, tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(model_of(BODIES["clip"][0], "float16", WEIGHTS), path)
    models = [saccade.compile(path, device=device) for device in ("cpu", "reference")]
    assert len({model._started().identity for model in models}) == 1
    assert len(list((cache / "graphs").glob("*.graph"))) == 1


def test_measured_times_name_the_device(cache, monkeypatch):
    seen = []
    store = backend.TimingStore
    monkeypatch.setattr(
        backend, "TimingStore", lambda *who, **how: seen.append(who) or store(*who, **how)
    )
    model = compiled(two_inputs(), threads=1)
    model.tune(image(2, 4), image(2, 4), np.array([1, -2, 3]), seconds=0.1)
    assert seen[0][0] == "cpu"
    assert model.algorithms.device == "cpu"
