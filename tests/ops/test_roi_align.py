"""roi_align against a float64 reference in plain PyTorch, as an operator, with hostile boxes."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade import ops
from saccade.errors import OperandError

FORMATS = [torch.contiguous_format, torch.channels_last]
TOLERANCE = {
    torch.float64: 1e-11, torch.float32: 3e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3,
}  # fmt: skip


def samples(low, high, bins, size, scale, ratio, aligned):
    """Pixels and weights [bins, samples] of the two neighbours of each sample."""
    start = low * scale - (0.5 if aligned else 0)
    extent = (high - low) * scale if aligned else max((high - low) * scale, 1.0)
    grid = ratio if ratio > 0 else max(0, math.ceil(extent / bins))
    at = torch.arange(bins * grid, dtype=torch.float64).reshape(bins, grid) + 0.5
    place = start + at * extent / max(1, bins * grid)
    inside = (place >= -1) & (place <= size)
    below = place.clamp(0, size - 1).floor()
    upper = place.clamp(0, size - 1) - below
    neighbours = below.long(), (below.long() + 1).clamp(max=size - 1)
    return tuple(zip(neighbours, ((1 - upper) * inside, upper * inside), strict=True)), grid


def reference(x, rois, size, scale, ratio, aligned):
    found = []
    for image, x1, y1, x2, y2 in rois.double().tolist():
        down, rows = samples(y1, y2, size[0], x.shape[2], scale, ratio, aligned)
        along, columns = samples(x1, x2, size[1], x.shape[3], scale, ratio, aligned)
        total = 0.0
        for h, by_row in down:
            for w, by_column in along:
                pixels = x[int(image)][:, h][:, :, :, w]
                total = total + pixels * by_row[:, :, None, None] * by_column
        found.append(total.sum((2, 4)) / max(1, rows * columns))
    return torch.stack(found)


def some_boxes(count=12, images=3):
    boxes = torch.rand(count, 5, generator=torch.Generator().manual_seed(3)) * 40 - 6
    boxes[:, 0] = torch.arange(count) % images
    return boxes


@pytest.mark.parametrize("layout", FORMATS)
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("channels", [72, 3])
def test_every_dtype_and_layout(channels, dtype, layout):
    x = torch.randn(3, channels, 21, 30).to(dtype).to(memory_format=layout).requires_grad_()
    wide = x.detach().double().requires_grad_()
    boxes = some_boxes()
    for ratio, aligned in ((2, True), (-1, False)):
        arguments = (boxes, (3, 4), 0.6, ratio, aligned)
        y, truth = ops.roi_align(x, *arguments), reference(wide, *arguments)
        grad = torch.randn(y.shape).to(dtype)
        (dx,) = torch.autograd.grad(y, x, grad)
        (true_dx,) = torch.autograd.grad(truth, wide, grad.double())
        for ours, true in ((y, truth), (dx, true_dx)):
            assert ours.dtype is dtype
            assert ours.is_contiguous(memory_format=layout)
            assert (ours - true).abs().max() <= TOLERANCE[dtype] * true.abs().max()


@pytest.mark.parametrize("channels", [72, 5])
def test_layouts_and_threads_agree_bit_by_bit(channels):
    x, boxes, before = torch.randn(3, channels, 21, 30), some_boxes(40), torch.get_num_threads()
    results = []
    for layout in FORMATS:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            try:
                leaf = x.clone(memory_format=layout).requires_grad_()
                y = ops.roi_align(leaf, boxes, 5, 0.6, 2, True)
                (y * y).sum().backward()
            finally:
                torch.set_num_threads(before)
            results.append((y, leaf.grad))
    for y, dx in results[1:]:
        assert torch.equal(y, results[0][0])
        assert torch.equal(dx, results[0][1])


@pytest.mark.parametrize("layout", FORMATS)
def test_gradcheck(layout):
    x = torch.randn(2, 2, 4, 3, dtype=torch.float64).to(memory_format=layout).requires_grad_()
    boxes = some_boxes(5, 2).double() / 3
    boxes[:, 0] = torch.tensor([0, 1, 1, 0, 1])
    for ratio in (-1, 2):
        call = lambda t: ops.roi_align(t, boxes, 2, 0.7, ratio, True)  # noqa: B023, E731
        assert torch.autograd.gradcheck(call, x)
    with pytest.raises(RuntimeError, match="double backward of saccade::roi_align"):
        torch.autograd.gradgradcheck(call, x)


def test_pytorch_sees_an_operator():
    x = torch.randn(3, 4, 8, 9, requires_grad=True)
    boxes = some_boxes(4) / 4
    boxes[:, 0] = torch.tensor([0, 2, 1, 0])
    torch.library.opcheck(torch.ops.saccade.roi_align.default, (x, boxes, 0.5, 2, 3, -1, True))
    model = ops.RoIAlign((2, 3), 0.5, -1, aligned=True)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    for run in (model, compiled):
        (dx,) = torch.autograd.grad(run(x, boxes).square().sum(), x)
        assert torch.equal(run(x, boxes), model(x, boxes))
        assert dx.shape == x.shape
    many = torch.func.vmap(lambda t: ops.roi_align(t, boxes, 2), in_dims=0)(torch.stack([x, -x]))
    assert torch.equal(many[1], -many[0])
    none = torch.func.vmap(lambda t: ops.roi_align(t, boxes, 2))(x.new_empty(0, *x.shape))
    assert none.shape == (0, *many.shape[1:]) and none.dtype is x.dtype
    with torch.autocast("cpu", torch.bfloat16):
        y = ops.roi_align(x.bfloat16(), boxes, 2)
    assert y.dtype is torch.bfloat16


def test_kinds_of_boxes_and_inputs():
    x, boxes = torch.randn(2, 5, 9, 8), some_boxes(6, 1)
    boxes[3:, 0] = 1
    joined = ops.roi_align(x, boxes, (2, 3))
    assert torch.equal(joined, ops.roi_align(x, [boxes[:3, 1:], boxes[3:, 1:]], [2, 3]))
    assert torch.equal(joined[:3], ops.roi_align(x[0], boxes[:3], (2, 3)))
    half = boxes.bfloat16()
    assert torch.equal(ops.roi_align(x, half, 2), ops.roi_align(x, half.float(), 2))
    wide = torch.randn(2, 10, 18, 8)[:, ::2, ::2].requires_grad_()
    y = ops.roi_align(wide, boxes, 2)
    assert torch.equal(y, ops.roi_align(wide.contiguous(), boxes, 2))
    (dx,) = torch.autograd.grad(y.sum(), wide)  # a gradient without strides
    (same,) = torch.autograd.grad(ops.roi_align(wide, boxes, 2), wide, torch.ones_like(y))
    assert torch.equal(dx, same)


def test_nothing():
    for shape, count, size in (((2, 3, 4, 5), 0, 2), ((0, 3, 4, 5), 0, 2), ((2, 0, 4, 5), 3, 2),
                               ((2, 3, 4, 5), 3, 0)):  # fmt: skip
        x = torch.randn(shape, requires_grad=True)
        y = ops.roi_align(x, torch.zeros(count, 5), size)
        assert y.shape == (count, shape[1], size, size)
        y.sum().backward()
        assert torch.equal(x.grad, torch.zeros(shape))
    assert ops.roi_align(torch.randn(2, 3, 4, 5), [], 2).shape == (0, 3, 2, 2)


def _samples(boxes):
    """Of a bin, for [2, 3] bins at half the size."""
    sides = boxes[:, 3:5] * 0.5 - boxes[:, 1:3] * 0.5
    return (sides / torch.tensor([3.0, 2.0], dtype=boxes.dtype)).ceil()


numbers = st.one_of(
    st.floats(-40, 60, width=32),
    st.sampled_from([0.0, -1.0, 12.0, 1e9, -1e9, 3e38, math.inf, -math.inf, math.nan]),
)


@settings(max_examples=60)
@given(
    corners=st.lists(st.tuples(*[numbers] * 4), min_size=1, max_size=6),
    ratio=st.integers(-1, 3),
    aligned=st.booleans(),
)
def test_hostile_boxes(corners, ratio, aligned):
    x = torch.randn(1, 6, 11, 12, requires_grad=True)
    boxes = torch.tensor([(0.0, *corner) for corner in corners])
    y = ops.roi_align(x, boxes, (2, 3), 0.5, ratio, aligned)
    y.sum().backward()
    assert y.isfinite().all()
    assert y.abs().max() <= x.abs().max() * 1.001
    assert x.grad.isfinite().all()
    assert not y[boxes.isnan().any(1)].any()
    usual = (boxes.abs() < 1000).all(1)
    if ratio <= 0:  # as many samples as pixels of a bin, rounded up: in float32 it may be one less
        usual &= (_samples(boxes) == _samples(boxes.double())).all(1)
    if usual.any():
        truth = reference(x.detach().double(), boxes[usual], (2, 3), 0.5, ratio, aligned)
        # A sample may lie on a border in float32 and just outside in float64.
        close = (y[usual] - truth).abs() < 1e-3
        assert close.float().mean() > 0.5


@settings(max_examples=20)
@given(image=st.sampled_from([-1.0, 2.0, 1e30, -1e30, math.inf, -math.inf, math.nan]))
def test_images_that_are_not_there(image):
    boxes = some_boxes(5, 2)
    boxes[3, 0] = image
    with pytest.raises(OperandError, match=r"rois batch index must be in \[0, batch_size\)"):
        ops.roi_align(torch.randn(2, 3, 8, 8), boxes, 2)


LEVELS = ops.MultiScaleRoIAlign(["a", "b"], 3, 2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda x: ops.roi_align(x, torch.zeros(1, 4), 2),
            r"rois must have shape as Tensor\[K, 5\]",
        ),
        (lambda x: ops.roi_align(x, [torch.zeros(1, 3)], 2), r"List\[Tensor\[L, 4\]\]"),
        (lambda x: ops.roi_align(x, 3, 2), "boxes is expected"),
        (lambda x: ops.roi_align(x[0, 0], torch.zeros(1, 5), 2), r"\[N, C, H, W\]"),
        (lambda x: ops.roi_align(x.int(), torch.zeros(1, 5), 2), "floating point"),
        (lambda x: ops.roi_align(x, torch.zeros(1, 5), -2), "must not be negative"),
        (lambda x: ops.roi_align(x, torch.zeros(1, 5), (1, 2, 3)), "one number or two"),
        (lambda x: ops.roi_align(x, torch.zeros(1, 5), ()), "one number or two"),
        (lambda x: ops.roi_align(x, [None], 2), "NoneType"),
        (lambda x: LEVELS({"a": x, "b": x}, [torch.zeros(1, 4)] * 2, [(0, 8)]), "no rows"),
        (lambda x: LEVELS({}, [torch.zeros(1, 4)] * 2, [(8, 8)]), "needs a feature map"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(OperandError, match=message):
        call(torch.zeros(2, 3, 8, 8))


def test_a_pyramid():
    sizes = {"a": 64, "b": 32, "c": 16}
    maps = {name: torch.randn(2, 4, size, size) for name, size in sizes.items()}
    pooler = ops.MultiScaleRoIAlign(["a", "b", "c"], 3, 2)
    assert repr(pooler) == (
        "MultiScaleRoIAlign(featmap_names=['a', 'b', 'c'], output_size=(3, 3), sampling_ratio=2)"
    )
    boxes = [
        torch.tensor([[0.0, 0, 60, 60], [8, 8, 232, 232]]),
        torch.tensor([[1.0, 2, 500, 500], [5, 5, 5, 5]]),
    ]
    y = pooler(maps, boxes, [(256, 256), (200, 256)])
    levels = (("a", 0, 0), ("c", 0, 1), ("c", 1, 0), ("a", 1, 1))
    for row, (name, image, number) in zip(y, levels, strict=True):
        one = torch.cat([torch.tensor([float(image)]), boxes[image][number]])[None]
        alone = ops.roi_align(maps[name], one, 3, sizes[name] / 256, 2)
        assert torch.equal(row, alone[0])
    single = ops.MultiScaleRoIAlign(["b"], (3, 3), 2)(maps, boxes, [(256, 256)])
    assert single.shape == (4, 4, 3, 3)
