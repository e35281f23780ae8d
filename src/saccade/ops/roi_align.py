"""RoIAlign: bins of boxes as means of bilinear samples of a feature map.

Semantics of torchvision's `roi_align`; the documentation of the functions says where they differ.
See `kernels.roi.align` and `kernels.roi.align_gradient` for how it is done.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from saccade.opdefs import RoiAlign, RoiAlignGradient
from saccade.ops._boxes import (
    Boxes,
    SampledBins,
    Size,
    bins_of,
    check_bins,
    check_regions,
    check_scale,
    images_of,
    joined_boxes,
)
from saccade.ops._channels_last import by_pixels, channels_last, planar_again
from saccade.ops._execute import Operator
from saccade.ops._plan import Described
from saccade.ops._register import Gradient, define, define_gradient
from saccade.ops._tensors import empty_like, fake_like, layout_of, memory_format

__all__ = ["RoIAlign", "roi_align"]


def roi_align(
    input: Tensor,  # noqa: A002 - torchvision's name
    boxes: Boxes,
    output_size: Size,
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    aligned: bool = False,
) -> Tensor:
    """Means of bilinear samples in the bins of boxes, as `torchvision.ops.roi_align`.

    Sums are kept in float32 (float64 for float64) and rounded once; positions are computed in
    float32, or in float64 where input or boxes are. (torchvision computes all of it in half
    precision where the input is.)

    Args:
        input: Feature maps [N, C, H, W] of any strides, or one of them [C, H, W]; float32, float64,
            bfloat16 or float16. The result is channels-last where it is.
        boxes: [K, 5] of (image, x1, y1, x2, y2), or a list with boxes [L, 4] for each image.
            Of any floating-point type, which need not be the input's. NaN and boxes of infinite
            size give zeros.
        output_size: Bins of a box, down and along.
        spatial_scale: Pixels of the feature map to a unit of the boxes.
        sampling_ratio: Samples of a bin along each axis; 0 or less for as many as it takes for them
            to be at most a pixel apart. Never more than 2²⁰ along an axis of a bin; time does not
            grow with samples outside.
        aligned: Subtract half a pixel from scaled boxes; without it, boxes are at least one pixel
            large.

    Returns:
        [K, C, *output_size], of the input's type. Its gradient with respect to the input is
        deterministic; boxes have none.

    Raises:
        OperandError: If shapes or types do not fit, or a box names an image that is not there.
    """
    images = images_of("roi_align", input)
    height, width = bins_of(output_size)
    arguments = (spatial_scale, height, width, sampling_ratio, aligned)
    result: Tensor = _ALIGN(images, joined_boxes(boxes, images), *arguments)
    return result


class RoIAlign(SampledBins):
    """`roi_align` as a module; see there."""

    def __init__(
        self,
        output_size: Size,
        spatial_scale: float,
        sampling_ratio: int,
        aligned: bool = False,
    ) -> None:
        super().__init__(output_size, spatial_scale, sampling_ratio)
        self.aligned = aligned

    def forward(self, input: Tensor, rois: Boxes) -> Tensor:  # noqa: A002 - torchvision's name
        """[K, C, *output_size]."""
        return roi_align(
            input, rois, self.output_size, self.spatial_scale, self.sampling_ratio, self.aligned
        )

    def extra_repr(self) -> str:
        """The attributes."""
        return f"{super().extra_repr()}, aligned={self.aligned}"


def _check(x: Tensor, boxes: Tensor, *bins: int) -> None:
    check_regions("roi_align", x, boxes)
    check_bins("roi_align", *bins)


def _align(
    x: Tensor, boxes: Tensor, scale: float, height: int, width: int, ratio: int, aligned: bool
) -> Tensor:
    # Each sample reads four pixels.
    source = channels_last(x, boxes, 4 * max(1, ratio) ** 2 * height * width)
    result = _ON_MEMORY([source, boxes], (scale, height, width, ratio, aligned))[0]
    return result if source is x else planar_again(result)


def _describe(
    operands: list[Tensor], scale: float, height: int, width: int, ratio: int, aligned: bool
) -> Described:
    x, boxes = operands
    _check(x, boxes, height, width)
    check_scale("roi_align", scale)
    out = empty_like(x, (boxes.shape[0], x.shape[1], height, width))
    op = RoiAlign((height, width), scale, ratio, aligned, report=True)
    return Described(op, [out], counted=True, report=True)


def _fake_align(
    x: Tensor, boxes: Tensor, scale: float, height: int, width: int, ratio: int, aligned: bool
) -> Tensor:
    del scale, ratio, aligned
    _check(x, boxes, height, width)
    return fake_like(x, (boxes.shape[0], x.shape[1], height, width))


def _gradient(grad: Tensor, boxes: Tensor, *parameters: Any) -> Tensor:  # noqa: ANN401
    scale, images, ratio, aligned, last = parameters
    n, h, w = images
    again = not last and by_pixels(grad, n * h * w)
    how = (scale, (n, h, w), ratio, aligned, last or again)
    found = _GRADIENT_ON_MEMORY([grad, boxes], how)[0]
    return planar_again(found) if again else found


def _describe_gradient(
    operands: list[Tensor],
    scale: float,
    images: tuple[int, int, int],
    ratio: int,
    aligned: bool,
    channels_last: bool,
) -> Described:
    grad, boxes = operands
    check_regions("roi_align_backward", grad, boxes)
    check_scale("roi_align_backward", scale)
    n, h, w = images
    # The gradient's own strides say nothing of how the images lay.
    out = empty_like(grad, (n, grad.shape[1], h, w), layout=layout_of(channels_last))
    bins = (grad.shape[2], grad.shape[3])
    op = RoiAlignGradient(bins, scale, ratio, aligned, report=True, images=images)
    return Described(op, [out], report=True)


def _fake_gradient(
    grad: Tensor,
    boxes: Tensor,
    scale: float,
    images: tuple[int, int, int],
    ratio: int,
    aligned: bool,
    channels_last: bool,
) -> Tensor:
    del boxes, scale, ratio, aligned
    n, h, w = images
    return fake_like(grad, (n, grad.shape[1], h, w), layout=layout_of(channels_last))


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ANN401
    del output
    x, boxes, ctx.scale, _, _, ctx.ratio, ctx.aligned = inputs
    ctx.save_for_backward(boxes)
    n, _, h, w = Tensor.size(x)  # whatever a subclass says
    ctx.images = (n, h, w)
    ctx.channels_last = memory_format(x) is torch.channels_last


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
    dx = None
    if ctx.needs_input_grad[0]:
        (boxes,) = ctx.saved_tensors
        dx = _GRADIENT(
            grad, boxes, ctx.scale, ctx.images, ctx.ratio, ctx.aligned, ctx.channels_last
        )
    return (dx, None, None, None, None, None, None)


_ON_MEMORY = Operator("roi_align", _describe, counted=1)
# Both operands begin with the count here; the result has the images' sizes, whatever the count.
_GRADIENT_ON_MEMORY = Operator("roi_align_backward", _describe_gradient, counted=0)
_ALIGN = define(
    "roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, "
    "SymInt pooled_width, int sampling_ratio, bool aligned) -> Tensor",
    _align,
    _fake_align,
    gradient=Gradient(_keep, _backward),
)
_GRADIENT = define_gradient(
    "_roi_align_backward(Tensor grad, Tensor rois, float spatial_scale, SymInt[3] images, "
    "int sampling_ratio, bool aligned, bool channels_last) -> Tensor",
    _gradient,
    _fake_gradient,
)
