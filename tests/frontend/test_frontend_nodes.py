# ruff: noqa: E501 - a table with one model a line
"""Nodes that contradict their operator set or themselves are refused with the reason."""

from __future__ import annotations

import numpy as np
import pytest
from frontend_models import text_model

from saccade.errors import ModelError, UnsupportedModelError
from saccade.frontend import onnx as frontend
from saccade.frontend.onnx.importers import IMPORTERS
from saccade.ir import DType
from saccade.testing.interpret import interpret
from saccade.testing.support_table import support_table

WEIGHTS = {
    "axis": np.array([1]), "b": np.ones((2, 4), np.float32), "i": np.zeros(2, np.int64),
    "three": np.array([[0, 3]]), "below": np.array([[-3, 0], [0, 0]]), "w": np.ones((3, 3, 1, 1), np.float32),
    "r": np.ones((2, 5), np.float32),
}  # fmt: skip

BROKEN = {
    "an attribute that became an input": ("y = ReduceMax<axes=[1]>(x)", 18, "no attribute 'axes' in operator set 18"),
    "an input that was an attribute": ("y = ReduceL2(x, axis)", 17, "at most 1 inputs in operator set 17, not 2"),
    "another operator's attribute": ("y = DepthToSpace<blocksize=1, axis=2>(x)", 17, "no attribute 'axis'"),
    "one input too many": ("y = Relu(x, x)", 17, "at most 1 inputs"),
    "an operator of a later set": ("y = GatherND(x, three)", 10, "GatherND .* is not in operator set 10"),
    "a flag of two": ("y = ReduceSum<keepdims=2>(x)", 17, "keepdims is 2, neither 0 nor 1"),
    "a flag below zero": ("y = ReduceSum<noop_with_empty_axes=-1>(x)", 17, "noop_with_empty_axes is -1"),
    "a scale that is no number": ("y = RoiAlign<spatial_scale=nan>(x, b, i)", 22, "spatial_scale is nan"),
    "an infinite scale": ("y = MaxRoiPool<pooled_shape=[1, 1], spatial_scale=inf>(x, r)", 22, "spatial_scale is inf"),
    "an index in a table": ("y = Gather<axis=0>(x, three)", 17, "an index outside of 2 elements"),
    "an index in a tuple": ("y = GatherND(x, three)", 17, "an index outside of 3 elements"),
    "an index below an axis": ("y = GatherND(x, below)", 17, "an index outside of 2 elements"),
}  # fmt: skip


def attributed(body: str, opset: int):
    """ONNX's text form has no word for NaN and infinity."""
    model = text_model(
        body.replace("=nan", "=0.25").replace("=inf", "=0.25"), "float[2, 3, 4, 5] x",
        opset=opset, weights=WEIGHTS,
    )  # fmt: skip
    for attribute in model.graph.node[0].attribute:
        if attribute.name == "spatial_scale":
            attribute.f = float("nan" if "=nan" in body else "inf")
    return model


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken(name: str) -> None:
    body, opset, message = BROKEN[name]
    with pytest.raises(ModelError, match=message):
        frontend.load(attributed(body, opset))


def test_logarithms_of_integers_are_refused() -> None:
    body = "c = Cast<to=6>(x) y = ReduceLogSum(c)"
    with pytest.raises(UnsupportedModelError, match="logarithms of integers"):
        frontend.load(text_model(body, outputs="int32 y"))


def test_an_operator_of_a_domain_of_its_own_is_not_looked_up_in_those_of_onnx(monkeypatch) -> None:
    monkeypatch.setitem(IMPORTERS, ("own", "Same"), lambda call: [call.value(0)])
    monkeypatch.setitem(
        IMPORTERS, ("own", "Relu"), lambda call: [call.value(call.integer("at", 0))]
    )
    model = text_model("a = Same(x) y = Relu<at=1>(x, a)", "float[2, 3] x")
    for node in model.graph.node:
        node.domain = "own"
    model.opset_import.add(domain="own", version=1)
    graph = frontend.load(model)
    assert graph.outputs == graph.inputs
    assert "`own.Same`" in support_table()
    model.graph.node[1].domain = ""
    with pytest.raises(ModelError, match="no attribute 'at' in operator set 17"):
        frontend.load(model)


@pytest.mark.parametrize("number", [2, 3, 9])  # uint8, int8, bool
def test_what_float32_holds_exactly_is_reduced_and_pooled_there(number: int) -> None:
    body = f"c = Cast<to={number}>(x) y = ReduceMax<axes=[3]>(c) z = MaxPool<kernel_shape=[2,2]>(c)"
    kind = {2: "uint8", 3: "int8", 9: "bool"}[number]
    if kind == "bool":
        body = body.split(" z =", maxsplit=1)[0]
    outputs = f"{kind} y" if kind == "bool" else f"{kind} y, {kind} z"
    graph = frontend.load(text_model(body, "float[1, 1, 3, 4] x", outputs))
    x = np.arange(12, dtype=np.float32).reshape(1, 1, 3, 4) - 6
    x = np.abs(x) if kind == "uint8" else x
    whole = x.astype(kind)
    found = interpret(graph, {"x": x})
    np.testing.assert_array_equal(found["y"], whole.max(3, keepdims=True))
    assert all(
        node.inputs[0].dtype is DType.F32
        for node in graph.nodes
        if node.op.family in ("Reduce", "Pool2d")
    )
    empty = text_model(body.split(" z =")[0], "float[1, 1, 3, 0] x", f"{kind} y")
    (least,) = interpret(frontend.load(empty), {"x": x[..., :0]}).values()
    assert (least == {"uint8": 0, "int8": -128, "bool": False}[kind]).all()
    if "z" in found:
        windows = np.lib.stride_tricks.sliding_window_view(whole, (2, 2), (2, 3))
        np.testing.assert_array_equal(found["z"], windows.max((4, 5)))
