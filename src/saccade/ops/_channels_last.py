"""Images in the order in memory that kernels of GPUs want: channels as neighbours, or planes."""

from __future__ import annotations

import torch
from torch import Tensor

from saccade.ops._tensors import PLAIN, fake_like
from saccade.ops.rearrange import spread_into

__all__ = [
    "by_pixels", "by_planes", "channels_last", "channels_last_again", "planar", "planar_again",
]  # fmt: skip

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
    if type(images) in PLAIN and images.numel() < _FEW:  # first: small calls wait for the host
        return images
    if not (_on_gpu(images, 4) and type(boxes) in PLAIN and boxes.dim() == 2):
        return images
    channels = images.shape[1]
    if channels == 1 or images.stride(1) == 1:
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
    if not _on_gpu(grad, 4):
        return False
    return grad.shape[1] >= _CHANNELS and grad.shape[1] * pixels >= _FEW


def planar(images: Tensor, boxes: Tensor, nbytes: int) -> Tensor:
    """The images, on a GPU as planes if that pays: where each bin has pixels of its own channel.

    Args:
        images: [N, C, H, W] of any strides; what is something else is given back.
        boxes: [K, 5].
        nbytes: That each box reads of a channel where these are neighbours, about.
    """
    if not (_on_gpu(images, 4) and type(boxes) in PLAIN and boxes.dim() == 2):
        return images
    channels = images.shape[1]
    if channels == 1 or images.stride(1) != 1 or images.numel() < _FEW:
        return images
    # The copy reads them once and writes them once.
    if nbytes * channels * boxes.shape[0] < 2 * images.nbytes:
        return images
    return _copied(images, torch.contiguous_format)


def by_planes(grad: Tensor, elements: int) -> bool:
    """Whether a channels-last gradient of so many elements is found sooner as planes, to be copied.

    Args:
        grad: [K, C, P, Q], of bins that have pixels of one channel each; for what is something else
            it is not.
        elements: Of all images.
    """
    return _on_gpu(grad, 4) and elements >= _FEW


def channels_last_again(result: Tensor) -> Tensor:
    """What was found as planes, in channels-last order."""
    return _copied(result, torch.channels_last)


def planar_again(result: Tensor) -> Tensor:
    """A result of images that were copied, in the order that these had before."""
    return _copied(result, torch.contiguous_format)


def _on_gpu(tensor: Tensor, rank: int) -> bool:
    """Whether it is a plain tensor of so many axes that is not the host's."""
    return type(tensor) in PLAIN and not tensor.is_cpu and tensor.dim() == rank


def _copied(images: Tensor, layout: torch.memory_format) -> Tensor:
    copy = fake_like(images, images.shape, layout=layout)
    spread_into(images, copy, 1, "CRD")
    return copy
