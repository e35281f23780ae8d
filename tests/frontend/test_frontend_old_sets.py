# ruff: noqa: E501 - a table with one model a line
"""Operator sets 1 to 6: what attributes said that operands say now, by hand-made expectations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pytest
from frontend_models import text_model

from saccade.errors import ModelError, UnsupportedModelError
from saccade.frontend import onnx as frontend
from saccade.ir import Array
from saccade.testing.interpret import interpret

RNG = np.random.default_rng(3)
X = RNG.integers(1, 9, (2, 3, 4, 4)).astype(np.float32)
C = RNG.integers(1, 5, 3).astype(np.float32)
MAP = RNG.integers(1, 4, (3, 4)).astype(np.float32)
FOUR = {
    name: np.arange(1, 4, dtype=np.float32) * k
    for name, k in zip("sbmv", (1, 2, 3, 4), strict=True)
}
EACH = {name: RNG.uniform(0.5, 2, (3, 4, 4)).astype(np.float32) for name in "sbmv"}
CHANNEL, ROWS = (slice(None), None, None), (slice(None), slice(None), None)


@dataclass(frozen=True)
class Old:
    """A model of an old set, and what it means."""

    body: str
    opset: int
    expected: Callable[[Array], Array]
    weights: Mapping[str, Array] = field(default_factory=dict)
    outputs: str = "float y"
    rtol: float = 0.0


def normalised(x: Array, s: Array, b: Array, m: Array, v: Array) -> Array:
    s, b, m, v = (a.reshape(1, *a.shape, *(1,) * (x.ndim - 1 - a.ndim)) for a in (s, b, m, v))
    return s * (x - m) / np.sqrt(v + 1e-5) + b


def by_batch(x: Array, s: Array, b: Array) -> Array:
    axes = (0, *range(1 + s.ndim, x.ndim))
    return normalised(x, s, b, x.mean(axes), x.var(axes))


def in_blocks(x: Array, k: int) -> Array:
    return x.repeat(k, 2).repeat(k + 1, 3)


OLD = {
    "a sum with consumed inputs": Old("y = Add<consumed_inputs=[0, 0]>(x, x)", 1, lambda x: x + x),
    "a sum by suffix": Old("y = Add<broadcast=1>(x, w)", 3, lambda x: x + C[0], {"w": C[:1]}),
    "a difference along channels": Old("y = Sub<broadcast=1, axis=1>(x, w)", 1, lambda x: x - C[CHANNEL], {"w": C}),
    "a product along two axes": Old("y = Mul<broadcast=1, axis=1>(x, w)", 5, lambda x: x * MAP[ROWS], {"w": MAP}),
    "a quotient along channels": Old("y = Div<broadcast=1, axis=1>(x, w)", 6, lambda x: x / C[CHANNEL], {"w": C}),
    "a power along channels": Old("y = Pow<broadcast=1, axis=1>(x, w)", 6, lambda x: x ** C[CHANNEL], {"w": C}, rtol=1e-6),
    "a comparison along channels": Old("y = Less<broadcast=1, axis=1>(x, w)", 1, lambda x: x < C[CHANNEL], {"w": C}, "bool y"),
    "a reshape by attribute": Old("y = Reshape<shape=[0, -1, 8]>(x)", 1, lambda x: x.reshape(2, 6, 8)),
    "a reshape by operand": Old("y = Reshape(x, w)", 5, lambda x: x.reshape(2, 48), {"w": np.array([2, 48])}),
    "casts to types by name": Old('b = Cast<to="INT32">(x) y = Cast<to="DOUBLE">(b)', 5, lambda x: x.astype(np.float64), outputs="double y"),
    "a cast to a type by number": Old("y = Cast<to=7>(x)", 6, lambda x: x.astype(np.int64), outputs="int64 y"),
    "a concatenation without an axis": Old("y = Concat(x, x)", 1, lambda x: np.concatenate([x, x], 1)),
    "paddings": Old("y = Pad<paddings=[0,0,1,2,0,0,3,0], value=2.0>(x)", 1, lambda x: np.pad(x, ((0, 0), (0, 0), (1, 3), (2, 0)), constant_values=2)),
    "pads": Old('y = Pad<pads=[0,0,1,2,0,0,3,0], mode="edge">(x)', 2, lambda x: np.pad(x, ((0, 0), (0, 0), (1, 3), (2, 0)), "edge")),
    "a slice": Old("y = Slice<axes=[3, 2], starts=[1, -2], ends=[9, 4]>(x)", 1, lambda x: x[:, :, -2:4, 1:]),
    "a split by operand": Old("a, y = Split<axis=1>(x, w)", 1, lambda x: x[:, 1:], {"w": np.array([1, 2])}),
    "tiles along an axis": Old("y = Tile(x, w, a)", 1, lambda x: np.tile(x, (1, 3, 1, 1)), {"w": np.array(3), "a": np.array(1)}),
    "tiles along all axes": Old("y = Tile(x, w)", 6, lambda x: np.tile(x, (1, 3, 1, 2)), {"w": np.array([1, 3, 1, 2])}),
    "the largest by attribute": Old("y, i = TopK<k=2, axis=1>(x)", 1, lambda x: -np.sort(-x, 1)[:, :2]),
    "two scales": Old("y = Upsample<height_scale=2.0, width_scale=3.0>(x)", 1, lambda x: in_blocks(x, 2)),
    "clipped by attributes": Old("y = Clip<max=5.0>(x)", 1, lambda x: np.minimum(x, 5)),
    "a selu of fewer digits": Old("n = Neg(x) y = Selu(n)", 1, lambda x: np.float32(1.0507) * np.float32(1.6732) * np.expm1(-x), rtol=1e-6),
    "a selu": Old("n = Neg(x) y = Selu(n)", 6, lambda x: 1.0507009873554805 * 1.6732632423543772 * np.expm1(-x), rtol=1e-6),
    "a dropout that tests": Old("y = Dropout<is_test=1>(x)", 1, lambda x: x),
    "a dropout of nothing": Old("y = Dropout<ratio=0.0>(x)", 6, lambda x: x),
    "a dropout of a later set": Old("y = Dropout(x)", 7, lambda x: x),
    "a batch normalisation that tests": Old(
        "y = BatchNormalization<is_test=1, consumed_inputs=[0,0,0,1,1]>(x, s, b, m, v)", 1, lambda x: normalised(x, *FOUR.values()), FOUR, rtol=1e-6,
    ),
    "a batch normalisation that trains": Old(
        "y = BatchNormalization(x, s, b, m, v)", 6, lambda x: by_batch(x, FOUR["s"], FOUR["b"]), FOUR, rtol=1e-5,
    ),
    "a batch normalisation that trains by its results": Old(
        "y, m1, v1, m2, v2 = BatchNormalization(x, s, b, m, v)", 9, lambda x: by_batch(x, FOUR["s"], FOUR["b"]), FOUR, rtol=1e-5,
    ),
    "what a batch's own mean is": Old(
        "z, m1, v1, y, v2 = BatchNormalization(x, s, b, m, v)", 9, lambda x: x.mean((0, 2, 3)), FOUR, rtol=1e-6,
    ),
    "what a batch's own variance is": Old(
        "z, m1, v1, m2, y = BatchNormalization(x, s, b, m, v)", 6, lambda x: x.var((0, 2, 3)), FOUR, rtol=1e-6,
    ),
    "where running variances go": Old(
        "z, m1, y, m2, v2 = BatchNormalization<momentum=0.75>(x, s, b, m, v)", 9, lambda x: FOUR["v"] * 0.75 + x.var((0, 2, 3)) * 0.25, FOUR, rtol=1e-6,
    ),
    "a batch normalisation by activation": Old(
        "y = BatchNormalization<spatial=0>(x, s, b, m, v)", 7, lambda x: normalised(x, *EACH.values()), EACH, rtol=1e-5,
    ),
    "a batch normalisation by activation that trains": Old(
        "y = BatchNormalization<spatial=0>(x, s, b, m, v)", 1, lambda x: by_batch(x, EACH["s"], EACH["b"]), EACH, rtol=1e-4,
    ),
    "a product and a row": Old(
        "f = Flatten(x) y = Gemm<broadcast=1, transB=1>(f, w, b)", 1, lambda x: x.reshape(2, 48) @ np.ones((48, 3), np.float32) + C, {"w": np.ones((3, 48), np.float32), "b": C},
    ),
    "a slope for each channel": Old("n = Neg(x) y = PRelu(n, w)", 1, lambda x: -x * C[CHANNEL], {"w": C}),
    "means of axes by attribute": Old("y = ReduceMean<axes=[1], keepdims=0>(x)", 1, lambda x: x.mean(1), rtol=1e-6),
    "a softmax of all that follows": Old(
        "y = Softmax(x)", 1, lambda x: (np.exp(x) / np.exp(x).sum((1, 2, 3), keepdims=True)), rtol=1e-5,
    ),
    "roots of sums of powers that are no integers": Old(
        "y = LpPool<kernel_shape=[4, 4], p=1.5>(x)", 1, lambda x: (x**1.5).sum((2, 3), keepdims=True) ** (1 / 1.5), rtol=1e-5,
    ),
    "a global root of powers that are no integers": Old(
        "y = GlobalLpPool<p=2.5>(x)", 1, lambda x: (x**2.5).sum((2, 3), keepdims=True) ** 0.4, rtol=1e-5,
    ),
    "a global root of cubes": Old("y = GlobalLpPool<p=3>(x)", 22, lambda x: (x**3).sum((2, 3), keepdims=True) ** (1 / 3), rtol=1e-5),
    "a global root of squares": Old("y = GlobalLpPool(x)", 2, lambda x: (x**2).sum((2, 3), keepdims=True) ** 0.5, rtol=1e-6),
    "a global sum of magnitudes": Old("n = Neg(x) y = GlobalLpPool<p=1>(n)", 2, lambda x: x.sum((2, 3), keepdims=True)),
    "the contrary": Old('b = Cast<to="BOOL">(x) y = Not(b)', 1, lambda x: x == 0, outputs="bool y"),
}  # fmt: skip


@pytest.mark.parametrize("name", OLD)
def test_what_it_means(name: str) -> None:
    old = OLD[name]
    graph = frontend.load(
        text_model(old.body, "float[2, 3, 4, 4] x", old.outputs, old.opset, old.weights)
    )
    (found,) = interpret(graph, {"x": X}).values()
    expected = old.expected(X)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, old.rtol, old.rtol)


def test_a_slope_of_the_second_last_axis_is_no_suffix() -> None:
    # By NumPy's rules it would go along the last axis, which is as long.
    graph = frontend.load(
        text_model("y = Pow<broadcast=1, axis=2>(x, w)", "float[1, 1, 2, 2] x", opset=1,
                   weights={"w": np.array([2, 1], np.float32)})
    )  # fmt: skip
    (found,) = interpret(graph, {"x": np.array([[[[3, 4], [5, 6]]]], np.float32)}).values()
    assert found.tolist() == [[[[9, 16], [5, 6]]]]


@pytest.mark.parametrize(
    ("body", "opset", "error", "message"),
    [
        ("y = Dropout(x)", 6, UnsupportedModelError, "dropout in training mode"),
        ("y = Cast<to=1>(x)", 5, ModelError, "attribute 'to' of Cast .* is of type INT"),
        ('y = Cast<to="STRING">(x)', 5, UnsupportedModelError, "an element type that Saccade"),
        ("y = Pad<pads=[0,0,0,0,0,0,0,0]>(x)", 1, ModelError, "no attribute 'pads' in operator"),
        ("y = Upsample<scales=[1.0]>(x)", 1, ModelError, "no attribute 'scales' in operator set 1"),
        ("y = Upsample<height_scale=2.0>(x)", 6, ModelError, r"scales \[1.0, 1.0, 2.0, 0.0\]"),
        (
            "f = Flatten(x) y = Upsample<height_scale=2.0, width_scale=2.0>(f)",
            6,
            ModelError,
            "for 2 axes",
        ),
        ("y = GatherND(x, x)", 4, ModelError, "not in operator set 4"),
        ("y = GlobalLpPool<p=0>(x)", 2, ModelError, "p is 0"),
        ("y = Relu(x)", 0, ModelError, "operator set 0 is not one of 1 to"),
    ],
)
def test_what_is_refused(body: str, opset: int, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        frontend.load(text_model(body, "float[2, 3, 4, 4] x", opset=opset))
