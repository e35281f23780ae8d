"""Means of bilinear samples in the bins of boxes (ONNX RoiAlign 22, torchvision's roi_align)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from saccade.ir.dtype import DType
from saccade.ir.op import Array, Op, TensorType, Work
from saccade.opdefs import _roi_numpy
from saccade.opdefs._regions import count_bad, expect_regions, with_report
from saccade.opdefs._rules import (
    expect,
    static_count,
    tensor_bytes,
    unify,
)
from saccade.opdefs.expr_numpy import accumulator

__all__ = ["RoiAlign", "RoiAlignGradient"]


@dataclass(frozen=True)
class _Sampled(Op):
    """What the operator and its gradient share; see `RoiAlign`."""

    bins: tuple[int, int]
    scale: float = 1.0
    ratio: int = 0
    aligned: bool = True
    mode: str = "average"
    report: bool = False

    def _expect_attributes(self) -> None:
        expect(self, min(self.bins) >= 0, f"bins {self.bins} are negative")
        expect(self, self.mode in ("average", "max"), f"mode {self.mode!r}")

    def _samples(self, data: Array, boxes: Sequence[Array]) -> _roi_numpy.BoxSamples:
        return _roi_numpy.BoxSamples(
            accumulator(np.result_type(data.dtype, boxes[0].dtype)),
            *(self.bins, self.scale, self.ratio, self.aligned),
        )

    def _work(self, grid: Sequence[TensorType], both: Sequence[TensorType]) -> Work:
        samples = max(1, self.ratio if self.ratio > 0 else 2) ** 2
        return Work(8 * samples * static_count(grid[0].shape), tensor_bytes(both))


@dataclass(frozen=True)
class RoiAlign(_Sampled):
    """Every bin of every box is the mean of bilinear samples of the box's image.

    Operands: x [N, C, H, W], then boxes [K, 5] of (image, x1, y1, x2, y2), or boxes [K, 4] and
    the images' numbers [K]; where `counted` is set int64 [1], how many of the boxes are true:
    results of the others may be anything.
    Results: [K, C, P, Q], and where `report` is set int32 [1]: how many boxes name an image that
    is not there. Their bins are zeros, as are those of boxes of NaN or of infinite size.

    Attributes:
        bins: P and Q.
        scale: Pixels to a unit of the boxes.
        ratio: Samples of a bin along each axis; 0 or less for as many as it takes for them to be at
            most a pixel apart, but never more than 2²⁰.
        aligned: Whether half a pixel is subtracted from scaled boxes; else boxes are at least one
            pixel large.
        mode: "average", or "max": the largest of the weighted pixels under all samples (a
            sample's four corners each by itself, as onnxruntime does it); samples outside are 0.
        report: Whether bad boxes are counted.
        counted: Whether there is a number of boxes.
    """

    counted: bool = False

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect(self, len(inputs) >= 2 + self.counted, "takes x and boxes")
        if self.counted:
            expect(self, inputs[-1] == TensorType(DType.I64, (1,)), "takes their number")
        x, *boxes = inputs[: len(inputs) - self.counted]
        expect_regions(self, x, boxes)
        self._expect_attributes()
        result = TensorType(x.dtype, (boxes[0].shape[0], x.shape[1], *self.bins))
        return with_report(result, report=self.report)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        x, *boxes = inputs[: len(inputs) - self.counted]
        samples, kind = self._samples(x, boxes), accumulator(x.dtype)
        result = np.zeros((len(boxes[0]), x.shape[1], *self.bins), kind)
        bad = 0
        for number, (image, corners) in enumerate(_roi_numpy.listed(boxes)):
            if not 0 <= image < x.shape[0]:
                bad += 1
                continue
            pixels = x[int(image)].astype(kind)
            way = samples.mean if self.mode == "average" else samples.largest
            result[number] = way(pixels, corners)
        return (result.astype(x.dtype), *count_bad(bad, report=self.report))

    def work(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Work:
        return self._work(outputs, (*inputs, *outputs))


@dataclass(frozen=True)
class RoiAlignGradient(_Sampled):
    """The gradient of `RoiAlign` (mode "average") with respect to x.

    Operands: grad [K, C, P, Q], then boxes as there.
    Results: [N, C, H, W], and where `report` is set how many boxes are bad.

    Attributes:
        images: N, H and W.
    """

    images: tuple[int, int, int] = (0, 0, 0)

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect(self, len(inputs) >= 2, "takes grad and boxes")
        grad, *boxes = inputs
        expect_regions(self, grad, boxes, "grad")
        self._expect_attributes()
        expect(self, self.mode == "average", f"mode {self.mode!r} has no gradient")
        unify(self, grad.shape[0], boxes[0].shape[0], "the number of boxes")
        bins = grad.shape[2:] == self.bins
        expect(self, bins, f"grad has bins {grad.shape[2:]}, not {self.bins}")
        n, h, w = self.images
        result = TensorType(grad.dtype, (n, grad.shape[1], h, w))
        return with_report(result, report=self.report)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        grad, *boxes = inputs
        samples, kind = self._samples(grad, boxes), accumulator(grad.dtype)
        n, h, w = self.images
        result = np.zeros((n, grad.shape[1], h, w), kind)
        bad = 0
        for number, (image, corners) in enumerate(_roi_numpy.listed(boxes)):
            if not 0 <= image < n:
                bad += 1
                continue
            result[int(image)] += samples.spread(grad[number].astype(kind), corners, (h, w))
        return (result.astype(grad.dtype), *count_bad(bad, report=self.report))

    def work(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Work:
        return self._work(inputs, (*inputs, *outputs))
