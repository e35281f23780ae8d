# ruff: noqa: E501 - tables with one model a line
"""Loops, scans and branches whose course data decide, against onnxruntime and ONNX's reference."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator

import saccade
from saccade.errors import LoopError, OptionError, UnsupportedModelError
from saccade.opdefs import Branch, Loop
from saccade.plan import Plan
from saccade.testing.compare import FP32_TOLERANCE, compare_outputs

RNG = np.random.default_rng(5)
X = RNG.standard_normal((3, 5)).astype(np.float32)
IMAGE = RNG.standard_normal((1, 3, 9, 11)).astype(np.float32)


def model(body, inputs, outputs, opset=21, **weights):
    text = f'<ir_version: 10, opset_import: ["": {opset}]> g ({inputs}) => ({outputs}) {{ {body} }}'
    built = onnx.parser.parse_model(text)
    built.graph.initializer.extend(
        onnx.numpy_helper.from_array(np.asarray(w), n) for n, w in weights.items()
    )
    onnx.checker.check_model(built)
    return built


def peers(built, feeds, reference):
    session = onnxruntime.InferenceSession(
        built.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    yield dict(zip([o.name for o in built.graph.output], session.run(None, feeds), strict=True))
    if reference:
        found = ReferenceEvaluator(built).run(None, feeds)
        yield dict(zip([o.name for o in built.graph.output], found, strict=True))


def hold(built, *runs, reference=True, **options):
    """Every run against both peers, on both devices; the model."""
    wanted = [list(peers(built, feeds, reference)) for feeds in runs]
    for device in ("reference", "cpu"):
        compiled = saccade.compile(built, device=device, threads=2, cache=False, **options)
        for feeds, others in zip(runs, wanted, strict=True):
            results = compiled.run(feeds)
            for other in others:
                for name, given in other.items():
                    assert np.shape(results[name]) == np.shape(given), (device, name)
                    assert results[name].dtype == np.asarray(given).dtype
                found = compare_outputs(results, {n: np.asarray(v) for n, v in other.items()})
                assert all(one.within(FP32_TOLERANCE) for one in found), (device, found)
    return compiled


def ops(compiled, feeds):
    plan = compiled.plan(**{name: np.shape(array) for name, array in feeds.items()})
    return [type(step.op) for step in plan.steps if step.bodies]


TURNS = {
    "sums": ("y = Loop(n, t, x) <body = b (int64 i, bool c, float[3, 5] v) => (bool c2, float[3, 5] v2) { c2 = Identity(c) v2 = Add(v, x) }>", "float[3, 5] y"),
    "with the turn's number": ("y = Loop(n, t, x) <body = b (int64 i, bool c, float[3, 5] v) => (bool c2, float[3, 5] v2) { c2 = Identity(c) f = Cast<to=1>(i) q = Mul(x, f) p = Mul(v, half) v2 = Sub(p, q) }>", "float[3, 5] y"),
    "values that change places": ("y, z = Loop(n, t, x, w) <body = b (int64 i, bool c, float[3, 5] u, float[3, 5] v) => (bool c2, float[3, 5] v2, float[3, 5] u2) { c2 = Identity(c) v2 = Identity(v) u2 = Identity(u) }>", "float[3, 5] y, float[3, 5] z"),
    "gathered": ("y, r = Loop(n, t, x) <body = b (int64 i, bool c, float[3, 5] v) => (bool c2, float[3, 5] v2, float[5, 3] o) { c2 = Identity(c) v2 = Add(v, x) o = Transpose(v2) }>", "float[3, 5] y, float[k, 5, 3] r"),
    "nothing but what is gathered": ("r = Loop(n, t) <body = b (int64 i, bool c) => (bool c2, int64 o) { c2 = Identity(c) o = Mul(i, i) }>", "int64[k] r"),
    "what is gathered is used": ("last, r = Loop(n, t, x) <body = b (int64 i, bool c, float[3, 5] v) => (bool c2, float[3, 5] v2, float[3, 5] o) { c2 = Identity(c) v2 = Add(v, x) o = Exp(v) }> y = ReduceSum<keepdims=0>(r, z0) s = Shape(r)", "float[3, 5] y, int64[3] s"),
    "an end that a turn finds": ("y = Loop(n, t, x) <body = b (int64 i, bool c, float[3, 5] v) => (bool c2, float[3, 5] v2) { v2 = Add(v, x) m = ReduceMax<keepdims=0>(v2) c2 = Less(m, most) }>", "float[3, 5] y"),
    "a condition that is given": ("g = Greater(n, one) y = Loop(n, g, x) <body = b (int64 i, bool c, float[3, 5] v) => (bool c2, float[3, 5] v2) { c2 = Identity(c) v2 = Add(v, v) }>", "float[3, 5] y"),
    "loops in a loop": ("y = Loop(n, t, x) <body = b (int64 i, bool c, float[3, 5] v) => (bool c2, float[3, 5] v2) { c2 = Identity(c) v2 = Loop(i, t, v) <body = d (int64 j, bool e, float[3, 5] u) => (bool e2, float[3, 5] u2) { e2 = Identity(e) s = Add(u, x) u2 = Mul(s, half) }> }>", "float[3, 5] y"),
    "rows of what is around it": ("y = Loop(n, t, z) <body = b (int64 i, bool c, float[5] v) => (bool c2, float[5] v2) { c2 = Identity(c) k = Mod(i, three) a = Gather<axis=0>(x, k) e = Exp(x) f = Gather<axis=0>(e, k) d = Add(a, f) v2 = Add(v, d) }>", "float[5] y"),
    "a branch in a loop": ("y = Loop(n, t, x) <body = b (int64 i, bool c, float[3, 5] v) => (bool c2, float[3, 5] v2) { c2 = Identity(c) k = Mod(i, three) q = Cast<to=9>(k) v2 = If(q) <then_branch = p () => (float[3, 5] a) { a = Add(v, x) }, else_branch = o () => (float[3, 5] a2) { a2 = Mul(v, half) }> }>", "float[3, 5] y"),
    "products": ("y = Loop(n, t, x) <body = b (int64 i, bool c, float[3, 5] v) => (bool c2, float[3, 5] v2) { c2 = Identity(c) m = MatMul(v, m55) v2 = Tanh(m) }>", "float[3, 5] y"),
    "integers and truth": ("y, q = Loop(n, t, n, t) <body = b (int64 i, bool c, int64 v, bool f) => (bool c2, int64 v2, bool f2) { c2 = Identity(c) v2 = Add(v, i) f2 = Not(f) }>", "int64 y, bool q"),
    "a sequence that grows": ("e = SequenceEmpty<dtype=1>() l, last = Loop(n, t, e, x) <body = b (int64 i, bool c, seq(float[3, 5]) s, float[3, 5] v) => (bool c2, seq(float[3, 5]) s2, float[3, 5] v2) { c2 = Identity(c) v2 = Add(v, x) s2 = SequenceInsert(s, v2) }> l2 = SequenceInsert(l, x) y = ConcatFromSequence<axis=0>(l2) ln = SequenceLength(l2)", "float[k, 5] y, int64 ln"),
    "a sequence along a new axis": ("e = SequenceEmpty<dtype=1>() f = SequenceInsert(e, x) l = Loop(n, t, f) <body = b (int64 i, bool c, seq(float[3, 5]) s) => (bool c2, seq(float[3, 5]) s2) { c2 = Identity(c) q = Cast<to=1>(i) v = Mul(q, x) s2 = SequenceInsert(s, v) }> y = ConcatFromSequence<axis=0, new_axis=1>(l)", "float[k, 3, 5] y"),
}  # fmt: skip
WEIGHTS = {
    "t": np.array(True), "one": np.array(1), "most": np.float32(9), "half": np.float32(0.5),
    "three": np.array(3), "z": np.zeros(5, np.float32), "z0": np.array([0]),
    "m55": RNG.standard_normal((5, 5)).astype(np.float32), "w": np.ones((3, 5), np.float32),
}  # fmt: skip


def by_turns(name):
    body, outputs = TURNS[name]
    used = {n: w for n, w in WEIGHTS.items() if re.search(rf"[ (]{n}[,)]", body)}
    return model(body, "int64 n, float[3, 5] x", outputs, **used)


@pytest.mark.parametrize("name", TURNS)
def test_turns_by_data(name):
    runs = [{"n": np.array(n), "x": X} for n in (0, 1, 2, 9, 40)]
    # ONNX's reference does not gather what the standard says.
    compiled = hold(
        by_turns(name), *runs, reference="[k" not in TURNS[name][1] and "gathered" not in name
    )
    assert Loop in ops(compiled, runs[0])


def test_without_a_condition():
    # Of which ONNX's reference makes no turn at all.
    body, outputs = TURNS["gathered"]
    built = model(body.replace("(n, t, x)", "(n, , x)"), "int64 n, float[3, 5] x", outputs)
    hold(built, *({"n": np.array(n), "x": X} for n in (0, 1, 4)), reference=False)


def test_no_turn_for_a_negative_number():
    hold(by_turns("sums"), {"n": np.array(-3), "x": X})


# -- bodies that are too often run to be unrolled --------------------------------------------------


def test_many_turns_are_one_program():
    built = model(
        "y, r = Loop(n, t, x) <body = b (int64 i, bool c, float[3, 5] v) => (bool c2, float[3, 5] v2, float[3, 5] o) { c2 = Identity(c) m = MatMul(v, m55) v2 = Tanh(m) o = Add(v2, x) }>",
        "float[3, 5] x", "float[3, 5] y, float[3000, 3, 5] r", n=np.array(3000), t=np.array(True), m55=WEIGHTS["m55"],
    )  # fmt: skip
    compiled = hold(built, {"x": X}, reference=False)
    plan = compiled.plan(x=X.shape)
    assert [type(step.op) for step in plan.steps] == [Loop]
    # Its sizes are known: nothing has to be cut.
    assert compiled.outputs[1].shape == (3000, 3, 5) and not plan.cuts
    assert Plan.from_json(plan.to_json()) == plan
    assert "a program of its own" in str(plan)


def test_few_turns_leave_no_loop():
    built = model(
        "y = Loop(n, t, x) <body = b (int64 i, bool c, float[3, 5] v) => (bool c2, float[3, 5] v2) { c2 = Identity(c) v2 = Add(v, x) }>",
        "float[3, 5] x", "float[3, 5] y", n=np.array(4), t=np.array(True),
    )  # fmt: skip
    assert ops(hold(built, {"x": X}), {"x": X}) == []


def test_what_changes_its_shape_is_unrolled_if_it_can_be():
    built = model(
        "y = Loop(n, t, x) <body = b (int64 i, bool c, float[k, 5] v) => (bool c2, float[k2, 5] v2) { c2 = Identity(c) v2 = Concat<axis=0>(v, x) a = Identity(i) b1 = Identity(a) d = Identity(b1) }>",
        "float[3, 5] x", "float[k, 5] y", n=np.array(300), t=np.array(True),
    )  # fmt: skip
    assert ops(hold(built, {"x": X}), {"x": X}) == []


SCANS = {
    "sums": ("s, y = Scan<num_scan_inputs=1, body = b (float[5] a, float[5] e) => (float[5] a2, float[5] o) { a2 = Add(a, e) o = Mul(a2, a2) }>(z, x)", 1),
    "backwards": ("s, y = Scan<num_scan_inputs=1, scan_input_directions=[1], scan_output_directions=[1], body = b (float[5] a, float[5] e) => (float[5] a2, float[5] o) { a2 = Sub(a, e) o = Neg(a2) }>(z, x)", 1),
    "other axes": ("s, y = Scan<num_scan_inputs=1, scan_input_axes=[1], scan_output_axes=[1], body = b (float[5] a, float[5] e) => (float[5] a2, float[5] o) { a2 = Sub(e, a) o = Neg(a2) }>(z, xt)", 1),
    "two, one of them backwards": ("s, y = Scan<num_scan_inputs=2, scan_input_directions=[0, 1], body = b (float[5] a, float[5] e, float[5] f) => (float[5] a2, float[5] o) { g = Mul(e, f) a2 = Add(a, g) o = Identity(f) }>(z, x, x)", 1),
}  # fmt: skip


@pytest.mark.parametrize("length", [1, 3, 700])
@pytest.mark.parametrize("name", SCANS)
def test_scans(name, length):
    body, _ = SCANS[name]
    out = f"float[{length}, 5] y" if "axes" not in name else f"float[5, {length}] y"
    swap = "xt = Transpose(x) " if "xt" in body else ""
    built = model(swap + body, f"float[{length}, 5] x", f"float[5] s, {out}", z=WEIGHTS["z"])
    x = np.random.default_rng(length).standard_normal((length, 5)).astype(np.float32)
    # ONNX's reference only has plain ones.
    compiled = hold(built, {"x": x}, reference=name == "sums")
    assert ops(compiled, {"x": x}) == ([Loop] if length == 700 else [])


def test_a_scan_of_nothing():
    # Which onnxruntime fails at.
    built = model(
        SCANS["sums"][0], "float[0, 5] x", "float[5] s, float[0, 5] y", z=WEIGHTS["z"] + 2
    )
    for device in ("reference", "cpu"):
        results = saccade.compile(built, device=device, cache=False).run(
            {"x": np.empty((0, 5), np.float32)}
        )
        np.testing.assert_array_equal(results["s"], WEIGHTS["z"] + 2)
        assert results["y"].shape == (0, 5)


def test_a_scan_of_batches():
    built = model(
        "s, y = Scan<num_scan_inputs=1, body = b (float[5] a, float[5] e) => (float[5] a2, float[5] o) { a2 = Add(a, e) o = Mul(a2, a2) }>(, z, x)",
        "float[2, 5] z, float[2, 3, 5] x", "float[2, 5] s, float[2, 3, 5] y", opset=8,
    )  # fmt: skip
    feeds = {
        "z": RNG.standard_normal((2, 5)).astype(np.float32),
        "x": RNG.standard_normal((2, 3, 5)).astype(np.float32),
    }
    hold(built, feeds, reference=False)


def test_a_scan_of_what_is_found():
    body = SCANS["sums"][0].replace("(z, x)", "(z, r)")
    built = model(
        "f = ReduceMax<keepdims=0>(x, one) c = Greater(f, zero) nz = NonZero(c) at = Squeeze(nz, ax) r = Gather<axis=0>(x, at) " + body,
        "float[40, 5] x", "float[5] s, float[k, 5] y", z=WEIGHTS["z"], one=np.array([1]), ax=np.array([0]), zero=np.float32(1.0),
    )  # fmt: skip
    runs = [
        {"x": (RNG.standard_normal((40, 5)) * scale).astype(np.float32)} for scale in (0.5, 0.7, 9)
    ]
    assert Loop in ops(hold(built, *runs, reference=False), runs[0])


# -- branches --------------------------------------------------------------------------------------

COSTLY = "y = If(q) <then_branch = a () => (float[1, 4, 9, 11] u) { u = Conv<pads=[1,1,1,1]>(x, k4) }, else_branch = b () => (float[1, 4, h, w] v) { v = %s }>"
BRANCHES = {
    "of one shape": ("float[1, 4, 9, 11] y", COSTLY % "Conv(x, k1)"),
    "of different sizes": ("float[1, 4, h, w] y", COSTLY % "Conv(x, k4)"),
    "one of them is what is around it": ("float[1, k, 9, 11] y", COSTLY.replace("h, w", "9, 11").replace("1, 4", "1, k") % "Identity(x)"),
    "two results, of several types": (
        "float[1, c, 9, 11] y, int64[k] s",
        "y, s = If(q) <then_branch = a () => (float[1, 4, 9, 11] u, int64[4] us) { u = Conv<pads=[1,1,1,1]>(x, k4) us = Shape(u) }, "
        "else_branch = b () => (float[1, 3, 9, 11] v, int64[1] vs) { v = Neg(x) vs = Size(v) vs = Identity(one) }>".replace("vs = Size(v) ", ""),
    ),
    "cheap, of different sizes": ("float[1, 3, h, w] y", "y = If(q) <then_branch = a () => (float[1, 3, 9, 11] u) { u = Exp(x) }, else_branch = b () => (float[1, 3, 4, 5] v) { v = MaxPool<kernel_shape=[3, 3], strides=[2, 2]>(x) }>"),
}  # fmt: skip
KERNELS = {
    "k4": RNG.standard_normal((4, 3, 3, 3)).astype(np.float32),
    "k1": RNG.standard_normal((4, 3, 1, 1)).astype(np.float32), "one": np.array([1]),
}  # fmt: skip


@pytest.mark.parametrize("name", BRANCHES)
def test_branches_by_data(name):
    outputs, body = BRANCHES[name]
    used = {n: w for n, w in KERNELS.items() if re.search(rf"[ (]{n}[,)]", body)}
    built = model(
        "m = ReduceMax<keepdims=0>(x) q = Greater(m, zero) " + body,
        "float[1, 3, 9, 11] x",
        outputs,
        zero=np.float32(0),
        **used,
    )
    runs = [{"x": IMAGE}, {"x": -np.abs(IMAGE)}]
    compiled = hold(built, *runs)
    assert ops(compiled, runs[0]) == ([] if "cheap" in name else [Branch])
    if "cheap" not in name:
        # What bodies know is packed for them alone.
        assert not any(
            c.sources[0].startswith("k")
            for c in compiled.plan(x=IMAGE.shape).needs.constants
            if c.packing is None
        )


def test_branches_that_differ_by_the_sizes_of_inputs():
    built = model(
        "q = Greater(m, zero) y = If(q) <then_branch = a () => (float[k] u) { u = Neg(x) }, else_branch = b () => (float[k2] v) { v = Neg(z) }>",
        "float m, float[n] x, float[o] z", "float[k] y", zero=np.float32(0),
    )  # fmt: skip
    # Sizes are tried, and each makes a model of its own.
    compiled = saccade.compile(built, cache=False)
    for m, size in ((1.0, 3), (-1.0, 5)):
        feeds = {
            "m": np.array(m, np.float32),
            "x": np.arange(4, dtype=np.float32),
            "z": np.arange(size, dtype=np.float32),
        }
        (wanted,) = peers(built, feeds, reference=False)
        np.testing.assert_array_equal(compiled.run(feeds)["y"], wanted["y"])


# -- how they run ----------------------------------------------------------------------------------


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


def test_there_are_no_bundles_of_them(tmp_path):
    compiled = saccade.compile(by_turns("products"), cache=False)
    with pytest.raises(OptionError, match="a loop or a branch that data decide"):
        compiled.save(tmp_path / "bundle", {"n": (), "x": (3, 5)})


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
    compiled.profile(**feeds, repeat=2)
    text = compiled.graph("frontend")
    assert "Loop" in text and "MatMul" in text
    plan = compiled.plan(n=(), x=X.shape)
    assert "body of y, a program of its own" in str(plan)
    assert Plan.from_json(plan.to_json()) == plan


REFUSED = {
    "carries a value whose shape changes": "y = Loop(n, t, x) <body = b (int64 i, bool c, float[k, 5] v) => (bool c2, float[k2, 5] v2) { c2 = Identity(c) v2 = Concat<axis=0>(v, x) }>",
    "as many elements as its own steps find out": "l, y = Loop(n, t, x) <body = b (int64 i, bool c, float[3, 5] v) => (bool c2, float[3, 5] v2, int64[2, k] o) { c2 = Identity(c) v2 = Sub(v, x) o = NonZero(v2) }>",
    "branches that give sequences": "q = Cast<to=9>(n) s = If(q) <then_branch = a () => (seq(float[3, 5]) u) { u = SequenceConstruct(x) }, else_branch = d () => (seq(float[3, 5]) v) { v = SequenceConstruct(x, x) }> y = SequenceAt(s, zero)",
    "changes a sequence other than by adding": "e = SequenceConstruct(x, x) s = Loop(n, t, e) <body = b (int64 i, bool c, seq(float[3, 5]) v) => (bool c2, seq(float[3, 5]) v2) { c2 = Identity(c) v2 = SequenceInsert(v, x, zero) }> y = SequenceAt(s, zero)",
}  # fmt: skip


@pytest.mark.parametrize("reason", REFUSED)
def test_what_is_refused(reason):
    body = REFUSED[reason]
    weights = {"t": np.array(True)} | ({"zero": np.array(0)} if "zero" in body else {})
    built = model(body, "int64 n, float[3, 5] x", "float y", **weights)
    del built.graph.output[:]
    built.graph.output.append(onnx.ValueInfoProto(name="y"))
    with pytest.raises(UnsupportedModelError) as raised:
        saccade.compile(built, cache=False)
    (row,) = raised.value.rows
    assert reason in row.reason


def test_a_body_that_needs_the_number_of_turns_is_compiled_for_each():
    built = model(
        "y = Loop(n, t, x) <body = b (int64 i, bool c, float[3, 5] v) => (bool c2, float[3, 5] v2) { c2 = Identity(c) k = Mod(i, three) a1 = Add(k, one) s = Reshape(k, ax) e = Reshape(a1, ax) r = Slice(x, s, e, z0) v2 = Add(v, r) }>",
        "int64 n, float[3, 5] x", "float[3, 5] y", t=np.array(True), three=np.array(3), one=np.array(1), ax=np.array([1]), z0=np.array([0]),
    )  # fmt: skip
    compiled = saccade.compile(built, cache=False)
    for n in (1, 4):
        feeds = {"n": np.array(n), "x": X}
        (wanted,) = peers(built, feeds, reference=False)
        np.testing.assert_allclose(compiled.run(feeds)["y"], wanted["y"], rtol=1e-6)
