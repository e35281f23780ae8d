"""Largest pixels in the bins of boxes (ONNX MaxRoiPool, torchvision's roi_pool)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from saccade.ir.dtype import DType
from saccade.ir.op import Array, Op, TensorType, Work
from saccade.opdefs._ranges_numpy import bin_ranges
from saccade.opdefs._regions import count_bad, expect_regions, with_report
from saccade.opdefs._roi_numpy import listed
from saccade.opdefs._rules import (
    expect,
    static_count,
    tensor_bytes,
    unify,
)
from saccade.opdefs.expr_numpy import accumulator

__all__ = ["RoiPool", "RoiPoolGradient"]

_LEAST = np.finfo(np.float32).min


@dataclass(frozen=True)
class RoiPool(Op):
    """Every bin of every box is the largest pixel of the box's image there.

    Corners are scaled and rounded, halves away from zero; the last pixel belongs to the box.

    Operands: x [N, C, H, W], then boxes [K, 5] of (image, x1, y1, x2, y2).
    Results: [K, C, P, Q], 0 in bins without pixels and -FLT_MAX where nothing is larger; where
    `places` is set int32 [K, C, P, Q]: the first of the largest pixels as row · W + column, or -1;
    where `report` is set int32 [1]: how many boxes name an image that is not there. The bins of
    those are empty, as are those of boxes that are not finite.

    Attributes:
        bins: P and Q.
        scale: Pixels to a unit of the boxes.
        places: Whether places are wanted.
        report: Whether bad boxes are counted.
    """

    bins: tuple[int, int]
    scale: float = 1.0
    places: bool = False
    report: bool = False
    inclusive: ClassVar[bool] = True

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect(self, len(inputs) == 2, "takes x and boxes")
        x, boxes = inputs
        expect_regions(self, x, [boxes])
        expect(self, min(self.bins) >= 0, f"bins {self.bins} are negative")
        shape = (boxes.shape[0], x.shape[1], *self.bins)
        places = (TensorType(DType.I32, shape),) if self.places else ()
        return with_report(TensorType(x.dtype, shape), *places, report=self.report)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        x, boxes = inputs
        n, channels, h, w = x.shape
        shape = (len(boxes), channels, *self.bins)
        result, places = np.zeros(shape, x.dtype), np.full(shape, -1, np.int32)
        geometry = accumulator(np.result_type(x.dtype, boxes.dtype))
        bad = 0
        for box, (image, corners) in enumerate(listed([boxes])):
            if not 0 <= image < n:
                bad += 1
                continue
            rows, columns = bin_ranges(
                corners, self.scale, self.bins, (h, w), geometry, inclusive=True
            )
            for p, (top, bottom) in enumerate(rows):
                for q, (left, right) in enumerate(columns):
                    pixels = x[int(image), :, top:bottom, left:right]
                    if pixels.size:
                        value, at = _largest(pixels)
                        place = (top + at // (right - left)) * w + left + at % (right - left)
                        result[box, :, p, q] = value
                        places[box, :, p, q] = np.where(at < 0, -1, place)
        found = (places,) if self.places else ()
        return (result, *found, *count_bad(bad, report=self.report))

    def work(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Work:
        # How many pixels a bin has, the boxes say; here one.
        return Work(static_count(outputs[0].shape), tensor_bytes((*inputs, *outputs)))


def _largest(pixels: Array) -> tuple[Array, Array]:
    """Of each channel: the largest above -FLT_MAX and its first place, else that and -1."""
    flat = pixels.reshape(len(pixels), -1)
    with np.errstate(all="ignore"):
        floor = np.asarray(_LEAST, flat.dtype)
        masked = np.where(flat > floor, flat, -np.inf)
        at = np.where((flat > floor).any(axis=1), masked.argmax(axis=1), -1)
        return np.maximum(masked.max(axis=1), floor), at


@dataclass(frozen=True)
class RoiPoolGradient(Op):
    """The gradient of `RoiPool` with respect to x.

    Operands: grad [K, C, P, Q], places int32 of the same shape, boxes [K, 5].
    Results: [N, C, H, W]: at each place the sum of what points there, box by box in their order;
    where `report` is set how many boxes are bad, which stand with those of the first image.
    Places beyond the image are left out.

    Attributes:
        images: N, H and W.
        report: Whether bad boxes are counted.
    """

    images: tuple[int, int, int]
    report: bool = False

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect(self, len(inputs) == 3, "takes grad, places and boxes")
        grad, places, boxes = inputs
        expect_regions(self, grad, [boxes], "grad")
        expect(self, places.dtype is DType.I32, f"places are {places.dtype.value}")
        expect(self, places.shape == grad.shape, f"places {places.shape} for {grad.shape}")
        unify(self, grad.shape[0], boxes.shape[0], "the number of boxes")
        n, h, w = self.images
        result = TensorType(grad.dtype, (n, grad.shape[1], h, w))
        return with_report(result, report=self.report)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        grad, places, boxes = inputs
        n, h, w = self.images
        channels = grad.shape[1]
        result = np.zeros((n, channels, h * w), accumulator(grad.dtype))
        channel = np.broadcast_to(np.arange(channels)[:, None, None], grad.shape[1:])
        bad = 0
        for box, (named, *_) in enumerate(boxes):
            there = bool(0 <= named < n)
            bad += not there
            image = int(named) if there else 0
            known = (places[box] >= 0) & (places[box] < h * w)
            at = (channel[known], places[box][known])
            np.add.at(result[image], at, grad[box][known].astype(result.dtype))
        planes = result.reshape(n, channels, h, w).astype(grad.dtype)
        return (planes, *count_bad(bad, report=self.report))

    def work(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Work:
        return Work(static_count(inputs[0].shape), tensor_bytes((*inputs, *outputs)))
