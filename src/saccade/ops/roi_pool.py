"""RoIPool: bins of boxes as largest pixels of a feature map.

Semantics of torchvision's `roi_pool`; the documentation of the function says where they differ.
See `kernels.roi.pool` and `kernels.roi.pool_gradient` for how it is done.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from saccade.errors import OperandError
from saccade.opdefs import RoiPool, RoiPoolGradient
from saccade.ops._boxes import (
    Boxes,
    PooledBins,
    Size,
    bins_of,
    check_bins,
    check_regions,
    check_scale,
    images_of,
    joined_boxes,
    regions_gradient,
)
from saccade.ops._channels_last import by_pixels, channels_last, planar_again
from saccade.ops._execute import Operator
from saccade.ops._plan import Described
from saccade.ops._register import define, define_gradient
from saccade.ops._tensors import empty_like, fake_like, layout_of

__all__ = ["RoIPool", "roi_pool"]


def roi_pool(
    input: Tensor,  # noqa: A002 - torchvision's name
    boxes: Boxes,
    output_size: Size,
    spatial_scale: float = 1.0,
) -> Tensor:
    """Largest pixels in the bins of boxes, as `torchvision.ops.roi_pool`.

    Scaled corners are rounded, halves away from zero, and the last pixel belongs to the box. They
    are computed in float32, or in float64 where input or boxes are (in torchvision, in half
    precision where the input is). Bins overlap by the pixels that they share. A bin without pixels
    is 0; NaN is never the largest, and where nothing exceeds -FLT_MAX, that is the result.

    Args:
        input: Feature maps [N, C, H, W] of any strides, or one of them [C, H, W]; float32, float64,
            bfloat16 or float16. The result is channels-last where it is.
        boxes: [K, 5] of (image, x1, y1, x2, y2), or a list with boxes [L, 4] for each image.
            Of any floating-point type, which need not be the input's. The bins of boxes that are
            not finite are empty.
        output_size: Bins of a box, down and along.
        spatial_scale: Pixels of the feature map to a unit of the boxes.

    Returns:
        [K, C, *output_size], of the input's type. Its gradient with respect to the input goes to
        the first of the largest pixels and is deterministic; boxes have none.

    Raises:
        OperandError: If shapes or types do not fit, or a box names an image that is not there.
    """
    images = images_of("roi_pool", input)
    height, width = bins_of(output_size)
    result: Tensor = _POOL(images, joined_boxes(boxes, images), spatial_scale, height, width)[0]
    return result


class RoIPool(PooledBins):
    """`roi_pool` as a module; see there."""

    def forward(self, input: Tensor, rois: Boxes) -> Tensor:  # noqa: A002 - torchvision's name
        """[K, C, *output_size]."""
        return roi_pool(input, rois, self.output_size, self.spatial_scale)


_PIXELS = 16
"""Of a bin, where nobody knows."""


def _shape(x: Tensor, boxes: Tensor, *bins: int) -> tuple[int, ...]:
    check_regions("roi_pool", x, boxes)
    check_bins("roi_pool", *bins)
    return (boxes.shape[0], x.shape[1], *bins)


def _pool(
    places: bool, x: Tensor, boxes: Tensor, scale: float, height: int, width: int
) -> tuple[Tensor, Tensor | None]:
    """Places are read by gradients alone, and a sixth to half of the work."""
    # Boxes say how many pixels a bin has, too late: some, on average.
    source = channels_last(x, boxes, _PIXELS * height * width)
    out, *found = _ON_MEMORY([source, boxes], (scale, height, width, places))
    return (out if source is x else planar_again(out)), found[0] if places else None


def _describe(
    operands: list[Tensor], scale: float, height: int, width: int, places: bool
) -> Described:
    x, boxes = operands
    shape = _shape(x, boxes, height, width)
    check_scale("roi_pool", scale)
    results = [empty_like(x, shape)]
    if places:
        results.append(empty_like(x, shape, torch.int32, _places_layout(x)))
    op = RoiPool((height, width), scale, places=places, report=True)
    return Described(op, results, counted=True, report=True)


def _fake_pool(
    x: Tensor, boxes: Tensor, scale: float, height: int, width: int
) -> tuple[Tensor, Tensor]:
    del scale
    shape = _shape(x, boxes, height, width)
    return fake_like(x, shape), fake_like(x, shape, torch.int32, _places_layout(x))


def _places_layout(x: Tensor) -> torch.memory_format | None:
    """On a GPU channels are neighbours, as kernels find places and want to read them again."""
    return None if x.device.type == "cpu" else torch.channels_last


def _gradient(
    grad: Tensor,
    boxes: Tensor,
    places: Tensor,
    scale: float,
    *parameters: int,
) -> Tensor:
    del scale
    *shape, last = parameters
    batch, _, rows, columns = shape[2:]
    again = not last and by_pixels(grad, batch * rows * columns)
    found = _GRADIENT_ON_MEMORY([grad, places, boxes], (*shape, bool(last or again)))[0]
    return planar_again(found) if again else found


def _describe_gradient(
    operands: list[Tensor],
    height: int,
    width: int,
    batch: int,
    channels: int,
    rows: int,
    columns: int,
    channels_last: bool,
) -> Described:
    grad, places, boxes = operands
    check_regions("roi_pool_backward", grad, boxes)
    shape = (boxes.shape[0], channels, height, width)
    if grad.shape != shape or places.shape != shape or places.dtype is not torch.int32:
        raise OperandError(
            f"roi_pool_backward: grad {list(grad.shape)} and int32 argmax {list(places.shape)} "
            f"must both have shape {list(shape)}"
        )
    out = empty_like(grad, (batch, channels, rows, columns), layout=layout_of(channels_last))
    op = RoiPoolGradient((batch, rows, columns), report=True)
    return Described(op, [out], report=True)


def _fake_gradient(
    grad: Tensor,
    boxes: Tensor,
    places: Tensor,
    scale: float,
    height: int,
    width: int,
    batch: int,
    channels: int,
    rows: int,
    columns: int,
    channels_last: bool,
) -> Tensor:
    del boxes, places, scale, height, width
    return fake_like(grad, (batch, channels, rows, columns), layout=layout_of(channels_last))


_ON_MEMORY = Operator("roi_pool", _describe, counted=1)
_GRADIENT_ON_MEMORY = Operator("roi_pool_backward", _describe_gradient, counted=0)
_GRADIENT = define_gradient(
    "_roi_pool_backward(Tensor grad, Tensor rois, Tensor argmax, float spatial_scale, "
    "SymInt pooled_height, SymInt pooled_width, SymInt batch_size, SymInt channels, "
    "SymInt height, SymInt width, bool channels_last) -> Tensor",
    _gradient,
    _fake_gradient,
)
_POOL = define(
    "roi_pool(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, "
    "SymInt pooled_width) -> (Tensor, Tensor)",
    partial(_pool, True),
    _fake_pool,
    gradient=regions_gradient(_GRADIENT),
    forward_only=partial(_pool, False),
)
