"""Suppression of boxes, against the definition in plain PyTorch."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade import ops
from saccade.errors import OperandError

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
NUMBERS = st.sampled_from(
    [0.0, -0.0, 1.0, 2.0, 3.0, 4.0, 6.0, -1.0, 1e-30, 1e19, 3e38, -3e38,
     float("inf"), -float("inf"), float("nan")]
)  # fmt: skip


def plain(boxes, scores, threshold, idxs=None):
    """The definition, a row of the table of pairs at a time."""
    boxes = boxes.float() if boxes.dtype in (torch.bfloat16, torch.float16) else boxes
    _, order = scores.sort(stable=True, descending=True)
    kept, left = [], order
    while len(left):
        best, left = left[0], left[1:]
        kept.append(best)
        low = torch.maximum(boxes[best, :2], boxes[left, :2])
        sides = torch.minimum(boxes[best, 2:], boxes[left, 2:]) - low
        sides = torch.where(sides > 0, sides, 0)
        overlap = sides[:, 0] * sides[:, 1]
        areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
        dropped = (overlap / (areas[best] + areas[left] - overlap)).double() > threshold
        if idxs is not None:
            dropped &= idxs[left] == idxs[best]
        left = left[~dropped]
    return torch.stack(kept) if kept else torch.empty(0, dtype=torch.int64)


def boxes_of(count, seed=0, extent=100.0, side=60.0):
    generator = torch.Generator().manual_seed(seed)
    corner = torch.rand(count, 2, generator=generator) * extent
    boxes = torch.cat([corner, corner + torch.rand(count, 2, generator=generator) * side], 1)
    return boxes, torch.rand(count, generator=generator)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [0, 1, 40, 1000])
def test_every_dtype(count, dtype):
    boxes, scores = (t.to(dtype) for t in boxes_of(count))
    idxs = torch.arange(count) % 7
    for threshold in (0.2, 0.5, 0.8):
        kept = ops.nms(boxes, scores, threshold)
        assert kept.dtype is torch.int64
        assert torch.equal(kept, plain(boxes, scores, threshold))
        kept = ops.batched_nms(boxes, scores, idxs, threshold)
        assert torch.equal(kept, plain(boxes, scores, threshold, idxs))


@settings(max_examples=80)
@given(
    rows=st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS), max_size=24),
    scores=st.lists(NUMBERS, min_size=24, max_size=24),
    threshold=st.sampled_from([0.5, 0.0, 1 / 3, 0.25, -1.0, 1.0]),
    classes=st.integers(1, 3),
)
def test_any_numbers(rows, scores, threshold, classes):
    boxes = torch.tensor(rows).reshape(-1, 4)
    score = torch.tensor(scores)[: len(boxes)]
    idxs = torch.arange(len(boxes)) % classes
    assert torch.equal(ops.nms(boxes, score, threshold), plain(boxes, score, threshold))
    kept = ops.batched_nms(boxes, score, idxs, threshold)
    assert torch.equal(kept, plain(boxes, score, threshold, idxs))


def test_strict_at_the_threshold():
    boxes = torch.tensor([[0.0, 0, 3, 3], [0, 0, 3, 1], [0, 0, 3, 2]])
    scores = torch.tensor([3.0, 2.0, 1.0])
    assert ops.nms(boxes, scores, 1 / 3).tolist() == [0]  # float32's third is above the double
    assert ops.nms(boxes.double(), scores.double(), 1 / 3).tolist() == [0, 1]


def test_classes_are_compared_and_not_moved():
    """The trick with coordinates rounds 2048.5 away and overflows in half."""
    boxes = torch.tensor([[2000.0, 0, 2002, 2], [2001, 0, 2003, 2], [2000, 0, 2002, 2]])
    idxs = torch.tensor([2**40, 2**40, 2**40 + 1])
    for dtype in DTYPES:
        kept = ops.batched_nms(boxes.to(dtype), torch.tensor([3, 2, 1.0], dtype=dtype), idxs, 0.5)
        assert kept.tolist() == plain(boxes.to(dtype), torch.arange(3, 0, -1), 0.5, idxs).tolist()


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8, torch.float32, torch.bool])
def test_classes_of_any_type(dtype):
    boxes, scores = boxes_of(60, side=100.0)
    idxs = torch.arange(60) % 3
    wanted = plain(boxes, scores, 0.3, idxs.to(dtype))
    assert torch.equal(ops.batched_nms(boxes, scores, idxs.to(dtype), 0.3), wanted)
    zeros = torch.tensor([0.0, -0.0]).repeat(30)
    assert torch.equal(ops.batched_nms(boxes, scores, zeros, 0.3), plain(boxes, scores, 0.3))


def test_strides_and_threads():
    boxes, scores = boxes_of(1200, extent=1000.0)
    wide = torch.stack([scores, -scores], 1)[:, 0]
    wanted = plain(boxes, scores, 0.4)
    threads = torch.get_num_threads()
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            assert torch.equal(ops.nms(boxes.T.contiguous().T, wide, 0.4), wanted)
    finally:
        torch.set_num_threads(threads)


def test_pytorch_sees_operators():
    boxes, scores = boxes_of(30)
    idxs = torch.arange(30) % 2
    torch.library.opcheck(torch.ops.saccade.nms.default, (boxes, scores, 0.5))
    arguments = (boxes.requires_grad_(), scores, idxs, 0.5)
    torch.library.opcheck(torch.ops.saccade.batched_nms.default, arguments)

    def best(b, s):
        return b[ops.nms(b, s, 0.5)] * 2

    compiled = torch.compile(best, fullgraph=True, backend="aot_eager", dynamic=True)
    for seed, count in ((1, 30), (2, 50)):
        new = boxes_of(count, seed)
        assert torch.equal(compiled(*new), best(*new))

    class Best(torch.nn.Module):
        def forward(self, b, s, i):
            return b[ops.batched_nms(b, s, i, 0.5)]

    detached = boxes.detach()
    exported = torch.export.export(Best(), (detached, scores, idxs)).module()
    assert torch.equal(exported(detached, scores, idxs), Best()(detached, scores, idxs))


def test_autocast_keeps_boxes():
    boxes, scores = (t.bfloat16() for t in boxes_of(200))
    with torch.autocast("cpu", torch.bfloat16):
        kept = ops.nms(boxes, scores, 0.5)
    assert torch.equal(kept, plain(boxes, scores, 0.5))


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((4,), (3,)), "boxes should be a 2d tensor, got 1D"),
        (((3, 5), (3,)), "boxes should have 4 elements in dimension 1, got 5"),
        (((3, 4), (3, 2)), "scores should be a 1d tensor, got 2D"),
        (((3, 4), (4,)), "same number of elements in dimension 0, got 3 and 4"),
    ],
)
def test_refused_shapes(shapes, message):
    boxes, scores = map(torch.rand, shapes)
    with pytest.raises(OperandError, match=message):
        ops.nms(boxes, scores, 0.5)


def test_other_refusals():
    boxes, scores = boxes_of(3)
    with pytest.raises(OperandError, match="floating point"):
        ops.nms(boxes.int(), scores, 0.5)
    with pytest.raises(OperandError, match=r"idxs should be \[3\]"):
        ops.batched_nms(boxes, scores, torch.zeros(2), 0.5)
    assert ops.batched_nms(torch.empty(0, 4), None, None, None).shape == (0,)
