"""Chains of any windows in tiles, down to images of which they leave nothing."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import example, given, settings
from tiled_graphs import Net, image_for, in_tiles, run

from saccade.errors import ModelError, OptionError
from saccade.ir.dim import floordiv, mul
from saccade.opdefs import Pad, Pool2d, Resample, Resize
from saccade.tiling import Reach


def grown(net, x, a, b):
    size = mul(x.shape[2], 2), mul(x.shape[3], 4)
    return net.op(Resize((*x.shape[:2], *size), None, ("linear", "cubic")[b % 2]), x)


def shrunk(net, x, a, b):
    axis = 2 + a % 2
    op = Resample(axis, floordiv(x.shape[axis], 2), 0.5, "linear", antialias=b > 1)
    return net.op(op, x)


def bordered(net, x, a, b):
    mode = ("reflect", "edge", "constant")[a % 3]
    return net.op(Pad(((0, 0), (0, 0), (a, b), (b, a)), mode), x)


def gathered(net, x, a, b):
    padding = (a % 2, 0, 1, 0)
    return net.op(Pool2d("max", (1 + a, 2), (1 + b % 2, 2), padding, ceil_mode=a > 2), x)


STEPS = {
    "conv": lambda net, x, a, b: net.conv(
        x, 2, 1 + a, stride=(1 + b % 2,) * 2, padding=(a % 3,) * 4
    ),
    "dilated": lambda net, x, a, b: net.conv(x, 2, 1 + b, dilation=(a, 1), padding=(b, a, a, b)),
    "up": lambda net, x, a, b: net.transposed_conv(
        x, 2, 2 + b, stride=(a, 2), padding=(b % 2,) * 4
    ),
    "pool": gathered, "pad": bordered, "grow": grown, "shrink": shrunk,
}  # fmt: skip


@settings(max_examples=120)
@given(
    st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(1, 3), st.integers(0, 3)),
             min_size=1, max_size=4),
    st.integers(20, 60), st.integers(20, 60), st.integers(12, 50),
)  # fmt: skip
@example([("conv", 3, 1), ("pool", 1, 0), ("conv", 3, 0), ("shrink", 1, 0)], 20, 20, 12)
@example([("conv", 3, 1), ("pool", 1, 0), ("conv", 3, 0), ("shrink", 1, 0)], 20, 20, 20)
def test_any_chain_is_the_whole_or_refused(steps, high, wide, edge):
    net = Net()
    x = net.image
    for name, a, b in steps:
        x = STEPS[name](net, x, a, b)
    graph = net.graph(x)
    image = image_for(graph, high, wide)
    try:
        whole = run(graph, image)
    except (ModelError, ValueError):  # sizes that leave nothing
        return
    try:
        tiled, _ = in_tiles(graph, image, edge)
    except OptionError as error:
        # Chains of windows have tiles, unless these are too small or sizes do not divide.
        assert "tiles of" in str(error) or "resizes" in str(error)
        return
    np.testing.assert_allclose(tiled, whole, rtol=1e-12, atol=1e-9)


def shaved(net):
    """Half of what a window of 21 rows leaves: nothing of 21 rows."""
    return shrunk(net, net.op(Pool2d("max", (21, 1), (1, 1)), net.image), 0, 0)


def test_an_image_of_which_nothing_is_left_is_one_tile_or_refused():
    net = Net()
    graph = net.graph(shaved(net))
    tiled, count = in_tiles(graph, image_for(graph, 21, 40), 24)
    assert tiled.shape == (1, 2, 0, 40) and count == 2
    with pytest.raises(OptionError, match="tiles of 20 pixels: they are smaller than what the"):
        Reach(graph).tiles((1, 2, 21, 40), 0, 20)


@pytest.mark.parametrize("edge", [12, 24])
def test_what_is_made_of_padding_alone_is_one_tile_or_refused(edge):
    net = Net()
    around = Pad(((0, 0), (0, 0), (2, 3), (0, 0)), "constant")
    graph = net.graph(net.op(around, shaved(net)))
    if edge < 21:
        with pytest.raises(OptionError, match="tiles of 12 pixels: they are smaller than what the"):
            in_tiles(graph, image_for(graph, 21, 40), edge)
    else:
        tiled, count = in_tiles(graph, image_for(graph, 21, 40), edge)
        assert tiled.shape == (1, 2, 5, 40) and not tiled.any() and count == 2


@pytest.mark.parametrize("edge", [4, 12, 24])
def test_an_image_that_the_model_does_not_take_is_refused(edge):
    net = Net()
    with pytest.raises(OptionError, match="the image is smaller than what the model takes"):
        Reach(net.graph(shaved(net))).tiles((1, 2, 19, 40), 0, edge)
