"""Boxes as the operators over regions take them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import isfinite
from typing import Any

import torch
from torch import Tensor, nn

from saccade.errors import OperandError
from saccade.ops._register import Function, Gradient
from saccade.ops._tensors import FLOATS, memory_format, refuse_type

__all__ = [
    "Boxes",
    "PooledBins",
    "SampledBins",
    "Size",
    "bins_of",
    "check_bins",
    "check_regions",
    "check_scale",
    "images_of",
    "joined_boxes",
    "regions_gradient",
]

Boxes = Tensor | Sequence[Tensor]
"""[K, 5] of (image, x1, y1, x2, y2), or for each image [L, 4] of (x1, y1, x2, y2)."""


Size = int | tuple[int, int] | list[int]
"""Bins of a box, down and along; one number for both."""


def bins_of(size: Size) -> tuple[int, int]:
    """Bins down and along.

    Raises:
        OperandError: If there are other numbers than one or two.
    """
    if not isinstance(size, (tuple, list)):
        return size, size
    if len(size) not in (1, 2):
        raise OperandError(f"output_size should be one number or two, is {list(size)}")
    return size[0], size[-1]


def images_of(name: str, given: Tensor) -> Tensor:
    """Feature maps [N, C, H, W], given so or as one of them [C, H, W].

    Raises:
        OperandError: If it is not a tensor.
    """
    if not isinstance(given, Tensor):
        refuse_type(name, "input", given)
    # Nested tensors pass as they are: the operator refuses them with a reason.
    if given.dim() != 3 or given.is_nested:
        return given
    return given.unsqueeze(0)


def joined_boxes(boxes: Boxes, images: Tensor) -> Tensor:
    """Boxes of either kind as [K, 5]; a tensor is what operators check themselves.

    Raises:
        OperandError: If they are not of either kind, or lie on more than one device.
    """
    if isinstance(boxes, Tensor):
        return boxes
    if not isinstance(boxes, (list, tuple)):
        raise OperandError("boxes is expected to be a Tensor[K, 5] or a List[Tensor[L, 4]]")
    for one in boxes:
        if not isinstance(one, Tensor) or one.dim() != 2 or one.shape[1] != 4:
            found = list(one.shape) if isinstance(one, Tensor) else type(one).__name__
            raise OperandError(
                "The shape of the tensor in the boxes list is not correct as List[Tensor[L, 4]]: "
                f"{found}"
            )
    if not boxes:
        # `cat` takes no empty list.
        return torch.zeros(0, 5, device=images.device)
    devices = {str(one.device) for one in boxes}
    if len(devices) > 1:
        raise OperandError(f"boxes are on {' and '.join(sorted(devices))}, not on one device")
    for one in boxes:
        # Before `pad` and `cat`, whose own errors would not say that it is about boxes.
        if one.layout is not torch.strided or one.is_quantized:
            raise OperandError(f"boxes must be dense tensors, are {one.layout} of {one.dtype}")
    # Half precision has no number for every image.
    exact = [one.float() if one.dtype.itemsize < 4 else one for one in boxes]
    return torch.cat([torch.nn.functional.pad(one, (1, 0), value=i) for i, one in enumerate(exact)])


def check_regions(name: str, images: Tensor, boxes: Tensor) -> None:
    """Raise unless these are images [N, C, H, W] and boxes [K, 5], both floating point."""
    if images.dim() != 4:
        raise OperandError(f"{name}: input must be [N, C, H, W], is {list(images.shape)}")
    if boxes.dim() != 2 or boxes.shape[1] != 5:
        raise OperandError(f"{name}: rois must have shape as Tensor[K, 5], is {list(boxes.shape)}")
    for what, tensor in (("input", images), ("rois", boxes)):
        if tensor.dtype not in FLOATS:
            raise OperandError(f"{name}: {what} of {tensor.dtype} is not floating point")


def check_bins(name: str, *bins: int) -> None:
    """Raise for a negative number of bins."""
    if min(bins) < 0:
        raise OperandError(f"{name}: output_size must not be negative, is {list(bins)}")


def check_scale(name: str, scale: float) -> None:
    """Raise for a scale that no box has a place with."""
    if not isfinite(scale):
        raise OperandError(f"{name}: spatial_scale must be finite, is {scale}")


class PooledBins(nn.Module):
    """What modules that pool bins without samples are made with, and how they are printed."""

    def __init__(self, output_size: Size, spatial_scale: float) -> None:
        super().__init__()
        self.output_size = output_size
        self.spatial_scale = spatial_scale

    def extra_repr(self) -> str:
        """The attributes."""
        return f"output_size={self.output_size}, spatial_scale={self.spatial_scale}"


class SampledBins(PooledBins):
    """What modules that sample bins are made with, and how they are printed."""

    def __init__(self, output_size: Size, spatial_scale: float, sampling_ratio: int) -> None:
        super().__init__(output_size, spatial_scale)
        self.sampling_ratio = sampling_ratio

    def extra_repr(self) -> str:
        """The attributes."""
        return f"{super().extra_repr()}, sampling_ratio={self.sampling_ratio}"


def regions_gradient(operator: Function) -> Gradient:
    """How bins are differentiated that an operator gives beside the places that they come from.

    Args:
        operator: Gives the images' gradient, from that of the bins, the boxes, the places, what
            followed the boxes, the images' shape, and whether they were channels-last.
    """
    return Gradient(_keep_regions, partial(_regions_backward, operator))


def _keep_regions(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:  # noqa: ANN401
    x, boxes, *ctx.geometry = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(boxes, output[1])
    ctx.images, ctx.channels_last = Tensor.size(x), memory_format(x) is torch.channels_last


def _regions_backward(
    operator: Function,
    ctx: Any,  # noqa: ANN401
    grad: Tensor,
    _places: object,
) -> tuple[Tensor | None, ...]:
    dx = None
    if ctx.needs_input_grad[0]:
        boxes, places = ctx.saved_tensors
        dx = operator(grad, boxes, places, *ctx.geometry, *ctx.images, ctx.channels_last)
    return (dx, *(None for _ in ctx.needs_input_grad[1:]))
