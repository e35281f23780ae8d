"""At which sizes the CPU fuses: thresholds in caches of the machine that a plan is for."""

import dataclasses

import pytest
from layout_graphs import Builder

from saccade.backends.cpu.fusions.decide import CpuFusions
from saccade.ir.expr import parse
from saccade.layout.sizes import shapes_of
from saccade.opdefs import Conv2d, Reduce
from saccade.testing.targets import ZEN4

L2 = 1 << 20
FUSIONS = CpuFusions(dataclasses.replace(ZEN4, l2=L2))


def always(_node, _shapes):
    return True


def fused(graph, fusions=FUSIONS, taken=always):
    shapes = shapes_of(graph, {})
    return [node.op.family for node in fusions.fuse(graph, shapes, taken).nodes]


def pairs(graph, *, tuned=False, fusions=FUSIONS):
    return fusions.pairs(graph, shapes_of(graph, {}), tuned=tuned)


def depthwise(b, x):
    channels = x.shape[1]
    op = Conv2d(padding=(1,) * 4, groups=channels)
    return b.add(op, x, b.constant((channels, 1, 3, 3)))


def expanding(channels, side, images=1):
    b = Builder((images, 8, side, side))
    return b.graph(depthwise(b, b.conv(b.inputs[0], channels, taps=1)))


def separable(channels, side, images=1):
    b = Builder((images, channels, side, side))
    return b.graph(b.conv(depthwise(b, b.inputs[0]), 8, taps=1))


def gated(images):
    b = Builder((images, 8, 6, 6))
    y = depthwise(b, b.inputs[0])
    gates = b.conv(b.conv(b.add(Reduce("mean", (2, 3)), y), 4, taps=1), 8, taps=1)
    return b.graph(b.add(Conv2d(epilogue=parse("mul($0, $1)")), y, b.constant((8, 8, 1, 1)), gates))


@pytest.mark.parametrize("images", [1, 9])
def test_expansions_are_fused_where_one_image_exceeds_two_l2_caches(images):
    """64 KiB for each channel, whatever the batch."""
    assert fused(expanding(32, 128, images)) == ["Conv2d", "Conv2d"]
    assert fused(expanding(33, 128, images)) == ["ExpandDepthwise"]
    smaller = CpuFusions(dataclasses.replace(ZEN4, l2=L2 - 1))
    assert fused(expanding(32, 128, images), smaller) == ["ExpandDepthwise"]


def test_what_no_kernel_takes_is_not_fused():
    graph = expanding(33, 128)
    assert FUSIONS.fuse(graph, shapes_of(graph, {}), lambda _node, _shapes: False) is graph


def test_the_same_choice_is_the_same_graph():
    """What is derived from it (shapes, formats, pairs) is kept with it."""
    graph = expanding(33, 128)
    shapes = shapes_of(graph, {})
    first, again = (FUSIONS.fuse(graph, shapes, always) for _ in range(2))
    assert first is again is not graph


@pytest.mark.parametrize("images", [1, 2])
def test_pairs_are_estimated_where_the_intermediate_fills_half_an_l2_cache(images):
    """64 KiB for each channel of an image."""
    large, small = separable(8, 128, images), separable(8 // images - 1, 128, images)
    assert len(pairs(large).joint) == 1 and not pairs(large).apart
    found = pairs(small)
    assert not found.joint
    assert [(p.kernel, "L2 caches" in p.reason) for p in found.apart.values()] == [
        ("SeparableConv2d", True)
    ]


def test_measured_times_may_name_pairs_of_any_size():
    found = pairs(separable(2, 8), tuned=True)
    ((first, pair),) = found.joint.items()
    assert pair.first is first and pair.both.outputs == pair.second.outputs and not found.apart


@pytest.mark.parametrize(("images", "one_step"), [(1, True), (2, True), (3, False)])
def test_gates_are_one_step_for_two_images_at_most(images, one_step):
    found = fused(gated(images))
    assert ("Excite" in found) == ("RowSums" in found) == one_step
