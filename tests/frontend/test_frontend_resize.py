"""Resizes of every form: antialiased, of regions, of any axes, with a kept aspect ratio."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from frontend_models import run_onnxruntime, text_model
from onnx.reference import ReferenceEvaluator

from saccade.errors import ModelError, UnsupportedModelError
from saccade.frontend import onnx as frontend
from saccade.ir import DType
from saccade.testing.interpret import interpret
from saccade.testing.tolerance import assert_close

IMAGE = "float[N, 3, H, W] x"
SCALES = {"s": np.array([1, 1, 0.6, 0.8], np.float32)}
SIZES = {"z": np.array([2, 3, 4, 6], np.int64)}
UP = {"z": np.array([2, 3, 9, 13], np.int64)}
ANTIALIASED = {
    "linear": ("mode='linear', antialias=1", SCALES),
    "cubic": ("mode='cubic', antialias=1", SCALES),
    "linear-sizes": ("mode='linear', antialias=1", SIZES),
    "cubic-sizes": ("mode='cubic', antialias=1", SIZES),
    "cubic-inside": ("mode='cubic', antialias=1, exclude_outside=1", SIZES),
    "linear-asymmetric": (
        "mode='linear', antialias=1, coordinate_transformation_mode='asymmetric'", SIZES,
    ),
    "linear-corners": (
        "mode='linear', antialias=1, coordinate_transformation_mode='align_corners'", SIZES,
    ),
    "symmetric": (
        "mode='cubic', antialias=1, coordinate_transformation_mode='half_pixel_symmetric'", SCALES,
    ),
    "enlarged": ("mode='linear', antialias=1", UP),
}  # fmt: skip
POLICIES = {
    "larger": "keep_aspect_ratio_policy='not_larger', mode='linear', axes=[2,3]",
    "smaller": "keep_aspect_ratio_policy='not_smaller', mode='cubic', axes=[2,3]",
    "nearest": "keep_aspect_ratio_policy='not_larger', axes=[3,2]",
    "stretch": "keep_aspect_ratio_policy='stretch', mode='linear', axes=[2,3]",
}


def image(*shape):
    return np.random.default_rng(5).normal(size=shape).astype(np.float32)


def model_of(attributes, weights, inputs=IMAGE):
    third, fourth = ("s", "") if "s" in weights else ("", "z")
    names = ("x", "r" if "r" in weights else "", third, fourth)
    while not names[-1]:
        names = names[:-1]
    quoted = attributes.replace("'", '"')
    return text_model(f"y = Resize<{quoted}>({', '.join(names)})", inputs, "float y", 19, weights)


def ours(model, x):
    (y,) = interpret(frontend.load(model), {"x": x}).values()
    return y


def close(actual, expected):
    assert actual.shape == expected.shape and actual.dtype == expected.dtype
    # Positions are float32: a weight is off by a few units in its last place.
    assert_close(actual, expected.astype(np.float64), dtype=DType.F32, k=4096)


def reference(model, x):
    proto = onnx.load_from_string(model) if isinstance(model, bytes) else model
    (y,) = ReferenceEvaluator(proto).run(None, {"x": x})
    return y


@pytest.mark.parametrize("name", ANTIALIASED)
def test_antialiased(name):
    attributes, weights = ANTIALIASED[name]
    model, x = model_of(attributes, weights), image(2, 3, 7, 9)
    close(ours(model, x), reference(model, x))


@pytest.mark.parametrize("name", POLICIES)
def test_a_kept_aspect_ratio(name):
    weights = {"z": np.array([5, 4], np.int64)}
    model = model_of(POLICIES[name], weights, "float[N, 3, 7, 9] x")
    x = image(2, 3, 7, 9)
    close(ours(model, x), reference(model, x))


def region(*numbers):
    return np.array(numbers, np.float32)


REGION = "coordinate_transformation_mode='tf_crop_and_resize'"
WHOLE = region(0, 0, 0.2, 0.1, 1, 1, 0.7, 0.95)
BEYOND = region(0, 0, -0.2, 0.3, 1, 1, 0.8, 1.6)
REGIONS = {
    "linear": (f"{REGION}, mode='linear'", {"r": WHOLE, **SIZES}),
    "linear-beyond": (f"{REGION}, mode='linear', extrapolation_value=7.5", {"r": BEYOND, **SIZES}),
    "nearest": (f"{REGION}, mode='nearest'", {"r": WHOLE, **UP}),
    "nearest-beyond": (f"{REGION}, extrapolation_value=-3.0", {"r": BEYOND, **SIZES}),
    "cubic": (f"{REGION}, mode='cubic'", {"r": WHOLE, **SIZES}),
    "axes": (
        f"{REGION}, mode='linear', axes=[3, 2]",
        {"r": region(0.1, 0.4, 0.9, 0.8), "z": np.array([5, 6], np.int64)},
    ),
    "flipped": (
        f"{REGION}, mode='linear', axes=[3]", {"r": region(1, 0), "z": np.array([9], np.int64)},
    ),
    "one-pixel": (
        f"{REGION}, mode='linear', axes=[2]",
        {"r": region(0.3, 0.6), "z": np.array([1], np.int64)},
    ),
    "same-size": (
        f"{REGION}, mode='linear', axes=[2]",
        {"r": region(0.3, 0.6), "z": np.array([7], np.int64)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REGIONS)
def test_a_region(name):
    attributes, weights = REGIONS[name]
    model, x = model_of(attributes, weights), image(2, 3, 7, 9)
    actual = ours(model, x)
    close(actual, reference(model, x))
    if "beyond" in name:
        assert (actual[:, :, 0] == (7.5 if "linear" in name else -3)).all()


def test_scales_of_a_region():
    """The result is as large as the operand is, scaled, as onnxruntime and the reference do it."""
    weights = {"r": WHOLE, "s": np.array([1, 1, 2, 0.8], np.float32)}
    model, x = model_of(f"{REGION}, mode='linear'", weights), image(2, 3, 8, 10)
    (expected,) = run_onnxruntime(model, {"x": x}).values()
    close(ours(model, x), expected)
    assert reference(model, x).shape == expected.shape


ANY = {
    "volume": ("mode='linear'", [2, 3, 4, 9, 5], (2, 3, 5, 6, 7)),
    "volume-cubic": ("mode='cubic', exclude_outside=1", [1, 2, 5, 3, 9], (1, 2, 4, 5, 6)),
    "volume-nearest": ("nearest_mode='ceil'", [1, 2, 3, 9, 4], (1, 2, 5, 6, 7)),
    "batch": ("mode='linear'", [3, 3, 4, 5], (2, 3, 4, 5)),
    "channels": ("mode='cubic'", [2, 5, 6, 5], (2, 3, 4, 5)),
    "sequence": ("mode='linear'", [2, 3, 11], (2, 3, 7)),
    "sequence-nearest": ("nearest_mode='floor'", [2, 3, 5], (2, 3, 7)),
    "row": ("mode='linear'", [9], (4,)),
}


@pytest.mark.parametrize("name", ANY)
def test_any_axes(name):
    attributes, sizes, shape = ANY[name]
    inputs = f"float[{', '.join(f'D{i}' for i in range(len(shape)))}] x"
    model, x = model_of(attributes, {"z": np.array(sizes, np.int64)}, inputs), image(*shape)
    close(ours(model, x), reference(model, x))


def test_version_10_enlarges_and_shrinks_at_once():
    weights = {"s": np.array([1, 1, 1.5, 0.6], np.float32)}
    body = 'y = Resize<mode="nearest">(x, s)'
    model, x = text_model(body, IMAGE, "float y", 10, weights), image(1, 3, 7, 9)
    y = ours(model, x)
    rows = np.minimum(np.floor(np.arange(10) / np.float32(1.5)), 6).astype(int)
    columns = np.minimum(np.ceil(np.arange(5) / np.float32(0.6)), 8).astype(int)
    np.testing.assert_array_equal(y, x[:, :, rows][:, :, :, columns])


@pytest.mark.parametrize(
    ("attributes", "weights", "error", "message"),
    [
        (REGION, {"r": region(0, 1), **SIZES}, ModelError, "a region of 2 numbers for 4 axes"),
        (REGION, {"r": region(*[np.nan] * 8), **SIZES}, ModelError, "a region of"),
        (
            "keep_aspect_ratio_policy='not_larger'", SIZES, UnsupportedModelError,
            "an aspect ratio of sizes that vary",
        ),
        (
            "keep_aspect_ratio_policy='larger', axes=[1]", {"z": np.array([3], np.int64)},
            ModelError, "is unknown",
        ),
    ],
)  # fmt: skip
def test_refusals(attributes, weights, error, message):
    with pytest.raises(error, match=message):
        frontend.load(model_of(attributes, weights))


def test_a_region_that_is_computed_is_refused():
    body = f'y = Resize<{REGION}, mode="linear">(x, r, "", z)'.replace("'", '"').replace('""', "")
    model = text_model(body, f"{IMAGE}, float[8] r", "float y", 19, SIZES)
    with pytest.raises(UnsupportedModelError, match="the region of a resize must be a constant"):
        frontend.load(model)
