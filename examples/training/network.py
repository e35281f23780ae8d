"""A small detector: convolutions, a deformable one, and a head on what RoIAlign cuts out.

It takes the two operators as functions, so that Saccade's and others can be put in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 - as PyTorch's users call it
from torch import Tensor, nn

import saccade.ops

STRIDE = 4  # pixels of the image for each of the feature map
CHANNELS = 32
BINS = 7  # of RoIAlign, each way
SAMPLES = 2  # of each bin, each way


class Operators(NamedTuple):
    """What the network needs beside PyTorch's own.

    Attributes:
        deform_conv2d: features [N, C, H, W], offsets [N, 18, H, W], weight [C, C, 3, 3].
        roi_align: features, boxes [R, 5] with the image's number first, in pixels: [R, C, 7, 7].
    """

    deform_conv2d: Callable[[Tensor, Tensor, Tensor], Tensor]
    roi_align: Callable[[Tensor, Tensor], Tensor]


def _deform_conv2d(features: Tensor, offset: Tensor, weight: Tensor) -> Tensor:
    return saccade.ops.deform_conv2d(features, offset, weight, padding=1)


def _roi_align(features: Tensor, boxes: Tensor) -> Tensor:
    return saccade.ops.roi_align(
        features, boxes, BINS, spatial_scale=1 / STRIDE, sampling_ratio=SAMPLES, aligned=True
    )


SACCADE = Operators(_deform_conv2d, _roi_align)


def _plain_deform_conv2d(features: Tensor, offset: Tensor, weight: Tensor) -> Tensor:
    """The same from `grid_sample`: each tap of the kernel is sampled, then weighted."""
    height, width = features.shape[2:]
    rows, columns = torch.meshgrid(
        torch.arange(height, dtype=features.dtype),
        torch.arange(width, dtype=features.dtype),
        indexing="ij",
    )
    result = torch.zeros_like(features)
    for tap in range(9):
        y = rows + tap // 3 - 1 + offset[:, 2 * tap]
        x = columns + tap % 3 - 1 + offset[:, 2 * tap + 1]
        grid = torch.stack([2 * x / (width - 1) - 1, 2 * y / (height - 1) - 1], -1)
        sampled = F.grid_sample(features, grid, padding_mode="zeros", align_corners=True)
        taken = weight[:, :, tap // 3, tap % 3]
        result = result + torch.einsum("nchw,oc->nohw", sampled, taken)
    return result


def _plain_roi_align(features: Tensor, boxes: Tensor) -> Tensor:
    """The same from `grid_sample`, for boxes inside the image: samples of each bin, averaged."""
    height, width = features.shape[2:]
    steps = (torch.arange(BINS * SAMPLES, dtype=features.dtype) + 0.5) / (BINS * SAMPLES)
    low, high = boxes[:, 1:3] / STRIDE - 0.5, boxes[:, 3:5] / STRIDE - 0.5
    at = low[:, None] + steps[None, :, None] * (high - low)[:, None]  # [R, samples, (x, y)]
    x, y = 2 * at[..., 0] / (width - 1) - 1, 2 * at[..., 1] / (height - 1) - 1
    many = len(steps)
    grid = torch.stack([x[:, None, :].expand(-1, many, -1), y[:, :, None].expand(-1, -1, many)], -1)
    own = features[boxes[:, 0].long()]
    sampled = F.grid_sample(own, grid, padding_mode="border", align_corners=True)
    return F.avg_pool2d(sampled, SAMPLES)


PLAIN = Operators(_plain_deform_conv2d, _plain_roi_align)


class Detector(nn.Module):
    """Scores of four classes, the first of which is nothing, and corrections of boxes."""

    def __init__(self, operators: Operators, classes: int = 4) -> None:
        super().__init__()
        self.operators = operators
        self.first = nn.Conv2d(3, 16, 5, stride=2, padding=2)
        self.second = nn.Conv2d(16, CHANNELS, 3, stride=2, padding=1)
        self.offset = nn.Conv2d(CHANNELS, 18, 3, padding=1)
        nn.init.normal_(self.offset.weight, std=1e-3)  # at first nearly a plain convolution
        self.deform = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, bias=False)  # its weight
        self.norms = nn.ModuleList(nn.GroupNorm(4, count) for count in (16, CHANNELS, CHANNELS))
        self.hidden = nn.Linear(CHANNELS * BINS * BINS, 128)
        self.score = nn.Linear(128, classes)
        self.move = nn.Linear(128, 4)

    def forward(self, images: Tensor, boxes: Tensor) -> tuple[Tensor, Tensor]:
        """Scores [R, 4] and corrections [R, 4] for images [N, 3, 96, 96], boxes [R, 5]."""
        first, second, third = self.norms
        features = F.relu(second(self.second(F.relu(first(self.first(images))))))
        offset = self.offset(features)
        deformed = self.operators.deform_conv2d(features, offset, self.deform.weight)
        features = F.relu(third(deformed))
        cut = self.operators.roi_align(features, boxes)
        hidden = F.relu(self.hidden(cut.flatten(1)))
        return self.score(hidden), self.move(hidden)
