"""Deformable convolution against a plain formula in float64, as PyTorch sees it."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade import ops
from saccade.errors import OperandError

FORMATS = [torch.contiguous_format, torch.channels_last]


def formula(x, offset, weight, bias, stride, padding, dilation, mask):
    """Gathers the four neighbours of every sample; differentiable."""
    (n, c, h, w), (o, inner, kh, kw) = x.shape, weight.shape
    taps, (p, q) = kh * kw, offset.shape[2:]
    groups = offset.shape[1] // (2 * taps)
    moved, tap = offset.reshape(n, groups, taps, 2, p, q), torch.arange(taps)
    first = (torch.arange(p) * stride[0] - padding[0])[:, None]
    y = first + (tap // kw * dilation[0])[:, None, None] + moved[:, :, :, 0]
    first = (torch.arange(q) * stride[1] - padding[1])[None]
    z = first + (tap % kw * dilation[1])[:, None, None] + moved[:, :, :, 1]
    inside = (y > -1) & (y < h) & (z > -1) & (z < w)
    pixels, total = x.reshape(n, groups, c // groups, h * w), 0
    for i in (0, 1):
        for j in (0, 1):
            row, column = y.detach().floor() + i, z.detach().floor() + j
            there = inside & (row >= 0) & (row < h) & (column >= 0) & (column < w)
            share = (1 - (y - row).abs()) * (1 - (z - column).abs()) * there
            at = (row.clamp(0, h - 1) * w + column.clamp(0, w - 1)).long()
            at = at.reshape(n, groups, 1, -1).expand(-1, -1, c // groups, -1)
            values = pixels.gather(3, at).reshape(n, groups, c // groups, taps, p, q)
            total = total + values * share[:, :, None]
    if mask is not None:
        total = total * mask.reshape(n, groups, 1, taps, p, q)
    columns = total.reshape(n, c // inner, inner * taps, p * q)
    flat = weight.reshape(c // inner, o * inner // c, -1)
    result = torch.einsum("gok,ngkp->ngop", flat, columns).reshape(n, o, p, q)
    return result if bias is None else result + bias.view(1, -1, 1, 1)


def tensors(batch=2, channels=24, outputs=20, groups=2, offset_groups=2, kernel=(3, 2),
            size=(7, 9), geometry=((2, 1), (1, 2), (1, 2)), mask=True, bias=True,
            dtype=torch.float32, layout=torch.contiguous_format):  # fmt: skip
    stride, padding, dilation = geometry
    p, q = (
        (n + 2 * pad - d * (k - 1) - 1) // s + 1
        for n, pad, d, k, s in zip(size, padding, dilation, kernel, stride, strict=True)
    )
    count = offset_groups * kernel[0] * kernel[1]
    x = torch.randn(batch, channels, *size).to(dtype).contiguous(memory_format=layout)
    weight = torch.randn(outputs, channels // groups, *kernel).to(dtype)
    # Never whole: slopes are those of the cell, which rounding must not change.
    offset = (torch.randint(-9, 9, (batch, 2 * count, p, q)) / 4 + 0.125).to(dtype)
    factors = torch.rand(batch, count, p, q).to(dtype) if mask else None
    return [x, offset, weight, torch.randn(outputs).to(dtype) if bias else None, *geometry, factors]


def differentiable(arguments, dtype=None):
    return [
        a.detach().clone(memory_format=torch.preserve_format).to(dtype or a.dtype).requires_grad_()
        if isinstance(a, torch.Tensor) else a
        for a in arguments
    ]  # fmt: skip


def leaves(arguments):
    return [a for a in arguments if isinstance(a, torch.Tensor)]


def assert_near(found, wanted, dtype, terms=300):
    eps = {torch.float64: 1e-13, torch.float32: 1e-6}.get(dtype, torch.finfo(dtype).eps)
    assert found.dtype == dtype
    assert found.shape == wanted.shape
    scale = wanted.abs().max().clamp(min=1)  # what cancels leaves the rounding of its terms
    assert ((found.double() - wanted).abs().max() / scale) < 2 * eps * (1 + terms**0.5 / 8)


@pytest.mark.parametrize("layout", FORMATS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_values_and_gradients(dtype, layout):
    arguments = differentiable(tensors(dtype=dtype, layout=layout))
    exact = differentiable(arguments, torch.float64)
    y, wanted = ops.deform_conv2d(*arguments), formula(*exact)
    assert_near(y.detach(), wanted.detach(), dtype)
    assert y.is_contiguous(memory_format=layout)
    grad = torch.randn_like(wanted).to(dtype)
    found = torch.autograd.grad(y, leaves(arguments), grad)
    truth = torch.autograd.grad(wanted, leaves(exact), grad.double())
    for mine, true in zip(found, truth, strict=True):
        assert_near(mine, true, dtype)
    assert found[0].is_contiguous(memory_format=layout)


@settings(max_examples=12)
@given(
    batch=st.sampled_from([1, 2, 33]),
    groups=st.integers(1, 2),
    offset_groups=st.integers(1, 3),
    each=st.integers(1, 4),
    kernel=st.tuples(st.integers(1, 2), st.integers(1, 3)),
    size=st.tuples(st.integers(1, 4), st.integers(1, 5)),
    stride=st.tuples(st.integers(1, 2), st.integers(1, 3)),
    padding=st.tuples(st.integers(1, 2), st.integers(2, 4)),
    dilation=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    mask=st.booleans(),
    bias=st.booleans(),
)
def test_any_geometry(batch, groups, offset_groups, each, mask, bias, **sizes):
    geometry = tuple(sizes.pop(name) for name in ("stride", "padding", "dilation"))
    arguments = tensors(
        batch, 6 * each, 4, groups, offset_groups, geometry=geometry, mask=mask, bias=bias, **sizes
    )
    arguments = differentiable(arguments)
    exact = differentiable(arguments, torch.float64)
    y, wanted = ops.deform_conv2d(*arguments), formula(*exact)
    assert_near(y.detach(), wanted.detach(), torch.float32)
    found = torch.autograd.grad(y.sum(), leaves(arguments))
    truth = torch.autograd.grad(wanted.sum(), leaves(exact))
    for mine, true in zip(found, truth, strict=True):
        assert_near(mine, true, torch.float32, 3000)


def test_an_empty_batch():
    arguments = differentiable(tensors(batch=0))
    y = ops.deform_conv2d(*arguments)
    assert y.shape[:2] == (0, 20)
    for grad in torch.autograd.grad(y.sum(), leaves(arguments)):
        assert not grad.any()


def test_gradcheck():
    arguments = tensors(1, 4, 2, kernel=(2, 2), size=(3, 4), dtype=torch.float64)
    arguments = differentiable(arguments)
    assert torch.autograd.gradcheck(ops.deform_conv2d, arguments, fast_mode=True)
    x, *rest = arguments
    (grad,) = torch.autograd.grad(ops.deform_conv2d(x, *rest).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="double backward of saccade::deform_conv2d"):
        grad.sum().backward()


def test_only_what_is_asked_for():
    x, offset, weight, bias, *geometry, mask = tensors()
    weight.requires_grad_()
    ops.deform_conv2d(x, offset, weight, bias, *geometry, mask).sum().backward()
    assert weight.grad is not None
    assert x.grad is None and offset.grad is None


def test_threads_and_layouts_give_the_same_bits():
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            torch.manual_seed(1)
            arguments = differentiable(tensors())
            y = ops.deform_conv2d(*arguments)
            results.append([y, *torch.autograd.grad(y.cos().sum(), leaves(arguments))])
    finally:
        torch.set_num_threads(before)
    for one, two in zip(*results, strict=True):
        assert torch.equal(one, two)
    arguments[0] = arguments[0].detach().contiguous(memory_format=torch.channels_last)
    assert torch.equal(ops.deform_conv2d(*arguments), y)


def test_any_strides():
    x, offset, weight, bias, *geometry, mask = tensors(size=(7, 18))
    wanted = ops.deform_conv2d(x, offset, weight, bias, *geometry, mask)
    last = torch.channels_last
    parts = (x[:, :, :, ::2], offset.contiguous(memory_format=last), weight.transpose(2, 3))
    assert wanted.shape[3] != 0 and parts[0].stride(3) == 2
    apart = torch.stack([x, x], 4)[..., 0]
    same = ops.deform_conv2d(
        apart, parts[1], weight.contiguous(memory_format=last), bias, *geometry,
        mask.contiguous(memory_format=last),
    )  # fmt: skip
    assert torch.equal(same, wanted)
    crop = torch.nn.functional.pad(x, (1, 1, 1, 1))[:, :, 1:-1, 1:-1]
    assert torch.equal(ops.deform_conv2d(crop, offset, weight, bias, *geometry, mask), wanted)


def test_wherever_offsets_point():
    x, offset, weight, _, *geometry, mask = differentiable(tensors())
    offset = offset.detach()
    special = torch.tensor([3e38, -3e38, 1e10, float("inf"), float("-inf"), float("nan"), -40.0])
    offset[0] = special[torch.randint(0, 6, offset[0].shape)]
    offset[1] = special[torch.randint(0, 5, offset[1].shape)]
    offset.requires_grad_()
    y = ops.deform_conv2d(x, offset, weight, None, *geometry, mask)
    assert not y[1].any()
    for grad in torch.autograd.grad(y.sum(), (x, offset)):
        assert not grad[1].any()


def test_offsets_of_another_dtype_and_autocast():
    x, offset, weight, bias, *geometry, mask = tensors()
    wanted = ops.deform_conv2d(
        x.bfloat16(), offset, weight.bfloat16(), bias.bfloat16(), *geometry, mask
    )
    with torch.autocast("cpu", torch.bfloat16):
        y = ops.deform_conv2d(x, offset, weight.requires_grad_(), bias, *geometry, mask)
    assert y.dtype is torch.bfloat16
    assert torch.equal(y, wanted)
    y.sum().backward()
    assert weight.grad.dtype is torch.float32


def test_pytorch_sees_an_operator():
    x, offset, weight, bias, *geometry, mask = differentiable(tensors())
    arguments = (x, weight, offset, bias, mask, *map(list, geometry), 2, 2)
    torch.library.opcheck(torch.ops.saccade.deform_conv2d.default, arguments)
    layer = ops.DeformConv2d(24, 20, (3, 2), *geometry, groups=2)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x, offset, mask), layer(x, offset, mask))
    compiled(x, offset, mask).sum().backward()
    many = torch.func.vmap(lambda t: ops.deform_conv2d(t, offset, weight, bias, *geometry, mask))
    wanted = ops.deform_conv2d(x, offset, weight, bias, *geometry, mask)
    assert torch.equal(many(torch.stack([2 * x, x]))[1], wanted)


def test_the_module_is_torchvisions():
    layer = ops.DeformConv2d(6, 4, 3, padding=1, dilation=(1, 2), groups=2, bias=False)
    assert repr(layer) == (
        "DeformConv2d(6, 4, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1), dilation=(1, 2), "
        "groups=2, bias=False)"
    )
    assert layer.weight.shape == (4, 3, 3, 3)
    with pytest.raises(ValueError, match="in_channels"):
        ops.DeformConv2d(5, 4, 3, groups=2)


def test_refusals():
    x, offset, weight, bias, *geometry, mask = tensors()

    def call(**changes):
        given = {"input": x, "offset": offset, "weight": weight, "bias": bias, "mask": mask}
        ops.deform_conv2d(
            **{**given, **changes},
            **dict(zip(("stride", "padding", "dilation"), geometry, strict=True)),
        )

    for changes, message in (
        ({"offset": offset[:, :2]}, "the shape of the offset"),
        ({"mask": mask[:, :2]}, r"mask.shape\[1\] is not valid"),
        ({"mask": mask[..., :1]}, "mask output dims"),
        ({"offset": offset[:1]}, "invalid batch size of offset"),
        ({"weight": weight.double()}, "they must be the same"),
        ({"input": x.int()}, "input is torch.int32"),
        ({"bias": bias[:3]}, r"bias \[3\]"),
        ({"input": x[0]}, "input must have 4 axes"),
    ):
        with pytest.raises(OperandError, match=message):
            call(**changes)
    with pytest.raises(OperandError, match="one number or two"):
        ops.deform_conv2d(x, offset, weight, stride=(1, 1, 1))
