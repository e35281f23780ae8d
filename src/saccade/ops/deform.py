"""Deformable convolution, versions 1 and 2, as torchvision has it.

    y[n, o, p, q] = bias[o] + Σ w[o, c, i, j] · mask · x[n, c, row, column]

Row and column are those of the window's tap (i, j) plus an offset that is given for each sample;
between pixels x is interpolated bilinearly, outside it is 0. Forward and backward sample a tile of
pixels and a block of channels at a time: the matrix of columns never exists as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from saccade.errors import OperandError
from saccade.kernels.base import View
from saccade.opdefs import DeformConv2d as DeformConv2dOp
from saccade.opdefs import DeformConv2dGradient
from saccade.ops._execute import execute
from saccade.ops._register import Gradient, define, define_gradient
from saccade.ops._tensors import FLOATS, empty_like, fake_like

__all__ = ["DeformConv2d", "deform_conv2d"]

Pair = tuple[int, int]


def deform_conv2d(
    input: Tensor,  # noqa: A002 - torchvision's name
    offset: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Pair = (1, 1),
    padding: int | Pair = (0, 0),
    dilation: int | Pair = (1, 1),
    mask: Tensor | None = None,
) -> Tensor:
    """`torchvision.ops.deform_conv2d`: deformable convolution, with a mask version 2 of it.

    Sums are kept in float32, or float64 for float64, and rounded once; two bfloat16 are multiplied
    in pairs where the processor can, the samples rounded before. A sample at NaN is NaN; one at an
    infinity is outside. Under autocast x, weights and bias are cast, offset and mask stay.

    Args:
        input: [N, C, H, W], float32, float64, bfloat16 or float16, of any strides.
        offset: [N, 2·G·kh·kw, P, Q], G offset groups; for each tap rows, then columns, in pixels.
            Of any of these dtypes.
        weight: [O, C / groups, kh, kw] in the dtype of `input`.
        bias: [O] in that dtype.
        stride: Of the window, rows and columns.
        padding: Rows and columns of zeros around the picture.
        dilation: Distance of taps.
        mask: [N, G·kh·kw, P, Q], what samples are multiplied with.

    Returns:
        [N, O, P, Q] in the dtype and the memory format of `input`.

    Raises:
        OperandError: If shapes or dtypes do not fit.
    """
    _check_ranks(input, weight, offset)
    taps = weight.shape[2] * weight.shape[3]
    offset_groups = offset.shape[1] // (2 * taps)
    if offset_groups == 0:
        raise OperandError(
            "the shape of the offset tensor at dimension 1 is not valid. It should be a multiple "
            f"of 2 * weight.size[2] * weight.size[3].\nGot offset.shape[1]={offset.shape[1]}, "
            f"while 2 * weight.size[2] * weight.size[3]={2 * taps}"
        )
    groups = input.shape[1] // weight.shape[1]
    result: Tensor = _FORWARD(
        input, weight, offset, bias, mask, _pair(stride), _pair(padding), _pair(dilation), groups,
        offset_groups,
    )  # fmt: skip
    return result


class DeformConv2d(nn.Module):
    """`torchvision.ops.DeformConv2d`: the weights and the bias of `deform_conv2d`.

    Args:
        in_channels: C.
        out_channels: O.
        kernel_size: Rows and columns of the window.
        stride, padding, dilation: As in `deform_conv2d`.
        groups: Groups of channels that are convolved by themselves; divides C and O.
        bias: Whether there is one.

    Raises:
        ValueError: If `groups` does not divide the channels.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Pair,
        stride: int | Pair = 1,
        padding: int | Pair = 0,
        dilation: int | Pair = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if in_channels % groups != 0:
            raise ValueError("in_channels must be divisible by groups")
        if out_channels % groups != 0:
            raise ValueError("out_channels must be divisible by groups")
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size, self.stride = _pair(kernel_size), _pair(stride)
        self.padding, self.dilation = _pair(padding), _pair(dilation)
        self.weight = nn.Parameter(
            torch.empty(out_channels, in_channels // groups, *self.kernel_size)
        )
        if bias:
            self.bias: nn.Parameter | None = nn.Parameter(torch.empty(out_channels))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """As `torch.nn.Conv2d` does it."""
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.weight[0].numel())
            nn.init.uniform_(self.bias, -bound, bound)

    def forward(
        self,
        input: Tensor,  # noqa: A002 - torchvision's name
        offset: Tensor,
        mask: Tensor | None = None,
    ) -> Tensor:
        """`deform_conv2d` of [N, C, H, W] with these weights."""
        return deform_conv2d(
            input, offset, self.weight, self.bias, stride=self.stride, padding=self.padding,
            dilation=self.dilation, mask=mask,
        )  # fmt: skip

    def extra_repr(self) -> str:
        """Sizes, as torchvision prints them."""
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}"
        text += f", stride={self.stride}"
        text += f", padding={self.padding}" if self.padding != (0, 0) else ""
        text += f", dilation={self.dilation}" if self.dilation != (1, 1) else ""
        text += f", groups={self.groups}" if self.groups != 1 else ""
        return text + (", bias=False" if self.bias is None else "")


def _pair(value: int | Sequence[int]) -> Pair:
    if isinstance(value, int):
        return value, value
    rows, columns = value
    return rows, columns


def _check_ranks(x: Tensor, weight: Tensor, offset: Tensor) -> None:
    for tensor, name in ((x, "input"), (weight, "weight"), (offset, "offset")):
        if tensor.dim() != 4:
            raise OperandError(f"deform_conv2d: {name} must have 4 axes, is {list(tensor.shape)}")
    if 0 in weight.shape or x.shape[1] < weight.shape[1]:
        raise OperandError(f"deform_conv2d: weights {list(weight.shape)} for {x.shape[1]} channels")


def _shape(
    x: Tensor, weight: Tensor, offset: Tensor, bias: Tensor | None, mask: Tensor | None,
    stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], groups: int,
    offset_groups: int,
) -> tuple[int, ...]:  # fmt: skip
    """The result's shape; the messages are torchvision's where its tests read them."""
    _check_ranks(x, weight, offset)
    n, c, h, w = x.shape
    o, inner, kh, kw = weight.shape
    if min(*stride, *dilation) <= 0 or min(padding) < 0:
        raise OperandError(
            f"deform_conv2d: stride {tuple(stride)}, padding {tuple(padding)}, dilation "
            f"{tuple(dilation)}"
        )
    if inner * groups != c or o % groups or c % offset_groups:
        raise OperandError(
            f"deform_conv2d: {c} channels and weights {list(weight.shape)} in {groups} groups and "
            f"{offset_groups} offset groups"
        )
    size = tuple(
        (have + 2 * pad - (step * (taps - 1) + 1)) // apart + 1
        for have, pad, step, taps, apart in zip(
            (h, w), padding, dilation, (kh, kw), stride, strict=True
        )
    )
    if min(size) <= 0:
        raise OperandError(f"deform_conv2d: calculated output size too small: {list(size)}")
    _check_plan("offset", offset, n, 2 * offset_groups * kh * kw, size)
    if mask is not None:
        _check_plan("mask", mask, n, offset_groups * kh * kw, size)
    if bias is not None and bias.shape != (o,):
        raise OperandError(f"deform_conv2d: bias {list(bias.shape)} for {o} channels")
    _check_dtypes(x, weight, offset, bias, mask)
    return (n, o, *size)


def _check_dtypes(
    x: Tensor, weight: Tensor, offset: Tensor, bias: Tensor | None, mask: Tensor | None
) -> None:
    for name, tensor in (("input", x), ("offset", offset), ("mask", mask)):
        if tensor is not None and tensor.dtype not in FLOATS:
            raise OperandError(f"deform_conv2d: {name} is {tensor.dtype}")
    for name, tensor in (("weight", weight), ("bias", bias)):
        if tensor is not None and tensor.dtype != x.dtype:
            raise OperandError(
                f"deform_conv2d: {name} is {tensor.dtype}, input {x.dtype}: they must be the same"
            )


def _check_plan(name: str, tensor: Tensor, batch: int, channels: int, size: Sequence[int]) -> None:
    if tensor.dim() != 4 or tensor.shape[0] != batch:
        raise OperandError(f"deform_conv2d: invalid batch size of {name}: {list(tensor.shape)}")
    if tensor.shape[1] != channels:
        raise OperandError(
            f"{name}.shape[1] is not valid: got: {tensor.shape[1]} expected: {channels}"
        )
    if tuple(tensor.shape[2:]) != tuple(size):
        raise OperandError(
            f"deform_conv2d: {name} output dims: ({tensor.shape[2]}, {tensor.shape[3]}) - computed "
            f"output dims: ({size[0]}, {size[1]})"
        )


def _linear(tensor: Tensor) -> Tensor:
    """The tensor, or a copy where its rows do not follow each other as its pixels do."""
    _, _, height, width = tensor.shape
    _, _, down, along = tensor.stride()
    return tensor if height <= 1 or width <= 1 or down == width * along else tensor.contiguous()


def _forward(
    x: Tensor, weight: Tensor, offset: Tensor, bias: Tensor | None, mask: Tensor | None,
    stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], groups: int,
    offset_groups: int,
) -> Tensor:  # fmt: skip
    shape = _shape(x, weight, offset, bias, mask, stride, padding, dilation, groups, offset_groups)
    out = empty_like(x, shape)
    inputs = [_linear(x), weight, _linear(offset)]
    if bias is not None:
        inputs.append(bias)
    if mask is not None:
        inputs.append(_linear(mask))
    parameters = (
        tuple(stride), tuple(padding), tuple(dilation), groups, offset_groups, bias is not None,
        mask is not None,
    )  # fmt: skip
    execute(_describe, parameters, inputs, [out])
    return out


def _describe(
    _inputs: tuple[View, ...], stride: Pair, padding: Pair, dilation: Pair, groups: int,
    offset_groups: int, bias: bool, mask: bool,
) -> DeformConv2dOp:  # fmt: skip
    return DeformConv2dOp(stride, (*padding, *padding), dilation, groups, offset_groups, bias, mask)


def _fake(x: Tensor, weight: Tensor, *rest: Any) -> Tensor:  # noqa: ANN401
    return fake_like(x, _shape(x, weight, *rest))


def _autocast(
    x: Tensor, weight: Tensor, offset: Tensor, bias: Tensor | None, mask: Tensor | None,
    *rest: object,
) -> Tensor:  # fmt: skip
    """Products in autocast's dtype; places stay as precise as they are."""
    if x.dtype is not torch.float64:
        dtype = torch.get_autocast_dtype("cpu")
        x, weight = x.to(dtype), weight.to(dtype)
        bias = None if bias is None else bias.to(dtype)
    result: Tensor = _FORWARD(x, weight, offset, bias, mask, *rest)
    return result


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ANN401
    del output
    x, weight, offset, _, mask, *ctx.parameters = inputs
    ctx.save_for_backward(x, weight, offset, mask)


def _differentiate(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
    x, weight, offset, mask = ctx.saved_tensors
    wanted = list(ctx.needs_input_grad[:5])
    grads = _BACKWARD(grad, x, weight, offset, mask, wanted, *ctx.parameters)
    found = [g if want else None for g, want in zip(grads, wanted, strict=True)]
    return (*found, *[None] * len(ctx.parameters))


def _backward(
    grad: Tensor, x: Tensor, weight: Tensor, offset: Tensor, mask: Tensor | None,
    wanted: Sequence[bool], stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], groups: int, offset_groups: int,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Gradients of x, weights, offset, bias and mask; tensors without elements for the others."""
    results = _gradients(empty_like, x, weight, offset, mask, wanted)
    inputs = [_linear(grad), _linear(x), weight, _linear(offset)]
    if mask is not None:
        inputs.append(_linear(mask))
    order = [name for name in DeformConv2dGradient.WANTED if name in results]
    parameters = (
        tuple(stride), tuple(padding), tuple(dilation), groups, offset_groups, mask is not None,
        tuple(order),
    )  # fmt: skip
    if order:
        execute(_describe_gradient, parameters, inputs, [results[name] for name in order])
    return tuple(
        results[name] if name in results else x.new_empty(0)
        for name in ("x", "weight", "offset", "bias", "mask")
    )


def _gradients(
    make: Any, x: Tensor, weight: Tensor, offset: Tensor, mask: Tensor | None,  # noqa: ANN401
    wanted: Sequence[bool],
) -> dict[str, Tensor]:  # fmt: skip
    """Fresh tensors for the gradients that are wanted."""
    likes = {"x": x, "weight": weight, "offset": offset, "bias": weight, "mask": mask}
    return {
        name: make(like, like.shape[:1] if name == "bias" else like.shape)
        for (name, like), want in zip(likes.items(), wanted, strict=True)
        if want and like is not None
    }


def _describe_gradient(
    _inputs: tuple[View, ...], stride: Pair, padding: Pair, dilation: Pair, groups: int,
    offset_groups: int, mask: bool, wanted: tuple[str, ...],
) -> DeformConv2dGradient:  # fmt: skip
    return DeformConv2dGradient(
        stride, (*padding, *padding), dilation, groups, offset_groups, mask, wanted
    )


def _fake_backward(
    grad: Tensor, x: Tensor, weight: Tensor, offset: Tensor, mask: Tensor | None,
    wanted: Sequence[bool], *_: object,
) -> tuple[Tensor, ...]:  # fmt: skip
    del grad
    results = _gradients(fake_like, x, weight, offset, mask, wanted)
    return tuple(
        results[name] if name in results else x.new_empty(0)
        for name in ("x", "weight", "offset", "bias", "mask")
    )


_SHAPE = "int[] stride, int[] padding, int[] dilation, SymInt groups, SymInt offset_groups"
_FORWARD = define(
    "deform_conv2d(Tensor x, Tensor weight, Tensor offset, Tensor? bias, Tensor? mask, "
    f"{_SHAPE}) -> Tensor",
    _forward,
    _fake,
    gradient=Gradient(_keep, _differentiate),
    autocast=_autocast,
)
_BACKWARD = define_gradient(
    "_deform_conv2d_backward(Tensor grad, Tensor x, Tensor weight, Tensor offset, Tensor? mask, "
    f"bool[] wanted, {_SHAPE}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    _backward,
    _fake_backward,
)
