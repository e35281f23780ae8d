# ruff: noqa: E501 - models in one line
"""Bodies that hold what else steps may be: ONNX's reference implementation, narrow elements."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import pytest
from onnx.reference import ReferenceEvaluator
from reference_models import same

import saccade
from saccade.errors import UnsupportedModelError
from saccade.opdefs import Branch, Loop
from saccade.plan import Plan

RNG = np.random.default_rng(8)


def model(body, inputs, outputs, **weights):
    text = (
        f'<ir_version: 10, opset_import: ["": 21, "ai.onnx.ml": 4]> g ({inputs}) => ({outputs}) '
        f"{{ {body} }}"
    )
    built = onnx.parser.parse_model(text)
    built.graph.initializer.extend(
        onnx.numpy_helper.from_array(np.asarray(w), n) for n, w in weights.items()
    )
    return built


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def hold(built, *runs, device="cpu", **options):
    made = saccade.compile(built, device=device, threads=2, cache=False, **options)
    for feeds in runs:
        expected = ReferenceEvaluator(built).run(None, feeds)
        for (name, found), wanted in zip(made.run(feeds).items(), expected, strict=True):
            # The evaluator gathers along the first axis that is there, not along a new one.
            given = np.reshape(wanted, (-1, 3, 5)) if name == "r" else wanted
            same(found, given, exact=False)
    return made


def families(made, feeds):
    shapes = {name: np.shape(array) for name, array in feeds.items()}
    return [step.op.title for step in made.plan(**shapes).steps if step.kernel is None]


TURNING = "y, r = Loop(k, t, x) <body = b (int64 i, bool c, float[3, 5] v) => (bool c2, float[3, 5] v2, float[3, 5] o) { c2 = Identity(c) %s }>"
COUNT = "m = ReduceMax<keepdims=0>(x) d = Cast<to=7>(m) q = Abs(d) k = Add(q, two) "
CUT = "e = Add(v, x) o = ai.onnx.ml.Binarizer<threshold=0.5>(e) v2 = Add(v, o)"


@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_bodies_have_steps_of_the_reference(device):
    built = model(
        COUNT + TURNING % CUT, "float[3, 5] x", "float[3, 5] y, float[n, 3, 5] r",
        t=np.array(True), two=np.array(2),
    )  # fmt: skip
    runs = [{"x": floats(3, 5) * scale} for scale in (0.3, 1, 4)]
    made = hold(built, *runs, device=device, allow_reference=True)
    plan = made.plan(x=(3, 5))
    (step,) = (step for step in plan.steps if isinstance(step.op, Loop))
    inside = [node.op.title for node in step.op.bodies[0].nodes]
    assert "ai.onnx.ml.Binarizer" in inside
    assert any("1 ai.onnx.ml.Binarizer by ONNX's" in remark for remark in made.remarks)
    assert Plan.from_json(plan.to_json()) == plan
    with pytest.raises(UnsupportedModelError, match="Binarizer"):
        saccade.compile(built, device=device, cache=False)


def test_each_turn_draws_numbers_of_its_own():
    built = model(
        COUNT + TURNING % "o = RandomUniformLike(x) v2 = Add(v, o)",
        "float[3, 5] x", "float[3, 5] y, float[n, 3, 5] r", t=np.array(True), two=np.array(2),
    )  # fmt: skip
    made = saccade.compile(built, threads=2, cache=False, allow_reference=True)
    x = -np.abs(floats(3, 5)) * 0.01
    y, rows = made.run({"x": x}).values()
    assert rows.shape == (2, 3, 5) and (rows[0] != rows[1]).all()
    np.testing.assert_allclose(y, x + rows.sum(0), rtol=1e-5)
    assert not np.array_equal(made.run({"x": x})["r"], rows)


def test_what_is_held_within_a_turn():
    inside = (
        "p = Mod(i, two) s = SequenceConstruct(v, x) w = SequenceAt(s, p) o = Exp(w) v2 = Add(v, w)"
    )
    built = model(
        COUNT + TURNING % inside, "float[3, 5] x", "float[3, 5] y, float[n, 3, 5] r",
        t=np.array(True), two=np.array(2),
    )  # fmt: skip
    runs = [{"x": floats(3, 5) * scale} for scale in (0.3, 1)]
    made = hold(built, *runs, allow_reference=True)
    assert families(made, runs[0]) == ["Loop"]


def test_sequences_that_loops_make_are_given():
    built = model(
        COUNT + "e = SequenceEmpty<dtype=1>() s = Loop(q, t, e) <body = b (int64 i, bool c, seq(float[3, 5]) v) => (bool c2, seq(float[3, 5]) v2) { c2 = Identity(c) f = Cast<to=1>(i) a = Add(x, f) v2 = SequenceInsert(v, a) }>",
        "float[3, 5] x", "seq(float[3, 5]) s", t=np.array(True), two=np.array(2),
    )  # fmt: skip
    runs = [{"x": (np.abs(floats(3, 5)) + 1) * scale} for scale in (1, 2)]
    made = hold(built, *runs, allow_reference=True)
    assert families(made, runs[0]) == ["Loop", "SplitToSequence"]


def test_a_branch_guards_what_the_reference_cannot_compute():
    body = (
        "m = ReduceMax<keepdims=0>(x) k = Cast<to=7>(m) q = Less(k, two) y = If(q) "
        "<then_branch = a () => (float[1, 3] u) { s = SequenceConstruct(x, x) u = SequenceAt(s, k) }, "
        "else_branch = b () => (float[1, 3] v) { v = Neg(x) }>"
    )
    built = model(body, "float[1, 3] x", "float[1, 3] y", two=np.array(2))
    runs = [{"x": np.array([[0.5, 0, v]], np.float32)} for v in (1, 9)]
    made = hold(built, *runs, allow_reference=True)
    assert any(isinstance(step.op, Branch) for step in made.plan(x=(1, 3)).steps)


CARRIED = "y = Loop(k, t, h) <body = b (int64 i, bool c, %s v) => (bool c2, %s v2) { c2 = Identity(c) v2 = %s }>"


def test_loops_that_carry_what_no_memory_holds_are_steps_of_the_reference():
    built = model(
        COUNT + "h = ConstantOfShape(q1) " + CARRIED % ("float[j]", "float[l]", "Concat<axis=0>(v, one)"),
        "float[3, 5] x", "float[w] y", t=np.array(True), two=np.array(2), one=np.ones(1, np.float32),
    )  # fmt: skip
    built.graph.node.insert(4, onnx.helper.make_node("Reshape", ["q", "a1"], ["q1"]))
    built.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1]), "a1"))
    runs = [{"x": (np.abs(floats(3, 5)) + 1) * scale} for scale in (1, 3)]
    made = hold(built, *runs, allow_reference=True)
    assert "Loop" in families(made, runs[0])
    assert not any(isinstance(step.op, Loop) for step in made.plan(x=(3, 5)).steps)


@pytest.mark.parametrize("kind", ["float8_e4m3fn", "float8_e5m2", "int4", "uint4"])
@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_bodies_read_narrow_elements(kind, device):
    dtype = np.dtype(getattr(ml_dtypes, kind))
    rows = (RNG.standard_normal((7, 5)) * 3).clip(-7, 7)
    rows = np.abs(rows).astype(dtype) if kind == "uint4" else rows.astype(dtype)
    built = model(
        COUNT + TURNING % "z = Mod(i, seven) g = Gather<axis=0>(table, z) o1 = Cast<to=1>(g) o = Add(x, o1) v2 = Add(v, o)",
        "float[3, 5] x", "float[3, 5] y, float[n, 3, 5] r",
        t=np.array(True), two=np.array(2), seven=np.array(7),
    )  # fmt: skip
    built.graph.initializer.append(onnx.numpy_helper.from_array(rows, "table"))
    x = (np.abs(floats(3, 5)) + 1) * 3
    made = hold(built, {"x": x}, device=device)
    assert families(made, {"x": x})[0:1] == ["Loop"] or device == "reference"
