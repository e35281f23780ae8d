"""RoIAlign over a pyramid of feature maps: every box from the level that suits its size."""

from __future__ import annotations

from collections.abc import Sequence
from math import log2

import torch
from torch import Tensor, nn

from saccade.errors import OperandError
from saccade.ops._boxes import joined_boxes
from saccade.ops._tensors import fake_like
from saccade.ops.roi_align import roi_align

__all__ = ["MultiScaleRoIAlign"]

_EPSILON = 1e-6  # boxes of exactly a level's size belong to it, whatever their logarithm rounds to


class MultiScaleRoIAlign(nn.Module):
    """`torchvision.ops.MultiScaleRoIAlign`: `roi_align` of each box on one of several feature maps.

    A box of size s = sqrt(w · h) is pooled from level floor(canonical_level + log2(s /
    canonical_scale)), or the nearest that there is; level l has 1 / 2^l of the images' size.

    Args:
        featmap_names: Which feature maps are used.
        output_size: Bins of a box, down and along.
        sampling_ratio: Samples of a bin along each axis, see `roi_align`.
        canonical_scale: Size of a box of the canonical level.
        canonical_level: That level.
    """

    def __init__(
        self,
        featmap_names: list[str],
        output_size: int | tuple[int, int] | list[int],
        sampling_ratio: int,
        *,
        canonical_scale: int = 224,
        canonical_level: int = 4,
    ) -> None:
        super().__init__()
        both = (output_size, output_size) if isinstance(output_size, int) else tuple(output_size)
        self.featmap_names = featmap_names
        self.sampling_ratio = sampling_ratio
        self.output_size = both
        self.canonical_scale = canonical_scale
        self.canonical_level = canonical_level

    def forward(
        self, x: dict[str, Tensor], boxes: list[Tensor], image_shapes: Sequence[tuple[int, int]]
    ) -> Tensor:
        """Pool all boxes.

        Args:
            x: Feature maps [N, C, H, W] by name, the largest first.
            boxes: For each image [L, 4] of (x1, y1, x2, y2), in its pixels.
            image_shapes: Height and width of each image.

        Returns:
            [K, C, *output_size], boxes in the order in which they came.

        Raises:
            OperandError: If there are no feature maps or no images, or they have no rows; else as
                `roi_align`.
        """
        maps = [value for name, value in x.items() if name in self.featmap_names]
        if not maps or not image_shapes:
            raise OperandError("MultiScaleRoIAlign needs a feature map and images")
        for one in maps:
            if not isinstance(one, Tensor) or one.dim() != 4:
                found = list(one.shape) if isinstance(one, Tensor) else type(one).__name__
                raise OperandError(
                    f"MultiScaleRoIAlign: feature maps are [N, C, H, W], not {found}"
                )
        height = max(rows for rows, _ in image_shapes)
        if height < 1 or not all(one.shape[-2] for one in maps):
            raise OperandError("MultiScaleRoIAlign: feature maps or images have no rows")
        scales = [_scale(one, height) for one in maps]
        rois = joined_boxes(boxes, maps[0])
        if len(maps) == 1:
            return self._pool(maps[0], rois, scales[0])
        levels = self._levels(rois, scales)
        shape = (len(rois), maps[0].shape[1], *self.output_size)
        # Zeros, as torchvision has them: a box whose size is NaN is on no level.
        result = fake_like(maps[0], shape).zero_()
        for level, (one, scale) in enumerate(zip(maps, scales, strict=True)):
            chosen = torch.where(levels == level)[0]
            result[chosen] = self._pool(one, rois[chosen], scale).to(result.dtype)
        return result

    def _pool(self, x: Tensor, rois: Tensor, scale: float) -> Tensor:
        height, width = self.output_size
        return roi_align(x, rois, (height, width), scale, self.sampling_ratio)

    def _levels(self, rois: Tensor, scales: Sequence[float]) -> Tensor:
        """Which of the feature maps each box is pooled from."""
        # Exact, as scales are powers of two.
        lowest, highest = int(-log2(scales[0])), int(-log2(scales[-1]))
        size = ((rois[:, 3] - rois[:, 1]) * (rois[:, 4] - rois[:, 2])).sqrt()
        level = self.canonical_level + torch.log2(size / self.canonical_scale)
        return (level + _EPSILON).floor().clamp(lowest, highest).to(torch.int64) - lowest

    def extra_repr(self) -> str:
        """The attributes."""
        return (
            f"featmap_names={self.featmap_names}, output_size={self.output_size}, "
            f"sampling_ratio={self.sampling_ratio}"
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.extra_repr()})"


def _scale(features: Tensor, height: int) -> float:
    """Feature maps' size over the images', which is a power of two but for rounding."""
    return float(2.0 ** round(log2(features.shape[-2] / height)))
