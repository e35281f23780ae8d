"""Fourier transforms, frames and mel filters against NumPy in float64, and other engines."""

from __future__ import annotations

import numpy as np
import pytest
from frontend_models import run_onnxruntime, text_model
from onnx.reference import ReferenceEvaluator

from saccade.errors import ModelError, UnsupportedModelError
from saccade.frontend import onnx as frontend
from saccade.testing.interpret import interpret

RNG = np.random.default_rng(9)
EPSILON = np.finfo(np.float32).eps


def transform(attributes, axis, shape, length=None):
    """A model of one DFT of operands of this shape."""
    weights = {"a": np.asarray(axis, np.int64)}
    if length is not None:
        weights["n"] = np.asarray(length, np.int64)
    inputs = f"float[{', '.join(map(str, shape))}] x"
    body = f"y = DFT{attributes}(x, {'n' if length is not None else ''}, a)"
    return text_model(body, inputs, "float y", 20, weights)


def ours(model, **inputs):
    (y,) = interpret(frontend.load(model), inputs).values()
    return y


def complex_of(x):
    x = x.astype(np.float64)
    return x[..., 0] + 1j * x[..., 1] if x.shape[-1] == 2 else x[..., 0]


def parts(z):
    return np.stack([z.real, z.imag], -1)


def assert_near(actual, expected, length):
    """Sums of `length` products, each as large as the largest element."""
    assert actual.shape == expected.shape and actual.dtype == np.float32
    bound = 4 * EPSILON * np.sqrt(length) * max(1.0, np.abs(expected).max())
    assert np.abs(actual - expected).max(initial=0) <= bound


@pytest.mark.parametrize("length", [None, 1, 5, 16, 31])
@pytest.mark.parametrize("axis", [-2, 1, 2])
@pytest.mark.parametrize("count", [1, 2])
def test_forward(axis, length, count):
    x = RNG.normal(size=(3, 16, 7, 10, count)).astype(np.float32)
    expected = parts(np.fft.fft(complex_of(x), length, axis if axis >= 0 else axis + 1))
    assert_near(ours(transform("", axis, x.shape, length), x=x), expected, length or 16)


@pytest.mark.parametrize("length", [None, 8, 13])
def test_inverse(length):
    x = RNG.normal(size=(2, 9, 6, 2)).astype(np.float32)
    expected = parts(np.fft.ifft(complex_of(x), length, 1))
    assert_near(ours(transform("<inverse=1>", 1, x.shape, length), x=x), expected, 13)


@pytest.mark.parametrize("length", [None, 9, 14, 21])
def test_one_side_and_back(length):
    x = RNG.normal(size=(2, 14, 5, 1)).astype(np.float32)
    expected = parts(np.fft.rfft(complex_of(x), length, 1))
    half = ours(transform("<onesided=1>", 1, x.shape, length), x=x)
    assert_near(half, expected, 21)
    back = transform("<onesided=1, inverse=1>", 1, half.shape, length or 14)
    assert_near(ours(back, x=half), np.fft.irfft(complex_of(half), length or 14, 1)[..., None], 21)


def test_back_without_a_length_is_even():
    x = RNG.normal(size=(1, 6, 2)).astype(np.float32)
    found = ours(transform("<onesided=1, inverse=1>", 1, x.shape), x=x)
    assert_near(found, np.fft.irfft(complex_of(x), 10, 1)[..., None], 10)


def test_the_longest():
    x = RNG.normal(size=(2, 1024, 2)).astype(np.float32)
    assert_near(
        ours(transform("", 1, x.shape), x=x), parts(np.fft.fft(complex_of(x), None, 1)), 1024
    )


def test_two_axes_of_an_image():
    """rfft2 and irfft2, as networks for inpainting have them."""
    weights = {"h": np.asarray(2, np.int64), "w": np.asarray(3, np.int64)}
    weights["n"] = np.asarray(12, np.int64)
    body = (
        "a = DFT<onesided=1>(x, , w) b = DFT(a, , h) c = DFT<inverse=1>(b, , h) "
        "y = DFT<inverse=1, onesided=1>(c, n, w)"
    )
    model = text_model(body, "float[N, 4, 8, 12, 1] x", "float y", 20, weights)
    x = RNG.normal(size=(2, 4, 8, 12, 1)).astype(np.float32)
    assert_near(ours(model, x=x), x.astype(np.float64), 96)


def test_set_17_names_the_axis_in_an_attribute():
    x = RNG.normal(size=(2, 6, 5, 1)).astype(np.float32)
    model = text_model("y = DFT<axis=2>(x)", "float[2, 6, 5, 1] x", "float y", 17)
    assert_near(ours(model, x=x), parts(np.fft.fft(complex_of(x), None, 2)), 5)


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        (transform("", 2, (2, 6, 1)), ModelError, "whose last holds parts"),
        (transform("", 1, (2, 6, 3)), ModelError, "whose last holds parts"),
        (transform("", 1, (2, 6, 2), 0), ModelError, "a transform of length 0"),
        (transform("<onesided=1>", 1, (2, 6, 2)), ModelError, "one side of the transform"),
        (transform("", 1, (2, 1025, 2)), UnsupportedModelError, "1025 elements is longer"),
        (transform("", 1, (2, "L", 2)), UnsupportedModelError, "whose length varies"),
    ],
)
def test_refusals(model, error, message):
    with pytest.raises(error, match=message):
        frontend.load(model)


SIGNALS = {
    "plain": ("", (2, 40, 1), None),
    "window": ("", (2, 40, 1), 12),
    "both-sides": ("<onesided=0>", (1, 31, 1), 7),
}


@pytest.mark.parametrize("name", SIGNALS)
def test_frames(name):
    attributes, shape, window = SIGNALS[name]
    weights = {"s": np.asarray(5, np.int64)}
    if window:
        weights["w"] = np.hanning(window).astype(np.float32)
    else:
        weights["l"] = np.asarray(12, np.int64)
    body = f"y = STFT{attributes}(x, s, {'w' if window else ', l'})"
    model = text_model(body, f"float[{', '.join(map(str, shape))}] x", "float y", 17, weights)
    x = RNG.normal(size=shape).astype(np.float32)
    (expected,) = run_onnxruntime(model, {"x": x}).values()
    assert_near(ours(model, x=x), expected, 64)


@pytest.mark.parametrize("numbers", [(8, 16, 8192, 0.0, 4096.0), (40, 400, 16000, 20.0, 7600.0)])
def test_mel_filters(numbers):
    weights = {f"i{i}": np.asarray(n, np.int64) for i, n in enumerate(numbers[:3])}
    weights |= {f"f{i}": np.asarray(n, np.float32) for i, n in enumerate(numbers[3:])}
    body = "m = MelWeightMatrix(i0, i1, i2, f0, f1) y = MatMul(x, m)"
    model = text_model(body, f"float[N, {numbers[1] // 2 + 1}] x", "float y", 17, weights)
    x = RNG.normal(size=(3, numbers[1] // 2 + 1)).astype(np.float32)
    (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
    np.testing.assert_allclose(ours(model, x=x), expected, rtol=1e-5, atol=1e-5)
