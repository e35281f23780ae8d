# ruff: noqa: E501 - tables with one model a line
"""Axes whose size depends on data: what keeps them, against onnxruntime, and what is refused."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from frontend_models import run_onnxruntime, text_model

import saccade
from saccade.errors import ModelError, UnsupportedModelError
from saccade.frontend import onnx as frontend
from saccade.testing.compare import FP32_TOLERANCE, compare_outputs


def _i(*values):
    return np.array(values, np.int64)


INPUTS = "float[2, N, 4] b, float[2, 3, N] p, float[2, 5, 8, 9] x"
RNG = np.random.default_rng(3)
WEIGHTS = {
    "most": _i(6), "iou": np.array([0.4], np.float32), "score": np.array([0.3], np.float32),
    "i0": np.array(0), "i2": np.array(2), "v0": _i(0), "v1": _i(1), "v2": _i(2), "v3": _i(3),
    "v4": _i(4), "v02": _i(0, 2), "v12": _i(1, 2), "ten": _i(10), "flat": _i(-1), "last": _i(-2),
    "threes": _i(-1, 3), "transposed": _i(3, -1), "pairs": _i(-1, 2), "beside": _i(0, 1, 0, 2),
    "above": _i(1, 0, 0, 0), "far": _i(2**40), "twice": _i(2, 1), "row": np.ones((1, 4), np.float32),
    "w": RNG.normal(size=(3, 7)).astype(np.float32), "five": np.ones((5, 3), np.float32),
    "k": RNG.normal(size=(6, 5, 3, 3)).astype(np.float32),
}  # fmt: skip
ROWS = "s = NonMaxSuppression(b, p, most, iou, score) "
FLOATS = ROWS + "f = Cast<to=1>(s) "
BOXES = ROWS + "at = Gather<axis=1>(s, v02) bx = GatherND(b, at) g = Gather<axis=1>(s, i0) "
REGIONS = BOXES + "r = RoiAlign<output_height=4, output_width=3, sampling_ratio=2>(x, bx, g) "

KEEPS = {
    "themselves": ROWS + "y = Identity(s)",
    "a column": ROWS + "y = Gather<axis=1>(s, i0)",
    "a column, squeezed": ROWS + "c = Gather<axis=1>(s, v2) y = Squeeze(c, v1)",
    "columns": ROWS + "y = Slice(s, v1, v3, v1)",
    "parts": ROWS + "u, y = Split<axis=1>(s, v12)",
    "transposed": ROWS + "y = Transpose(s)",
    "merged and split again": FLOATS + "c = Reshape(f, flat) d = Mul(c, c) y = Reshape(d, threes)",
    "merged": FLOATS + "y = Flatten<axis=0>(f) ",
    "as they are shaped": FLOATS + "c = Shape(f) d = Mul(f, f) y = Reshape(d, c)",
    "ten of them": ROWS + "y = Slice(s, v0, ten, v0)",
    "two of them": ROWS + "y = Slice(s, v0, v2, v0)",
    "repeated as a whole": ROWS + "c = Unsqueeze(s, v1) y = Reshape(c, threes)",
    "arithmetic": FLOATS + "c = Add(f, f) d = Exp(c) e = Greater(d, c) y = Where(e, d, f)",
    "sums of rows": FLOATS + "y = ReduceSum<keepdims=0>(f, v1)",
    "the best of a row": FLOATS + "y = ArgMax<axis=1, keepdims=0>(f)",
    "shares of a row": FLOATS + "y = Softmax<axis=1>(f)",
    "wider rows": FLOATS + "y = Pad(f, beside)",
    "times a matrix": FLOATS + "y = MatMul(f, w)",
    "a matrix times them": FLOATS + "c = Transpose(f) y = MatMul(five, c)",
    "boxes": BOXES + "y = Identity(bx)",
    "boxes beside rows": BOXES + "f = Cast<to=1>(s) y = Concat<axis=1>(f, bx)",
    "scores": ROWS + "y = GatherND(p, s)",
    "ones": ROWS + "c = Shape(s) d = ConstantOfShape(c) y = Cast<to=7>(d)",
    "a row for each": ROWS + "c = Shape<end=1>(s) d = Concat<axis=0>(c, v4) y = Expand(row, d)",
    "images of boxes": BOXES + "y = Gather<axis=0>(x, g)",
    "channels": ROWS + "c = Gather<axis=1>(s, i0) y = Gather<axis=1>(x, c)",
    "regions": REGIONS + "y = Identity(r)",
    "a network over regions": REGIONS + "c = Conv(r, k) d = MaxPool<kernel_shape=[2,1]>(c) e = GlobalAveragePool(d) y = Flatten(e)",
    "their number": ROWS + "y = Shape<end=1>(s)",
    "their number as a scalar of 32 bits": ROWS + "c = Shape(s) d = Gather(c, i0) y = Cast<to=6>(d)",
    "twice their number": ROWS + "c = Shape<end=1>(s) y = Add(c, c)",
    "shares of their number": FLOATS + "c = Shape<end=1>(s) d = Cast<to=1>(c) y = Div(f, d)",
}  # fmt: skip


def model(body, outputs="y", **weights):
    built = text_model(body, INPUTS, "float y", weights={**WEIGHTS, **weights})
    del built.graph.output[:]
    built.graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs.split())
    return built


def arrays(count=30, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "b": rng.integers(0, 8, (2, count, 4)).astype(np.float32),
        "p": (rng.integers(0, 20, (2, 3, count)) / 20).astype(np.float32),
        "x": rng.normal(size=(2, 5, 8, 9)).astype(np.float32),
    }


@pytest.mark.parametrize("name", KEEPS)
def test_what_keeps_the_axis(name):
    made = model(KEEPS[name])
    compiled = saccade.compile(made, device="reference", cache=False)
    for count in (30, 2, 1):
        feeds = arrays(count, seed=count)
        wanted = run_onnxruntime(made, feeds)
        (result,) = compare_outputs(compiled.run(feeds), wanted)
        assert result.within(FP32_TOLERANCE), (name, count, result)


MIXES = {
    "sums": FLOATS + "y = ReduceSum<keepdims=0>(f, v0)",
    "a sum of all": FLOATS + "y = ReduceMean(f)",
    "the best row": FLOATS + "y = ArgMax<axis=0>(f)",
    "shares of a column": FLOATS + "y = Softmax<axis=0>(f)",
    "running sums": FLOATS + "y = CumSum(f, i0)",
    "rows under each other": FLOATS + "y = Concat<axis=0>(f, f)",
    "products over rows": FLOATS + "c = Transpose(f) y = MatMul(c, f)",
    "columns behind each other": FLOATS + "c = Transpose(f) y = Reshape(c, flat)",
    "other rows of the same numbers": FLOATS + "y = Reshape(f, transposed)",
    "another suppression": BOXES + "c = Unsqueeze(bx, v0) d = GatherND(p, s) e = Unsqueeze(d, v0) z = Unsqueeze(e, v0) y = NonMaxSuppression(c, z, most)",
    "the first": ROWS + "y = Gather<axis=0>(s, i0)",
    "the last": ROWS + "y = Gather<axis=0>(s, last)",
    "by the numbers of others": ROWS + "c = Gather<axis=1>(s, i0) y = Gather<axis=0>(s, c)",
    "by pairs of numbers": ROWS + "y = GatherND(s, at2)",
}  # fmt: skip


# Its number of rows is at least one for these inputs, as ONNX wants it for some of them.
@pytest.mark.parametrize("name", MIXES)
def test_what_mixes_the_axis(name):
    made = model(MIXES[name], at2=np.array([[0, 1], [2, 0]]))
    compiled = saccade.compile(made, cache=False)
    for count in (30, 2, 1):
        feeds = arrays(count, seed=count)
        wanted = run_onnxruntime(made, feeds)
        (result,) = compare_outputs(compiled.run(feeds), wanted)
        assert result.within(FP32_TOLERANCE), (name, count, result)


REFUSED = {
    "mixes": {
        "rows above": FLOATS + "y = Pad(f, above)",
        "interleaved": ROWS + "y = Tile(s, twice)",
    },
    "picks|mixes": {
        "all but the first": ROWS + "y = Slice(s, v1, far, v0)",
    },
    "combines": {
        "with a fixed size": FLOATS + "y = Add(f, five)",
        "with another number of rows": FLOATS + "t = NonMaxSuppression(b, p, most) c = Cast<to=1>(t) y = Add(f, c)",
    },
    "depends on data|symbolic|not equal for all": {
        "pairs of halves": FLOATS + "y = Reshape(f, pairs)",
        "as many as the boxes": ROWS + "c = Shape<end=1>(s) d = Shape<start=1, end=2>(b) e = Sub(d, c) y = ConstantOfShape(e)",
    },
    "must be a constant": {
        "a limit from the caller": "c = ReduceMax<keepdims=0>(x) d = Cast<to=7>(c) y = NonMaxSuppression(b, p, d)",
        "a threshold from the caller": "c = ReduceMax<keepdims=0>(x) y = NonMaxSuppression(b, p, most, c)",
    },
}  # fmt: skip


@pytest.mark.parametrize(("why", "name"), [(w, n) for w, cases in REFUSED.items() for n in cases])
def test_what_is_refused(why, name):
    made = model(REFUSED[why][name], at2=np.array([[0, 1], [2, 0]]))
    with pytest.raises(UnsupportedModelError, match=why):
        frontend.load(made)


def test_the_axis_is_called_what_the_file_calls_it():
    body = "num = NonMaxSuppression(b, p, most) y = NonMaxSuppression(b, p, far)"
    made = text_model(body, INPUTS, "int64[N, 3] y, int64[kept, 3] num", weights=WEIGHTS)
    graph = frontend.load(made)
    compiled = saccade.compile(made, device="reference", cache=False)
    assert [i.shape for i in compiled.outputs] == [("N_2<=6*N", 3), ("kept<=36", 3)]
    assert graph.output_names[:2] == ("y", "num") and len(graph.outputs) == 4


@pytest.mark.parametrize(
    "body", ["y = NonMaxSuppression(b, p)", "y = NonMaxSuppression(b, p, none)"]
)
def test_without_a_limit_nothing_stays(body):
    made = model(body, none=_i(-3))
    (y,) = saccade.compile(made, device="reference", cache=False).run(arrays()).values()
    assert y.shape == (0, 3) and y.dtype == np.int64
    assert run_onnxruntime(made, arrays())["y"].shape == (0, 3)


BAD = {
    "much": np.array([1.5], np.float32), "cb": np.ones((1, 3, 4), np.float32),
    "cs": np.ones((1, 1, 4), np.float32), "nan": np.array(np.nan, np.float32), "no": _i(0),
}  # fmt: skip


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("y = NonMaxSuppression(b, p, most, much)", "iou_threshold 1.5"),
        ("y = NonMaxSuppression(b, p, v12)", "2 elements of max_output"),
        ("y = NonMaxSuppression(cb, cs, most)", "the number of boxes"),
        ("y = NonMaxSuppression(cb, cs, no)", "the number of boxes"),
        ("y = NonMaxSuppression(b, x, most)", "scores of 4"),
        ("y = NonMaxSuppression(b, p, iou, most)", "max_output_boxes_per_class of type float32"),
        ("y = NonMaxSuppression(b, p, nan)", "max_output_boxes_per_class of type float32"),
        ("y = NonMaxSuppression(b, p, most, v0)", "iou_threshold of type int64"),
        ("y = NonMaxSuppression(b, p, most, nan)", "iou_threshold nan"),
        ("y = NonMaxSuppression(b, p, most, iou, v0)", "score_threshold of type int64"),
        ("y = NonMaxSuppression<center_point_box=2>(b, p, most)", "center_point_box is 2"),
    ],
)
def test_what_is_broken(body, message):
    with pytest.raises(ModelError, match=message):
        frontend.load(model(body, **BAD))
