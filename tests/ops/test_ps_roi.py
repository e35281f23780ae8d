"""Means in the bins of boxes, each in channels of its own, against plain formulas in PyTorch."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade import ops
from saccade.errors import OperandError

FORMATS = [torch.contiguous_format, torch.channels_last]
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 2e-2, torch.float16: 2e-3}
BOXES = [
    [0, 0, 0, 8, 8], [1, -3, 2.5, 9, 30], [1, 5, 5, 4.5, 4.5], [1, 20, 20, 30, 30], [0, 3, 3, 3, 3],
    [0, 1, 1, 24, 18], [1, 9, 9, -7, -5],
]  # fmt: skip


def bilinear(plane, y, x):
    """One sample, 0 outside."""
    h, w = plane.shape
    if not (-1 <= y <= h and -1 <= x <= w):
        return 0 * plane.sum()
    y, x = max(y, 0.0), max(x, 0.0)
    top, left = min(int(y), h - 1), min(int(x), w - 1)
    bottom, right = min(top + 1, h - 1), min(left + 1, w - 1)
    v, u = (0.0 if top == h - 1 else y - top), (0.0 if left == w - 1 else x - left)
    upper = (1 - u) * plane[top, left] + u * plane[top, right]
    return (1 - v) * upper + v * ((1 - u) * plane[bottom, left] + u * plane[bottom, right])


def samples(plane, corners, number, bins, ratio):
    """The bin of `ps_roi_align`."""
    x1, y1, x2, y2 = (v - 0.5 for v in corners)
    sizes = (y2 - y1) / bins[0], (x2 - x1) / bins[1]
    grid = [ratio if ratio > 0 else math.ceil(v) for v in sizes]
    total = 0 * plane.sum()
    for i in range(grid[0]):
        for j in range(grid[1]):
            y = y1 + (number[0] + (i + 0.5) / grid[0]) * sizes[0]
            x = x1 + (number[1] + (j + 0.5) / grid[1]) * sizes[1]
            total = total + bilinear(plane, y, x)
    count = grid[0] * grid[1]
    return total / count if count else total + math.nan


def pixels(plane, corners, number, bins, _ratio):
    """The bin of `ps_roi_pool`."""
    x1, y1, x2, y2 = (int(math.copysign(math.floor(abs(v) + 0.5), v)) for v in corners)
    spans = []
    for low, high, p, count, size in zip(
        (y1, x1), (y2, x2), number, bins, plane.shape, strict=True
    ):
        step = max(high - low, 1) / count
        ends = math.floor(p * step) + low, math.ceil((p + 1) * step) + low
        spans.append([min(max(v, 0), size - 1) for v in ends])
    (top, bottom), (left, right) = spans
    some = top < bottom and left < right
    return plane[top:bottom, left:right].mean() if some else 0 * plane.sum()


def plain(one, x, boxes, bins, scale, ratio=-1):
    """Bin by bin."""
    p, q = bins
    channels = x.shape[1] // (p * q)
    cells = [
        one(x[int(n), (c * p + i) * q + j], [v * scale for v in corners], (i, j), bins, ratio)
        for n, *corners in boxes.tolist()
        for c in range(channels)
        for i in range(p)
        for j in range(q)
    ]
    return (
        torch.stack(cells).reshape(-1, channels, p, q) if cells else x.new_zeros(0, channels, p, q)
    )


ALIGN = (ops.ps_roi_align, samples, (2,))
ADAPTIVE = (ops.ps_roi_align, samples, (-1,))
POOL = (ops.ps_roi_pool, pixels, ())


@pytest.mark.parametrize("layout", FORMATS)
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("operator", "one", "ratio"), [ALIGN, ADAPTIVE, POOL])
def test_every_dtype_and_layout(operator, one, ratio, dtype, layout):
    x = torch.randn(2, 36, 9, 12).to(dtype).to(memory_format=layout).requires_grad_()
    boxes = torch.tensor(BOXES)
    y = operator(x, boxes, (3, 4), 0.5, *ratio)
    truth = x.detach().double().requires_grad_()
    wanted = plain(one, truth, boxes, (3, 4), 0.5, *ratio)
    assert y.dtype is dtype
    assert y.is_contiguous(memory_format=layout)
    near = {"rtol": TOLERANCE[dtype], "atol": TOLERANCE[dtype], "equal_nan": True}
    torch.testing.assert_close(y.double(), wanted, **near)
    grad = torch.randn(y.shape).to(dtype)
    (dx,) = torch.autograd.grad(y, x, grad)
    assert dx.is_contiguous(memory_format=layout)
    (wanted_grad,) = torch.autograd.grad(wanted, truth, grad.double())
    torch.testing.assert_close(dx.double(), wanted_grad, **near)


@settings(max_examples=40)
@given(data=st.data())
def test_any_boxes_and_shapes(data):
    n, c, h, w = (data.draw(st.integers(1, top)) for top in (2, 2, 8, 8))
    bins = data.draw(st.tuples(st.sampled_from([1, 2]), st.sampled_from([1, 2, 4])))
    corner = st.integers(-40, 60).map(lambda v: v / 4)
    box = st.tuples(st.integers(0, n - 1), *[corner] * 4)
    boxes = torch.tensor(data.draw(st.lists(box, max_size=3))).reshape(-1, 5).double()
    x = torch.randn(n, c * bins[0] * bins[1], h, 2 * w, dtype=torch.float64)
    x = x[..., :: data.draw(st.integers(1, 2))]
    ratio = data.draw(st.integers(-1, 3))
    for operator, one, rest in ((ALIGN[0], samples, (ratio,)), POOL):
        y, wanted = operator(x, boxes, bins, 0.5, *rest), plain(one, x, boxes, bins, 0.5, *rest)
        torch.testing.assert_close(y, wanted, rtol=1e-12, atol=1e-12, equal_nan=True)


@pytest.mark.parametrize(("operator", "ratio"), [(ops.ps_roi_align, (0,)), (ops.ps_roi_pool, ())])
def test_boxes_that_are_wild(operator, ratio):
    x = torch.randn(1, 4, 6, 6, requires_grad=True)
    wild = [math.nan, math.inf, -math.inf, 1e38, -1e38, 1e9]
    boxes = torch.tensor(
        [[0, a, b, 3, 4] for a in wild for b in wild] + [[0, 0, 0, v, v] for v in wild]
    )
    y = operator(x, boxes, 2, 1.0, *ratio)
    assert y.shape == (42, 1, 2, 2)
    assert torch.autograd.grad(y.sum(), x)[0].isfinite().all()
    sizes = (boxes[:, 3:] - 0.5) - (boxes[:, 1:3] - 0.5)
    finite = sizes.isfinite().all(1)
    assert not y[~finite].any(), "0, not NaN"
    if ratio:
        assert y[finite & (sizes == 0).any(1)].isnan().all(), "0 / 0"
    else:
        assert y.isfinite().all()


@pytest.mark.parametrize("layout", FORMATS)
@pytest.mark.parametrize(("operator", "ratio"), [(ops.ps_roi_align, (2,)), (ops.ps_roi_pool, ())])
def test_gradients(operator, ratio, layout):
    """The last row and column belong to the second box: bins of pixels do not reach them."""
    x = torch.randn(2, 8, 5, 6, dtype=torch.float64).to(memory_format=layout).requires_grad_()
    boxes = torch.tensor([[0.0, 0, 0, 4, 3], [1, 1, 2, 7, 8], [0, 2, 1, 2, 1]])
    assert torch.autograd.gradcheck(lambda t: operator(t, boxes, 2, 1.0, *ratio), x)
    y = operator(x, boxes.requires_grad_(), 2, 1.0, *ratio)
    dx, none = torch.autograd.grad((y * y).sum(), (x, boxes), create_graph=True, allow_unused=True)
    assert none is None
    with pytest.raises(RuntimeError, match="double backward of saccade::ps_roi"):
        torch.autograd.grad(dx.sum(), x)


@pytest.mark.parametrize(("operator", "ratio"), [(ops.ps_roi_align, (2,)), (ops.ps_roi_pool, ())])
def test_the_number_of_threads_changes_nothing(operator, ratio):
    x = torch.randn(2, 45, 30, 41, requires_grad=True)
    boxes = torch.rand(60, 5) * 30
    boxes[:, 0] = torch.arange(60) % 2
    boxes[:, 3:] += boxes[:, 1:3]
    found = []
    before = torch.get_num_threads()
    for threads in (1, 2):
        torch.set_num_threads(threads)
        y = operator(x, boxes, 3, 1.0, *ratio)
        found.append((y, torch.autograd.grad((y * y.sign()).sum(), x)[0]))
    torch.set_num_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_forms_of_the_arguments():
    x = torch.randn(2, 8, 8, 8)
    each = [torch.tensor([[0.0, 0, 5, 5]]), torch.tensor([[1.0, 1, 7, 6], [2, 2, 3, 3]])]
    joined = torch.tensor([[0, 0.0, 0, 5, 5], [1, 1, 1, 7, 6], [1, 2, 2, 3, 3]])
    for operator, module in (
        (ops.ps_roi_align, ops.PSRoIAlign(2, 1.0, -1)), (ops.ps_roi_pool, ops.PSRoIPool(2, 1.0)),
    ):  # fmt: skip
        wanted = operator(x, joined, (2, 2))
        assert torch.equal(operator(x, each, 2), wanted)
        assert torch.equal(module(x, joined.half()), wanted)
        assert torch.equal(operator(x[0], joined[:1], 2), wanted[:1])
        assert "output_size=2, spatial_scale=1.0" in repr(module)
        with torch.autocast("cpu", torch.bfloat16):
            assert operator(x.bfloat16(), joined, 2).dtype is torch.bfloat16
        empty = operator(x.requires_grad_(), torch.zeros(0, 5), 2)
        assert empty.shape == (0, 2, 2, 2)
        assert not torch.autograd.grad(empty.sum(), x)[0].any()


def test_the_mapping_of_channels():
    boxes = torch.zeros(3, 5)
    for operator, rest in (
        (torch.ops.saccade.ps_roi_align, (2,)),
        (torch.ops.saccade.ps_roi_pool, ()),
    ):
        _, mapping = operator(torch.zeros(1, 24, 4, 4), boxes, 1.0, 2, 3, *rest)
        wanted = torch.arange(24, dtype=torch.int32).reshape(4, 2, 3)
        assert all(torch.equal(one, wanted) for one in mapping)


@pytest.mark.parametrize(("operator", "ratio"), [("ps_roi_align", (2,)), ("ps_roi_pool", ())])
def test_pytorch_sees_an_operator(operator, ratio):
    x = torch.randn(2, 12, 6, 6, requires_grad=True)
    boxes = torch.tensor([[0, 0.0, 0, 5, 5], [1, 1, 1, 4, 3]])
    torch.library.opcheck(
        getattr(torch.ops.saccade, operator).default, (x, boxes, 0.5, 2, 3, *ratio)
    )
    function = getattr(ops, operator)
    compiled = torch.compile(
        lambda t: function(t, boxes, 2, 1.0, *ratio) * 2, fullgraph=True, backend="aot_eager"
    )
    y, wanted = compiled(x), function(x, boxes, 2, 1.0, *ratio) * 2
    assert torch.equal(y, wanted)
    assert torch.equal(*(torch.autograd.grad(r.sum(), x)[0] for r in (y, wanted)))
    many = torch.func.vmap(lambda t: function(t, boxes, 2, 1.0, *ratio))(torch.stack([x, -x]))
    assert torch.equal(many[1], function(-x, boxes, 2, 1.0, *ratio))


@pytest.mark.parametrize("operator", [ops.ps_roi_align, ops.ps_roi_pool])
@pytest.mark.parametrize(
    ("boxes", "size", "message"),
    [
        (torch.tensor([[2.0, 0, 0, 1, 1]]), 2, "batch index must be in"),
        (torch.tensor([[math.nan, 0, 0, 1, 1]]), 2, "batch index must be in"),
        (torch.zeros(3, 4), 2, "Tensor.K, 5."),
        (torch.zeros(3, 5), 0, "must be positive"),
        (torch.zeros(3, 5), 3, "must be a multiple of pooling height"),
    ],
)
def test_refusals(operator, boxes, size, message):
    with pytest.raises(OperandError, match=message):
        operator(torch.zeros(2, 8, 4, 4), boxes, size)
