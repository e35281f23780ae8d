# ruff: noqa: E501 - tables with one model a line
"""Models of loops and branches, and the runs that they are held to."""

from __future__ import annotations

import re

import numpy as np
import onnx
import onnx.parser
import onnxruntime
from onnx.reference import ReferenceEvaluator

import saccade
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
