"""Weights that are not finite: padding becomes elements, and operators say so."""

from __future__ import annotations

import numpy as np
import pytest
from pass_graphs import Build, fused, ops

from saccade.ir import DType
from saccade.kernels.base import Call
from saccade.kernels.cpu.conv2d.direct import CONV2D_DIRECT
from saccade.kernels.cpu.conv2d.winograd import CONV2D_WINOGRAD
from saccade.opdefs import Conv2d, ConvTranspose2d, Pad
from saccade.passes.keep_infinities import PASS
from saccade.testing.kernels import nhwc_view, row_major
from saccade.testing.targets import ZEN4

PLAIN = Conv2d(padding=(1, 2, 3, 4))


@pytest.fixture(autouse=True)
def _infinities_are_no_accident():
    with np.errstate(all="ignore"):
        yield


def graph_of(op, weight, *, taps=3, dtype=np.float32):
    """One convolution with ones for weights, but for one weight."""
    b = Build()
    w = np.ones((4, 4, taps, taps), dtype)
    w[1, 2, -1, 0] = weight
    return b.graph(b.op(op, b.input(1, 4, 9, 9, dtype=DType.of(w.dtype)), b.const(w, dtype)))


@pytest.mark.parametrize("weight", [np.inf, -np.inf, np.nan, 3.395e38, -3.395e38])
def test_padding_becomes_elements(weight):
    after = fused(graph_of(PLAIN, weight), PASS)
    pad, conv = after.nodes
    assert pad.op == Pad(((0, 0), (0, 0), (1, 3), (2, 4)))
    assert conv.op == Conv2d(finite=False)
    assert conv.inputs[0] is pad.output


@pytest.mark.parametrize("weight", [0.0, -2.5, 3.3895e38, -3.3895e38])
def test_finite_weights_stay_as_they_are(weight):
    graph = graph_of(PLAIN, weight)
    assert fused(graph, PASS).nodes == graph.nodes


def test_without_padding_it_is_only_said():
    assert [n.op for n in fused(graph_of(Conv2d(), np.inf), PASS).nodes] == [Conv2d(finite=False)]


def test_a_transposed_convolution_has_no_padding():
    op = ConvTranspose2d(padding=(1,) * 4)
    (node,) = fused(graph_of(op, np.inf), PASS).nodes
    assert node.op == ConvTranspose2d(padding=(1,) * 4, finite=False)


def test_one_tap_meets_no_zeros_unless_it_is_padded():
    graph = graph_of(Conv2d(stride=(2, 2)), np.inf, taps=1)
    assert fused(graph, PASS).nodes == graph.nodes
    assert ops(fused(graph_of(PLAIN, np.inf, taps=1), PASS)) == "Pad Conv2d"


def test_weights_that_are_not_known_stay_as_they_are():
    b = Build()
    graph = b.graph(b.op(PLAIN, b.input(1, 4, 9, 9), b.input(4, 4, 3, 3)))
    assert fused(graph, PASS).nodes == graph.nodes


def call_of(*, finite):
    op = Conv2d(padding=(1,) * 4, finite=finite)
    views = nhwc_view(DType.F32, (1, 64, 28, 28)), row_major(DType.F32, (64, 64, 3, 3))
    return Call(op, views, (nhwc_view(DType.F32, (1, 64, 28, 28)),), (False, True), ZEN4, 2)


def test_no_kernel_decides_on_products_with_zero():
    borders = [
        {way.launches[0].config.border for way in CONV2D_DIRECT.variants(call_of(finite=finite))}
        for finite in (True, False)
    ]
    assert borders == [{"zeros", "regions"}, {"regions"}]
    assert CONV2D_WINOGRAD.supports(call_of(finite=True)) is None
    assert "not finite" in CONV2D_WINOGRAD.supports(call_of(finite=False))
