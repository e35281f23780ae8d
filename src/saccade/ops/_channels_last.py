"""Images with their channels as neighbours in memory, as kernels of GPUs want to read them."""

from __future__ import annotations

import torch
from torch import Tensor

from saccade.ops._tensors import PLAIN, fake_like
from saccade.ops.rearrange import spread_into

__all__ = ["by_pixels", "channels_last", "planar_again"]

_TWICE = 2
"""Reads of each element that are worth a copy, which reads and writes it once."""
_CHANNELS = 32
"""What fills a warp (one H200: 256 channels of roi_align 203 for 264 µs)."""
_FEW = 1 << 18
"""Elements of images that are not worth another launch."""


def channels_last(images: Tensor, boxes: Tensor, reads: int) -> Tensor:
    """The images, on a GPU in channels-last order if that pays.

    Neighbouring channels of a pixel come in one access then, others one by one.

    Args:
        images: [N, C, H, W] of any strides; what is something else is given back.
        boxes: [K, 5].
        reads: Pixels of them that each box reads, about.
    """
    if type(images) not in PLAIN or images.is_cpu or type(boxes) not in PLAIN:
        return images
    if images.dim() != 4 or boxes.dim() != 2:
        return images
    channels = images.shape[1]
    if channels == 1 or images.stride(1) == 1 or images.numel() < _FEW:
        return images
    if reads * channels * boxes.shape[0] < _TWICE * images.numel():
        return images
    return _copied(images, torch.channels_last)


def by_pixels(grad: Tensor, pixels: int) -> bool:
    """Whether a gradient of planes is found sooner in channels-last order, to be copied.

    Programs own pixels and channels, and write neighbours of either in one access.

    Args:
        grad: [K, C, P, Q], of what bins gave; for what is something else it is not.
        pixels: Of all images.
    """
    if type(grad) not in PLAIN or grad.is_cpu or grad.dim() != 4:
        return False
    return grad.shape[1] >= _CHANNELS and grad.shape[1] * pixels >= _FEW


def planar_again(result: Tensor) -> Tensor:
    """A result of images that were copied, in the order that these had before."""
    return _copied(result, torch.contiguous_format)


def _copied(images: Tensor, layout: torch.memory_format) -> Tensor:
    copy = fake_like(images, images.shape, layout=layout)
    spread_into(images, copy, 1, "CRD")
    return copy
