"""RoiAlign with NumPy: the means as products with dense matrices of weights along each axis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from saccade.ir.op import Array

__all__ = ["BoxSamples", "listed"]

_MOST = 1 << 20


def listed(boxes: Sequence[Array]) -> Iterator[tuple[np.number, Sequence[np.floating]]]:
    """Image and (x1, y1, x2, y2) for each box of [K, 5], or of [K, 4] and [K]."""
    if len(boxes) == 1:
        yield from ((row[0], row[1:]) for row in map(tuple, boxes[0]))
    else:
        yield from ((n, tuple(row)) for row, n in zip(*boxes, strict=True))


@dataclass(frozen=True, slots=True)
class _Axis:
    """Samples along an axis: low and high pixel and their weights, and which lie inside: [P, G]."""

    low: Array
    high: Array
    weights: tuple[Array, Array]
    inside: Array


@dataclass(frozen=True, slots=True)
class BoxSamples:
    """How boxes are sampled, as `RoiAlign` says; positions are computed in `dtype`."""

    dtype: np.dtype[np.floating]
    bins: tuple[int, int]
    scale: float
    ratio: int
    aligned: bool

    def mean(self, x: Array, corners: Sequence[np.floating]) -> Array:
        """The bins [C, P, Q] of a box of an image [C, H, W]."""
        down, along, count = self._matrices(corners, x.shape[1:], x.dtype)
        result: Array = down @ x @ along.T / count
        return result

    def spread(self, grad: Array, corners: Sequence[np.floating], sizes: tuple[int, int]) -> Array:
        """The transpose of `mean`."""
        down, along, count = self._matrices(corners, sizes, grad.dtype)
        result: Array = down.T @ grad @ along / count
        return result

    def largest(self, x: Array, corners: Sequence[np.floating]) -> Array:
        """The largest weighted corner of the samples of each bin; 0 of a bin without any."""
        down, along = self._axes(corners, x.shape[1:])
        shape = (x.shape[0], *down.low.shape, *along.low.shape)
        if 0 in shape:
            return np.zeros((x.shape[0], *self.bins), x.dtype)
        result = np.full((x.shape[0], *self.bins), -np.inf, x.dtype)
        inside = down.inside[:, :, None, None] & along.inside
        for rows, row_weights in zip((down.low, down.high), down.weights, strict=True):
            for columns, weights in zip((along.low, along.high), along.weights, strict=True):
                pixels = x[:, rows][:, :, :, columns]
                weighted = pixels * (row_weights[:, :, None, None] * weights).astype(x.dtype)
                weighted = np.where(inside, weighted, 0)
                result = np.maximum(result, weighted.max(axis=(2, 4)))
        return result

    def _matrices(
        self,
        corners: Sequence[np.floating],
        sizes: Sequence[int],
        dtype: np.dtype[np.floating],
    ) -> tuple[Array, Array, int]:
        axes = self._axes(corners, sizes)
        count = max(1, axes[0].low.shape[1] * axes[1].low.shape[1])
        down, along = (
            _dense(axis, size).astype(dtype) for axis, size in zip(axes, sizes, strict=True)
        )
        return down, along, count

    def _axes(self, corners: Sequence[np.floating], sizes: Sequence[int]) -> tuple[_Axis, _Axis]:
        x1, y1, x2, y2 = (self.dtype.type(v) for v in corners)
        with np.errstate(all="ignore"):
            down = self._axis(y1, y2, self.bins[0], sizes[0])
            return down, self._axis(x1, x2, self.bins[1], sizes[1])

    def _axis(self, low: np.floating, high: np.floating, bins: int, size: int) -> _Axis:
        kind = self.dtype.type
        offset = kind(0.5 if self.aligned else 0.0)
        start = low * kind(self.scale) - offset
        extent = high * kind(self.scale) - offset - start
        if not self.aligned:
            extent = kind(1) if extent < 1 else extent
        step = extent / kind(max(1, bins))
        count = 0
        if np.isfinite(extent):
            wanted = self.ratio if self.ratio > 0 else int(max(0, np.ceil(step)))
            count = min(wanted, _MOST)
        number = np.arange(bins, dtype=self.dtype)[:, None]
        sample = np.arange(count, dtype=self.dtype) + kind(0.5)
        place = start + number * step + sample * step / kind(max(1, count))
        inside = (place >= -1) & (place <= size) & (size > 0)
        place = np.where(inside, np.maximum(place, kind(0)), kind(0))
        below = np.minimum(place.astype(np.int64), max(0, size - 1))
        above = np.minimum(below + 1, max(0, size - 1))
        upper = np.where(below >= size - 1, kind(0), place - below.astype(kind))
        return _Axis(below, above, (kind(1) - upper, upper), inside)


def _dense(axis: _Axis, size: int) -> Array:
    """The weight of every pixel in every bin."""
    weights = np.zeros((axis.low.shape[0], size), axis.weights[0].dtype)
    rows = np.broadcast_to(np.arange(len(weights))[:, None], axis.low.shape)[axis.inside]
    for pixels, values in zip((axis.low, axis.high), axis.weights, strict=True):
        np.add.at(weights, (rows, pixels[axis.inside]), values[axis.inside])
    return weights
