# ruff: noqa: E501 - tables with one model a line
"""Loops and scans whose course data decide, against onnxruntime and ONNX's reference."""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest
from loop_models import RNG, TURNS, WEIGHTS, X, by_turns, hold, model, ops, peers

import saccade
from saccade.errors import UnsupportedModelError
from saccade.frontend import onnx as frontend
from saccade.opdefs import Loop
from saccade.plan import Plan


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


REFUSED = {
    "carries a value whose shape changes from [] to [3, 5]": "h = ReduceMax<keepdims=0>(x) q = Cast<to=7>(h) w, last = Loop(q, t, x, zero) <body = b (int64 i, bool c, float[3, 5] v, float[] u) => (bool c2, float[3, 5] v2, float[] u2) { c2 = Identity(c) v2 = Add(v, x) u2 = Exp(v) }> y = Exp(last)",
    "carries a value whose shape changes from [] to [1]": "w, last = Loop(n, t, x, zero) <body = b (int64 i, bool c, float[3, 5] v, float[] u) => (bool c2, float[3, 5] v2, float[] u2) { c2 = Identity(c) v2 = Add(v, u) u2 = Reshape(u, one1) }> y = Exp(last)",
    "carries a value whose shape changes": "y = Loop(n, t, x) <body = b (int64 i, bool c, float[k, 5] v) => (bool c2, float[k2, 5] v2) { c2 = Identity(c) v2 = Concat<axis=0>(x, v) }>",
    "as many elements as its own steps find out": "l, y = Loop(n, t, x) <body = b (int64 i, bool c, float[3, 5] v) => (bool c2, float[3, 5] v2, int64[2, k] o) { c2 = Identity(c) v2 = Sub(v, x) o = NonZero(v2) }>",
    "branches that give sequences": "q = Cast<to=9>(n) s = If(q) <then_branch = a () => (seq(float[3, 5]) u) { u = SequenceConstruct(x) }, else_branch = d () => (seq(float[3, 5]) v) { v = SequenceConstruct(x, x) }> y = SequenceAt(s, zero)",
    "changes a sequence other than by adding": "e = SequenceConstruct(x, x) s = Loop(n, t, e) <body = b (int64 i, bool c, seq(float[3, 5]) v) => (bool c2, seq(float[3, 5]) v2) { c2 = Identity(c) v2 = SequenceInsert(v, x, zero) }> y = SequenceAt(s, zero)",
}  # fmt: skip


@pytest.mark.parametrize("reason", REFUSED)
def test_what_is_refused(reason):
    body = REFUSED[reason]
    weights = {"t": np.array(True)} | ({"zero": np.array(0)} if "zero" in body else {})
    if "Exp(last)" in body:
        weights |= {"zero": np.float32(0)}
    if "one1" in body:
        weights |= {"one1": np.array([1])}
    built = model(body, "int64 n, float[3, 5] x", "float y", **weights)
    del built.graph.output[:]
    built.graph.output.append(onnx.ValueInfoProto(name="y"))
    with pytest.raises(UnsupportedModelError) as raised:
        saccade.compile(built, cache=False)
    (row,) = raised.value.rows
    assert reason in row.reason


def test_what_one_way_refused_is_no_reason_in_another():
    """The body is refused as a program, and then unrolled: nothing of it is lost from before."""
    built = model(
        "y = Loop(n, t, x) <body = b (int64 i, bool c, float[3, 5] v) => (bool c2, float[3, 5] v2) { m = ReduceMax<keepdims=0>(v) r = Range(half, m, half) s = ReduceSum<keepdims=0>(r) q = Greater(s, most) "
        "a = If(q) <then_branch = p () => (float[3, 5] u) { u = Exp(v) }, else_branch = o () => (float[3, 5] w) { w = Neg(v) }> v2 = Mul(a, half) c2 = Less(m, most) }>",
        "float[3, 5] x", "float[3, 5] y", n=np.array(400), t=np.array(True), half=np.float32(0.5), most=np.float32(9),
    )  # fmt: skip
    with pytest.raises(UnsupportedModelError) as raised:
        saccade.compile(built, cache=False)
    (row,) = raised.value.rows
    assert (row.operator, row.reason) == ("Range", "a bound of a range depends on data")


COUNTERS = {
    # A range as long as its ends are apart, and no longer: (its body, most elements of it)
    "one more": ("e = Add(k, one) l = Min(e, seven) r = Range(k, l, one) k2 = Add(k, one)", 1),
    "three more, by two": ("e = Add(k, three) l = Min(seven, e) r = Range(k, l, two) k2 = Add(k, one)", 2),
    "counted in floating point": ("f = Cast<to=1>(k) g = Add(f, fone) e = Cast<to=7>(g) l = Min(e, seven) r = Range(k, l, one) k2 = Cast<to=7>(g)", 1),
    "taken away again": ("a0 = Add(k, three) e = Sub(a0, two) l = Min(e, seven) r = Range(k, l, one) k2 = Add(k, one)", 7),
    "the number of the turn": ("e = Add(i, two) l = Min(e, seven) r = Range(i, l, one) k2 = Identity(k)", 2),
    "of 32 bits": ("h = Cast<to=6>(k) e = Add(h, two32) l = Min(e, seven32) r32 = Range(h, l, one32) r = Cast<to=7>(r32) k2 = Add(k, one)", 2),
    "never one": ("l = Min(k, two) r = Range(k, l, one) k2 = Add(k, one)", None),
    "behind the end": ("e = Sub(seven, k) l = Min(e, two) r = Range(k, l, one) k2 = Add(k, one)", 2),
    "two in a turn": ("e = Add(k, one) l = Min(e, seven) r = Range(k, l, one) k2 = Add(k, two)", 1),
    # Which is no counter: as long as intervals tell.
    "down": ("h = Max(k, none) l = Min(h, seven) e = Max(k, zero) r = Range(zero, l, one) k2 = Sub(k, one)", 7),
}  # fmt: skip


def _rooms(graph):
    """Bounds of what steps of loops' bodies find out."""
    loops = [node.op for node in graph.nodes if isinstance(node.op, Loop)]
    assert loops
    return [count.bound for op in loops for body in op.bodies for count in body.counts]


@pytest.mark.parametrize("name", COUNTERS)
def test_ranges_between_what_turns_count(name):
    body, most = COUNTERS[name]
    whole = (
        "y, j = Loop(n, t, x, begin) <body = b (int64 i, bool c, float[3, 5] v, int64 k) => (bool c2, float[3, 5] v2, int64 k2) "
        f"{{ c2 = Identity(c) {body} s = ReduceSum<keepdims=0>(r) q = Size(r) a = Add(s, q) f1 = Cast<to=1>(a) v2 = Add(v, f1) }}>"
    )
    weights = {
        "t": np.array(True),
        "begin": np.array(4 if name == "down" else 0),
        "fone": np.float32(1),
    }
    weights |= {f"{n}32": np.array(v, np.int32) for n, v in (("one", 1), ("two", 2), ("seven", 7))}
    numbers = {"one": 1, "two": 2, "three": 3, "seven": 7, "zero": 0, "none": -9}
    used = {n: np.array(v) for n, v in numbers.items()} | weights
    used = {n: v for n, v in used.items() if re.search(rf"[ (]{n}[,)]", whole)}
    built = model(whole, "int64 n, float[3, 5] x", "float[3, 5] y, int64 j", **used)
    hold(built, *({"n": np.array(n), "x": X} for n in (0, 1, 2, 9)))
    assert _rooms(frontend.load(built)) == [most] * (most is not None)


SET = (
    "lim = Add(k, one1) room = Shape<start=1, end=2>(z) e = Min(lim, room) old = Slice(z, k, e, one1) os = Shape(old) u = Unsqueeze(v, one1) "
    "us = Expand(u, os) k0 = Squeeze(k) e0 = Squeeze(e) r = Range(k0, e0, one) ri = Reshape(r, column) "
    "b0 = Shape<start=0, end=1>(old) b2 = Shape<start=2, end=3>(old) reps = Concat<axis=0>(b0, one1, b2) ix = Tile(ri, reps) z2 = ScatterElements<axis=1>(z, ix, us) k2 = Add(k, one1)"
)


def test_a_slice_that_a_turn_sets():
    """As Paddle's exporter writes `z[:, k] = v`, for any number of images."""
    built = model(
        "w, y, j = Loop(n, t, x, start, first) <body = b (int64 i, bool c, float[m, 5] v, float[m, 6, 5] z, int64[1] k) => (bool c2, float[m, 5] v2, float[m, 6, 5] z2, int64[1] k2) "
        f"{{ c2 = Identity(c) {SET} v2 = Sin(v) }}>",
        "int64 n, float[m, 5] x, float[m, 6, 5] start", "float[m, 5] w, float[m, 6, 5] y, int64[1] j",
        t=np.array(True), one1=np.array([1]), one=np.array(1), first=np.array([0]), column=np.array([1, -1, 1]),
    )  # fmt: skip
    rng = np.random.default_rng(3)
    # Behind its end nothing is set.
    hold(
        built,
        *(
            {
                "n": np.array(n),
                "x": rng.standard_normal((m, 5)).astype(np.float32),
                "start": rng.standard_normal((m, 6, 5)).astype(np.float32),
            }
            for n, m in ((0, 2), (1, 1), (4, 3), (8, 2))
        ),
        reference=False,
    )
    # The slice and the range are one long, and so are the places.
    assert set(_rooms(frontend.load(built))) == {1}


MADE = {
    # What a loop carries, which is another thing before its first turn.
    "made anew by every turn": ("y, last = Loop(far, t, x, nothing) <body = b (int64 i, bool c, float[3, 5] v, float[] u) => (bool c2, float[3, 5] v2, float[] u2) { v2 = Add(v, x) m = ReduceMax<keepdims=0>(v2) c2 = Less(m, most) u2 = Exp(v) }>", "float[3, 5] y, float[3, 5] last"),
    "beside rows that grow": ("y, g, last = Loop(many, t, x, none, nothing) <body = b (int64 i, bool c, float[3, 5] v, float[p, 5] r, float[] u) => (bool c2, float[3, 5] v2, float[p2, 5] r2, float[] u2) { v2 = Add(v, x) m = ReduceMax<keepdims=0>(v2) c2 = Less(m, most) r2 = Concat<axis=0>(r, v) u2 = Exp(v) }>", "float[3, 5] y, float[q, 5] g, float[3, 5] last"),
    "which nobody reads": ("y, gone = Loop(n, t, x, nothing) <body = b (int64 i, bool c, float[3, 5] v, float[] u) => (bool c2, float[3, 5] v2, float[] u2) { c2 = Identity(c) v2 = Add(v, x) u2 = Exp(v) }>", "float[3, 5] y"),
    "a number that becomes a list of one": ("y, j = Loop(far, t, x, nothing) <body = b (int64 i, bool c, float[3, 5] v, float[] u) => (bool c2, float[3, 5] v2, float[] u2) { v2 = Add(v, u) m = ReduceMax<keepdims=0>(v2) c2 = Less(m, most) u2 = Add(u, ones) }>", "float[3, 5] y, float[1] j"),
}  # fmt: skip


@pytest.mark.parametrize("name", MADE)
def test_what_is_another_thing_before_the_first_turn(name):
    body, outputs = MADE[name]
    weights = {
        "t": np.array(True),
        "nothing": np.float32(0),
        "most": np.float32(9),
        "far": np.array(1 << 40),
        "many": np.array(600),
        "none": np.zeros((0, 5), np.float32),
        "ones": np.ones(1, np.float32),
    }
    used = {n: w for n, w in weights.items() if re.search(rf"[ (]{n}[,)]", body)}
    built = model(body, "int64 n, float[3, 5] x", outputs, **used)
    hold(
        built,
        *({"n": np.array(n), "x": x} for n, x in ((1, np.abs(X)), (3, np.abs(X) / 3))),
        reference=False,
    )


HANDED = {
    # Weights, an input that is read behind the loop, too, and one that nobody reads; two that change places are none.
    "a constant": ("y, last = Loop(n, t, x, m55) <body = b (int64 i, bool c, float[3, 5] v, float[5, 5] w) => (bool c2, float[3, 5] v2, float[5, 5] w) { c2 = Identity(c) m = MatMul(v, w) v2 = Tanh(m) }>", "float[3, 5] y, float[5, 5] last", 1),
    "by an Identity": ("y, last = Loop(n, t, x, z) <body = b (int64 i, bool c, float[3, 5] v, float[3, 5] w) => (bool c2, float[3, 5] v2, float[3, 5] w2) { c2 = Identity(c) v2 = Sub(w, v) w1 = Identity(w) w2 = Identity(w1) }>", "float[3, 5] y, float[3, 5] last", 1),
    "unread": ("y, last = Loop(n, t, x, z) <body = b (int64 i, bool c, float[3, 5] v, float[3, 5] w) => (bool c2, float[3, 5] v2, float[3, 5] w) { c2 = Identity(c) v2 = Sin(v) }>", "float[3, 5] y, float[3, 5] last", 1),
    "changing places": ("y, last = Loop(n, t, x, z) <body = b (int64 i, bool c, float[3, 5] v, float[3, 5] w) => (bool c2, float[3, 5] w, float[3, 5] v) { c2 = Identity(c) }>", "float[3, 5] y, float[3, 5] last", 2),
}  # fmt: skip


@pytest.mark.parametrize("name", HANDED)
def test_what_every_turn_hands_on_is_not_carried(name):
    """It is what it was before the first turn, for the body as behind the loop."""
    body, outputs, carried = HANDED[name]
    weights = {"m55": WEIGHTS["m55"]} if "m55" in body else {}
    inputs = "int64 n, float[3, 5] x" + (", float[3, 5] z" if "z)" in body else "")
    built = model(body, inputs, outputs, t=np.array(True), **weights)
    z = {"z": RNG.standard_normal((3, 5)).astype(np.float32)} if "z)" in body else {}
    runs = [{"n": np.array(n), "x": X, **z} for n in (0, 1, 2, 7)]
    compiled = hold(built, *runs, reference=False)
    plan = compiled.plan(**{name: array.shape for name, array in runs[0].items()})
    (loop,) = (step for step in plan.steps if isinstance(step.op, Loop))
    # Beside whether it goes on.
    assert len(loop.bodies[0].outputs) - 1 == carried
    if weights:
        assert any(constant.packing for constant in loop.bodies[0].constants)


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
