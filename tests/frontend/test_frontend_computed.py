# ruff: noqa: E501 - tables with one model a line
"""Sizes that files compute from those of the inputs with floating-point numbers, and long lists."""

from __future__ import annotations

import numpy as np
import pytest
from frontend_models import run_onnxruntime, text_model

import saccade
from saccade.by_value import ByValueModel
from saccade.testing.compare import FP32_TOLERANCE, compare_outputs


def _i(*values):
    return np.array(values, np.int64)


WEIGHTS = {
    "v0": _i(0), "v1": _i(1), "v2": _i(2), "v3": _i(3), "v4": _i(4), "image": _i(1, 2), "eight": np.float32([8]),
    "target": np.float32([12]), "flat": _i(-1), "some": _i(5), "low": np.float32(0.2), "none": _i(0, 0, 0, 0),
    "front": _i(0, 0, 0, 0, 0, 0),
}  # fmt: skip
# The shorter edge becomes 12, the other one in proportion, rounded down.
SCALED = (
    "sh = Shape(x) h = Slice(sh, v2, v3) w = Slice(sh, v3, v4) m = Min(h, w) mf = Cast<to=1>(m) q = Div(target, mf) "
    "hf = Cast<to=1>(h) hq = Mul(hf, q) hd = Floor(hq) nh = Cast<to=7>(hd) "
    "wf = Cast<to=1>(w) wq = Mul(wf, q) wd = Floor(wq) nw = Cast<to=7>(wd) "
    "sizes = Concat<axis=0>(image, nh, nw) s = Resize<mode=\"linear\">(x, , , sizes) "
)  # fmt: skip
# Rounded up to whole blocks of 8, as batches of pictures are.
PADDED = SCALED + (
    "hb = Div(hd, eight) hc = Ceil(hb) he = Mul(hc, eight) hp = Sub(he, hd) hi = Cast<to=7>(hp) "
    "wb = Div(wd, eight) wc = Ceil(wb) we = Mul(wc, eight) wp = Sub(we, wd) wi = Cast<to=7>(wp) "
    "pads = Concat<axis=0>(front, hi, wi) p = Pad(s, pads) "
)
FOUND = "f = Reshape(s, flat) c = Greater(f, low) nz = NonZero(c) at = Squeeze(nz, v0) r = Gather<axis=0>(f, at) n = Shape(r) k = Min(n, some) "
BODIES = {
    "resized": SCALED + "y = Exp(s)",
    "the size itself": SCALED + "z = Concat<axis=0>(nh, nw) y = Mul(z, z)",
    "padded and pooled": PADDED + "y = MaxPool<kernel_shape=[8, 8], strides=[8, 8]>(p)",
    "the largest of the size": PADDED + "u = Concat<axis=0>(hd, wd) v = ReduceMax<keepdims=0>(u) y = Mul(p, v)",
    "parts of one list": PADDED + "l = Reshape(p, flat) pn = Shape(l) cut = Sub(pn, v3) y = Slice(l, cut, pn, v0)",
    "the best of those found": SCALED + FOUND + "y, i = TopK<axis=0>(r, k)",
    "the best of two lists": SCALED + FOUND + "a, i = TopK<axis=0>(r, k) b, j = TopK<axis=0, largest=0>(r, k) y = Concat<axis=0>(a, b)",
    "a sum of those found": SCALED + FOUND + "y = ReduceSum<keepdims=0>(r)",
}  # fmt: skip
SHAPES = ((1, 2, 9, 7), (1, 2, 24, 31), (1, 2, 12, 12), (1, 2, 13, 40))


@pytest.mark.parametrize("name", BODIES)
def test_one_graph_holds_for_all_sizes(name):
    kind = "int64" if name == "the size itself" else "float"
    made = text_model(BODIES[name], "float[1, 2, H, W] x", f"{kind} y", weights=WEIGHTS, opset=17)
    compiled = saccade.compile(made, cache=False)
    assert not isinstance(compiled, ByValueModel)
    for seed, shape in enumerate(SHAPES):
        x = np.random.default_rng(seed).random(shape, np.float32)
        (result,) = compare_outputs(compiled.run({"x": x}), run_onnxruntime(made, {"x": x}))
        assert result.within(FP32_TOLERANCE), (shape, result)


def test_the_graph_is_kept_with_them(tmp_path, monkeypatch):
    monkeypatch.setenv("SACCADE_CACHE_DIR", str(tmp_path))
    made = text_model(BODIES["padded and pooled"], "float[1, 2, H, W] x", weights=WEIGHTS, opset=17)
    x = np.random.default_rng(0).random(SHAPES[1], np.float32)
    first = saccade.compile(made)(x)
    again = saccade.compile(made)
    assert "computed" in again.graph(again.stages[-1])
    assert np.array_equal(again(x), first)
    # A size that nothing was left of, from the graph in the cache.
    other = np.random.default_rng(1).random(SHAPES[3], np.float32)
    (result,) = compare_outputs(again.run({"x": other}), run_onnxruntime(made, {"x": other}))
    assert result.within(FP32_TOLERANCE)


def test_sizes_that_come_out_below_zero_are_an_error():
    body = (
        "sh = Shape(x) h = Slice(sh, v2, v3) hf = Cast<to=1>(h) hs = Sub(hf, target) ha = Floor(hs) hq = Sqrt(ha) "
        "hd = Sub(hq, eight) nh = Cast<to=7>(hd) sizes = Concat<axis=0>(image, nh, v4) y = Resize<mode=\"linear\">(x, , , sizes)"
    )  # fmt: skip
    made = text_model(body, "float[1, 2, H, W] x", weights=WEIGHTS, opset=17)
    compiled = saccade.compile(made, cache=False)
    with pytest.raises(saccade.SaccadeError, match="computed"):
        compiled(np.zeros((1, 2, 20, 5), np.float32))
