# ruff: noqa: E501 - tables with one model a line
"""Sequences and optional values, which leave no trace, against onnxruntime and ONNX's reference."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import saccade
from saccade.errors import UnsupportedModelError

X = np.random.default_rng(2).standard_normal((3, 7)).astype(np.float32)


def model(body, outputs, **weights):
    text = f'<ir_version: 10, opset_import: ["": 18]> g (float[3, 7] x) => ({outputs}) {{ {body} }}'
    built = onnx.parser.parse_model(text)
    built.graph.initializer.extend(
        onnx.numpy_helper.from_array(np.asarray(w), n) for n, w in weights.items()
    )
    return built


ONLY_REFERENCE = ("every one of a sequence",)
ONLY_ONNXRUNTIME = ("a value that is there", "a sequence that is there")
"""Of an optional value ONNX's reference makes a list."""


def hold(built, feeds, name):
    names = [o.name for o in built.graph.output]
    wanted = []
    if name not in ONLY_ONNXRUNTIME:
        wanted.append(ReferenceEvaluator(built).run(None, feeds))
    if name not in ONLY_REFERENCE:
        session = onnxruntime.InferenceSession(
            built.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        wanted.append(session.run(None, feeds))
    for device in ("reference", "cpu"):
        compiled = saccade.compile(built, device=device, threads=2, cache=False)
        results = compiled.run(feeds)
        for given in wanted:
            for output, array in zip(names, given, strict=True):
                assert results[output].dtype == np.asarray(array).dtype
                np.testing.assert_allclose(results[output], array, rtol=1e-5)
    # Nothing of them is left to run.
    plan = compiled.plan(**{name: np.shape(array) for name, array in feeds.items()})
    assert not any(step.bodies for step in plan.steps)


CASES = {
    "made and joined": ("s = SequenceConstruct(x, x, x) y = ConcatFromSequence<axis=1>(s)", "float[3, 21] y", {}),
    "joined along a new axis": ("a = Neg(x) s = SequenceConstruct(x, a) y = ConcatFromSequence<axis=-1, new_axis=1>(s)", "float[3, 7, 2] y", {}),
    "taken from either end": ("a = Neg(x) b = Exp(x) s = SequenceConstruct(x, a, b) u = SequenceAt(s, one) v = SequenceAt(s, last) y = Sub(u, v)", "float[3, 7] y", {"one": 1, "last": -1}),
    "how many": ("s = SequenceConstruct(x, x) e = SequenceErase(s, zero) i = SequenceInsert(e, x) j = SequenceInsert(i, x, zero) y = SequenceLength(j)", "int64 y", {"zero": 0}),
    "none": ("s = SequenceEmpty<dtype=1>() y = SequenceLength(s)", "int64 y", {}),
    "put in the middle": ("a = Neg(x) b = Exp(x) s = SequenceConstruct(x, a) t = SequenceInsert(s, b, one) y = ConcatFromSequence<axis=0>(t)", "float[9, 7] y", {"one": 1}),
    "erased": ("a = Neg(x) b = Exp(x) s = SequenceConstruct(x, a, b) t = SequenceErase(s, minus) u = SequenceErase(t) y = ConcatFromSequence<axis=0>(u)", "float[3, 7] y", {"minus": -2}),
    "split evenly": ("s = SplitToSequence<axis=1>(x, two) l = SequenceLength(s) y = SequenceAt(s, last)", "float[3, 1] y, int64 l", {"two": 2, "last": -1}),
    "split as it says": ("s = SplitToSequence<axis=1>(x, sizes) y = SequenceAt(s, one)", "float[3, 4] y", {"sizes": np.array([1, 4, 2]), "one": 1}),
    "split into single ones": ("s = SplitToSequence<axis=0, keepdims=0>(x) y = SequenceAt(s, one)", "float[7] y", {"one": 1}),
    "single ones that keep their axis": ("s = SplitToSequence<axis=0>(x) y = SequenceAt(s, one)", "float[1, 7] y", {"one": 1}),
    "handed on": ("s = SequenceConstruct(x) t = Identity(s) y = SequenceAt(t, zero)", "float[3, 7] y", {"zero": 0}),
    "a loop with a known number of turns": (
        "e = SequenceEmpty<dtype=1>() s = Loop(three, true, e) <body = b (int64 i, bool c, seq(float[3, 7]) v) => (bool c2, seq(float[3, 7]) v2) { c2 = Identity(c) f = Cast<to=1>(i) p = Mul(x, f) v2 = SequenceInsert(v, p) }> y = ConcatFromSequence<axis=0>(s)",
        "float[9, 7] y", {"three": 3, "true": True}),
    "a loop over a sequence": (
        "a = Neg(x) s = SequenceConstruct(x, a) n = SequenceLength(s) y = Loop(n, true, x) <body = b (int64 i, bool c, float[3, 7] v) => (bool c2, float[3, 7] v2) { c2 = Identity(c) p = SequenceAt(s, i) q = Exp(p) v2 = Add(v, q) }>",
        "float[3, 7] y", {"true": True}),
    "a branch that is known": (
        "s = If(true) <then_branch = a () => (seq(float[3, 7]) u) { u = SequenceConstruct(x, x) }, else_branch = d () => (seq(float[3, 7]) v) { v = SequenceConstruct(x) }> y = SequenceLength(s)",
        "int64 y", {"true": True}),
    "every one of a sequence": (
        "a = Neg(x) s = SequenceConstruct(x, a) t = SequenceMap(s, x) <body = b (float[3, 7] u, float[3, 7] v) => (float[3, 7] w) { e = Exp(u) w = Add(e, v) }> y = ConcatFromSequence<axis=0>(t)",
        "float[6, 7] y", {}),
    "a value that is there": ("o = Optional(x) h = OptionalHasElement(o) v = OptionalGetElement(o) y = Neg(v)", "float[3, 7] y, bool h", {}),
    "a sequence that is there": ("s = SequenceConstruct(x) o = Optional(s) v = OptionalGetElement(o) y = SequenceAt(v, zero)", "float[3, 7] y", {"zero": 0}),
    "a tensor is there": ("h = OptionalHasElement(x) y = OptionalGetElement(x)", "float[3, 7] y, bool h", {}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_sequences(name):
    body, outputs, weights = CASES[name]
    built = model(body, outputs, **{n: np.asarray(w) for n, w in weights.items()})
    hold(built, {"x": X}, name)


def test_a_value_that_is_not_there():
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 7])
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [3, 7]))
    nodes = [helper.make_node("Optional", [], ["o"], type=kind.optional_type.elem_type), helper.make_node("OptionalHasElement", ["o"], ["h"]),
        helper.make_node("OptionalHasElement", [""], ["g"]), helper.make_node("Neg", ["x"], ["y"])]  # fmt: skip
    outputs = [helper.make_tensor_value_info(n, TensorProto.BOOL, []) for n in "hg"]
    outputs.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 7]))
    built = helper.make_model(
        helper.make_graph(nodes, "g", [x], outputs),
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=10,
    )
    results = saccade.compile(built, cache=False).run({"x": X})
    assert not results["h"] and not results["g"]
    np.testing.assert_array_equal(results["y"], -X)


def test_a_sequence_as_long_as_what_is_found():
    """As exporters write a list that a loop over boxes fills."""
    built = model(
        "m = ReduceMax<keepdims=0>(x, ax1) c = Greater(m, zero) nz = NonZero(c) at = Squeeze(nz, ax0) r = Gather<axis=0>(x, at) sh = Shape(r) n = Gather<axis=0>(sh, i0) "
        "e = SequenceEmpty<dtype=1>() s = Loop(n, true, e) <body = b (int64 i, bool cc, seq(float[7]) v) => (bool c2, seq(float[7]) v2) { c2 = Identity(cc) row = Gather<axis=0>(r, i) d = Mul(row, row) v2 = SequenceInsert(v, d) }> "
        "t = SequenceInsert(s, last) y = ConcatFromSequence<axis=0, new_axis=1>(t) l = SequenceLength(t)",
        "float[k, 7] y, int64 l", ax1=np.array([1]), ax0=np.array([0]), i0=np.array(0), zero=np.float32(0.8), true=np.array(True), last=np.arange(7, dtype=np.float32),
    )  # fmt: skip
    session = onnxruntime.InferenceSession(
        built.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    for device in ("reference", "cpu"):
        compiled = saccade.compile(built, device=device, cache=False)
        for scale in (0, 0.5, 1, 9):
            y, length = session.run(None, {"x": X * np.float32(scale)})
            results = compiled.run({"x": X * np.float32(scale)})
            assert results["l"] == length
            np.testing.assert_allclose(results["y"], y, rtol=1e-6)


REFUSED = {
    "outputs must be tensors": ("y = SequenceConstruct(x, x)", {}),
    "takes a sequence": ("s = SequenceConstruct(x) y = Neg(s)", {}),
    "there is no item 5 in a sequence of 1": ("s = SequenceConstruct(x) y = SequenceAt(s, five)", {"five": 5}),
    "a position in a sequence depends on data": ("s = SequenceConstruct(x, x) m = ReduceMax<keepdims=0>(x) i = Cast<to=7>(m) y = SequenceAt(s, i)", {}),
    "takes a value that is not there": ("y = OptionalGetElement()", {}),
    "concatenates nothing": ("s = SequenceEmpty<dtype=1>() y = ConcatFromSequence<axis=0>(s)", {}),
    "the sizes of a split depends on data": ("m = ReduceMax<keepdims=0>(x) i = Cast<to=7>(m) s = SplitToSequence<axis=1>(x, i) y = SequenceAt(s, zero)", {"zero": 0}),
}  # fmt: skip


@pytest.mark.parametrize("reason", REFUSED)
def test_what_is_refused(reason):
    body, weights = REFUSED[reason]
    built = model(body, "float y", **{n: np.asarray(w) for n, w in weights.items()})
    with pytest.raises((UnsupportedModelError, saccade.ModelError), match=reason):
        saccade.compile(built, cache=False)
