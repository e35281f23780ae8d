"""Every operator goes through `torch.export`, and what comes out says the same."""

from __future__ import annotations

import pytest
import torch

from saccade import ops

PICTURES = torch.randn(2, 16, 9, 11)
BOXES = torch.tensor([[0, 1.0, 1.0, 7.0, 6.0], [1, 0.0, 0.0, 10.0, 8.0]])

CASES = {
    "roi_align": (lambda x, b: ops.roi_align(x, b, (2, 2)), (PICTURES, BOXES)),
    "roi_pool": (lambda x, b: ops.roi_pool(x, b, (2, 2)), (PICTURES, BOXES)),
    "ps_roi_align": (lambda x, b: ops.ps_roi_align(x, b, (2, 2)), (PICTURES, BOXES)),
    "ps_roi_pool": (lambda x, b: ops.ps_roi_pool(x, b, (2, 2)), (PICTURES, BOXES)),
    "deform_conv2d": (
        lambda x, offset, weight: ops.deform_conv2d(x, offset, weight, padding=1),
        (PICTURES, torch.randn(2, 18, 9, 11), torch.randn(4, 16, 3, 3)),
    ),
    "vector_norm": (lambda x: ops.vector_norm(x, 3, 1), (PICTURES,)),
    "pixel_shuffle": (lambda x: ops.pixel_shuffle(x, 2), (PICTURES,)),
    "nms": (lambda b: ops.nms(b[:, 1:], b[:, 1], 0.5), (BOXES,)),
}


class Layer(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *operands):
        return self.function(*operands)


@pytest.mark.parametrize("name", CASES)
def test_export(name):
    function, operands = CASES[name]
    exported = torch.export.export(Layer(function), operands)
    targets = [str(node.target) for node in exported.graph.nodes]
    assert any(target.startswith("saccade.") for target in targets)
    assert torch.equal(exported.module()(*operands), function(*operands))
