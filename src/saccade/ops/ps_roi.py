"""PSRoIAlign and PSRoIPool: bins of boxes as means, each bin in channels of its own.

Semantics of torchvision's `ps_roi_align` and `ps_roi_pool`; the documentation of the functions says
where they differ. See `kernels.roi.ps` and `kernels.roi.ps_gradient` for how it is done.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch import Tensor

from saccade.errors import OperandError
from saccade.opdefs import PsRoi, PsRoiGradient
from saccade.ops._boxes import (
    Boxes,
    PooledBins,
    SampledBins,
    Size,
    bins_of,
    check_regions,
    check_scale,
    images_of,
    joined_boxes,
    regions_gradient,
)
from saccade.ops._channels_last import by_planes, channels_last_again, planar
from saccade.ops._execute import Operator
from saccade.ops._plan import Described
from saccade.ops._register import define, define_gradient
from saccade.ops._tensors import empty_like, fake_like, layout_of

__all__ = ["PSRoIAlign", "PSRoIPool", "ps_roi_align", "ps_roi_pool"]


def ps_roi_align(
    input: Tensor,  # noqa: A002 - torchvision's name
    boxes: Boxes,
    output_size: Size,
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
) -> Tensor:
    """Means of bilinear samples, each bin in channels of its own: `torchvision.ops.ps_roi_align`.

        y[k, c, p, q] = mean of input[n(k), (c · P + p) · Q + q] in the bin (p, q) of box k

    Half a pixel is subtracted from scaled boxes. Sums are kept in float32 (float64 for float64) and
    rounded once; positions are computed in float32, or in float64 where input or boxes are. (In
    torchvision, all of it in half precision where the input is.)

    Args:
        input: Feature maps [N, C · P · Q, H, W] of any strides, or one of them without N; float32,
            float64, bfloat16 or float16. The result is channels-last where it is.
        boxes: [K, 5] of (image, x1, y1, x2, y2), or a list with boxes [L, 4] for each image.
            Of any floating-point type, which need not be the input's. The bins of boxes that are
            not finite are zeros.
        output_size: P and Q, the bins of a box, down and along.
        spatial_scale: Pixels of the feature map to a unit of the boxes.
        sampling_ratio: Samples of a bin along each axis; 0 or less for as many as it takes for them
            to be at most a pixel apart. Then bins without a sample along an axis are 0 / 0 = NaN.

    Returns:
        [K, C, P, Q], of the input's type. Its gradient with respect to the input is deterministic;
        boxes have none.

    Raises:
        OperandError: If shapes or types do not fit, or a box names an image that is not there.
    """
    images = images_of("ps_roi_align", input)
    arguments = (spatial_scale, *bins_of(output_size), sampling_ratio)
    result: Tensor = _ALIGN(images, joined_boxes(boxes, images), *arguments)[0]
    return result


def ps_roi_pool(
    input: Tensor,  # noqa: A002 - torchvision's name
    boxes: Boxes,
    output_size: Size,
    spatial_scale: float = 1.0,
) -> Tensor:
    """Means of pixels, each bin in channels of its own, as `torchvision.ops.ps_roi_pool`.

        y[k, c, p, q] = mean of input[n(k), (c · P + p) · Q + q] over the bin (p, q) of box k

    Scaled corners are rounded, halves away from zero; the last pixel does not belong to the box,
    and as in torchvision no bin reaches the last row or column of an image. The gradient is that
    of this mean. (torchvision's backward lets bins reach the last row and column though its forward
    does not: there its gradients are not those of its results.) Bins without pixels are 0, and so
    are those of boxes that are not finite. Positions and sums are kept as in `ps_roi_align`.

    Args:
        input: As in `ps_roi_align`, and so are the others.
        boxes: [K, 5] or a list.
        output_size: P and Q.
        spatial_scale: Pixels of the feature map to a unit of the boxes.

    Returns:
        [K, C, P, Q], of the input's type. Its gradient with respect to the input is deterministic;
        boxes have none.

    Raises:
        OperandError: If shapes or types do not fit, or a box names an image that is not there.
    """
    images = images_of("ps_roi_pool", input)
    arguments = (spatial_scale, *bins_of(output_size))
    result: Tensor = _POOL(images, joined_boxes(boxes, images), *arguments)[0]
    return result


class PSRoIAlign(SampledBins):
    """`ps_roi_align` as a module; see there."""

    def forward(self, input: Tensor, rois: Boxes) -> Tensor:  # noqa: A002 - torchvision's name
        """[K, C, *output_size]."""
        return ps_roi_align(input, rois, self.output_size, self.spatial_scale, self.sampling_ratio)


class PSRoIPool(PooledBins):
    """`ps_roi_pool` as a module; see there."""

    def forward(self, input: Tensor, rois: Boxes) -> Tensor:  # noqa: A002 - torchvision's name
        """[K, C, *output_size]."""
        return ps_roi_pool(input, rois, self.output_size, self.spatial_scale)


_READ = 36 * 32
"""Bytes that a bin reads of images whose channels are neighbours: a sector of the L2 cache for each
pixel, of which nobody knows how many there are (one H100: planes and their copy 295 for 418 µs of
1000 boxes)."""


# Both operators are one to the kernels; `ratio` is None for the one that averages pixels.


def _name(ratio: int | None) -> str:
    return "ps_roi_pool" if ratio is None else "ps_roi_align"


def _shape(x: Tensor, boxes: Tensor, height: int, width: int, ratio: int | None) -> tuple[int, ...]:
    name = _name(ratio)
    check_regions(name, x, boxes)
    # Not even 0, unlike in `roi_align`: channels are divided by the number of bins.
    if min(height, width) < 1:
        raise OperandError(f"{name}: output_size must be positive, is {[height, width]}")
    if x.shape[1] % (height * width):
        raise OperandError(
            f"{name}: input channels must be a multiple of pooling height * pooling width: "
            f"{x.shape[1]} of {height} * {width}"
        )
    return (boxes.shape[0], x.shape[1] // (height * width), height, width)


def _describe(
    operands: list[Tensor], scale: float, height: int, width: int, ratio: int | None = None
) -> Described:
    x, boxes = operands
    shape = _shape(x, boxes, height, width, ratio)
    check_scale(_name(ratio), scale)
    out, mapping = empty_like(x, shape), x.new_empty(shape, dtype=torch.int32)
    mode = "pool" if ratio is None else "align"
    op = PsRoi((height, width), scale, mode, ratio or 0, report=True, mapping=True)
    return Described(op, [out, mapping], counted=True, report=True)


def _align(x: Tensor, boxes: Tensor, *parameters: float) -> tuple[Tensor, Tensor]:
    out, mapping = _ALIGN_ON_MEMORY([x, boxes], parameters)
    return out, mapping


def _pool(x: Tensor, boxes: Tensor, scale: float, height: int, width: int) -> tuple[Tensor, Tensor]:
    parameters = (scale, height, width)
    source = planar(x, boxes, _READ)
    if source is x:
        out, mapping = _POOL_ON_MEMORY([x, boxes], parameters)
        return out, mapping
    shape = _shape(x, boxes, *parameters[1:], None)
    results = empty_like(x, shape), x.new_empty(shape, dtype=torch.int32)
    _POOL_ON_MEMORY([source, boxes], parameters, results)
    return results


def _fake_forward(
    x: Tensor, boxes: Tensor, scale: float, height: int, width: int, ratio: int | None = None
) -> tuple[Tensor, Tensor]:
    del scale
    shape = _shape(x, boxes, height, width, ratio)
    return fake_like(x, shape), x.new_empty(shape, dtype=torch.int32)


def _describe_gradient(
    operands: list[Tensor], scale: float, height: int, width: int, ratio: int | None, *rest: int
) -> Described:
    grad, boxes = operands
    n, channels, h, w, channels_last = rest
    name = f"{_name(ratio)}_backward"
    check_regions(name, grad, boxes)
    check_scale(name, scale)
    if min(height, width) < 1:
        raise OperandError(f"{name}: output_size must be positive, is {[height, width]}")
    shape = (boxes.shape[0], channels // (height * width), height, width)
    if grad.shape != shape or channels % (height * width):
        raise OperandError(
            f"{name}: grad must have shape {list(shape)} for {channels} channels, has "
            f"{list(grad.shape)}"
        )
    out = empty_like(grad, (n, channels, h, w), layout=layout_of(bool(channels_last)))
    mode = "pool" if ratio is None else "align"
    op = PsRoiGradient((height, width), scale, mode, ratio or 0, report=True, images=(n, h, w))
    return Described(op, [out], report=True)


# Torchvision's schemas hand the channel mapping over; sizes alone tell which channel a bin is of.
def _align_gradient(grad: Tensor, boxes: Tensor, mapping: Tensor, *parameters: float) -> Tensor:
    del mapping
    return _gradient(_ALIGN_GRADIENT_ON_MEMORY, grad, boxes, parameters)


def _pool_gradient(
    grad: Tensor,
    boxes: Tensor,
    mapping: Tensor,
    scale: float,
    height: int,
    width: int,
    *images: int,
) -> Tensor:
    del mapping
    return _gradient(_POOL_GRADIENT_ON_MEMORY, grad, boxes, (scale, height, width, None, *images))


def _gradient(
    on_memory: Operator, grad: Tensor, boxes: Tensor, parameters: tuple[Any, ...]
) -> Tensor:
    *rest, last = parameters
    again = bool(last) and by_planes(grad, prod(rest[-4:]))
    found = on_memory([grad, boxes], (*rest, bool(last) and not again))[0]
    return channels_last_again(found) if again else found


def _fake_gradient(grad: Tensor, *rest: Any) -> Tensor:  # noqa: ANN401
    *_, n, c, h, w, last = rest
    return fake_like(grad, (n, c, h, w), layout=layout_of(last))


_BINS = "float spatial_scale, SymInt pooled_height, SymInt pooled_width"
_IMAGES = "SymInt batch_size, SymInt channels, SymInt height, SymInt width, bool channels_last"

_ALIGN_ON_MEMORY = Operator("ps_roi_align", _describe, counted=1)
_POOL_ON_MEMORY = Operator("ps_roi_pool", _describe, counted=1)
_ALIGN_GRADIENT_ON_MEMORY = Operator("ps_roi_align_backward", _describe_gradient, counted=0)
_POOL_GRADIENT_ON_MEMORY = Operator("ps_roi_pool_backward", _describe_gradient, counted=0)
_ALIGN_GRADIENT = define_gradient(
    f"_ps_roi_align_backward(Tensor grad, Tensor rois, Tensor channel_mapping, {_BINS}, "
    f"int sampling_ratio, {_IMAGES}) -> Tensor",
    _align_gradient,
    _fake_gradient,
)
_POOL_GRADIENT = define_gradient(
    f"_ps_roi_pool_backward(Tensor grad, Tensor rois, Tensor channel_mapping, {_BINS}, "
    f"{_IMAGES}) -> Tensor",
    _pool_gradient,
    _fake_gradient,
)
_ALIGN = define(
    f"ps_roi_align(Tensor input, Tensor rois, {_BINS}, int sampling_ratio) -> (Tensor, Tensor)",
    _align,
    _fake_forward,
    gradient=regions_gradient(_ALIGN_GRADIENT),
)
_POOL = define(
    f"ps_roi_pool(Tensor input, Tensor rois, {_BINS}) -> (Tensor, Tensor)",
    _pool,
    _fake_forward,
    gradient=regions_gradient(_POOL_GRADIENT),
)
