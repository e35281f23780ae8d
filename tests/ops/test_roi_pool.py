"""Largest pixels in the bins of boxes, against a plain formula in PyTorch."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade import ops
from saccade.errors import OperandError
from saccade.ops.roi_pool import _POOL

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
FORMATS = [torch.contiguous_format, torch.channels_last]
MOST = float(1 << 30)
BOXES = [
    [0, 0, 0, 8, 8], [1, -3, 2.5, 9, 30], [1, 5, 5, 4, 4], [1, 20, 20, 30, 30], [0, 3, 3, 3, 3],
    [0, -1e30, -1e30, 6e8, 6e8], [0, math.nan, 0, 1, 1], [1, 1, 1, math.inf, 2],
]  # fmt: skip


def away(value):
    return int(math.copysign(math.floor(abs(value) + 0.5), value))


def ranges(low, high, bins, size):
    """Halves and bins that are exact in float32 only."""
    start = away(max(-MOST, min(low, MOST)))
    step = max(away(max(-MOST, min(high, MOST))) - start + 1, 1) / bins
    cut = [(math.floor(p * step), math.ceil((p + 1) * step)) for p in range(bins)]
    return [tuple(min(max(v + start, 0), size) for v in pair) for pair in cut]


def plain(x, boxes, bins, scale):
    """The operator with `torch.amax`, which autograd differentiates through `max`."""
    rows = []
    for n, *corners in boxes.tolist():
        x1, y1, x2, y2 = (v * scale for v in corners)
        finite = all(map(math.isfinite, corners))
        cells = []
        for top, bottom in ranges(y1, y2, bins[0], x.shape[2]) if finite else [(0, 0)] * bins[0]:
            for left, right in (
                ranges(x1, x2, bins[1], x.shape[3]) if finite else [(0, 0)] * bins[1]
            ):
                pixels = x[int(n), :, top:bottom, left:right].flatten(1)
                some = pixels.shape[1] > 0
                cells.append(pixels.max(dim=1).values if some else x.new_zeros(x.shape[1]))
        rows.append(torch.stack(cells, 1).reshape(-1, *bins))
    return torch.stack(rows) if rows else x.new_zeros(0, x.shape[1], *bins)


def different(shape, dtype=torch.float32, seed=0):
    """No two equal, so that gradients do not depend on which of them is the first."""
    generator = torch.Generator().manual_seed(seed)
    count = torch.Size(shape).numel()
    if count <= 256:
        return (torch.randperm(count, generator=generator) - count // 2).reshape(shape).to(dtype)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("layout", FORMATS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("channels", [3, 70])
def test_every_dtype_and_layout(channels, dtype, layout):
    x = different((2, channels, 9, 12), dtype).to(memory_format=layout).requires_grad_()
    boxes = torch.tensor(BOXES)
    y = ops.roi_pool(x, boxes, (3, 4), 0.5)
    wanted = plain(x.detach(), boxes, (3, 4), 0.5)
    assert y.dtype is dtype
    assert y.is_contiguous(memory_format=layout)
    assert torch.equal(y, wanted)
    grad = torch.randint(-3, 4, y.shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    (dx,) = torch.autograd.grad(y, x, grad)
    assert dx.is_contiguous(memory_format=layout)
    truth = x.detach().double().requires_grad_()
    # Equal pixels of half precision: the first one of a bin gets all of it there too.
    wanted_grad = torch.autograd.grad(plain(truth, boxes, (3, 4), 0.5), truth, grad.double())[0]
    assert torch.equal(dx.double(), wanted_grad)


@settings(max_examples=40)
@given(data=st.data())
def test_any_boxes_and_shapes(data):
    n, c, h, w = (data.draw(st.integers(1, top)) for top in (3, 5, 12, 12))
    coordinate = st.one_of(
        st.integers(-40, 60).map(lambda v: v / 4), st.sampled_from([math.nan, math.inf, -1e38, 1e9])
    )
    box = st.tuples(st.integers(0, n - 1), *[coordinate] * 4)
    boxes = torch.tensor(data.draw(st.lists(box, max_size=5))).reshape(-1, 5).double()
    bins = data.draw(st.tuples(st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 8])))
    x = different((n, c, h, w), torch.float64)[..., :: data.draw(st.integers(1, 2))]
    x.requires_grad_()
    y, wanted = ops.roi_pool(x, boxes, bins, 0.5), plain(x, boxes, bins, 0.5)
    assert torch.equal(y, wanted)
    if len(boxes):
        found, truth = (torch.autograd.grad((r + 0 * x.sum()).sum(), x)[0] for r in (y, wanted))
        assert torch.equal(found, truth)


def test_rounding_and_ties():
    x = torch.arange(36.0).reshape(1, 1, 6, 6)
    half = ops.roi_pool(x, torch.tensor([[0, 0.5, 1.5, 2.5, 2.5]]), 1)
    assert half.item() == x[0, 0, 3, 3]  # 0.5 to 1, 2.5 to 3
    even = torch.zeros(1, 1, 4, 4)
    even[0, 0, 1, 2] = even[0, 0, 2, 0] = 5
    y, places = torch.ops.saccade.roi_pool(even, torch.tensor([[0.0, 0, 0, 3, 3]]), 1.0, 1, 1)
    assert (y.item(), places.item(), places.dtype) == (5, 6, torch.int32)


def test_nan_and_what_is_not_larger_than_the_least():
    x = torch.full((1, 2, 3, 3), math.nan)
    x[0, 1, 1, 1] = -7
    boxes = torch.tensor([[0.0, 0, 0, 2, 2], [0.0, 9, 9, 9, 9]])
    y, places = torch.ops.saccade.roi_pool(x, boxes, 1.0, 1, 1)
    assert y.flatten().tolist() == [torch.finfo(torch.float32).min, -7, 0, 0]
    assert places.flatten().tolist() == [-1, 4, -1, -1]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", FORMATS)
def test_without_a_gradient_places_are_not_looked_for(layout, dtype):
    x = different((2, 19, 13, 22), dtype).to(memory_format=layout)
    x[0, 3] = math.nan
    boxes = torch.tensor([[0.0, 0, 0, 20, 12], [1, 3, 2, 9, 9], [1, -30, -30, -20, -20]])
    leaf = x.clone(memory_format=torch.preserve_format).requires_grad_()
    for image, wanted in ((x, False), (leaf, True)):
        y, places = _POOL(image, boxes, 1.0, 3, 4)
        assert (places is not None) == y.requires_grad == wanted
    with torch.no_grad():
        values, none = _POOL(leaf, boxes, 1.0, 3, 4)
    assert none is None
    assert torch.equal(values, y.detach())
    assert values.stride() == y.stride()


@pytest.mark.parametrize("layout", FORMATS)
def test_gradients(layout):
    x = different((2, 3, 5, 6), torch.float64).to(memory_format=layout).requires_grad_()
    boxes = torch.tensor([[0.0, 0, 0, 4, 3], [1, 1, 2, 5, 4], [0, 2, 1, 2, 1]])
    assert torch.autograd.gradcheck(lambda t: ops.roi_pool(t, boxes, 2), x)
    y = ops.roi_pool(x, boxes.requires_grad_(), 2)
    dx, none = torch.autograd.grad((y * y).sum(), (x, boxes), create_graph=True, allow_unused=True)
    assert none is None
    with pytest.raises(RuntimeError, match="double backward of saccade::roi_pool"):
        torch.autograd.grad(dx.sum(), x)


def test_the_number_of_threads_changes_nothing():
    x = torch.randn(2, 40, 30, 41, requires_grad=True)
    boxes = torch.rand(60, 5) * 30
    boxes[:, 0] = torch.arange(60) % 2
    boxes[:, 3:] += boxes[:, 1:3]
    found = []
    before = torch.get_num_threads()
    for threads in (1, 2):
        torch.set_num_threads(threads)
        y = ops.roi_pool(x, boxes, 7)
        found.append((y, torch.autograd.grad((y * y.sign()).sum(), x)[0]))
    torch.set_num_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_forms_of_the_arguments():
    x = torch.randn(2, 4, 8, 8)
    each = [torch.tensor([[0.0, 0, 5, 5]]), torch.tensor([[1.0, 1, 7, 6], [2, 2, 3, 3]])]
    joined = torch.tensor([[0, 0.0, 0, 5, 5], [1, 1, 1, 7, 6], [1, 2, 2, 3, 3]])
    wanted = ops.roi_pool(x, joined, (2, 2))
    assert torch.equal(ops.roi_pool(x, each, 2), wanted)
    assert torch.equal(ops.RoIPool(2, 1.0)(x, joined.half()), wanted)
    assert torch.equal(ops.roi_pool(x[0], joined[:1], 2), wanted[:1])
    assert "output_size=2, spatial_scale=1.0" in repr(ops.RoIPool(2, 1.0))
    with torch.autocast("cpu", torch.bfloat16):
        assert ops.roi_pool(x.bfloat16(), joined, 2).dtype is torch.bfloat16


def test_no_boxes():
    x = torch.randn(2, 4, 8, 8, requires_grad=True)
    y = ops.roi_pool(x, torch.zeros(0, 5), 2)
    assert y.shape == (0, 4, 2, 2)
    assert not torch.autograd.grad(y.sum(), x)[0].any()


def test_pytorch_sees_an_operator():
    x = torch.randn(2, 4, 6, 6, requires_grad=True)
    boxes = torch.tensor([[0, 0.0, 0, 5, 5], [1, 1, 1, 4, 3]])
    torch.library.opcheck(torch.ops.saccade.roi_pool.default, (x, boxes, 0.5, 2, 3))
    compiled = torch.compile(
        lambda t: ops.roi_pool(t, boxes, 2) * 2, fullgraph=True, backend="aot_eager"
    )
    y, wanted = compiled(x), ops.roi_pool(x, boxes, 2) * 2
    assert torch.equal(y, wanted)
    grads = [torch.autograd.grad(r.sum(), x)[0] for r in (y, wanted)]
    assert torch.equal(*grads)
    many = torch.func.vmap(lambda t: ops.roi_pool(t, boxes, 2))(torch.stack([x, -x]))
    assert torch.equal(many[1], ops.roi_pool(-x, boxes, 2))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: ops.roi_pool(x, torch.tensor([[2.0, 0, 0, 1, 1]]), 2), "batch index must be in"),
        (lambda x: ops.roi_pool(x, torch.tensor([[-1.0, 0, 0, 1, 1]]), 2), "batch index must be"),
        (lambda x: ops.roi_pool(x, torch.tensor([[math.nan, 0, 0, 1, 1]]), 2), "batch index"),
        (lambda x: ops.roi_pool(x, torch.zeros(3, 4), 2), "Tensor.K, 5."),
        (lambda x: ops.roi_pool(x, torch.zeros(3, 5), -2), "must not be negative"),
        (lambda x: ops.roi_pool(x[0, 0], torch.zeros(3, 5), 2), r"must be \[N, C, H, W\]"),
        (lambda x: ops.roi_pool(x.int(), torch.zeros(3, 5), 2), "not floating point"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(OperandError, match=message):
        call(torch.zeros(2, 3, 4, 4))


def test_a_gradient_with_wild_places():
    """Places come from whoever calls it: those beyond the image are left out."""
    grad, boxes = torch.ones(1, 1, 1, 3), torch.zeros(1, 5)
    places = torch.tensor([2, 4, -7], dtype=torch.int32).reshape(1, 1, 1, 3)
    dx = torch.ops.saccade._roi_pool_backward(grad, boxes, places, 1.0, 1, 3, 1, 1, 2, 2, False)
    assert dx.flatten().tolist() == [0, 0, 1, 0]
    with pytest.raises(OperandError, match="must both have shape"):
        torch.ops.saccade._roi_pool_backward(grad, boxes, places, 1.0, 1, 2, 1, 1, 2, 2, False)
