"""Tiles give what the whole image gives, to the bit, and what looks at all of it is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tiled_graphs import H, N, Net, W, image_for, in_tiles, run

from saccade.errors import OptionError
from saccade.ir import expr as e
from saccade.ir.dim import floordiv, mul, sub, symbol
from saccade.ir.index_map import Factor, IndexMap
from saccade.ir.pixel_maps import depth_to_space, space_to_depth
from saccade.opdefs import (
    Concat,
    Conv2d,
    CumSum,
    DepthToSpaceStore,
    Gather,
    GroupNorm,
    LayerNorm,
    MatMul,
    Move,
    Pad,
    Pool2d,
    Reduce,
    Resample,
    Resize,
    Softmax,
)
from saccade.tiling import Reach, reads

SAME = (1, 1, 1, 1)


def plain(net):
    return net.conv(net.conv(net.image, 3, padding=SAME), 2, 5, padding=(2, 2, 2, 2))


def dilated(net):
    return net.conv(net.image, 2, dilation=(2, 3), padding=(2, 3, 2, 3))


def lopsided(net):
    return net.conv(net.image, 2, padding=(0, 2, 1, 0))


def valid(net):
    return net.conv(net.conv(net.image, 3), 2, 5)


def strided(net):
    return net.conv(net.conv(net.image, 3, stride=(2, 2), padding=SAME), 3, stride=(2, 1))


def stride_and_back(net):
    small = net.conv(net.image, 3, stride=(2, 2), padding=SAME)
    return net.transposed_conv(small, 2, 4, stride=(2, 2), padding=SAME)


def transposed_with_output_padding(net):
    return net.transposed_conv(
        net.image, 2, 3, stride=(3, 2), padding=SAME, output_padding=(1, 1), dilation=(1, 2)
    )


def unet(net, to_size=False):
    high = net.conv(net.image, 4, padding=SAME)
    low = net.op(Pool2d("max", (2, 2), (2, 2)), high)
    low = net.conv(net.conv(low, 4, padding=SAME), 4, padding=SAME)
    n, c, h, w = low.shape
    sizes = high.shape[2:] if to_size else (mul(h, 2), mul(w, 2))
    up = net.op(Resize((n, c, *sizes), None, "nearest", "asymmetric", "floor"), low)
    return net.conv(net.op(Concat(1), up, high), 2, padding=SAME)


def pooled(net):
    x = net.op(Pool2d("max", (3, 2), (2, 3), (1, 0, 1, 1), ceil_mode=True), net.image)
    return net.op(Pool2d("max", (3, 3), (1, 1), (2, 2, 2, 2), (2, 2)), x)


def averaged(net):
    op = Pool2d("average", (2, 2), (2, 2), (1, 1, 0, 0), ceil_mode=True, count_include_pad=True)
    return net.op(op, net.image)


def shuffled(net):
    wide = net.conv(net.image, 8, padding=SAME)
    n, _, _, _ = wide.shape
    large = net.op(Move(depth_to_space(wide.shape, 2, 2, "CRD")), wide)
    large = net.conv(large, 2, padding=SAME)
    h, w = large.shape[2:]
    small = space_to_depth(large.shape, 2, floordiv(h, 2), floordiv(w, 2), "DCR")
    assert n is net.image.shape[0]
    return net.op(Move(small), large)


def stored_in_blocks(net):
    skip = net.conv(net.image, 8, padding=SAME)
    op = Conv2d(padding=SAME, epilogue=e.parse("add($0, $1)"), store=DepthToSpaceStore(2))
    large = net.op(op, net.image, net.weights(8, 2, 3, 3), skip)
    return net.conv(large, 1, padding=SAME)


def padded(mode):
    def build(net):
        x = net.op(Pad(((0, 0), (0, 0), (2, 1), (1, 3)), mode, 7.0), net.image)
        return net.conv(net.conv(x, 3), 2, 4)

    return build


def cropped(net):
    n, c, h, w = net.image.shape
    factors = (
        Factor(n, 0), Factor(c, 1), Factor(sub(h, 3), 2, 1), Factor(sub(w, 4), 3, 4),
    )  # fmt: skip
    x = net.op(Move(IndexMap(((n,), (c,), (h,), (w,)), factors, (1, 1, 1, 1))), net.image)
    return net.conv(x, 2, padding=SAME)


def resized(times, mode, coordinate="half_pixel", **more):
    def build(net):
        x = net.conv(net.image, 2, padding=SAME)
        n, c, h, w = x.shape
        size = mul(h, times), mul(w, times)
        return net.conv(net.op(Resize((n, c, *size), None, mode, coordinate, **more), x), 2)

    return build


def halved(mode, **more):
    def build(net):
        n, c, h, w = net.image.shape
        size = (n, c, floordiv(h, 2), floordiv(w, 2))
        x = net.op(Resize(size, (1.0, 1.0, 0.5, 0.5), mode, **more), net.image)
        return net.conv(x, 2, padding=SAME)

    return build


def smoothed(net):
    h = net.image.shape[2]
    x = net.op(Resample(2, floordiv(h, 2), 0.5, "cubic", antialias=True), net.image)
    return net.op(Resample(3, mul(x.shape[3], 2), 2.0, "linear"), x)


def channels_last(net):
    n, c, h, w = net.image.shape
    order = IndexMap(
        ((n,), (c,), (h,), (w,)), tuple(Factor((n, c, h, w)[i], i) for i in (0, 2, 3, 1)), (1,) * 4
    )
    x = net.op(Move(order), net.conv(net.image, 2, padding=SAME))
    x = net.op(MatMul(), x, net.weights(2, 4))
    return net.map("mul($0, $1)", x, net.const([1, 2, 3, 4]))


def channels_only(net):
    x = net.conv(net.image, 4, padding=SAME)
    most = net.op(Reduce("max", (1,)), x)
    picked = net.op(Gather(1), x, net.const([3, 0, 1], np.int64))
    run_up = net.op(CumSum(1), picked)
    return net.map("add($0, $1)", run_up, most)


NETS = {
    "plain": plain, "dilated": dilated, "lopsided": lopsided, "valid": valid, "strided": strided,
    "stride_and_back": stride_and_back, "output_padding": transposed_with_output_padding,
    "unet": unet, "unet_to_size": lambda net: unet(net, to_size=True), "pooled": pooled,
    "averaged": averaged, "shuffled": shuffled,
    "stored": stored_in_blocks, "constant": padded("constant"), "reflect": padded("reflect"),
    "edge": padded("edge"), "cropped": cropped, "linear": resized(2, "linear"),
    "cubic": resized(4, "cubic"), "excluding": resized(2, "cubic", exclude_outside=True),
    "asymmetric": resized(2, "linear", "asymmetric"), "symmetric": resized(
        2, "linear", "half_pixel_symmetric"),
    "nearest": resized(4, "nearest", "half_pixel", nearest="floor"), "halved": halved("linear"),
    "halved_nearest": halved("nearest", coordinate="asymmetric", nearest="floor"),
    "smoothed": smoothed, "channels_last": channels_last, "channels_only": channels_only,
}  # fmt: skip
INEXACT = {"averaged", "cubic", "excluding", "smoothed"}


def check(name, high, wide, edge):
    net = Net()
    graph = net.graph(NETS[name](net))
    x = image_for(graph, high, wide)
    tiled, count = in_tiles(graph, x, edge)
    whole = run(graph, x)
    if name in INEXACT:
        np.testing.assert_allclose(tiled, whole, rtol=1e-12, atol=1e-11)
    else:
        np.testing.assert_array_equal(tiled, whole)
    return count


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize(("high", "wide", "edge"), [(48, 52, 20), (64, 32, 24), (40, 44, 36)])
def test_tiles_are_the_whole(name, high, wide, edge):
    assert check(name, high, wide, edge) > 1


@pytest.mark.parametrize("name", sorted(set(NETS) - {"unet", "unet_to_size", "shuffled"}))
@pytest.mark.parametrize(("high", "wide", "edge"), [(47, 53, 19), (61, 29, 21), (30, 31, 27)])
def test_odd_sizes(name, high, wide, edge):
    assert check(name, high, wide, edge) > 1


@pytest.mark.parametrize("name", ["plain", "stride_and_back", "reflect"])
def test_an_image_that_is_smaller_than_a_tile_is_one(name):
    assert check(name, 9, 11, 64) == 1


def test_halos_are_those_of_the_graph():
    net = Net()
    reach = Reach(net.graph(plain(net)))
    first, second, third = reach.tiles((1, 2, 108, 40), 0, 40)
    # A 3x3 window within a 5x5 one looks at 3 pixels around; the border needs none of them.
    assert first == (0, 40, 0, 37, 1) and second == (34, 74, 37, 71, 1)
    assert third == (68, 108, 71, 108, 1)


def test_tiles_are_of_even_size():
    net = Net()
    reach = Reach(net.graph(plain(net)))
    tiles = reach.tiles((1, 2, 109, 40), 0, 100)
    assert tiles == ((0, 58, 0, 55, 1), (51, 109, 55, 109, 1))
    assert [tile.stop - tile.first for tile in reach.tiles((1, 2, 300, 40), 0, 41)] == [39] * 9


def test_tiles_begin_where_windows_do():
    net = Net()
    reach = Reach(net.graph(strided(net)))
    tiles = reach.tiles((1, 2, 101, 40), 0, 43)
    assert {tile.first % 4 for tile in tiles} == {0}
    assert tiles[0].stop % 4 == 0 and tiles[-1].stop == 101


def test_a_halo_that_lacks_a_pixel_is_seen(monkeypatch):
    def short(chain, interval, size, full=reads.interval_read):
        found = full(chain, interval, size)
        return found._replace(last=max(found.last - (1 if chain else 0), found.first))

    monkeypatch.setattr("saccade.tiling.reach.interval_read", short)
    with pytest.raises(AssertionError):
        check("plain", 48, 52, 20)


def test_tiles_smaller_than_what_is_looked_at_are_refused():
    net = Net()
    reach = Reach(net.graph(plain(net)))
    with pytest.raises(OptionError, match="tiles of 6 pixels: they are smaller than what the"):
        reach.tiles((1, 2, 100, 40), 0, 6)


def test_an_odd_image_that_a_unet_cannot_halve_is_refused():
    net = Net()
    graph = net.graph(unet(net, to_size=True))
    with pytest.raises(OptionError, match=r"\(Resize\) resizes 1500 to 3001, which parts of"):
        Reach(graph).tiles((1, 2, 3001, 50), 0, 24)


def tokens(net):
    n, c, h, w = net.image.shape
    return net.reshape(net.image, n, c, mul(h, w))


def flipped(net):
    n, c, h, w = net.image.shape
    factors = (Factor(n, 0), Factor(c, 1), Factor(h, 2, sub(h, 1), -1), Factor(w, 3))
    return net.op(Move(IndexMap(((n,), (c,), (h,), (w,)), factors, (1, 1, 1, 1))), net.image)


def absolute(net):
    n, c, _, w = net.image.shape
    return net.op(Resize((n, c, 64, w), None, "linear"), net.image)


def one_by_one(net):
    mean = net.op(Reduce("mean", (2, 3)), net.image)
    return net.map("mul($0, $1)", net.image, mean)


def weighted(net):
    return net.op(MatMul(), net.image, net.image)


REFUSED = {
    "global": (one_by_one, r"n0 \(Reduce\) takes the mean of the whole image"),
    "softmax": (lambda net: net.op(Softmax(3), net.image), "takes the softmax of the whole image"),
    "cumsum": (lambda net: net.op(CumSum(2), net.image), "running sum of the whole image"),
    "instance_norm": (
        lambda net: net.op(GroupNorm(2), net.image, net.weights(2), net.weights(2)),
        "may look at the whole image",
    ),
    "layer_norm": (
        lambda net: net.op(LayerNorm(1), net.image, net.weights(1)), "mean of the whole image",
    ),
    "tokens": (tokens, "joins the rows of the image"),
    "flip": (flipped, "flips the image"),
    "absolute": (absolute, "n0 works otherwise on parts of the image"),
    "corners": (resized(2, "linear", "align_corners"), "align_corners, which depend on the whole"),
    "thirds": (resized(3, "nearest"), "positions that rounding decides"),
    "wrap": (padded("wrap"), "pads the image with its opposite edge"),
    "sideways": (lambda net: net.op(Concat(3), net.image, net.image), "puts images side by side"),
    "attention": (weighted, "sums over an axis of the image"),
    "constant": (
        lambda net: net.map("add($0, $1)", net.image, net.weights(1, 1, 1, 52)),
        "a constant that is as large",
    ),
    "rows": (lambda net: net.op(Gather(2), net.image, net.const([0, 3], np.int64)), "picks rows"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_looks_at_the_whole_image_is_refused(name):
    build, reason = REFUSED[name]
    net = Net()
    graph = net.graph(build(net))
    with pytest.raises(OptionError, match=reason):
        for axis in (0, 1):
            Reach(graph).tiles((1, 2, 48, 52), axis, 20)


def test_models_without_an_image_of_any_size_are_refused():
    for shape in ((N, 2, 20, W), (N, 2, H, H), (1, 2, 20, 20), (N, symbol("C"), H, W)):
        net = Net(shape=shape)
        with pytest.raises(OptionError, match="any height and width"):
            Reach(net.graph(net.map("neg($0)", net.image)))
    net = Net()
    two = replace(net.graph(net.image), inputs=(net.image, net.const([1])))
    with pytest.raises(OptionError, match="from one image to one other"):
        Reach(two)
