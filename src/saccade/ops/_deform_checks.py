"""What shapes and dtypes deformable convolution takes, and the shape of its result."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from saccade.errors import OperandError
from saccade.ops._tensors import FLOATS

__all__ = ["Pair", "check_ranks", "result_shape"]

_FARTHEST = 2**31 - 1  # pixels: farther apart than those of any image

Pair = tuple[int, int]
"""Of rows, of columns."""


def check_ranks(x: Sequence[int], weight: Sequence[int], offset: Sequence[int]) -> None:
    """Refuse shapes without four axes, and weights that no group of channels fits."""
    for shape, name in ((x, "input"), (weight, "weight"), (offset, "offset")):
        if len(shape) != 4:
            raise OperandError(f"deform_conv2d: {name} must have 4 axes, is {list(shape)}")
    # `deform_conv2d` divides by these to find groups: never by 0, and there has to be a group.
    if 0 in weight or x[1] < weight[1]:
        raise OperandError(f"deform_conv2d: weights {list(weight)} for {x[1]} channels")


def result_shape(
    x: Tensor, weight: Tensor, offset: Tensor, bias: Tensor | None, mask: Tensor | None,
    stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], groups: int,
    offset_groups: int,
) -> tuple[int, ...]:  # fmt: skip
    """The result's shape; the messages are torchvision's where its tests read them.

    Raises:
        OperandError: If shapes or dtypes do not fit.
    """
    check_ranks(x.shape, weight.shape, offset.shape)
    n, c, h, w = x.shape
    o, inner, kh, kw = weight.shape
    _check_numbers(stride, padding, dilation, groups, offset_groups)
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


def _check_numbers(
    stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], groups: int,
    offset_groups: int,
) -> None:  # fmt: skip
    pairs = all(len(pair) == 2 for pair in (stride, padding, dilation))
    if not pairs or min(*stride, *dilation) <= 0 or min(padding) < 0:
        raise OperandError(
            f"deform_conv2d: stride {tuple(stride)}, padding {tuple(padding)}, dilation "
            f"{tuple(dilation)}"
        )
    if max(*stride, *padding, *dilation) > _FARTHEST:
        raise OperandError(
            f"deform_conv2d: stride {tuple(stride)}, padding {tuple(padding)} and dilation "
            f"{tuple(dilation)} must be {_FARTHEST} at most"
        )
    if groups < 1 or offset_groups < 1:
        raise OperandError(f"deform_conv2d: {groups} groups and {offset_groups} offset groups")


def _check_dtypes(
    x: Tensor, weight: Tensor, offset: Tensor, bias: Tensor | None, mask: Tensor | None
) -> None:
    # Offset and mask may differ from x in type: autocast leaves them as precise as they are.
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
