"""What no memory holds: sequences, optional values, tensors of sizes that nobody knows."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest
from frontend_models import text_model
from onnx import TensorProto, helper
from reference_models import agrees, compiled, floats, model_of, steps_of

import saccade
from saccade.errors import InputError, UnsupportedModelError


def test_halves_go_in_and_out_as_the_file_has_them():
    kind = TensorProto.FLOAT16
    nodes = [
        helper.make_node("Add", ["x", "x"], ["twice"]),
        helper.make_node("SequenceConstruct", ["twice", "x"], ["both"]),
        helper.make_node("ReduceMin", ["x"], ["least"], keepdims=0),
        helper.make_node("Less", ["least", "least"], ["no"]),
        helper.make_node("Cast", ["no"], ["place"], to=TensorProto.INT64),
        helper.make_node("SequenceAt", ["both", "place"], ["y"]),
    ]
    model = model_of(nodes, [("x", kind, [3, 5])], [("y", kind, [3, 5])])
    made = agrees(model, {"x": floats(3, 5).astype(np.float16)})
    assert steps_of(made, x=(3, 5)) == ["SequenceConstruct", "SequenceAt"]


SEQUENCE = helper.make_tensor_sequence_value_info
ZERO = "top = ReduceMax<keepdims=0>(x) n = Cast<to=7>(top) none = Mul(n, zero) "
"""A position that is 0, which no import can know."""
CASES = {
    "parts": (
        ZERO + "k = Add(none, two) parts = SplitToSequence<axis=1>(x, k) "
        "y = ConcatFromSequence<axis=0>(parts)",
        {"two": np.array(2)},
        ["SplitToSequence", "ConcatFromSequence"],
    ),
    "inserted": (
        ZERO + "s = SequenceEmpty() t = SequenceInsert(s, x) e = Exp(x) "
        "p = Unsqueeze(none, zeros) u = SequenceInsert(t, e, p) v = SequenceAt(u, one) "
        "y = Add(x, v)",
        {"one": np.array(1), "zeros": np.array([0])},
        ["SequenceConstruct", "SequenceInsert", "SequenceAt", "Add"],
    ),
    "present": (
        ZERO + "s = SequenceConstruct(x) t = SequenceErase(s, none) o = Optional(t) "
        "h = OptionalHasElement(o) f = Cast<to=1>(h) y = Add(x, f)",
        {},
        ["SequenceConstruct", "SequenceErase", "Optional", "OptionalHasElement"],
    ),
    "sized": (
        "top = ReduceMax<keepdims=0>(x) n = Cast<to=7>(top) one = Abs(n) "
        "two = Unsqueeze(one, zeros) fill = ConstantOfShape(two) y = Sub(fill, top)",
        {"zeros": np.array([0])},
        ["ConstantOfShape", "Sub"],
    ),
    "of sizes": (
        ZERO + "s = Shape(x) t = SequenceConstruct(s, s) u = SequenceAt(t, none) "
        "f = Cast<to=1>(u) y = ReduceSum<keepdims=0>(f)",
        {},
        ["SequenceConstruct", "SequenceAt"],
    ),
    "true rows": (
        "i = NonZero(x) f = Cast<to=1>(i) y = ai.onnx.ml.Binarizer<threshold=1.0>(f)",
        {},
        ["ai.onnx.ml.Binarizer"],
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("shape", [(3, 4), (5, 2)], ids=str)
def test_what_no_memory_holds_is_handed_on(name, shape):
    text, constants, steps = CASES[name]
    if "zero" in text:
        constants = {"zero": np.array(0), **constants}
    weights = {key: array.astype(np.int64) for key, array in constants.items()}
    model = text_model(text, "float[N, M] x", opset=18, weights=weights)
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 4))
    x = floats(*shape)
    x[x < -1.0] = 0.0
    made = agrees(model, {"x": x}, exact=False)
    assert steps_of(made, x=shape) == steps
    assert "onnx.reference (host)" in str(made.plan(x=shape))


def test_sequences_come_and_go():
    nodes = [helper.make_node("SequenceInsert", ["s", "x"], ["t"])]
    model = model_of(
        nodes,
        [SEQUENCE("s", TensorProto.FLOAT, None), ("x", TensorProto.FLOAT, [2])],
        [SEQUENCE("t", TensorProto.FLOAT, None)],
    )
    made = agrees(model, {"s": [floats(3), floats(1, 4)], "x": floats(2)})
    assert [info.dtype for info in made.inputs] == ["sequence(float32)", "float32"]
    assert made.outputs[0].held and made.outputs[0].shape == ("...",)
    # What a run is given is its own: the next one has another.
    agrees(model, {"s": [], "x": floats(2)})
    assert len(made(s=[], x=floats(2))) == 1
    for wrong in (floats(3), [np.zeros(2, np.int32)]):
        with pytest.raises(InputError, match="input 's'"):
            made(s=wrong, x=floats(2))


def test_what_runs_hold_is_not_memory_of_the_arena():
    """The second operand's memory may be the first one's: what is held has to be a copy."""
    nodes = [
        helper.make_node("Neg", ["x"], ["a"]),
        helper.make_node("SequenceConstruct", ["a"], ["s"]),
        helper.make_node("Exp", ["x"], ["b"]),
        helper.make_node("Mul", ["b", "b"], ["c"]),
        helper.make_node("SequenceInsert", ["s", "c"], ["t"]),
    ]
    model = model_of(
        nodes, [("x", TensorProto.FLOAT, [64])], [SEQUENCE("t", TensorProto.FLOAT, None)]
    )
    made, x = compiled(model), floats(64)
    first, second = made(x)
    made(floats(64))
    np.testing.assert_array_equal(first, -x)
    np.testing.assert_allclose(second, np.exp(x) ** 2, rtol=1e-5)


def test_branches_that_give_sequences_stay_one_node():
    kind = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    out = helper.make_value_info("made", helper.make_sequence_type_proto(kind))
    sides = [
        helper.make_graph(
            [helper.make_node("SequenceConstruct", names, ["made"])], "side", [], [out]
        )
        for names in (["x"], ["x", "x"])
    ]
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["total"], keepdims=0),
        helper.make_node("Greater", ["total", "zero"], ["positive"]),
        helper.make_node("If", ["positive"], ["s"], then_branch=sides[0], else_branch=sides[1]),
        helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=0),
    ]
    zero = onnx.numpy_helper.from_array(np.float32(0), "zero")
    model = model_of(
        nodes, [("x", TensorProto.FLOAT, [1, 3])], [("y", TensorProto.FLOAT, None)],
        initializers=[zero],
    )  # fmt: skip
    for sign in (1, -1):
        made = agrees(model, {"x": sign * np.ones((1, 3), np.float32)})
    assert steps_of(made, x=(1, 3)) == ["If", "ConcatFromSequence"]


def test_sequences_that_were_lists_are_outputs():
    nodes = [
        helper.make_node("SequenceConstruct", ["x", "x"], ["s"]),
        helper.make_node("SequenceEmpty", [], ["e"], dtype=TensorProto.INT64),
    ]
    model = model_of(
        nodes,
        [("x", TensorProto.FLOAT, [2, 3])],
        [SEQUENCE("s", TensorProto.FLOAT, None), SEQUENCE("e", TensorProto.INT64, None)],
    )
    made = agrees(model, {"x": floats(2, 3)})
    assert [info.dtype for info in made.outputs] == ["sequence(float32)", "sequence(int64)"]
    with pytest.raises(UnsupportedModelError) as raised:
        saccade.compile(model)
    assert {row.reason for row in raised.value.rows} == {"outputs must be tensors"}
    assert all("allow_reference" in row.remedy for row in raised.value.rows)
    (x, _), empty = made(floats(2, 3))
    assert x.shape == (2, 3) and empty == []
