"""Blocks of pixels to channels and back, against PyTorch and ONNX's definition."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade import ops
from saccade.errors import OperandError

DTYPES = [
    torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32,
    torch.uint8, torch.bool, torch.complex64, torch.complex128, torch.float8_e4m3fn,
]  # fmt: skip
FORMATS = [torch.contiguous_format, torch.channels_last]


def numbers(shape, dtype=torch.float32, layout=torch.contiguous_format):
    count = torch.Size(shape).numel()
    return (torch.arange(count) % 251).reshape(shape).to(dtype).contiguous(memory_format=layout)


def onnx_depth_to_space(x, b, mode):
    n, c, h, w = x.shape
    if mode == "DCR":
        return (
            x.reshape(n, b, b, c // b**2, h, w).permute(0, 3, 4, 1, 5, 2)
            .reshape(n, c // b**2, h * b, w * b)
        )  # fmt: skip
    return torch.nn.functional.pixel_shuffle(x, b)


@pytest.mark.parametrize("layout", FORMATS)
@pytest.mark.parametrize("mode", ["DCR", "CRD"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_and_layout(dtype, mode, layout):
    x = numbers((2, 27, 5, 7), layout=layout).to(dtype)
    y = ops.depth_to_space(x, 3, mode)
    bits = torch.uint8 if dtype is torch.float8_e4m3fn else dtype
    assert torch.equal(y.view(bits), onnx_depth_to_space(x.view(bits), 3, mode))
    assert torch.equal(ops.space_to_depth(y, 3, mode).view(bits), x.view(bits))
    if not dtype.is_complex:
        assert y.is_contiguous(memory_format=layout)


@settings(max_examples=40)
@given(
    batch=st.lists(st.integers(0, 3), max_size=3),
    sizes=st.tuples(st.integers(1, 5), st.integers(0, 9), st.integers(1, 9)),
    block=st.integers(1, 4),
    steps=st.integers(1, 2),
)
def test_any_shape_and_strides_as_pytorch(batch, sizes, block, steps):
    c, h, w = sizes
    x = numbers((*batch, c * block**2, h, w * steps))[..., ::steps]
    y = ops.pixel_shuffle(x, block)
    assert torch.equal(y, torch.nn.functional.pixel_shuffle(x, block))
    assert torch.equal(ops.pixel_unshuffle(y, block), x)


@pytest.mark.parametrize("layout", FORMATS)
def test_gradients(layout):
    x = torch.randn(2, 8, 3, 2, dtype=torch.float64).to(memory_format=layout).requires_grad_()
    assert torch.autograd.gradcheck(lambda t: ops.pixel_shuffle(t, 2), x)
    assert torch.autograd.gradcheck(lambda t: ops.space_to_depth(t, 1, "DCR"), x)
    assert torch.autograd.gradgradcheck(lambda t: ops.depth_to_space(t, 2), x)


def test_pytorch_sees_an_operator():
    x = torch.randn(2, 8, 4, 6, requires_grad=True)
    torch.library.opcheck(torch.ops.saccade.depth_to_space.default, (x, 2, "CRD"))
    torch.library.opcheck(torch.ops.saccade.space_to_depth.default, (x, 2, "DCR"))
    compiled = torch.compile(lambda t: ops.pixel_shuffle(t, 2) + 1, fullgraph=True, backend="eager")
    assert torch.equal(compiled(x), ops.pixel_shuffle(x, 2) + 1)
    many = torch.func.vmap(lambda t: ops.pixel_unshuffle(t, 2), in_dims=1)(x)
    assert torch.equal(many[3], ops.pixel_unshuffle(x[:, 3], 2))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ops.pixel_shuffle(torch.zeros(2, 2), 2), "^pixel_shuffle .*three axes"),
        (lambda: ops.pixel_shuffle("x", 2), "^pixel_shuffle: x"),
        (lambda: ops.depth_to_space(torch.zeros(2, 2), 2), "^depth_to_space: x"),
        (lambda: ops.pixel_shuffle(torch.zeros(6, 2, 2), 2), "6 channels are no multiple of 2²"),
        (
            lambda: ops.pixel_unshuffle(torch.zeros(1, 3, 4), 2),
            "^pixel_unshuffle .*: 3x4 pixels",
        ),
        (lambda: ops.pixel_unshuffle(torch.zeros(1, 4, 4), 0), "positive"),
        (lambda: ops.depth_to_space(torch.zeros(4, 1, 1), 2, "CDR"), "neither DCR nor CRD"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(OperandError, match=message):
        call()
