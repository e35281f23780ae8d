# ruff: noqa: E501 - tables with one model a line
"""Branches that data decide, against onnxruntime and ONNX's reference."""

from __future__ import annotations

import re

import numpy as np
import pytest
from loop_models import IMAGE, RNG, hold, model, ops, peers

import saccade
from saccade.errors import UnsupportedModelError
from saccade.opdefs import Branch

COSTLY = "y = If(q) <then_branch = a () => (float[1, 4, 9, 11] u) { u = Conv<pads=[1,1,1,1]>(x, k4) }, else_branch = b () => (float[1, 4, h, w] v) { v = %s }>"
BRANCHES = {
    "of one shape": ("float[1, 4, 9, 11] y", COSTLY % "Conv(x, k1)"),
    "of different sizes": ("float[1, 4, h, w] y", COSTLY % "Conv(x, k4)"),
    "one of them is what is around it": ("float[1, k, 9, 11] y", COSTLY.replace("h, w", "9, 11").replace("1, 4", "1, k") % "Identity(x)"),
    "two results, of several types": (
        "float[1, c, 9, 11] y, int64[k] s",
        "y, s = If(q) <then_branch = a () => (float[1, 4, 9, 11] u, int64[4] us) { u = Conv<pads=[1,1,1,1]>(x, k4) us = Shape(u) }, "
        "else_branch = b () => (float[1, 3, 9, 11] v, int64[1] vs) { v = Neg(x) vs = Size(v) vs = Identity(one) }>".replace("vs = Size(v) ", ""),
    ),
    "cheap, of different sizes": ("float[1, 3, h, w] y", "y = If(q) <then_branch = a () => (float[1, 3, 9, 11] u) { u = Exp(x) }, else_branch = b () => (float[1, 3, 4, 5] v) { v = MaxPool<kernel_shape=[3, 3], strides=[2, 2]>(x) }>"),
}  # fmt: skip
KERNELS = {
    "k4": RNG.standard_normal((4, 3, 3, 3)).astype(np.float32),
    "k1": RNG.standard_normal((4, 3, 1, 1)).astype(np.float32), "one": np.array([1]),
}  # fmt: skip


@pytest.mark.parametrize("name", BRANCHES)
def test_branches_by_data(name):
    outputs, body = BRANCHES[name]
    used = {n: w for n, w in KERNELS.items() if re.search(rf"[ (]{n}[,)]", body)}
    built = model(
        "m = ReduceMax<keepdims=0>(x) q = Greater(m, zero) " + body,
        "float[1, 3, 9, 11] x",
        outputs,
        zero=np.float32(0),
        **used,
    )
    runs = [{"x": IMAGE}, {"x": -np.abs(IMAGE)}]
    compiled = hold(built, *runs)
    assert ops(compiled, runs[0]) == ([] if "cheap" in name else [Branch])
    if "cheap" not in name:
        # What bodies know is packed for them alone.
        assert not any(
            c.sources[0].startswith("k")
            for c in compiled.plan(x=IMAGE.shape).needs.constants
            if c.packing is None
        )


def test_branches_that_differ_by_the_sizes_of_inputs():
    built = model(
        "q = Greater(m, zero) y = If(q) <then_branch = a () => (float[k] u) { u = Neg(x) }, else_branch = b () => (float[k2] v) { v = Neg(z) }>",
        "float m, float[n] x, float[o] z", "float[k] y", zero=np.float32(0),
    )  # fmt: skip
    # Sizes are tried, and each makes a model of its own.
    compiled = saccade.compile(built, cache=False)
    for m, size in ((1.0, 3), (-1.0, 5)):
        feeds = {
            "m": np.array(m, np.float32),
            "x": np.arange(4, dtype=np.float32),
            "z": np.arange(size, dtype=np.float32),
        }
        (wanted,) = peers(built, feeds, reference=False)
        np.testing.assert_array_equal(compiled.run(feeds)["y"], wanted["y"])


ELEMENTS = (
    "m = ReduceMax<keepdims=0>(x) q = Greater(m, zero) p = If(q) <then_branch = a () => (float u) { u = Identity(zero) }, "
    "else_branch = b () => (float[1] v) { k = Mul(m, m) r = Reshape(k, one) v = Neg(r) }> "
)


@pytest.mark.parametrize("axes", ["one", "two"])
def test_a_scalar_or_a_list_of_one(axes):
    """As Paddle's exporter writes them: what reads the result broadcasts either."""
    built = model(
        (ELEMENTS + "y = Add(x, p)").replace("float[1] v", "float[1, 1] v" if axes == "two" else "float[1] v"),
        "float[1, 3, 9, 11] x", "float[1, 3, 9, 11] y", zero=np.float32(0), one=np.array([1] * (1 + (axes == "two"))),
    )  # fmt: skip
    hold(built, {"x": IMAGE}, {"x": -np.abs(IMAGE)})


def test_a_scalar_or_a_list_of_one_for_the_caller_is_refused():
    built = model(
        ELEMENTS.replace("p = If", "y = If"), "float[1, 3, 9, 11] x", "float[k] y", zero=np.float32(0), one=np.array([1]),
    )  # fmt: skip
    with pytest.raises(UnsupportedModelError, match=r"branches that give \[\] and \[1\]"):
        saccade.compile(built, cache=False)
