"""Nodes by ONNX's reference implementation: operands, results, and what runs hold."""

from __future__ import annotations

import base64

import numpy as np
import onnx
import pytest
from onnx import helper

from saccade import held
from saccade.errors import InputError, LaunchError, ModelError
from saccade.ir import DType, TensorType
from saccade.ir.dim import symbol
from saccade.ir.serialize import decode_op, encode_op
from saccade.opdefs import OnnxReference
from saccade.signature import TensorInfo


def step(node, names, types, results, shapes, **more):
    """One node over operands called `names`; its results are called `r0`, …"""
    inputs = [onnx.ValueInfoProto(name=name) for name in names]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output]
    graph = helper.make_graph([node], "g", inputs, outputs)
    sets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 4)]
    model = helper.make_model(graph, opset_imports=sets)
    text = base64.b64encode(model.SerializeToString()).decode()
    handles = tuple(held.FIRST_OF_STEPS + i if r is None else -1 for i, r in enumerate(results))
    return OnnxReference(
        node.op_type, text, onnx.__version__, types, results, shapes, handles, **more
    )


def binarizer(shape, **more):
    node = helper.make_node("Binarizer", ["x"], ["r0"], domain="ai.onnx.ml", threshold=0.5)
    return step(node, ["x"], (DType.F32,), (DType.F32,), (shape,), **more)


def test_results_are_those_of_the_node():
    x = np.array([[0.25, 0.75], [1.0, -1.0]], np.float32)
    (y,) = binarizer((2, 2)).reference(x)
    np.testing.assert_array_equal(y, [[0, 1], [1, 0]])
    assert binarizer((2, 2)).work([TensorType(DType.F32, (2, 2))] * 1, []).bytes == 16


def test_shapes_are_bound_and_written_down():
    op = binarizer((symbol("N"), 2))
    assert decode_op(encode_op(op)) == op
    assert op.bind({"N": 5}).shapes == ((5, 2),)
    assert op.infer([TensorType(DType.F32, (symbol("N"), 2))])[0].shape == (symbol("N"), 2)
    with pytest.raises(ModelError, match="takes 1 operands"):
        op.infer([])
    with pytest.raises(ModelError, match="an operand is no float32"):
        op.infer([TensorType(DType.I64, (2, 2))])


def test_true_rows_alone_are_read():
    """Of four rows, as many as the last operand says: what lies behind them is anything."""
    op = binarizer((4, 2), cuts=((0, 0, 1, 1),))
    x = np.full((4, 2), np.nan, np.float32)
    x[:3] = 0.75
    with pytest.raises(InputError, match=r"gives float32 \[3, 2\], where .* says float32 \[4, 2\]"):
        op.reference(x, np.array([3]))
    node = helper.make_node("SequenceConstruct", ["x"], ["r0"])
    sequence = step(node, ["x"], (DType.F32,), (None,), ((),), cuts=((0, 0, 1, 1),))
    with held.holding({}):
        (handle,) = sequence.reference(x, np.array([3]))
        (rows,) = held.get(int(handle))
    np.testing.assert_array_equal(rows, x[:3])
    assert not np.shares_memory(rows, x)


def test_halves_are_given_as_the_file_has_them():
    node = helper.make_node("SequenceConstruct", ["x"], ["r0"])
    op = step(node, ["x"], (DType.F16,), (None,), ((),))
    with held.holding({}):
        (handle,) = op.reference(np.array([1.5, 2.0], np.float32))
        assert held.get(int(handle))[0].dtype == np.float16


def test_objects_are_a_runs_own():
    with pytest.raises(LaunchError, match="there is no run"):
        held.put(1, "a")
    with held.holding({1: "a"}):
        with held.holding():  # of the same run
            assert held.get(1) == "a"
            held.put(2, "b")
        assert held.get(2) == "b"
        with held.holding({}), pytest.raises(LaunchError, match="no run holds the object 2"):
            held.get(2)
    with pytest.raises(LaunchError, match="no run holds the object 1"):
        held.get(1)


def test_only_what_is_always_the_same_is_pure():
    assert binarizer((2,)).pure
    assert not binarizer((2,), steady=False).pure
    node = helper.make_node("SequenceConstruct", ["x"], ["r0"])
    assert not step(node, ["x"], (DType.F32,), (None,), ((),)).pure


def given(kind, value):
    with held.given([TensorInfo("x", kind, ("...",), held=True)], {"x": value}):
        return held.get(0)


def test_what_callers_give_is_looked_at():
    assert given("string", ["a", "b"]).tolist() == ["a", "b"]
    assert given("optional(float32)", None) is None
    (one,) = given("optional(sequence(float32))", [np.zeros(2, np.float32)])
    assert one.shape == (2,)
    for kind, value, says in (
        ("string", [1.0], "must be strings, given is float64"),
        ("sequence(float32)", np.zeros(2, np.float32), "give a list"),
        ("sequence(float32)", [np.zeros(2)], "must be float32, given is float64"),
        ("optional(int64)", np.zeros(2), "must be int64"),
        ("map(string, float32)", {}, "which cannot be given"),
    ):
        with pytest.raises(InputError, match=f"input 'x' .*{says}"):
            given(kind, value)


def test_what_the_node_refuses_is_an_error_of_the_operands():
    node = helper.make_node("SequenceAt", ["s", "i"], ["r0"])
    op = step(node, ["s", "i"], (None, DType.I64), (DType.F32,), ((2,),))
    with held.holding({0: [np.zeros(2, np.float32)]}):
        np.testing.assert_array_equal(op.reference(np.array(0), np.array(0))[0], [0, 0])
        with pytest.raises(InputError, match="SequenceAt: ONNX's reference implementation cannot"):
            op.reference(np.array(0), np.array(3))
