"""Every operator goes through `torch.export`, and what comes out says the same."""

from __future__ import annotations

import pytest
import torch

from saccade import ops

IMAGES = torch.randn(2, 16, 9, 11)
BOXES = torch.tensor([[0, 1.0, 1.0, 7.0, 6.0], [1, 0.0, 0.0, 10.0, 8.0]])

CASES = {
    "roi_align": (lambda x, b: ops.roi_align(x, b, (2, 2)), (IMAGES, BOXES)),
    "roi_pool": (lambda x, b: ops.roi_pool(x, b, (2, 2)), (IMAGES, BOXES)),
    "ps_roi_align": (lambda x, b: ops.ps_roi_align(x, b, (2, 2)), (IMAGES, BOXES)),
    "ps_roi_pool": (lambda x, b: ops.ps_roi_pool(x, b, (2, 2)), (IMAGES, BOXES)),
    "deform_conv2d": (
        lambda x, offset, weight: ops.deform_conv2d(x, offset, weight, padding=1),
        (IMAGES, torch.randn(2, 18, 9, 11), torch.randn(4, 16, 3, 3)),
    ),
    "vector_norm": (lambda x: ops.vector_norm(x, 3, 1), (IMAGES,)),
    "pixel_shuffle": (lambda x: ops.pixel_shuffle(x, 2), (IMAGES,)),
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


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_images_as_many_as_boxes_are_kept(layout):
    """Nobody knows how many there are when this is traced, not even whether there are any."""

    class Heads(torch.nn.Module):
        def forward(self, x, boxes):
            kept = boxes[ops.nms(boxes, boxes[:, 0], 0.5)]
            y = ops.roi_align(x, torch.nn.functional.pad(kept, (1, 0)), 4)
            y = ops.pixel_unshuffle(ops.pixel_shuffle(y, 2), 2)
            y = ops.deform_conv2d(y, torch.zeros(y.shape[0], 18, 2, 2), torch.ones(4, 4, 3, 3))
            corners = torch.nn.functional.pad(kept, (1, 0))[:, :1] * 0 + torch.tensor(
                [0, 0, 0, 2, 2]
            )
            return ops.roi_pool(y, corners, 1), ops.vector_norm(y, 3, 1, keepdim=True)

    torch.manual_seed(3)
    x = torch.randn(1, 4, 9, 8).contiguous(memory_format=layout)
    boxes = torch.rand(12, 4) * 4
    boxes[:, 2:] += boxes[:, :2]
    exported = torch.export.export(Heads(), (x, boxes), strict=False).module()
    for given in (boxes, boxes[:, [1, 0, 3, 2]], boxes * 0 + boxes[0]):
        for one, other in zip(exported(x, given), Heads()(x, given), strict=True):
            assert torch.equal(one, other)
            assert one.stride() == other.stride()
