"""Operands and results without elements: shapes as ever, gradients of zeros, nothing is refused."""

from __future__ import annotations

import itertools

import pytest
import torch

from saccade import ops

LAYOUTS = [torch.contiguous_format, torch.channels_last]
BOXES = torch.tensor([[0, 0, 0, 3.0, 3], [1, -1, -1, 9, 9]])
POOLS = [ops.roi_align, ops.roi_pool, ops.ps_roi_align, ops.ps_roi_pool]


def image(shape, layout):
    return torch.randn(shape).contiguous(memory_format=layout).requires_grad_()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(2, 4, 5, 0), (2, 4, 0, 5), (2, 4, 1, 0), (2, 4, 0, 0)])
@pytest.mark.parametrize("pool", POOLS)
def test_images_without_pixels(pool, shape, layout):
    x = image(shape, layout)
    y = pool(x, BOXES, 2)
    assert y.shape[0] == 2
    assert not y.any()
    y.backward(torch.ones_like(y))
    assert x.grad.shape == shape


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("pool", POOLS)
def test_no_channels_and_no_boxes(pool, layout):
    for channels, boxes in ((0, BOXES), (0, BOXES[:0]), (4, BOXES[:0])):
        x = image((2, channels, 5, 6), layout)
        y = pool(x, boxes, 2)
        assert (y.shape[0], y.shape[2:]) == (len(boxes), (2, 2))
        y.sum().backward()
        assert torch.equal(x.grad, torch.zeros_like(x))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("bins", [(0, 2), (2, 0), (0, 0)])
@pytest.mark.parametrize("pool", [ops.roi_align, ops.roi_pool])
def test_no_bins(pool, bins, layout):
    x = image((2, 4, 5, 6), layout)
    y = pool(x, BOXES, bins)
    assert y.shape == (2, 4, *bins)
    y.sum().backward()
    assert torch.equal(x.grad, torch.zeros_like(x))


def test_counts_come_back_after_none():
    """What is known of a call without boxes must not stand for the next one with some."""
    x = image((2, 4, 5, 6), torch.contiguous_format)
    for count in (0, 2, 0, 1):
        y = ops.roi_align(x, BOXES[:count], (3, 1))
        assert y.shape == (count, 4, 3, 1)
        assert bool(y.any()) == (count > 0)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_deformable_convolution_of_no_images(layout):
    for asked in itertools.product([False, True], repeat=5):
        if not any(asked):
            continue
        shapes = (0, 4, 6, 7), (0, 18, 4, 5), (3, 4, 3, 3), (3,), (0, 9, 4, 5)
        x, offset, weight, bias, mask = operands = [
            torch.randn(s, requires_grad=a) for s, a in zip(shapes, asked, strict=True)
        ]
        x = x.contiguous(memory_format=layout)
        ops.deform_conv2d(x, offset, weight, bias, mask=mask).sum().backward()
        for operand, want in zip(operands, asked, strict=True):
            assert (operand.grad is not None) == want
            assert operand.grad is None or torch.equal(operand.grad, torch.zeros_like(operand))


@pytest.mark.parametrize("shape", [(0, 4, 4, 4), (2, 0, 4, 4), (2, 4, 0, 4), (2, 4, 4, 0)])
def test_rearranging_nothing(shape):
    n, c, h, w = shape
    x = torch.randn(shape, requires_grad=True)
    spread, gathered = ops.pixel_shuffle(x, 2), ops.pixel_unshuffle(x, 2)
    assert spread.shape == (n, c // 4, 2 * h, 2 * w)
    assert gathered.shape == (n, 4 * c, h // 2, w // 2)  # PyTorch returns `shape` on the CPU
    (spread.sum() + gathered.sum()).backward()
    assert x.grad.shape == shape
