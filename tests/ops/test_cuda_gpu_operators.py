"""Operators on a real GPU; skipped where there is none."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from fcntl import LOCK_EX, flock
from pathlib import Path
from tempfile import gettempdir

import pytest
import torch
from test_cuda_operators import CASES, DEFORMED, LAST, X, boxes_of, tensor, trained

from saccade import ops
from saccade.errors import OperandError

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU"),
]

BOUNDS = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.float64: 1e-13}


def on_gpu(*tensors):
    return [t.cuda() for t in tensors]


@pytest.mark.parametrize("dtype", BOUNDS, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_forward_and_backward_in_every_dtype(name, dtype, monkeypatch):
    function, *operands = CASES[name]
    given = [t.to(dtype) for t in operands]
    wanted = trained(function, *(t.double() for t in given))
    monkeypatch.setattr(
        "test_cuda_operators.boxes_of", lambda *given, **named: boxes_of(*given, **named).cuda()
    )
    found, again = (trained(function, *on_gpu(*given)) for _ in range(2))
    for ours, same, truth in zip(found, again, wanted, strict=True):
        assert torch.equal(ours, same), "other bits in another run"
        assert ours.stride() == truth.stride()
        error = (ours.cpu().double() - truth).norm() / truth.norm().clamp(min=1e-9)
        assert error <= BOUNDS[dtype]


@pytest.mark.parametrize("count", [0, 1, 200, 5000, 20000])
def test_suppression(count):
    boxes, scores = boxes_of(count, side=100.0)[:, 1:].contiguous(), tensor(count).sigmoid()
    kinds = torch.arange(count) % 3
    kept, wanted = ops.nms(*on_gpu(boxes, scores), 0.5), ops.nms(boxes, scores, 0.5)
    assert torch.equal(kept.cpu(), wanted)
    kept = ops.batched_nms(*on_gpu(boxes, scores, kinds), 0.5)
    assert torch.equal(kept.cpu(), ops.batched_nms(boxes, scores, kinds, 0.5))
    padded, number = ops.nms_padded(*on_gpu(boxes, scores), 0.5)
    assert torch.equal(padded[: int(number)].cpu(), wanted)


@pytest.mark.parametrize("operator", [ops.roi_align, ops.roi_pool], ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_large_planes(operator, dtype):
    """Images and gradients that are copied to channels-last order and back."""
    x, boxes = tensor(2, 72, 60, 50).to(dtype), boxes_of(90, side=50.0).to(dtype)
    wanted = trained(lambda t: operator(t, boxes, 7), x)
    found = trained(lambda t: operator(t, boxes.cuda(), 7), x.cuda())
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours.stride() == theirs.stride()
        error = (ours.cpu().double() - theirs.double()).norm() / theirs.double().norm()
        assert error <= BOUNDS[dtype]


def test_many_boxes_by_class_in_a_graph():
    boxes, scores = boxes_of(9000, side=100.0)[:, 1:].contiguous(), tensor(9000).sigmoid()
    kinds = torch.arange(9000) % 7
    wanted = ops.batched_nms(boxes, scores, kinds, 0.5)
    given = on_gpu(boxes, scores, kinds)

    def call():
        return ops.nms_padded(*given[:2], 0.5, given[2])

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept, number = call()
    graph.replay()
    assert int(number) == len(wanted)
    assert torch.equal(kept[: int(number)].cpu(), wanted)


def test_other_streams_graphs_and_threads():
    x, boxes = on_gpu(LAST, boxes_of(5))

    def call():
        return ops.roi_align(x, boxes, 3, 0.5, 2, True)

    wanted = call()
    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        found = call()
    torch.cuda.synchronize()
    assert torch.equal(found, wanted)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = call()
    graph.replay()
    assert torch.equal(found, wanted)
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(lambda _: torch.equal(call(), wanted), range(100)))


def test_boxes_of_no_image_give_zeros_and_are_told():
    x, boxes = on_gpu(X, boxes_of(5))
    bad = boxes.clone()
    bad[1, 0] = 7
    found = ops.roi_align(x, bad, 3, 0.5)
    torch.cuda.synchronize()
    assert (found[1] == 0).all()
    with pytest.raises(OperandError, match="is not in 1 of them"):
        ops.roi_align(x, boxes, 3, 0.5)
    ops.roi_align(x, boxes, 3, 0.5)
    with pytest.raises(OperandError, match="on one device"):
        ops.roi_align(x, boxes.cpu(), 3, 0.5)


def test_autocast():
    x, offset, weight, bias, mask = on_gpu(*DEFORMED)
    with torch.autocast("cuda", torch.float16):
        found = ops.deform_conv2d(x, offset, weight, bias, padding=1, mask=mask)
    assert found.dtype is torch.float16


@pytest.fixture
def alone():
    """One test at a time, of all processes, has most of the GPU's memory."""
    if torch.cuda.get_device_properties(0).total_memory < 40 << 30:
        pytest.skip("a GPU of less than 40 GB")
    with (Path(gettempdir()) / "saccade-gpu-memory.lock").open("w") as file:
        flock(file, LOCK_EX)
        yield
        torch.cuda.empty_cache()


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(
    "operator",
    [
        lambda x, boxes: ops.roi_align(x, boxes, 4, 1.0, 2, True),
        lambda x, boxes: ops.roi_pool(x, boxes, 4),
        lambda x, boxes: ops.ps_roi_align(x, boxes, 4, 1.0, 2),
        lambda x, boxes: ops.ps_roi_pool(x, boxes, 4),
    ],
    ids=["roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool"],
)
def test_regions_of_more_than_2_31_elements(operator, last):
    """What the last image gives is what it gives by itself; so is its gradient."""
    layout = torch.channels_last if last else torch.contiguous_format
    shape = (3, 64, 3500, 3500)  # 2.35e9
    x = torch.empty(shape, dtype=torch.float16, device="cuda", memory_format=layout).normal_()
    boxes = boxes_of(6, 3, side=3000.0).half().cuda()
    own = boxes[2::3].clone()
    own[:, 0] = 0
    leaf, image = x.requires_grad_(), x[2:].detach().clone(memory_format=layout).requires_grad_()
    found, wanted = operator(leaf, boxes)[2::3], operator(image, own)
    assert torch.equal(found, wanted)
    found.sum().backward()
    wanted.sum().backward()
    assert not leaf.grad[:2].any()
    assert torch.equal(leaf.grad[2:], image.grad)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    ("operator", "shape"),
    [
        (lambda x: ops.pixel_shuffle(x, 2), (3, 64, 3500, 3500)),
        (lambda x: ops.pixel_unshuffle(x, 2), (3, 16, 7000, 7000)),
        (lambda x: ops.vector_norm(x, 2, dim=-1), (3, 64, 3500, 3500)),
        (lambda x: ops.vector_norm(x, 1, dim=1), (3, 64, 3500, 3500)),
    ],
    ids=["pixel_shuffle", "pixel_unshuffle", "norm", "norm of channels"],
)
def test_others_of_more_than_2_31_elements(operator, shape):
    x = torch.empty(shape, dtype=torch.float16, device="cuda").normal_()
    assert torch.equal(operator(x)[2:], operator(x[2:].clone()))
