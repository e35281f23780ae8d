"""Operators that are imported as what the standard says they are made of."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from frontend_models import text_model
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from saccade.errors import ModelError, NeedsValuesError, UnsupportedModelError
from saccade.frontend import onnx as frontend
from saccade.frontend.onnx.importers import IMPORTERS
from saccade.testing.interpret import interpret


def attention(outputs: list[str], *, heads: int | None = None) -> onnx.ModelProto:
    """Attention with a mask and a past, which only later operands than absent ones need."""
    shape = (2, 5, 24) if heads else (2, 3, 5, 8)
    given = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("q", "k", "v")
    ]
    attributes = {"q_num_heads": heads, "kv_num_heads": heads} if heads else {}
    node = helper.make_node("Attention", ["q", "k", "v"], outputs, is_causal=1, **attributes)
    made = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs if n]
    graph = helper.make_graph([node], "g", given, made)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)


@pytest.mark.parametrize("outputs", [["y"], ["y", "", "", "qk"]])
@pytest.mark.parametrize("heads", [None, 3])
def test_attention_is_what_the_reference_evaluator_makes_of_it(outputs, heads):
    model = attention(outputs, heads=heads)
    assert ("", "Attention") not in IMPORTERS
    rng = np.random.default_rng(0)
    shape = (2, 5, 24) if heads else (2, 3, 5, 8)
    inputs = {name: rng.normal(size=shape).astype(np.float32) for name in "qkv"}
    expected = ReferenceEvaluator(model).run(None, inputs)
    actual = interpret(frontend.load(model), inputs).values()
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_what_its_body_cannot_do_is_said_with_the_operator():
    model = text_model("y = Bernoulli(x)", opset=15)
    with pytest.raises(UnsupportedModelError) as caught:
        frontend.load(model)
    (row,) = caught.value.rows
    assert (row.operator, row.count) == ("Bernoulli", 1)
    assert row.reason.startswith("made of RandomUniformLike: no such operator")


def test_a_node_that_breaks_its_schema_is_malformed():
    with pytest.raises(ModelError, match=r"Attention 'y', made of others: .*lacks its input"):
        frontend.load(text_model("y = Attention(x)", opset=23))


REDUCED = "y = ReduceSum<keepdims=0>(x, axes)"
WANTED = {
    "axes": (REDUCED, "float[N, 3, H, W] x, int64[k] axes", ("axes",)),
    "a scalar": (
        "y = Range(a, b, c)", "int64 a, int64 b, int64 c", ("a", "b", "c"),
    ),
    "through arithmetic": (
        "d = Add(s, s) y = Reshape(x, d)", "float[2, 6] x, int64[2] s", ("s",),
    ),
    "a condition": (
        "y = If(c) <then_branch = t () => (float u) { u = Relu(x) }, "
        "else_branch = e () => (float v) { v = Concat<axis=0>(x, x) }>",
        "float[N] x, bool c", ("c",),
    ),
    "a function's": (
        "y = CenterCropPad<axes=[1]>(x, s)", "float[2, 6] x, int64[1] s", ("s",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WANTED)
def test_inputs_whose_values_are_needed_are_named(name):
    body, inputs, names = WANTED[name]
    with pytest.raises(NeedsValuesError) as caught:
        frontend.load(text_model(body, inputs, opset=18))
    assert caught.value.names == names


NOT_THESE = {
    "large": ("s = Cast<to=7>(z) y = Reshape(x, s)", "float[2, 6] x, float[2, 3] z"),
    "computed from what is large": (
        "m = ReduceMax<keepdims=1>(x) f = Reshape(m, one) s = Cast<to=7>(f) y = Expand(x, s)",
        "float[2, 6] x",
    ),
    "beside what nothing helps": (
        f"{REDUCED} z = RandomNormalLike(x)",
        "float[2, 3, 3, 3] x, int64[k] axes",
    ),
    "many": ("y = Reshape(x, s)", "float[2, 6] x, int64[4097] s"),
}


@pytest.mark.parametrize("name", NOT_THESE)
def test_other_inputs_are_not_asked_for(name):
    body, inputs = NOT_THESE[name]
    outputs = "float y, float z" if "z = " in body else "float y"
    model = text_model(body, inputs, outputs, opset=18, weights={"one": np.array([1])})
    with pytest.raises(UnsupportedModelError) as caught:
        frontend.load(model)
    assert not isinstance(caught.value, NeedsValuesError)


def test_given_values_are_constants():
    model = text_model(REDUCED, "float[2, 3, 4, 5] x, int64[k] axes", opset=18)
    graph = frontend.load(model, known={"axes": np.array([3, 1])})
    assert [value.name for value in graph.inputs] == ["x"]
    assert graph.outputs[0].shape == (2, 4)
