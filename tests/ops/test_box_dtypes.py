"""Boxes of another dtype than the images: coordinates are taken as given, and exactly.

Whatever they come as, positions are computed in float32, or in float64 where images or boxes are.
"""

from __future__ import annotations

import pytest
import torch

from saccade import ops

REGIONS = {
    "roi_align": lambda x, b: ops.roi_align(x, b, 3, 0.37, 2, True),
    "roi_pool": lambda x, b: ops.roi_pool(x, b, 3, 0.37),
    "ps_roi_align": lambda x, b: ops.ps_roi_align(x, b, 2, 0.37, -1),
    "ps_roi_pool": lambda x, b: ops.ps_roi_pool(x, b, 2, 0.37),
}
HALVES = (torch.bfloat16, torch.float16)


def boxes_of(dtype):
    """Rounded to the dtype; what they round to is what is meant."""
    random = torch.Generator().manual_seed(4)
    corner = 30 * torch.rand(12, 2, generator=random)
    size = 30 * torch.rand(12, 2, generator=random)
    image = torch.arange(12)[:, None] % 2
    return torch.cat([image, corner, corner + size], 1).to(dtype)


def both(function, x, boxes):
    x = x.detach().requires_grad_()
    y = function(x, boxes)
    (dx,) = torch.autograd.grad(y, x, torch.ones_like(y))
    return y, dx


@pytest.mark.parametrize("boxes", HALVES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, *HALVES])
@pytest.mark.parametrize("name", REGIONS)
def test_half_boxes_mean_what_they_say(name, dtype, boxes):
    x = torch.randn(2, 8, 20, 22, generator=torch.Generator().manual_seed(5)).to(dtype)
    given = boxes_of(boxes)
    wide = given.to(torch.float64 if dtype is torch.float64 else torch.float32)
    for found, wanted in zip(
        both(REGIONS[name], x, given), both(REGIONS[name], x, wide), strict=True
    ):
        assert found.dtype is dtype
        assert torch.equal(found, wanted)


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("name", ["roi_align", "ps_roi_align"])
def test_precise_boxes_stay_precise(name, half):
    x = torch.randn(2, 8, 20, 22, generator=torch.Generator().manual_seed(5)).to(half)
    exact = REGIONS[name](x.double(), boxes_of(torch.float64))
    torch.testing.assert_close(
        REGIONS[name](x, boxes_of(torch.float64)).double(),
        exact,
        atol=0.01,
        rtol=0.01,
        equal_nan=True,
    )
    rounded = REGIONS[name](x.double(), boxes_of(half))
    assert (rounded - exact).nan_to_num().abs().mean() > 1e-4, "rounded boxes are other boxes"


@pytest.mark.parametrize("dtype", HALVES)
def test_suppression_of_half_boxes(dtype):
    boxes, scores = boxes_of(dtype)[:, 1:], torch.rand(12)
    assert torch.equal(ops.nms(boxes, scores, 0.2), ops.nms(boxes.float(), scores, 0.2))
    classes = torch.arange(12) % 3
    found = ops.batched_nms(boxes, scores, classes, 0.2)
    assert torch.equal(found, ops.batched_nms(boxes.float(), scores, classes, 0.2))
