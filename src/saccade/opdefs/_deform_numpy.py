"""Deformable convolution and its gradients with NumPy, as their definition has them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from saccade.ir.op import Array

__all__ = ["Corner", "DeformSamples", "grouped"]


@dataclass(frozen=True, slots=True)
class Corner:
    """One of the four pixels around every sample.

    Attributes:
        index: Number of the pixel in the image, or one past the last where there is none.
        weight: Its share in the sample.
        down: The share's derivative by the sample's row.
        right: The same by its column.
    """

    index: Array
    weight: Array
    down: Array
    right: Array


@dataclass(frozen=True, slots=True)
class DeformSamples:
    """Where an image is sampled: all arrays are [N, offset groups, taps, P, Q]."""

    corners: tuple[Corner, ...]
    mask: Array

    @classmethod
    def of(
        cls,
        offset: Array,
        mask: Array | None,
        size: tuple[int, int],
        kernel: tuple[int, int],
        steps: tuple[tuple[int, int], tuple[int, int], tuple[int, int]],
    ) -> DeformSamples:
        """Samples for offsets [N, 2·groups·taps, P, Q]; `steps` are stride, padding, dilation."""
        n, _, p, q = offset.shape
        taps = kernel[0] * kernel[1]
        moved = offset.reshape(n, -1, taps, 2, p, q)
        places = []
        for axis, number in enumerate((p, q)):
            stride, padding, dilation = (pair[axis] for pair in steps)
            tap = np.arange(taps) // kernel[1] if axis == 0 else np.arange(taps) % kernel[1]
            first = (np.arange(number) * stride - padding).reshape((1, -1) if axis else (-1, 1))
            base = first + (tap * dilation)[:, None, None]
            places.append(base.astype(moved.dtype) + moved[:, :, :, axis])
        shape = (n, moved.shape[1], taps, p, q)
        factors = np.ones(shape, moved.dtype) if mask is None else mask.reshape(shape)
        rows, columns = places
        return cls(tuple(_corners(rows, columns, *size)), factors)

    def columns(self, x: Array) -> Array:
        """The samples of every channel [N, C, taps, P, Q], times the mask."""
        found = self.mask[:, :, None] * self._weighted(x, "weight")
        return found.reshape(x.shape[0], x.shape[1], *found.shape[3:])

    def slopes(self, x: Array, gradient: Array) -> tuple[Array, Array, Array]:
        """Gradients of rows, columns and mask for one of the columns [N, C, taps, P, Q]."""
        n, groups = self.mask.shape[:2]
        parts = gradient.reshape(n, groups, -1, *self.mask.shape[2:])
        down, right, plain = (
            (self._weighted(x, name) * parts).sum(2) for name in ("down", "right", "weight")
        )
        return down * self.mask, right * self.mask, plain

    def scatter(self, gradient: Array, size: tuple[int, int]) -> Array:
        """The gradient of the image [N, C, H, W] for one of the columns."""
        n, groups, *rest = self.mask.shape
        parts = gradient.reshape(n, groups, -1, *rest)
        result = np.zeros((n, groups, parts.shape[2], size[0] * size[1] + 1), gradient.dtype)
        for corner in self.corners:
            shares = (corner.weight * self.mask)[:, :, None] * parts
            for i, g in np.ndindex(n, groups):
                for channel, share in zip(result[i, g], shares[i, g], strict=True):
                    np.add.at(channel, corner.index[i, g], share)
        return result[..., :-1].reshape(n, -1, *size)

    def _weighted(self, x: Array, name: str) -> Array:
        """Sums over corners of pixel times factor: [N, groups, channels, taps, P, Q]."""
        n, groups = self.mask.shape[:2]
        pixels = x.reshape(n, groups, x.shape[1] // groups, x.shape[2] * x.shape[3])
        pixels = np.concatenate([pixels, np.zeros_like(pixels, shape=(*pixels.shape[:3], 1))], 3)
        total = np.zeros((n, groups, pixels.shape[2], *self.mask.shape[2:]), x.dtype)
        for corner in self.corners:
            for i, g in np.ndindex(n, groups):
                total[i, g] += pixels[i, g][:, corner.index[i, g]] * getattr(corner, name)[i, g]
        return total


def _corners(y: Array, x: Array, height: int, width: int) -> Iterator[Corner]:
    """A sample outside the image by a pixel or more is 0; NaN stays NaN."""
    inside = (y >= -1) & (y < height) & (x >= -1) & (x < width)
    strictly = inside & (y > -1) & (x > -1)
    unknown = np.isnan(y) | np.isnan(x)
    top, left = (np.floor(np.where(inside, v, 0)) for v in (y, x))
    with np.errstate(invalid="ignore"):
        below, beyond = y - np.floor(y), x - np.floor(x)
    for i, j in ((0, 0), (0, 1), (1, 0), (1, 1)):
        row, column = (top + i).astype(np.int64), (left + j).astype(np.int64)
        there = inside & (row >= 0) & (row < height) & (column >= 0) & (column < width)
        index = np.where(there, row * width + column, height * width)
        tall, wide = (below if i else 1 - below), (beyond if j else 1 - beyond)
        weight = np.where(strictly | unknown, tall * wide, 0)
        down = np.where(inside | unknown, (2 * i - 1) * wide, 0)
        right = np.where(inside | unknown, (2 * j - 1) * tall, 0)
        yield Corner(index, weight, down, right)


def grouped(array: Array, groups: int, axis: int) -> Array:
    """The array with an axis split into [groups, the rest]."""
    shape = array.shape
    return array.reshape(*shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :])
