"""Interpolation in NumPy: per axis either a list of indices, or a few taps and their weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from saccade.ir.op import Array

if TYPE_CHECKING:
    from saccade.opdefs.resize import Resize

__all__ = ["coordinates", "cubic", "nearest_indices", "resize"]


def resize(op: Resize, x: Array, sizes: tuple[int, ...]) -> Array:
    """The result of `op`, whose sizes are given as integers, in the type of `x`."""
    for axis, (before, after) in enumerate(zip(x.shape, sizes, strict=True)):
        scale = (
            after / before if op.scales is None and before else (op.scales or (1.0,) * x.ndim)[axis]
        )
        if before == after and scale == 1:
            continue
        positions = coordinates(op.coordinate, before, after, scale)
        if op.mode == "nearest":
            x = np.take(x, nearest_indices(op.nearest, positions, before), axis=axis)
        else:
            taps, weights = _taps_of(op, positions, before)
            x = _weighted(x, axis, taps, weights.astype(x.dtype))
    return x


def _weighted(x: Array, axis: int, taps: Array, weights: Array) -> Array:
    """The sum over taps, one tap after the other."""
    along = (-1, *(1 for _ in x.shape[axis + 1 :]))
    total: Array = np.zeros((), x.dtype)
    for at, weight in zip(taps.T, weights.T, strict=True):
        total = total + np.take(x, at, axis=axis) * weight.reshape(along)
    return total


def coordinates(
    kind: str, before: int, after: int, scale: float, kept: type[np.floating] = np.float64
) -> Array:
    """Positions in the operand of the `after` positions of the result, each step made in `kept`."""
    x, ratio, half = np.arange(after, dtype=kept), kept(scale), kept(0.5)
    if kind == "asymmetric":
        return np.asarray(x / ratio)
    if kind == "align_corners":
        return x * kept(before - 1) / kept(after - 1) if after > 1 else np.zeros_like(x)
    if kind == "pytorch_half_pixel" and after <= 1:
        return np.zeros_like(x)
    middle = (x + half) / ratio - half
    if kind == "half_pixel_symmetric":  # keeps the middle where `after` was rounded down
        return np.asarray(middle + kept(before / 2 * (1 - after / (scale * before))))
    return np.asarray(middle)


def nearest_indices(rounding: str, positions: Array, before: int) -> Array:
    """Indices into the operand."""
    rules: dict[str, Callable[[Array], Array]] = {
        "floor": np.floor,
        "ceil": np.ceil,
        "round_prefer_floor": lambda x: np.ceil(x - x.dtype.type(0.5)),
        "round_prefer_ceil": lambda x: np.floor(x + x.dtype.type(0.5)),
    }
    return np.clip(rules[rounding](positions), 0, before - 1).astype(np.intp)


def _taps_of(op: Resize, positions: Array, before: int) -> tuple[Array, Array]:
    """Indices into the operand and their weights (float64), [after, taps] each.

    Taps beyond an edge read the edge: their weights go to the tap that is there, if one is.
    """
    base = np.floor(positions)
    offsets = (0, 1) if op.mode == "linear" else (-1, 0, 1, 2)
    taps = np.stack([base + offset for offset in offsets], axis=1)
    distance = np.abs(positions[:, None] - taps)
    weights = 1 - distance if op.mode == "linear" else cubic(distance, op.cubic_a)
    if op.exclude_outside:
        weights = np.where((taps >= 0) & (taps < before), weights, 0)
        weights = weights / weights.sum(axis=1, keepdims=True)
    indices = np.clip(taps, 0, before - 1).astype(np.intp)
    for tap in range(len(offsets) - 1):  # equal indices are neighbours
        same = indices[:, tap] == indices[:, tap + 1]
        weights[:, tap + 1] += np.where(same, weights[:, tap], 0)
        weights[:, tap] = np.where(same, 0, weights[:, tap])
    return indices, weights


def cubic(distance: Array, a: float) -> Array:
    """Keys, Cubic convolution interpolation for digital image processing, 1981."""
    d = distance
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))
