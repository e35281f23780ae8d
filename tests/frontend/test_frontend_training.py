"""What models in training mode have: results of a batch, places of maxima; determinants."""

from __future__ import annotations

import numpy as np
import pytest
from frontend_models import run_onnxruntime, text_model
from onnx.reference import ReferenceEvaluator

from saccade.errors import UnsupportedModelError
from saccade.frontend import onnx as frontend
from saccade.ir import DType
from saccade.testing.interpret import interpret
from saccade.testing.tolerance import assert_close

RNG = np.random.default_rng(21)
POOLS = {
    "plain": ("<kernel_shape=[2,2], strides=[2,2]>", (2, 3, 7, 9)),
    "padded": ("<kernel_shape=[3,3], pads=[1,1,1,1]>", (2, 3, 5, 6)),
    "asymmetric": ("<kernel_shape=[3,2], pads=[0,1,2,0], strides=[2,1]>", (1, 2, 7, 6)),
    "dilated": ("<kernel_shape=[2,3], dilations=[3,2]>", (1, 3, 8, 9)),
    "ceiled": ("<kernel_shape=[3,3], strides=[2,2], ceil_mode=1>", (1, 3, 8, 8)),
    "columns": ("<kernel_shape=[2,3], strides=[2,2], storage_order=1>", (2, 3, 7, 9)),
    "sequence": ("<kernel_shape=[3], pads=[1,1]>", (2, 3, 8)),
    "volume": ("<kernel_shape=[2,2,3], strides=[1,2,2]>", (2, 2, 4, 5, 7)),
    "same": ('<kernel_shape=[3,3], strides=[2,2], auto_pad="SAME_UPPER">', (1, 3, 7, 6)),
    "one": ("<kernel_shape=[1,1], strides=[2,2]>", (1, 3, 5, 5)),
}


@pytest.mark.parametrize("equal", [False, True], ids=["", "equal"])
@pytest.mark.parametrize("name", POOLS)
def test_places_of_maxima(name, equal):
    attributes, shape = POOLS[name]
    x = RNG.integers(-1, 2, shape) if equal else RNG.normal(size=shape)
    x = x.astype(np.float32)
    inputs = f"float[{', '.join(map(str, shape))}] x"
    model = text_model(f"y, i = MaxPool{attributes}(x)", inputs, "float y, int64 i", 12)
    expected = run_onnxruntime(model, {"x": x})
    found = interpret(frontend.load(model), {"x": x})
    assert found["i"].dtype == np.int64
    for actual, wanted in zip(found.values(), expected.values(), strict=True):
        np.testing.assert_array_equal(actual, wanted)


def test_places_in_images_that_vary_or_of_integers_are_refused():
    body = "y, i = MaxPool<kernel_shape=[2,2]>(x)"
    for kind, size, message in (("float", "H", "sizes that vary"), ("uint8", "6", "uint8")):
        model = text_model(body, f"{kind}[1, 3, {size}, 8] x", f"{kind} y, int64 i", 12)
        with pytest.raises(UnsupportedModelError, match=message):
            frontend.load(model)


@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 5), (2, 3, 4, 5)], ids=str)
def test_batch_normalization_in_training_mode(shape):
    body = (
        "y, m, v = BatchNormalization<training_mode=1, momentum=0.7, epsilon=0.01>(x, s, b, p, q)"
    )
    inputs = (
        f"float[{', '.join(map(str, shape))}] x, float[3] s, float[3] b, float[3] p, float[3] q"
    )
    model = text_model(body, inputs, "float y, float m, float v", 15)
    names = ("s", "b", "p", "q")
    given = {n: RNG.uniform(0.5, 2, 3).astype(np.float32) for n in names}
    given["x"] = RNG.normal(3, 2, shape).astype(np.float32)
    expected = ReferenceEvaluator(model).run(None, given)
    found = interpret(frontend.load(model), given)
    for actual, wanted in zip(found.values(), expected, strict=True):
        assert actual.dtype == np.float32
        assert_close(actual, np.asarray(wanted, np.float64), dtype=DType.F32, k=256)


def test_batch_normalization_by_computed_numbers():
    model = text_model(
        "y = BatchNormalization(x, s, b, p, q)",
        "float[2, 3, 4, 5] x, float[3] s, float[3] b, float[3] p, float[3] q", "float y", 15,
    )  # fmt: skip
    given = {n: RNG.uniform(0.5, 2, 3).astype(np.float32) for n in ("s", "b", "p", "q")}
    given["x"] = RNG.normal(size=(2, 3, 4, 5)).astype(np.float32)
    (expected,) = run_onnxruntime(model, given).values()
    (actual,) = interpret(frontend.load(model), given).values()
    assert_close(actual, expected.astype(np.float64), dtype=DType.F32, k=16)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_determinants(size):
    x = RNG.normal(size=(2, 5, size, size)).astype(np.float32)
    model = text_model("y = Det(x)", f"float[N, 5, {size}, {size}] x", "float y", 22)
    (actual,) = interpret(frontend.load(model), {"x": x}).values()
    assert_close(actual, np.linalg.det(x.astype(np.float64)), dtype=DType.F32, k=256)


def test_larger_determinants_are_refused():
    for size in ("5, 5", "K, K"):
        with pytest.raises(UnsupportedModelError, match="determinants of"):
            frontend.load(text_model("y = Det(x)", f"float[N, {size}] x", "float y", 22))


def test_dropout_that_drops_something_is_refused():
    weights = {"t": np.asarray(True), "r": np.float32(0), "h": np.float32(0.5)}
    model = text_model("y, m = Dropout(x, r, t)", outputs="float y, bool m", weights=weights)
    x = RNG.normal(size=(1, 3, 2, 2)).astype(np.float32)
    found = interpret(frontend.load(model), {"x": x})
    np.testing.assert_array_equal(found["y"], x)
    assert found["m"].all() and found["m"].shape == x.shape
    with pytest.raises(UnsupportedModelError, match="which is random"):
        frontend.load(text_model("y = Dropout(x, h, t)", weights=weights))
