"""Position-sensitive pooling: a bin of a box has channels of its own (torchvision's ps_roi_*)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from saccade.ir.dtype import DType
from saccade.ir.op import Array, Op, TensorType, Work
from saccade.opdefs._ranges_numpy import bin_ranges
from saccade.opdefs._regions import count_bad, expect_regions, with_report
from saccade.opdefs._roi_numpy import BoxSamples
from saccade.opdefs._rules import (
    expect,
    static_count,
    tensor_bytes,
    unify,
)
from saccade.opdefs.expr_numpy import accumulator

__all__ = ["PsRoi", "PsRoiGradient"]


@dataclass(frozen=True)
class _PositionSensitive(Op):
    """What the operator and its gradient share; see `PsRoi`."""

    bins: tuple[int, int]
    scale: float = 1.0
    mode: str = "align"
    ratio: int = 0
    report: bool = False
    inclusive: ClassVar[bool] = False
    aligned: ClassVar[bool] = True

    def _expect_attributes(self) -> None:
        expect(self, min(self.bins) >= 1, f"bins {self.bins} must be positive")
        expect(self, self.mode in ("align", "pool"), f"mode {self.mode!r}")

    def _weights(
        self,
        corners: Sequence[np.floating],
        sizes: tuple[int, int],
        dtype: np.dtype[np.floating],
    ) -> Array:
        """What every pixel counts in every bin: [P, Q, H, W]."""
        if self.mode == "align":
            samples = BoxSamples(dtype, self.bins, self.scale, self.ratio, aligned=True)
            p, q = self.bins
            one = np.eye(p * q, dtype=dtype).reshape(p * q, p, q)
            return samples.spread(one, corners, sizes).reshape(p, q, *sizes)
        rows, columns = bin_ranges(
            corners, self.scale, self.bins, sizes, dtype, inclusive=self.inclusive
        )
        weights = np.zeros((*self.bins, *sizes), dtype)
        for p, (top, bottom) in enumerate(rows):
            for q, (left, right) in enumerate(columns):
                if top < bottom and left < right:
                    weights[p, q, top:bottom, left:right] = 1
        return weights

    def _nothing(self, corners: Sequence[np.floating], dtype: np.dtype[np.floating]) -> bool:
        """Whether a bin has 0 samples along an axis, by its size; an inverted box has some."""
        if self.ratio > 0:
            return False
        kind = dtype.type
        x1, y1, x2, y2 = (kind(v) * kind(self.scale) - kind(0.5) for v in corners)
        with np.errstate(all="ignore"):
            counts = np.ceil([(y2 - y1) / kind(self.bins[0]), (x2 - x1) / kind(self.bins[1])])
        return bool(np.isfinite(counts).all()) and 0 in counts

    def _valid(self, boxes: Array, images: int) -> Iterator[tuple[int, int, list[np.floating]]]:
        for box, (image, *corners) in enumerate(boxes):
            if 0 <= image < images:
                yield box, int(image), corners

    def _bad(self, boxes: Array, images: int) -> int:
        return len(boxes) - sum(1 for _ in self._valid(boxes, images))

    def _work(self, grid: TensorType, both: Sequence[TensorType]) -> Work:
        samples = max(1, self.ratio if self.ratio > 0 else 2) ** 2
        return Work(8 * samples * static_count(grid.shape), tensor_bytes(both))


@dataclass(frozen=True)
class PsRoi(_PositionSensitive):
    """Every bin of every box is a mean over the box's image, in a channel that is the bin's own.

        y[k, c, p, q] = mean of x[n(k), (c · P + p) · Q + q] in the bin

    Operands: x [N, C · P · Q, H, W], then boxes [K, 5] of (image, x1, y1, x2, y2).
    Results: [K, C, P, Q]; where `mapping` is set int32 [K, C, P, Q]: each bin's channel; where
    `report` is set int32 [1]: how many boxes name an image that is not there. The bins of those
    are zeros.

    Attributes:
        bins: P and Q.
        scale: Pixels to a unit of the boxes.
        mode: "align": of bilinear samples, half a pixel subtracted from scaled boxes. "pool": of
            pixels, scaled boxes rounded, their last pixel not belonging to them, and bins not
            reaching the last row and column of the image; 0 where there is none.
        ratio: Samples of a bin along each axis; 0 or less for as many as it takes for them to be at
            most a pixel apart. Then bins without any are NaN, except that the bins of a box that is
            inverted by at least their size are 0. Those of boxes that are not finite are 0.
        report: Whether bad boxes are counted.
        mapping: Whether the bins' channels are wanted.
    """

    mapping: bool = False

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect(self, len(inputs) == 2, "takes x and boxes")
        x, boxes = inputs
        expect_regions(self, x, [boxes])
        self._expect_attributes()
        channels, bins = static_count((x.shape[1],)), self.bins[0] * self.bins[1]
        expect(self, channels % bins == 0, f"{channels} channels are no multiple of {bins} bins")
        shape = (boxes.shape[0], channels // bins, *self.bins)
        mapping = (TensorType(DType.I32, shape),) if self.mapping else ()
        return with_report(TensorType(x.dtype, shape), *mapping, report=self.report)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        x, boxes = inputs
        n, channels, h, w = x.shape
        p, q = self.bins
        kind = accumulator(x.dtype)
        geometry = accumulator(np.result_type(x.dtype, boxes.dtype))
        result = np.zeros((len(boxes), channels // (p * q), p, q), kind)
        for box, image, corners in self._valid(boxes, n):
            weights = self._weights(corners, (h, w), geometry).astype(kind)
            own = x[image].reshape(result.shape[1], p, q, h, w).astype(kind)
            if self.mode == "align":
                own = np.where(weights == 0, 0, own)  # whatever stands there
                result[box] = np.einsum("cpqhw,pqhw->cpq", own, weights)
                if self._nothing(corners, geometry):  # images without pixels included
                    result[box] = np.nan
            else:
                total = np.where(weights > 0, own, 0).sum(axis=(3, 4), dtype=kind)
                result[box] = total / np.maximum(weights.sum(axis=(2, 3)), 1)
        own = np.arange(channels, dtype=np.int32).reshape(1, *result.shape[1:])
        mapping = (np.repeat(own, len(boxes), axis=0),) if self.mapping else ()
        bad = count_bad(self._bad(boxes, n), report=self.report)
        return (result.astype(x.dtype), *mapping, *bad)

    def work(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Work:
        return self._work(outputs[0], (*inputs, *outputs))


@dataclass(frozen=True)
class PsRoiGradient(_PositionSensitive):
    """The gradient of `PsRoi` with respect to x.

    Operands: grad [K, C, P, Q], then boxes as there.
    Results: [N, C · P · Q, H, W], and where `report` is set how many boxes are bad. What is NaN in
    `PsRoi` gives nothing here.

    Attributes:
        images: N, H and W.
    """

    images: tuple[int, int, int] = (0, 0, 0)

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect(self, len(inputs) == 2, "takes grad and boxes")
        grad, boxes = inputs
        expect_regions(self, grad, [boxes], "grad")
        self._expect_attributes()
        unify(self, grad.shape[0], boxes.shape[0], "the number of boxes")
        expect(self, grad.shape[2:] == self.bins, f"grad has bins {grad.shape[2:]}")
        n, h, w = self.images
        channels = static_count(grad.shape[1:])
        result = TensorType(grad.dtype, (n, channels, h, w))
        return with_report(result, report=self.report)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        grad, boxes = inputs
        n, h, w = self.images
        kind = accumulator(grad.dtype)
        geometry = accumulator(np.result_type(grad.dtype, boxes.dtype))
        result = np.zeros((n, *grad.shape[1:], h, w), kind)
        for box, image, corners in self._valid(boxes, n):
            weights = self._weights(corners, (h, w), geometry).astype(kind)
            own = grad[box].astype(kind)
            if self.mode == "pool":
                own = own / np.maximum(weights.sum(axis=(2, 3)), 1)
            result[image] += own[..., None, None] * weights
        channels = static_count(grad.shape[1:])
        planes = result.reshape(n, channels, h, w).astype(grad.dtype)
        return (planes, *count_bad(self._bad(boxes, n), report=self.report))

    def work(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Work:
        return self._work(inputs[0], (*inputs, *outputs))
