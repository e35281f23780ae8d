"""Whole detectors against onnxruntime: the same boxes, classes and scores."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper

import saccade


def sharpened(path):
    """The detector with logits that differ from class to class; its filled weights leave few."""
    model = onnx.load(path)
    for tensor in model.graph.initializer:
        if tensor.name.endswith("bias") and "classification_head" in tensor.name:
            bias = np.random.default_rng(len(tensor.name)).normal(0, 1.5, tensor.dims)
            tensor.CopyFrom(numpy_helper.from_array(bias.astype(np.float32), tensor.name))
    return model


def boxes_of(boxes, scores, labels):
    """Rows of box and class by score, those of equal scores in an order of their own."""
    rows = np.concatenate([boxes.round(1), labels[:, None]], axis=1)
    return rows[np.lexsort((*rows.T, -scores.round(4)))], np.sort(scores)[::-1]


def assert_same_detections(ours, theirs):
    """Results by name: boxes, classes and scores, but for the order of equal scores."""
    assert ours.keys() == theirs.keys()
    sides = []
    for found in (ours, theirs):
        boxes = next(a for a in found.values() if a.ndim == 2)
        labels = next(a for a in found.values() if a.ndim == 1 and a.dtype == np.int64)
        scores = next(a for a in found.values() if a.ndim == 1 and a.dtype == np.float32)
        sides.append(boxes_of(boxes, scores, labels))
    (rows, scores), (wanted, wanted_scores) = sides
    assert len(scores) == len(wanted_scores) > 0
    np.testing.assert_allclose(scores, wanted_scores, atol=1e-4)
    # What lies on a threshold may fall on either side.
    alike = (np.abs(rows - wanted) <= 0.2).all(axis=1)
    assert alike.mean() > 0.97


@pytest.mark.parametrize(
    ("name", "shapes"),
    [("ssdlite320_mobilenet", [(3, 320, 320)]), ("fasterrcnn_resnet50_fpn", [(3, 90, 120)])],
)
def test_detections_are_onnxruntimes(zoo, name, shapes):
    model = sharpened(zoo.path(name))
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    compiled = saccade.compile(model, threads=2)
    for seed, shape in enumerate(shapes):
        x = np.random.default_rng(seed).random(shape, np.float32)
        by_name = dict(
            zip(
                (o.name for o in session.get_outputs()),
                session.run(None, {"input": x}),
                strict=True,
            )
        )
        ours = compiled.run({"input": x})
        assert_same_detections(ours, by_name)
