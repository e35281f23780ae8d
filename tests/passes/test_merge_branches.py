from __future__ import annotations

import numpy as np
import pytest
from pass_graphs import Build, assert_refused, fused, ops

from saccade.ir.expr import parse
from saccade.opdefs import Conv2d
from saccade.passes.fold_scale_shift import PASS as FOLD
from saccade.passes.merge_branches import PASS

SAME = {"padding": (1, 1, 1, 1)}


def sum_of(b, first, second):
    return b.graph(b.map("add($0, $1)", first, second))


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("taps", "wide", "other", "narrow"),
    [
        (3, SAME, 1, {}),
        (3, {**SAME, "stride": (2, 2)}, 1, {"stride": (2, 2)}),
        (3, SAME, 3, SAME),
        (5, {"padding": (2, 2, 2, 2)}, 3, SAME),
        (3, {"padding": (2, 2, 2, 2), "dilation": (2, 2)}, 1, {}),
        (3, {"padding": (1, 0, 1, 2)}, 1, {}),
        (3, {**SAME, "groups": 2}, 1, {"groups": 2}),
    ],
)
def test_taps_of_both_are_one_window_s(taps, wide, other, narrow, bias, swapped):
    b = Build()
    x = b.input(2, 4, 7, 8)
    parts = b.conv(x, 6, taps, bias=bias, **wide), b.conv(x, 6, other, bias=bias, **narrow)
    graph = sum_of(b, *(parts[::-1] if swapped else parts))
    after = fused(graph, PASS)
    assert ops(after) == "Conv2d"
    (node,) = after.nodes
    assert node.inputs[1].shape[2:] == (taps, taps)
    assert node.op.groups == wide.get("groups", 1)


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_a_scaled_image_is_a_tap_in_the_middle(groups):
    """RepVGG's third branch, a normalisation of the image."""
    b = Build()
    x = b.input(2, 4, 5, 6)
    scale, shift = b.weights(4, 1, 1), b.weights(4, 1, 1)
    normed = b.map("add(mul($0, $1), $2)", x, scale, shift)
    both = b.map("add($0, $1)", b.conv(x, 4, 3, groups=groups, **SAME), b.conv(x, 4, groups=groups))
    graph = b.graph(b.map("relu($0)", b.map("add($0, $1)", both, normed)))
    after = fused(graph, FOLD, PASS)
    assert ops(after) == "Conv2d Pointwise"


def test_norms_behind_branches_come_first():
    b = Build()
    x = b.input(1, 4, 5, 6)
    parts = [
        b.map("add(mul($0, $1), $2)", b.conv(x, 6, r, padding=(r // 2,) * 4),
              b.weights(6, 1, 1), b.weights(6, 1, 1))
        for r in (3, 1)
    ]  # fmt: skip
    assert ops(fused(sum_of(b, *parts), FOLD, PASS)) == "Conv2d"


def _others(b, x):
    first = b.conv(x, 4, 3, **SAME)
    return first, b.conv(x, 4), [first]


def _computed(b, x):
    return b.conv(x, 4, 3, **SAME), b.op(Conv2d(), x, b.input(4, 4, 1, 1)), []


def _curved(b, x):
    op = Conv2d(epilogue=parse("relu($0)"))
    return b.conv(x, 4, 3, **SAME), b.op(op, x, b.weights(4, 4, 1, 1)), []


def _grouped(b, x):
    return b.conv(x, 4, 3, **SAME), b.conv(x, 4, groups=2), []


def _infinite(b, x):
    weights = np.full((4, 4, 1, 1), np.inf)
    return b.conv(x, 4, 3, **SAME), b.op(Conv2d(), x, b.const(weights)), []


def _bent(b, x):
    return b.conv(x, 4, 3, **SAME), b.map("relu($0)", x), []


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (_others, "a branch is also read elsewhere"),
        (_computed, "the weights are not constant"),
        (_curved, "the epilogue of a branch is not a scale and a shift"),
        (_grouped, "branches of other groups"),
        (_infinite, "a weight, a scale or a shift is not finite"),
        (_bent, "a branch that is not a scale and a shift"),
    ],
)
def test_branches_that_stay(make, reason):
    b = Build()
    first, second, outputs = make(b, b.input(1, 4, 5, 6))
    graph = b.graph(b.map("add($0, $1)", first, second), *outputs)
    assert_refused(graph, PASS, reason)


def _another_image(b, x):
    return b.conv(x, 4, 3, **SAME), b.conv(b.input(1, 4, 5, 6), 4)


def _strides(b, x):
    return b.conv(x, 4, 3, padding=(3, 4, 3, 3), stride=(2, 2)), b.conv(x, 4)


def _crossed(b, x):
    first = b.op(Conv2d(padding=(1, 0, 1, 0)), x, b.weights(4, 4, 3, 1))
    return first, b.op(Conv2d(padding=(0, 1, 0, 1)), x, b.weights(4, 4, 1, 3))


def _dilated(b, x):
    return b.conv(x, 4, 5, padding=(2,) * 4), b.conv(x, 4, 3, padding=(2,) * 4, dilation=(2, 2))


def _outside(b, x):
    return b.conv(x, 4, 3, padding=(0, 0, 2, 2)), b.conv(x, 4, 3, padding=(1, 1, 1, 1))


@pytest.mark.parametrize("make", [_another_image, _strides, _crossed, _dilated, _outside])
def test_sums_that_are_none_of_one_window(make):
    b = Build()
    first, second = make(b, b.input(1, 4, 5, 6))
    if first.shape != second.shape:
        second = b.slice(b.slice(second, 2, 0, first.shape[2]), 3, 0, first.shape[3])
    graph = sum_of(b, first, second)
    assert fused(graph, PASS).nodes == graph.nodes
