"""Models with inputs whose values decide shapes."""

from __future__ import annotations

import pickle

import numpy as np
import onnx.parser
import pytest

import saccade
from saccade.by_value import ByValueModel
from saccade.errors import (
    InputError,
    ModelError,
    NeedsValuesError,
    OptionError,
    UnsupportedModelError,
)

HEADER = '<ir_version: 8, opset_import: ["" : 18]> g '
REDUCE = (
    HEADER
    + "(float[N, 3, H] x, int64[k] axes) => (float[] y) { y = ReduceSum<keepdims=0>(x, axes) }"
)
X = np.random.default_rng(0).normal(size=(2, 3, 5)).astype(np.float32)


def compiled(text, **options):
    return saccade.compile(onnx.parser.parse_model(text), threads=1, **options)


@pytest.mark.parametrize("cache", [True, False])
def test_each_value_gives_its_own_result(cache):
    model = compiled(REDUCE, cache=cache)
    assert isinstance(model, ByValueModel)
    assert [(i.name, i.dtype, i.shape) for i in model.inputs] == [
        ("x", "float32", ("N", 3, "H")), ("axes", "int64", ("k",)),
    ]  # fmt: skip
    assert [(o.name, o.shape) for o in model.outputs] == [("y", ("...",))]
    for axes in ([1], [0, 2], [-1], [1]):
        expected = X.sum(axis=tuple(axes), dtype=np.float64)
        np.testing.assert_allclose(model(X, np.array(axes)), expected, rtol=1e-5)
    np.testing.assert_allclose(model.run({"axes": np.array([2]), "x": X})["y"], X.sum(2), rtol=1e-5)


def test_a_value_is_compiled_once_and_few_are_kept(monkeypatch):
    model, made = compiled(REDUCE), []
    make = model._make
    monkeypatch.setattr(model, "_make", lambda values: made.append(values) or make(values))
    monkeypatch.setattr("saccade.by_value._KEPT", 2)
    for axis in (0, 1, 0, 2, 0, 1):
        model(X, np.array([axis]))
    assert [int(values["axes"][0]) for values in made] == [0, 1, 2, 1]


def test_a_values_copy_is_kept():
    model, axes = compiled(REDUCE), np.array([0])
    first = model(X, axes)
    axes[0] = 1
    assert model(X, axes).shape == (2, 5)
    assert first.shape == (3, 5)


def test_plans_and_profiles_are_those_of_values():
    model = compiled(REDUCE)
    plan = model.plan(X.shape, np.array([1]))
    assert [port.shape for port in plan.outputs] == [(2, 5)]
    assert model.plan(x=X.shape, axes=np.array([0, 1])).outputs[0].shape == (5,)
    assert model.profile(X, np.array([1]), repeat=1).steps
    assert model.report(X, np.array([1]), repeat=1, seconds=0).steps
    assert model.assembly("*", X.shape, np.array([1]))
    assert model.stages == ()


def test_where_all_inputs_decide_shapes():
    text = HEADER + "(int64 a, int64 b, int64 c) => (int64[n] y) { y = Range(a, b, c) }"
    model = compiled(text)
    np.testing.assert_array_equal(model(np.array(3), np.array(10), np.array(2)), [3, 5, 7, 9])


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        (np.array([1.5]), "must be an array of int64"),
        (np.array(1), r"shape \['k'\]"),
        ([[1, 2], [3]], "must be an array"),
        ("one", "must be an array"),
    ],
)
def test_values_that_do_not_fit(axes, message):
    with pytest.raises(InputError, match=message):
        compiled(REDUCE)(X, axes)


def test_values_that_the_model_refuses():
    with pytest.raises(ModelError, match="no axis 7"):
        compiled(REDUCE)(X, np.array([7]))


def test_what_is_of_one_value_only():
    model = compiled(REDUCE)
    with pytest.raises(OptionError, match="axes decide"):
        model.save("there.saccade", {"x": (2, 3, 5)})
    with pytest.raises(OptionError, match="choices are those of each"):
        _ = model.algorithms
    with pytest.raises(InputError, match="axes decide the graph"):
        model.graph("frontend")


def test_the_error_crosses_processes():
    error = NeedsValuesError([], ("axes",), "[[], []]")
    again = pickle.loads(pickle.dumps(error))
    assert (again.names, again.signature, again.rows) == (("axes",), "[[], []]", ())
    assert isinstance(again, UnsupportedModelError)


def test_from_a_file_as_well(tmp_path):
    onnx.save(onnx.parser.parse_model(REDUCE), tmp_path / "m.onnx")
    model = saccade.compile(tmp_path / "m.onnx", threads=1)
    np.testing.assert_allclose(model(X, np.array([0])), X.sum(0), rtol=1e-5)


def test_values_are_prepared():
    model = compiled(REDUCE)
    model.warm({"x": X.shape, "axes": np.array([1])}, {"x": X.shape, "axes": np.array([2])})
    assert len(model._models) == 2
    with pytest.raises(InputError, match="mappings, not"):
        model.warm(X.shape)
    with pytest.raises(InputError, match="missing"):
        model.warm({"x": X.shape})
