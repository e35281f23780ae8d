"""`torch.compile` with its default backend: Inductor's own code before and after operators.

What Inductor generates may be stored in another order than what eager mode makes; an operator's
results are as its shape function said, or its code refuses to run.
"""

from __future__ import annotations

import importlib
import warnings

import pytest
import torch

from saccade import ops

pytestmark = pytest.mark.filterwarnings("ignore")  # PyTorch's compiler warns of parts of itself

BOXES = torch.tensor([[0, 1.0, 1.0, 7.0, 6.0], [1, 0.0, 0.0, 10.0, 8.0], [1, 2.0, 3.0, 4.0, 7.0]])
LAYOUTS = (torch.contiguous_format, torch.channels_last)


@pytest.fixture(scope="module")
def compiler():
    """Skips where PyTorch finds none that works."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module("torch._inductor.compile_fx")
        builder = importlib.import_module("torch._inductor.cpp_builder")
    try:
        builder.get_cpp_compiler()
    except Exception as error:  # noqa: BLE001 - which one differs from version to version
        pytest.skip(f"no compiler for Inductor: {error}")


def regions(x):
    """Operators over regions, each between what Inductor fuses."""
    boxes = BOXES * 1.0
    return (
        ops.roi_align(x + 1, boxes, 3, 0.9, 2) * 2,
        ops.roi_pool(x.relu(), boxes, 2) - 1,
        ops.ps_roi_align(x * 0.5, boxes, 2) + 1,
        ops.ps_roi_pool(x.exp(), boxes, 2, 1.1) * 3,
    )


def others(x):
    """The other ones, likewise."""
    offset = x[:, :18, :4, :6].sigmoid()
    sampled = ops.deform_conv2d(x.tanh(), offset, weights(), padding=(0, 1), stride=2)
    return (
        sampled.relu(),
        ops.vector_norm(x + 2, 3, 1) * 2,
        ops.pixel_shuffle(x - 1, 2).relu(),
        ops.space_to_depth(x[..., :8, :10] * 2, 2) + 1,
    )


def weights():
    return torch.linspace(-1, 1, 4 * 20 * 9).reshape(4, 20, 3, 3)


def image(layout):
    random = torch.Generator().manual_seed(3)
    x = torch.randn(2, 20, 9, 11, generator=random)
    return x.contiguous(memory_format=layout).requires_grad_()


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("function", [regions, others])
def test_forward_and_backward(compiler, function, layout):
    x = image(layout)
    torch.compiler.reset()
    compiled = torch.compile(function, fullgraph=True)
    both = [(run(x), run) for run in (function, compiled)]
    for wanted, found in zip(*(results for results, _ in both), strict=True):
        torch.testing.assert_close(found, wanted)
        assert found.stride() == wanted.stride()
    # Gradients arrive in either order too.
    for order in LAYOUTS:
        grads = [
            torch.autograd.grad(
                [y.contiguous(memory_format=order) if y.dim() == 4 else y for y in run(x)],
                x,
                [torch.ones_like(y) for y in run(x)],
            )[0]
            for _, run in both
        ]
        torch.testing.assert_close(grads[1], grads[0])


def test_boxes_that_stay(compiler):
    def best(boxes, scores, classes):
        kept = ops.nms(boxes * 2, scores.sigmoid(), 0.5)
        return boxes[kept] + 1, ops.batched_nms(boxes - 1, scores * 2, classes, 0.3) + 1

    torch.compiler.reset()
    compiled = torch.compile(best, fullgraph=True, dynamic=True)
    for count in (40, 7):
        corner = 30 * torch.rand(count, 2)
        boxes = torch.cat([corner, corner + 20 * torch.rand(count, 2)], 1)
        operands = boxes, torch.rand(count), torch.arange(count) % 3
        for found, wanted in zip(compiled(*operands), best(*operands), strict=True):
            torch.testing.assert_close(found, wanted)
