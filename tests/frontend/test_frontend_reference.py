"""Nodes that nothing here takes, by ONNX's reference implementation: what is allowed, and seen."""

from __future__ import annotations

import importlib.metadata
import sys

import numpy as np
import onnx
import pytest
from frontend_models import text_model
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from reference_models import agrees, compiled, floats, model_of, steps_of

import saccade
from saccade import onnx_backend
from saccade.compile import _identity
from saccade.errors import (
    InputError,
    ModelError,
    NeedsValuesError,
    OptionError,
    UnsupportedModelError,
)
from saccade.frontend.onnx import load
from saccade.opdefs import onnx_reference
from saccade.options import Options

BINARY = model_of(
    [
        helper.make_node("Mul", ["x", "x"], ["square"]),
        helper.make_node(
            "Binarizer", ["square"], ["bits"], "cut", domain="ai.onnx.ml", threshold=0.5
        ),
        helper.make_node("Sub", ["bits", "square"], ["y"]),
    ],
    [("x", TensorProto.FLOAT, ["N", 3, "W"])],
    [("y", TensorProto.FLOAT, ["N", 3, "W"])],
)  # fmt: skip
FOREIGN = model_of(
    [
        helper.make_node("Binarizer", ["x"], ["bits"], "cut", domain="ai.onnx.ml"),
        helper.make_node("Unheard", ["x"], ["more"], "odd", domain="org.example"),
        helper.make_node("Sub", ["bits", "more"], ["y"]),
    ],
    [("x", TensorProto.FLOAT, [2])],
    [("y", TensorProto.FLOAT, [2])],
)


# -- what is refused, and what is said of it -------------------------------------------------------


def test_without_the_option_a_model_is_refused_with_all_that_could_be_done():
    with pytest.raises(UnsupportedModelError) as caught:
        saccade.compile(FOREIGN)
    rows = {row.operator: row for row in caught.value.rows}
    assert rows.keys() == {"ai.onnx.ml.Binarizer", "org.example.Unheard"}
    assert rows["ai.onnx.ml.Binarizer"].remedy.startswith("allow_reference=True: by ONNX's")
    assert rows["org.example.Unheard"].remedy == "none by options: export the model without it"
    text = str(caught.value)
    assert "what could be done" in text and "allow_reference=True" in text


def test_with_it_only_what_onnx_lacks_as_well_is_refused():
    with pytest.raises(UnsupportedModelError) as caught:
        compiled(FOREIGN)
    (row,) = caught.value.rows
    assert row.operator == "org.example.Unheard"
    assert row.reason.endswith("ONNX's reference implementation does not have it either")


def test_nodes_with_attributes_of_no_type_are_refused_either_way():
    # Found by the fuzzer: such a node cannot be asked for, as no file may have it.
    model = onnx.ModelProto.FromString(BINARY.SerializeToString())
    del model.graph.node[1].attribute[:]
    model.graph.node[1].attribute.append(onnx.AttributeProto(name="threshold"))
    with pytest.raises(UnsupportedModelError) as caught:
        load(model)
    (row,) = caught.value.rows
    assert row.operator == "ai.onnx.ml.Binarizer"
    assert row.remedy == "none by options: export the model without it"
    with pytest.raises(ModelError, match="an attribute of no type"):
        compiled(model)


def test_inputs_of_other_types_are_told_of_the_option():
    model = model_of(
        [helper.make_node("StringConcat", ["a", "a"], ["y"])],
        [("a", TensorProto.STRING, [2])], [("y", TensorProto.STRING, [2])], opset=20,
    )  # fmt: skip
    with pytest.raises(UnsupportedModelError) as caught:
        saccade.compile(model)
    assert caught.value.rows[0].operator == "(input)"
    assert "allow_reference=True" in caught.value.rows[0].remedy


@pytest.mark.parametrize("given", [1, "yes", None])
def test_the_option_is_true_or_false(given):
    with pytest.raises(OptionError, match=r"allow_reference=.* must be True or False"):
        Options(allow_reference=given)


def test_what_kernels_do_is_done_as_without_the_option():
    model = text_model("a = Add(x, x) y = Relu(a)")
    given, plain = load(model, Options(allow_reference=True)), load(model)
    assert [node.op for node in given.nodes] == [node.op for node in plain.nodes]
    assert given.remarks == plain.remarks == ()


def test_values_of_inputs_are_asked_for_before_the_reference_is():
    model = model_of(
        [helper.make_node("Expand", ["x", "shape"], ["y"])],
        [("x", TensorProto.FLOAT, [3]), ("shape", TensorProto.INT64, [2])],
        [("y", TensorProto.FLOAT, None)],
    )
    with pytest.raises(NeedsValuesError) as caught:
        load(model, Options(allow_reference=True))
    assert caught.value.names == ("shape",)


def test_gpus_refuse_such_steps():
    with pytest.raises(OptionError, match=r"no kernel for GPUs, .*ONNX's reference implementation"):
        compiled(BINARY, device="cuda", machine="h200").save("never", {"x": (1, 3, 4)})


# -- answers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_steps_stand_between_kernels_for_every_size(device):
    model = compiled(BINARY, device=device)
    for shape in ((1, 3, 1), (2, 3, 17), (5, 3, 7), (0, 3, 4)):
        x = floats(*shape)
        (wanted,) = ReferenceEvaluator(BINARY).run(None, {"x": x})
        np.testing.assert_array_equal(model(x), wanted)
        assert steps_of(model, x=shape) == ["ai.onnx.ml.Binarizer"]


def test_answers_are_onnxruntimes():
    onnxruntime = pytest.importorskip("onnxruntime")
    words = ["a", "bc", "ä", ""]
    nodes = [
        helper.make_node(
            "LabelEncoder", ["words"], ["codes"], domain="ai.onnx.ml",
            keys_strings=words, values_floats=[1.5, -2.0, 3.0, 0.25], default_float=9.0,
        ),
        helper.make_node("MatMul", ["codes", "w"], ["y"]),
    ]  # fmt: skip
    w = onnx.numpy_helper.from_array(floats(3, 5), "w")
    model = model_of(
        nodes, [("words", TensorProto.STRING, ["N", 3])], [("y", TensorProto.FLOAT, ["N", 5])],
        initializers=[w],
    )  # fmt: skip
    given = np.array([["a", "ä", ""], ["bc", "no", "a"]], dtype=object)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (wanted,) = session.run(None, {"words": given})
    made = compiled(model)
    np.testing.assert_allclose(made(given), wanted, rtol=1e-5)
    assert [(i.dtype, i.held) for i in made.inputs] == [("string", True)]


def test_random_numbers_are_drawn_for_each_node_and_run():
    nodes = [
        helper.make_node("RandomUniformLike", ["x"], [name], low=2.0, high=3.0) for name in "ab"
    ]
    kinds = [(name, TensorProto.FLOAT, [50]) for name in "xab"]
    x = onnx.numpy_helper.from_array(np.zeros(50, np.float32), "x")
    made = compiled(model_of(nodes, [], kinds[1:], initializers=[x]))
    (a, b), (c, _) = made(), made()
    for drawn in (a, b, c):
        assert drawn.min() >= 2 and drawn.max() <= 3
    assert not np.array_equal(a, b) and not np.array_equal(a, c)


def test_what_is_known_is_computed_once():
    nodes = [
        helper.make_node("Binarizer", ["w"], ["bits"], "cut", domain="ai.onnx.ml", threshold=0.25),
        helper.make_node("MatMul", ["x", "bits"], ["y"]),
    ]
    model = model_of(
        nodes, [("x", TensorProto.FLOAT, [2, 9])], [("y", TensorProto.FLOAT, [2, 4])],
        initializers=[onnx.numpy_helper.from_array(floats(9, 4), "w")],
    )  # fmt: skip
    made = agrees(model, {"x": floats(2, 9)}, exact=False)
    assert steps_of(made, x=(2, 9)) == []
    assert any("Binarizer" in remark for remark in made.remarks)


def test_what_the_reference_cannot_compute_is_an_error_of_the_input():
    nodes = [
        helper.make_node("SequenceConstruct", ["x"], ["s"]),
        helper.make_node("SequenceAt", ["s", "at"], ["y"]),
    ]
    model = model_of(
        nodes, [("x", TensorProto.FLOAT, [3]), ("at", TensorProto.INT64, [])],
        [("y", TensorProto.FLOAT, [3])],
    )  # fmt: skip
    made, x = compiled(model), floats(3)
    np.testing.assert_array_equal(made(x, np.array(0)), x)
    with pytest.raises(InputError, match="SequenceAt: ONNX's reference implementation cannot"):
        made(x, np.array(7))


# -- what is seen --------------------------------------------------------------------------------


def test_plan_profile_and_remarks_name_such_steps():
    made = compiled(BINARY)
    text = str(made.plan(x=(1, 3, 4)))
    # Its name stands above what does it where a line has no room for both.
    lines = text.splitlines()
    (row,) = [number for number, line in enumerate(lines) if "onnx.reference (host)" in line]
    assert "ai.onnx.ml.Binarizer" in "".join(lines[row - 1 : row + 1])
    assert "cut" in "".join(lines[row - 1 : row + 1])
    assert "on the host: cut: by ONNX's reference implementation: no such operator" in text
    (remark,) = made.remarks
    assert remark.startswith(
        f"1 ai.onnx.ml.Binarizer by ONNX's reference implementation (onnx {onnx.__version__})"
    )
    assert f"note: {remark}" in text
    profile = made.profile(floats(1, 3, 4), repeat=3)
    (step,) = [step for step in profile.steps if step.kernel == "onnx.reference"]
    assert (step.name, step.config) == ("cut", "ai.onnx.ml.Binarizer")
    assert 0 < step.microseconds <= profile.total
    assert "onnx.reference" in str(profile)
    assert [s.name for s in profile.steps] == [s.name for s in made.plan(x=(1, 3, 4)).steps]


def test_plans_come_back_from_text():
    plan = compiled(BINARY).plan(x=(2, 3, 5))
    assert type(plan).from_json(plan.to_json()) == plan


def test_onnxs_backend_passes_the_option_on():
    x = floats(1, 3, 4)
    (y,) = onnx_backend.prepare(BINARY, allow_reference=True).run([x])
    np.testing.assert_array_equal(y, *ReferenceEvaluator(BINARY).run(None, {"x": x}))
    assert not onnx_backend.is_compatible(BINARY)
    assert onnx_backend.is_compatible(BINARY, allow_reference=True)


# -- what is kept --------------------------------------------------------------------------------


def test_a_model_that_was_compiled_with_the_option_answers_for_none_without(tmp_path, monkeypatch):
    monkeypatch.setenv("SACCADE_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "m.onnx"
    onnx.save(BINARY, path)
    x = floats(1, 3, 4)
    first, again = compiled(path)(x), compiled(path)(x)
    np.testing.assert_array_equal(first, again)
    with pytest.raises(UnsupportedModelError):
        saccade.compile(path)


def test_identities_name_the_option_and_the_package(monkeypatch):
    plain, allowed = Options(), Options(allow_reference=True)
    assert "reference" not in _identity("d", "cpu", plain)
    assert (
        _identity("d", "cpu", allowed)
        == f"{_identity('d', 'cpu', plain)}/reference {onnx.__version__}"
    )
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.1")
    assert _identity("d", "cpu", allowed).endswith("/reference 0.1")


def test_bundles_run_where_the_same_onnx_is(tmp_path, monkeypatch):
    path, x = tmp_path / "m.bundle", floats(2, 3, 5)
    compiled(BINARY).save(path, {"x": x.shape})
    (wanted,) = ReferenceEvaluator(BINARY).run(None, {"x": x})
    np.testing.assert_array_equal(saccade.compile(path)(x), wanted)
    onnx_reference._evaluator.cache_clear()
    monkeypatch.setattr(onnx, "__version__", "0.1")
    with pytest.raises(OptionError, match=r"was compiled for .* of onnx .*, installed is 0\.1"):
        saccade.compile(path)(x)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(OptionError, match="install onnx"):
        saccade.compile(path)(x)
