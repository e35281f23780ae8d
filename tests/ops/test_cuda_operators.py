"""Operators on a GPU: what is launched with what, and that it gives what the CPU's kernels do."""

from __future__ import annotations

from importlib import import_module

import pytest
import torch
from fake_cuda import FakeLibrary, on_fake_gpu

from saccade import ops
from saccade.errors import OperandError

ORDER = import_module("saccade.ops._channels_last")
SUPPRESSION = import_module("saccade.ops.nms")  # its name in the package is a function's


@pytest.fixture
def gpu(monkeypatch):
    """Runs a function with the host's tensors taken for a GPU's."""
    library = FakeLibrary()

    def run(function, *operands):
        with monkeypatch.context() as patch:
            on_fake_gpu(patch, library)
            found = function(*operands)
        library.reports.check()
        return found

    run.library = library
    return run


def boxes_of(count, images=2, side=24.0):
    random = torch.Generator().manual_seed(count)
    corner = side * torch.rand(count, 2, generator=random)
    size = side * torch.rand(count, 2, generator=random)
    return torch.cat([torch.arange(count)[:, None] % images, corner, corner + size], 1)


def trained(function, *operands):
    leaves = [t.detach().clone().requires_grad_() for t in operands]
    result = function(*leaves)
    slope = torch.linspace(-1, 1, result.numel()).view(result.shape)
    result.backward(slope.to(result))
    return [result, *(leaf.grad for leaf in leaves)]


def tensor(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


X = tensor(2, 8, 12, 14)
LAST = X.to(memory_format=torch.channels_last)
DEFORMED = (
    tensor(2, 4, 6, 7), tensor(2, 18, 6, 7, seed=1), tensor(5, 4, 3, 3, seed=2), tensor(5, seed=3),
    tensor(2, 9, 6, 7, seed=4).sigmoid(),
)  # fmt: skip
CASES = {
    "pixel_shuffle": (lambda x: ops.pixel_shuffle(x, 2), X),
    "pixel_unshuffle": (lambda x: ops.pixel_unshuffle(x, 2), X),
    "depth_to_space": (lambda x: ops.depth_to_space(x, 2, "DCR"), LAST),
    "roi_align": (lambda x: ops.roi_align(x, boxes_of(5), 3, 0.5, 2, True), X),
    "roi_align, channels-last": (lambda x: ops.roi_align(x, boxes_of(5), 3, 0.5), LAST),
    "roi_pool": (lambda x: ops.roi_pool(x, boxes_of(5), 3, 0.5), X),
    "ps_roi_align": (lambda x: ops.ps_roi_align(x, boxes_of(5), 2, 0.5, 2), X),
    "ps_roi_pool": (lambda x: ops.ps_roi_pool(x, boxes_of(5), 2, 0.5), X),
    "vector_norm 2": (lambda x: ops.vector_norm(x, 2.0, 1), X),
    "vector_norm 3": (lambda x: ops.vector_norm(x, 3.0, (0, 3)), X),
    "vector_norm inf": (lambda x: ops.vector_norm(x, "inf", -1), X),
    "deform_conv2d": (
        lambda x, o, w, b, m: ops.deform_conv2d(x, o, w, b, padding=1, mask=m),
        *DEFORMED,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_forward_and_backward_are_the_cpus(gpu, name):
    function, *operands = CASES[name]
    found = gpu(trained, function, *operands)
    for ours, theirs in zip(found, trained(function, *operands), strict=True):
        assert ours.stride() == theirs.stride()
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_suppression(gpu):
    boxes, scores = boxes_of(200)[:, 1:].contiguous(), tensor(200).sigmoid()
    assert torch.equal(gpu(ops.nms, boxes, scores, 0.5), ops.nms(boxes, scores, 0.5))
    kinds = torch.arange(200) % 3
    wanted = ops.batched_nms(boxes, scores, kinds, 0.5)
    assert torch.equal(gpu(ops.batched_nms, boxes, scores, kinds, 0.5), wanted)


def test_padded_suppression(gpu):
    boxes, scores = boxes_of(90)[:, 1:].contiguous(), tensor(90).sigmoid()
    kinds = torch.arange(90) % 3
    for idxs, wanted in (
        (None, ops.nms(boxes, scores, 0.5)),
        (kinds, ops.batched_nms(boxes, scores, kinds, 0.5)),
    ):
        for kept, count in (
            gpu(ops.nms_padded, boxes, scores, 0.5, idxs), ops.nms_padded(boxes, scores, 0.5, idxs)
        ):  # fmt: skip
            assert count.item() == len(wanted)
            assert torch.equal(kept[: len(wanted)], wanted)
            assert (kept[len(wanted) :] == -1).all() and kept.shape == (90,)


def test_suppression_of_many_boxes_by_class(gpu):
    """Equal scores, NaN, classes of any size and sign; padded, too."""
    boxes, scores = boxes_of(200)[:, 1:].contiguous(), tensor(200).sigmoid()
    scores[::7], scores[5] = 0.5, float("nan")
    kinds = torch.arange(200) % 9 // 2 - 2
    kinds[3] = -(2**62)
    wanted = ops.batched_nms(boxes, scores, kinds, 0.5)
    assert 10 < len(wanted) < 190
    found = gpu(SUPPRESSION._by_class, [boxes, scores, kinds], 0.5)
    assert found[-1] == len(wanted) and found.shape == (201,)
    assert torch.equal(found[: len(wanted)], wanted)
    assert (found[len(wanted) : -1] == -1).all()


def test_what_is_sorted_by_class_first():
    meta = torch.empty(10000, 4, device="meta"), None, torch.empty(0)
    assert SUPPRESSION._many([*meta])
    assert not SUPPRESSION._many([meta[0][:100], *meta[1:]])  # few
    assert not SUPPRESSION._many([*meta[:2]])  # of one class
    assert not SUPPRESSION._many([torch.empty(10000, 4), *meta[1:]])  # on the CPU


def test_blocking_launches_report_themselves(gpu):
    gpu.library.reports._blocking = True
    boxes = boxes_of(5)
    boxes[0, 0] = 9
    with pytest.raises(OperandError, match="is not in 1 of them"):
        gpu(ops.roi_align, X, boxes, 3, 0.5)
    assert gpu(ops.roi_align, X, boxes_of(5), 3, 0.5).shape == (5, 8, 3, 3)


@pytest.mark.parametrize("operator", [ops.roi_align, ops.roi_pool], ids=lambda f: f.__name__)
def test_gradients_of_planes_by_pixels(gpu, operator, monkeypatch):
    """In channels-last order and copied, where there are channels for it: the same bits."""
    x = tensor(2, 32, 9, 8)

    def step(x):
        return trained(lambda t: operator(t, boxes_of(7), 3, 0.5), x)

    planes = gpu(step, x)
    assert not ORDER.by_pixels(torch.empty(7, 32, 3, 3, device="meta"), 144)
    monkeypatch.setattr(ORDER, "_FEW", 1)
    assert ORDER.by_pixels(torch.empty(7, 32, 3, 3, device="meta"), 144)
    assert not ORDER.by_pixels(torch.empty(7, 31, 3, 3, device="meta"), 144)
    assert not ORDER.by_pixels(torch.empty(7, 32, 3, 3), 144)
    copies = counted_copies(monkeypatch)
    for ours, same in zip(gpu(step, x), planes, strict=True):
        assert ours.stride() == same.stride()
        torch.testing.assert_close(ours, same, rtol=1e-6, atol=1e-6)
    # Of the gradient; where bins have many pixels of the images and the result, too.
    assert len(copies) == (1 if operator is ops.roi_align else 3)


def counted_copies(monkeypatch):
    """One for each copy in another order from now on, the host's tensors taken for a GPU's."""
    copies, copied = [], ORDER._copied
    monkeypatch.setattr(ORDER, "_on_gpu", lambda tensor, rank: tensor.dim() == rank)
    monkeypatch.setattr(ORDER, "_copied", lambda *given: copies.append(0) or copied(*given))
    return copies


def test_results_lie_as_images_do(gpu):
    for x in (tensor(1, 32, 9, 8), tensor(1, 32, 9, 8).to(memory_format=torch.channels_last)):
        found = gpu(ops.roi_align, x, boxes_of(40, 1), 3, 0.5, 2, True)
        wanted = ops.roi_align(x, boxes_of(40, 1), 3, 0.5, 2, True)
        assert found.stride() == wanted.stride()
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


def test_operands_that_begin_anywhere(gpu):
    block = tensor(1 + 8 * 12 * 14)
    for first in (0, 1):
        x = block[first : first + 8 * 12 * 14].view(1, 8, 12, 14)
        assert torch.equal(gpu(ops.pixel_shuffle, x, 2), torch.pixel_shuffle(x, 2))


def test_other_counts_take_the_same_code(gpu):
    library = gpu.library
    seen = []
    for count in (5, 9, 4, 1, 0, 6):
        found = gpu(ops.roi_align, X, boxes_of(count), 3, 0.5, 2, True)
        wanted = ops.roi_align(X, boxes_of(count), 3, 0.5, 2, True)
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)
        seen.append(library.driver.counts["load"])
    assert seen[0] == seen[-1]


def test_boxes_of_no_image_are_reported_and_give_zeros(gpu):
    boxes = boxes_of(5)
    boxes[3, 0] = 2
    with pytest.raises(OperandError, match="is not in 1 of them"):
        gpu(ops.roi_align, X, boxes, 3, 0.5)
    boxes[4, 0] = -1
    with pytest.raises(OperandError, match="is not in 2 of them"):
        gpu(ops.roi_pool, X, boxes, 3, 0.5)
    gpu(ops.roi_align, X, boxes_of(5), 3, 0.5)  # once each


@pytest.mark.parametrize("operator", [ops.ps_roi_align, ops.ps_roi_pool], ids=lambda f: f.__name__)
def test_position_sensitive_bins_by_planes(gpu, operator, monkeypatch):
    """Channels-last images as planes and copied, forward (means of pixels) and backward."""
    x = tensor(2, 12, 9, 8).to(memory_format=torch.channels_last)

    def step(x):
        return trained(lambda t: operator(t, boxes_of(7), 2, 0.5), x)

    pixels = gpu(step, x)
    grad = torch.empty(7, 3, 2, 2, device="meta")
    assert not ORDER.by_planes(grad, x.numel())
    monkeypatch.setattr(ORDER, "_FEW", 1)
    assert ORDER.by_planes(grad, x.numel())
    assert not ORDER.by_planes(torch.empty(7, 3, 2, 2), x.numel())
    copies = counted_copies(monkeypatch)
    for ours, same in zip(gpu(step, x), pixels, strict=True):
        assert ours.stride() == same.stride()
        torch.testing.assert_close(ours, same, rtol=1e-6, atol=1e-6)
    assert len(copies) == (2 if operator is ops.ps_roi_pool else 1)
