# ruff: noqa: E501 - tables with one model a line
"""How bodies of loops and branches run: threads, callers, types, bounds, later starts."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import pytest
from loop_models import RNG, TURNS, WEIGHTS, X, by_turns, hold, model, peers

import saccade
from saccade.errors import LoopError, UnsupportedModelError
from saccade.plan import Plan


def test_threads_give_the_same_bits():
    built = by_turns("products")
    feeds = {"n": np.array(9), "x": X}
    results = [saccade.compile(built, threads=n, cache=False).run(feeds)["y"] for n in (1, 2, 3)]
    for other in results[1:]:
        np.testing.assert_array_equal(results[0], other)


def test_callers_at_the_same_time():
    compiled = saccade.compile(by_turns("loops in a loop"), threads=2, cache=False)
    feeds = [{"n": np.array(n), "x": X * n} for n in range(12)]
    wanted = [compiled.run(one)["y"] for one in feeds]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            for found, expected in zip(pool.map(compiled.run, feeds), wanted, strict=True):
                np.testing.assert_array_equal(found["y"], expected)


def test_checked_code_and_other_precisions():
    feeds = {"n": np.array(5), "x": X}
    (wanted,) = peers(by_turns("products"), feeds, reference=False)
    for options, most in (({"checked": True}, 1e-5), ({"precision": "bf16"}, 0.05)):
        got = saccade.compile(by_turns("products"), cache=False, **options).run(feeds)["y"]
        np.testing.assert_allclose(got, wanted["y"], atol=most)


def test_half_precision():
    body = "y, r = Loop(n, t, x) <body = b (int64 i, bool c, float16[3, 5] v) => (bool c2, float16[3, 5] v2, float16[3, 5] o) { c2 = Identity(c) m = MatMul(v, m55) v2 = Tanh(m) o = Add(v2, x) }>"
    built = model(
        body,
        "int64 n, float16[3, 5] x",
        "float16[3, 5] y, float16[k, 3, 5] r",
        t=np.array(True),
        m55=WEIGHTS["m55"].astype(np.float16),
    )
    feeds = {"n": np.array(4), "x": X.astype(np.float16)}
    (wanted,) = peers(built, feeds, reference=False)
    for device in ("reference", "cpu"):
        results = saccade.compile(built, device=device, cache=False).run(feeds)
        for name, given in wanted.items():
            assert results[name].dtype == np.float16 and results[name].shape == given.shape
            np.testing.assert_allclose(results[name].astype(float), given.astype(float), atol=0.01)


def test_a_loop_that_never_ends():
    built = model(
        "y = Loop(, t, x) <body = endless (int64 i, bool c, float[3, 5] v) => (bool c2, float[3, 5] v2) { v2 = Tanh(v) m = ReduceMax<keepdims=0>(v2) c2 = Less(m, most) }>",
        "float[3, 5] x", "float[3, 5] y", t=np.array(True), most=np.float32(9),
    )  # fmt: skip
    built.graph.node[0].name = "endless"
    for device in ("reference", "cpu"):
        compiled = saccade.compile(
            built, device=device, cache=False, limits=saccade.Limits(turns=50)
        )
        with pytest.raises(
            LoopError, match=r"loop 'endless' is not done after 50 turns \(Limits.turns\)"
        ):
            compiled.run({"x": X})
        # The program is as good as before.
        with pytest.raises(LoopError):
            compiled.run({"x": X})


def test_more_turns_than_there_is_room_for():
    compiled = saccade.compile(by_turns("gathered"), cache=False, limits=saccade.Limits(gathered=7))
    assert compiled.run({"n": np.array(7), "x": X})["r"].shape == (7, 5, 3)
    with pytest.raises(LoopError, match=r"more than 7 turns \(Limits.gathered\)"):
        compiled.run({"n": np.array(8), "x": X})


def test_a_known_number_of_turns_beyond_the_bound_is_refused():
    built = model(
        "y = Loop(n, t, x) <body = b (int64 i, bool c, float[3, 5] v) => (bool c2, float[3, 5] v2) { c2 = Identity(c) v2 = Add(v, x) }>",
        "float[3, 5] x", "float[3, 5] y", n=np.array(10**12), t=np.array(True),
    )  # fmt: skip
    with pytest.raises(
        UnsupportedModelError, match=r"makes 10+ turns, more than \d+ \(Limits.turns\)"
    ):
        saccade.compile(built, cache=False)


def test_later_starts_give_the_same(tmp_path, monkeypatch):
    monkeypatch.setenv("SACCADE_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "model.onnx"
    onnx.save(by_turns("products"), path)
    feeds = {"n": np.array(6), "x": X}
    first = saccade.compile(path).run(feeds)["y"]
    np.testing.assert_array_equal(saccade.compile(path).run(feeds)["y"], first)
    # Another body under the same name is another model.
    other = by_turns("products")
    body = other.graph.node[0].attribute[0].g
    body.node[-1].op_type = "Sigmoid"
    onnx.save(other, path)
    found = saccade.compile(path).run(feeds)["y"]
    (wanted,) = peers(other, feeds, reference=False)
    np.testing.assert_allclose(found, wanted["y"], rtol=1e-5, atol=1e-6)


def test_bundles_hold_them(tmp_path):
    compiled = saccade.compile(by_turns("products"), cache=False)
    compiled.save(tmp_path / "bundle", {"n": (), "x": (3, 5)})
    found = saccade.compile(tmp_path / "bundle")
    for turns in (0, 1, 6):
        feeds = {"n": np.array(turns), "x": X}
        np.testing.assert_array_equal(found.run(feeds)["y"], compiled.run(feeds)["y"])


def test_sizes_that_vary():
    body, _ = TURNS["gathered"]
    built = model(
        body.replace("[3, 5]", "[h, w]"),
        "int64 n, float[h, w] x",
        "float[h, w] y, float[k, w, h] r",
        t=np.array(True),
    )
    runs = [
        {"n": np.array(n), "x": RNG.standard_normal(shape).astype(np.float32)}
        for n, shape in ((2, (3, 5)), (1, (1, 1)), (3, (8, 2)))
    ]
    hold(built, *runs, reference=False)


def test_what_people_see():
    compiled = saccade.compile(by_turns("products"), threads=2, cache=False)
    feeds = {"n": np.array(3), "x": X}
    # Whose steps are clocked while its body has the team that the program around it holds.
    (loop,) = (s for s in compiled.profile(**feeds, repeat=2).steps if s.kernel == "bodies")
    assert loop.config == "Loop" and loop.microseconds > 0
    text = compiled.graph("frontend")
    assert "Loop" in text and "MatMul" in text
    plan = compiled.plan(n=(), x=X.shape)
    assert "body of y, a program of its own" in str(plan)
    assert Plan.from_json(plan.to_json()) == plan
