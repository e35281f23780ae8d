"""Largest pixels of boxes: against onnxruntime, whole and by the engine; places, and gradients."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import saccade
from saccade.errors import ModelError
from saccade.ir import DType, TensorType
from saccade.opdefs import PsRoi, PsRoiGradient, RoiPool, RoiPoolGradient

BOXES = np.array(
    [[0, 0, 0, 8, 8], [1, -3, 2.5, 9, 30], [1, 5, 5, 4, 4], [1, 60, 60, 90, 90], [0, 3, 3, 3, 3]],
    np.float32,
)


def images(rng, channels=5):
    return rng.standard_normal((2, channels, 9, 12)).astype(np.float32)


@pytest.mark.parametrize(("bins", "scale"), [((3, 4), 0.5), ((1, 1), 1.0), ((7, 2), 0.25)])
def test_as_onnxruntime(bins, scale, rng, peer, agrees_exactly):
    x = images(rng)
    wanted = peer("MaxRoiPool", [x, BOXES], pooled_shape=list(bins), spatial_scale=scale)
    agrees_exactly(RoiPool(bins, scale), [x, BOXES], wanted)


def test_the_engine_as_onnxruntime(rng, peer):
    """Behind a convolution, whose result is channels-last."""
    x, w = images(rng), rng.standard_normal((8, 5, 1, 1)).astype(np.float32)
    nodes = [
        onnx.helper.make_node("Conv", ["x", "w"], ["f"]),
        onnx.helper.make_node("MaxRoiPool", ["f", "b"], ["y"], pooled_shape=[2, 3]),
    ]
    real = onnx.TensorProto.FLOAT
    sides = [
        [onnx.helper.make_tensor_value_info(n, real, list(a.shape)) for n, a in given]
        for given in ([("x", x), ("b", BOXES)], [("y", np.empty((5, 8, 2, 3)))])
    ]
    graph = onnx.helper.make_graph(nodes, "two", *sides, [onnx.numpy_helper.from_array(w, "w")])
    opsets = [onnx.helper.make_opsetid("", 17)]
    model = saccade.compile(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8))
    found = model(x=x, b=BOXES)
    found = next(iter(found.values())) if isinstance(found, dict) else found
    features = peer("Conv", [x, w])
    wanted = peer("MaxRoiPool", [features, BOXES], pooled_shape=[2, 3])
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_places_are_where_the_values_are(rng):
    x = images(rng)
    y, places = RoiPool((3, 4), 0.5, places=True).reference(x, BOXES)
    for box, (n, *_) in enumerate(BOXES):
        plane = x[int(n)].reshape(5, -1)
        there = np.take_along_axis(plane, np.maximum(places[box].reshape(5, -1), 0), 1)
        pointed = np.where(places[box] < 0, 0, there.reshape(y[box].shape))
        np.testing.assert_array_equal(y[box], pointed)
    assert (places[3] == -1).all()


def averaging(mode, ratio):
    op = PsRoi((2, 3), 0.5, mode, ratio)
    return op, PsRoiGradient((2, 3), 0.5, mode, ratio, images=(2, 9, 12))


@pytest.mark.parametrize(
    ("op", "gradient"),
    [
        (RoiPool((3, 4), 0.5, places=True), RoiPoolGradient((2, 9, 12))),
        averaging("align", 2),
        averaging("align", 0),
        averaging("pool", 0),
    ],
)
def test_gradients_are_transposes(op, gradient, rng):
    """⟨grad, J v⟩ = ⟨Jᵀ grad, v⟩, where a step along v does not change which pixel is largest."""
    x, v = (rng.standard_normal((2, 12, 9, 12)) for _ in range(2))
    boxes = BOXES[[0, 1, 3]].astype(np.float64)
    y, *places = op.reference(x, boxes)
    ahead = op.reference(x + 1e-7 * v, boxes)[0]
    grad = rng.standard_normal(y.shape)
    (dx,) = gradient.reference(grad, *places, boxes)
    slope = (grad * (ahead - y)).sum() / 1e-7
    np.testing.assert_allclose((dx * v).sum(), slope, rtol=1e-5, atol=1e-6)


def test_sizes_and_refusals():
    x, boxes = TensorType(DType.F32, (2, 12, 9, 9)), TensorType(DType.F32, (7, 5))
    count = TensorType(DType.I32, (1,))
    whole = TensorType(DType.I32, (7, 12, 2, 3))
    found = RoiPool((2, 3), places=True, report=True).infer([x, boxes])
    assert found == (TensorType(DType.F32, (7, 12, 2, 3)), whole, count)
    mapped = PsRoi((2, 3), mapping=True).infer([x, boxes])
    assert mapped == (TensorType(DType.F32, (7, 2, 2, 3)), TensorType(DType.I32, (7, 2, 2, 3)))
    narrow = TensorType(DType.F32, (7, 4))
    for op, operands, message in (
        (RoiPool((2, -1)), (x, boxes), "negative"),
        (RoiPool((2, 2)), (x, narrow), "boxes of 4 numbers"),
        (PsRoi((5, 3)), (x, boxes), "no multiple of 15"),
        (PsRoi((0, 3)), (x, boxes), "positive"),
        (PsRoi((2, 3), mode="mean"), (x, boxes), "mode 'mean'"),
        (RoiPoolGradient((1, 2, 2)), (x, x, boxes), "places are float32"),
        (RoiPoolGradient((1, 2, 2)), (x, whole, boxes), "places .* for"),
        (PsRoiGradient((2, 3)), (x, boxes), "grad has bins|number of boxes"),
    ):
        with pytest.raises(ModelError, match=message):
            op.infer(list(operands))
