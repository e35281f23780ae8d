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
from saccade.opdefs import DeformConv
from saccade.ops._deform_checks import Pair, check_ranks, result_shape
from saccade.ops._deform_gradient import GRADIENT, PARAMETERS, lying_apart
from saccade.ops._execute import Operator
from saccade.ops._plan import Described
from saccade.ops._register import define
from saccade.ops._tensors import empty_like, fake_like, refuse_others

__all__ = ["DeformConv2d", "deform_conv2d"]


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
        padding: Rows and columns of zeros around the image.
        dilation: Distance of taps.
        mask: [N, G·kh·kw, P, Q], what samples are multiplied with.

    Returns:
        [N, O, P, Q] in the dtype and the memory format of `input`.

    Raises:
        OperandError: If shapes or dtypes do not fit.
    """
    refuse_others("deform_conv2d", input=input, offset=offset, weight=weight)
    present = {"bias": bias, "mask": mask}
    refuse_others("deform_conv2d", **{n: one for n, one in present.items() if one is not None})
    shapes = input.shape, weight.shape, offset.shape
    check_ranks(*shapes)
    (_, channels, _, _), (_, inner, rows, columns), (_, coordinates, _, _) = shapes
    # As torchvision infers both: what does not divide is refused later, in `result_shape`.
    offset_groups = coordinates // (2 * rows * columns)
    if offset_groups == 0:
        raise OperandError(
            "the shape of the offset tensor at dimension 1 is not valid. It should be a multiple "
            f"of 2 * weight.size[2] * weight.size[3].\nGot offset.shape[1]={coordinates}, "
            f"while 2 * weight.size[2] * weight.size[3]={2 * rows * columns}"
        )
    groups = channels // inner
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
        # This slope makes the bound the inverse root of the terms of a sum, as for the bias.
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
    if len(value) != 2:
        raise OperandError(f"deform_conv2d: {list(value)} should be one number or two")
    return value[0], value[1]


def _forward(
    x: Tensor, weight: Tensor, offset: Tensor, bias: Tensor | None, mask: Tensor | None,
    stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], groups: int,
    offset_groups: int,
) -> Tensor:  # fmt: skip
    operands = [x, weight, offset]
    if bias is not None:
        operands.append(bias)
    if mask is not None:
        operands.append(mask)
    parameters = (
        bias is not None, mask is not None, tuple(stride), tuple(padding), tuple(dilation), groups,
        offset_groups,
    )  # fmt: skip
    return _ON_MEMORY(operands, parameters)[0]


def _describe(
    operands: list[Tensor], biased: bool, masked: bool, stride: Pair, padding: Pair, dilation: Pair,
    groups: int, offset_groups: int,
) -> Described:  # fmt: skip
    x, weight, offset, *rest = operands
    # A missing operand leaves no place, so that flags have to tell which ones there are.
    bias = rest[0] if biased else None
    mask = rest[-1] if masked else None
    shape = result_shape(
        x, weight, offset, bias, mask, stride, padding, dilation, groups, offset_groups
    )
    # Top, left, bottom, right: PyTorch pads both ends alike.
    both = (*padding, *padding)
    op = DeformConv(stride, both, dilation, groups, offset_groups, biased, masked)
    return Described(op, [empty_like(x, shape)], dense=lying_apart(operands, weights=1))


def _fake(x: Tensor, weight: Tensor, *rest: Any) -> Tensor:  # noqa: ANN401
    return fake_like(x, result_shape(x, weight, *rest))


def _autocast(
    x: Tensor, weight: Tensor, offset: Tensor, bias: Tensor | None, mask: Tensor | None,
    *rest: object,
) -> Tensor:  # fmt: skip
    """Products in autocast's dtype; places stay as precise as they are."""
    # Autocast leaves float64 alone, as in PyTorch's own operators.
    if x.dtype is not torch.float64:
        dtype = torch.get_autocast_dtype(x.device.type)
        x, weight = x.to(dtype), weight.to(dtype)
        bias = None if bias is None else bias.to(dtype)
    result: Tensor = _FORWARD(x, weight, offset, bias, mask, *rest)
    return result


_ON_MEMORY = Operator("deform_conv2d", _describe, products=True)
_FORWARD = define(
    "deform_conv2d(Tensor x, Tensor weight, Tensor offset, Tensor? bias, Tensor? mask, "
    f"{PARAMETERS}) -> Tensor",
    _forward,
    _fake,
    gradient=GRADIENT,
    autocast=_autocast,
)
