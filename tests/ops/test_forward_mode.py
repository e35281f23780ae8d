"""Derivatives in forward mode: refused, and not taken as zero."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import forward_ad

from saccade import ops

# What PyTorch imports for forward mode is scripted.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")

BOXES = torch.tensor([[0, 0, 0, 3.0, 3], [1, 1, 1, 4, 5]])
OFFSETS, WEIGHTS = torch.zeros(2, 18, 3, 4), torch.ones(3, 4, 3, 3)

FUNCTIONS = {
    "roi_align": lambda x: ops.roi_align(x, BOXES, 2),
    "roi_pool": lambda x: ops.roi_pool(x, BOXES, 2),
    "ps_roi_align": lambda x: ops.ps_roi_align(x, BOXES, 2),
    "ps_roi_pool": lambda x: ops.ps_roi_pool(x, BOXES, 2),
    "deform_conv2d": lambda x: ops.deform_conv2d(x, OFFSETS, WEIGHTS),
    "vector_norm": lambda x: ops.vector_norm(x, 3, 1),
    "depth_to_space": lambda x: ops.pixel_shuffle(x, 2),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_tangents_are_refused(name):
    function, x = FUNCTIONS[name], torch.randn(2, 4, 5, 6)
    message = f"forward-mode derivatives of saccade::{name} are not supported"
    with pytest.raises(RuntimeError, match=message):
        torch.func.jvp(function, (x,), (torch.ones_like(x),))
    with pytest.raises(RuntimeError, match=message), forward_ad.dual_level():
        function(forward_ad.make_dual(x, torch.ones_like(x)))
    with pytest.raises(RuntimeError, match=message):
        torch.func.jacfwd(function)(x)


def test_constants_beside_tangents():
    x = torch.randn(2, 4, 5, 6)
    constant = FUNCTIONS["roi_align"](x)
    value, tangent = torch.func.jvp(
        lambda t: t * FUNCTIONS["roi_align"](x).sum(), (x,), (torch.ones_like(x),)
    )
    assert torch.equal(value, x * constant.sum())
    torch.testing.assert_close(tangent, constant.sum().expand_as(x))
