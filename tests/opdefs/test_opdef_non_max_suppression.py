"""ONNX's suppression: the reference against onnxruntime and ONNX's own evaluator."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

from saccade.errors import ModelError
from saccade.ir import DType, TensorType
from saccade.ir.dim import symbol
from saccade.opdefs import NonMaxSuppression

F32 = DType.F32


def selected(boxes, scores, most, iou=0.0, score=None, centred=False):
    """The rows that there are; behind them are zeros."""
    images, classes, count = scores.shape
    rows = images * classes * min(most, count)
    op = NonMaxSuppression(rows, most, float(np.float32(iou)), score, centred)
    table, found = op.reference(boxes, scores)
    assert table.shape == (rows, 3) and table.dtype == found.dtype == np.int64
    assert not table[found[0] :].any()
    return table[: found[0]]


def evaluated(boxes, scores, most, iou, score, centred):
    """What ONNX's evaluator says."""
    node = onnx.helper.make_node(
        "NonMaxSuppression", list("bsmit"), ["y"], center_point_box=int(centred)
    )
    value = onnx.helper.make_tensor_value_info
    inputs = [value(n, 7 if n == "m" else 1, None) for n in "bsmit"]
    graph = onnx.helper.make_graph([node], "one", inputs, [value("y", 7, None)])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 11)])
    arrays = (boxes, scores, np.array([most]), np.array([iou], np.float32))
    given_ = dict(zip("bsmit", (*arrays, np.array([score], np.float32)), strict=True))
    (result,) = ReferenceEvaluator(model).run(None, given_)
    return result


GRID = st.sampled_from([0.0, 1.0, 1.5, 2.0, 3.0, -1.0])
ODD = st.sampled_from([0.0, -0.0, 1.0, 2.0, np.inf, -np.inf, np.nan, 3e38, 1e-40, -2.0])


@st.composite
def cases(draw, numbers):
    images, classes, count = (draw(st.integers(low, 3)) for low in (1, 1, 0))
    count *= draw(st.integers(1, 5))
    boxes = draw(st.lists(numbers, min_size=4 * count * images, max_size=4 * count * images))
    size = images * classes * count
    scores = draw(st.lists(numbers, min_size=size, max_size=size))
    return (
        np.array(boxes, np.float32).reshape(images, count, 4),
        np.array(scores, np.float32).reshape(images, classes, count),
        draw(st.integers(1, 6)),
        draw(st.sampled_from([0.0, 0.2, 0.25, 1 / 3, 0.5, 1.0])),
        draw(st.sampled_from([-np.inf, -1.5, 0.0, 1.0])),
        draw(st.booleans()),
    )


@settings(max_examples=120)
@given(cases(GRID))
def test_agrees_with_the_evaluator(case):
    with np.errstate(all="ignore"):
        assert selected(*case).tolist() == evaluated(*case).reshape(-1, 3).tolist()


@settings(max_examples=80)
@given(cases(ODD))
def test_agrees_with_the_evaluator_on_what_is_no_box(case):
    with np.errstate(all="ignore"):
        assert selected(*case).tolist() == evaluated(*case).reshape(-1, 3).tolist()


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("numbers", ["grid", "real", "odd"])
def test_agrees_with_onnxruntime(peer, numbers, centred):
    rng = np.random.default_rng(0)
    for most, iou, score in [
        (3, 0.5, 0.2),
        (40, 1 / 3, -np.inf),
        (2**40, 0.0, 0.5),
        (40, 1.0, 0.1),
    ]:
        boxes = rng.random((2, 40, 4)) * 8
        boxes = (np.round(boxes) if numbers == "grid" else boxes).astype(np.float32)
        if numbers == "odd":
            odd = np.array([0, 1, 3, np.inf, -np.inf, np.nan, 3e38, -2], np.float32)
            boxes[:, ::2] = odd[rng.integers(0, 8, (2, 20, 4))]
        scores = np.round(rng.random((2, 3, 40)) * 20).astype(np.float32) / 20
        arrays = [np.array([most]), np.array([iou], np.float32), np.array([score], np.float32)]
        theirs = peer("NonMaxSuppression", [boxes, scores, *arrays], center_point_box=int(centred))
        ours = selected(boxes, scores, min(most, 2**31 - 1), iou, score, centred)
        assert len(theirs) and ours.tolist() == theirs.tolist()


def test_no_threshold_takes_all_scores_but_nan():
    boxes = np.tile(np.arange(4, dtype=np.float32)[None, :, None] * 10, (1, 1, 4))
    scores = np.array([[[-np.inf, np.nan, 5, -1]]], np.float32)
    assert selected(boxes, scores, 9)[:, 2].tolist() == [2, 3, 0]
    assert selected(boxes, scores, 9, score=-1.0)[:, 2].tolist() == [2]
    assert selected(boxes, scores, 9, score=float("nan")).tolist() == []


def test_shape_rule():
    rows, count = symbol("rows"), symbol("n")
    boxes, scores = TensorType(F32, (2, count, 4)), TensorType(F32, (2, 7, count))
    op = NonMaxSuppression(rows, 5)
    table, found = op.infer([boxes, scores])
    assert table == TensorType(DType.I64, (rows, 3)) and found == TensorType(DType.I64, (1,))
    assert op.bind({"rows": 70}).infer([boxes, scores])[0].shape == (70, 3)


@pytest.mark.parametrize(
    ("shapes", "options", "message"),
    [
        ([(2, 5, 3), (2, 1, 5)], {}, "boxes must be"),
        ([(2, 5, 4), (2, 5)], {}, "scores must be"),
        ([(2, 5, 4), (1, 1, 5)], {}, "the number of images"),
        ([(2, 5, 4), (2, 1, 6)], {}, "the number of boxes"),
        ([(2, 5, 4), (2, 1, 5)], {"iou_threshold": 1.5}, "iou_threshold 1.5"),
        ([(2, 5, 4), (2, 1, 5)], {"most": 0}, "0 boxes"),
    ],
)
def test_refusals(shapes, options, message):
    op = NonMaxSuppression(**{"rows": 10, "most": 5, **options})
    with pytest.raises(ModelError, match=message):
        op.infer([TensorType(F32, shape) for shape in shapes])
