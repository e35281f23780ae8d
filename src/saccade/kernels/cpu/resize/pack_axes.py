"""Tables of interpolation: which elements weigh how much for each position along one axis.

Positions are computed in float32, operation by operation as ONNX Runtime does, so that `floor` and
rounding fall on the same side where a position is a whole number in one precision and just below
it in another.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from saccade.ir import Array

__all__ = ["TAPS", "axis_indices", "axis_weights", "positions"]

TAPS = {"nearest": 1, "linear": 2, "cubic": 4}
_F = np.float32


def positions(kind: str, before: int, after: int, scale: float) -> Array:
    """Float32 positions in the operand of the `after` positions of the result."""
    x, s = np.arange(after, dtype=_F), _F(scale)
    if kind == "asymmetric":
        return np.asarray(x / s)
    if kind == "align_corners":
        return x * _F(before - 1) / _F(after - 1) if after > 1 else np.zeros_like(x)
    if kind == "pytorch_half_pixel" and after <= 1:
        return np.zeros_like(x)
    middle = (x + _F(0.5)) / s - _F(0.5)
    # Keeps the middle where `after` was rounded down.
    if kind == "half_pixel_symmetric":
        return np.asarray(middle + _F(before / 2 * (1 - after / (scale * before))))
    return np.asarray(middle)


def _nearest(rounding: str, x: Array) -> Array:
    rules: dict[str, Callable[[Array], Array]] = {
        "floor": np.floor,
        "ceil": np.ceil,
        "round_prefer_floor": lambda p: np.ceil(p - _F(0.5)),
        "round_prefer_ceil": lambda p: np.floor(p + _F(0.5)),
    }
    return np.asarray(rules[rounding](x))


def _taps(
    mode: str, kind: str, nearest: str, before: int, after: int, scale: float
) -> tuple[Array, Array]:
    """Float64 positions, and the unclipped taps of each, [after, taps]."""
    x = positions(kind, before, after, scale)
    if mode == "nearest":
        return x.astype(np.float64), _nearest(nearest, x)[:, None]
    # Not clipped: weights go by the distance, also of what lies beyond the border.
    offsets = np.array([0, 1] if mode == "linear" else [-1, 0, 1, 2])
    return x.astype(np.float64), np.floor(x)[:, None] + offsets


def axis_indices(
    mode: str, kind: str, nearest: str, before: int, after: int, scale: float
) -> Array:
    """Int32 [after, taps]: elements of the operand, clipped to it."""
    _, taps = _taps(mode, kind, nearest, before, after, scale)
    return np.clip(taps, 0, max(before - 1, 0)).astype(np.int32)


def axis_weights(
    mode: str, kind: str, before: int, after: int, scale: float, cubic_a: float, inside: bool
) -> Array:
    """Float32 [after, taps]; `inside`: taps beyond the operand weigh nothing, the rest more."""
    # In float64, where the distances of float32 positions are exact.
    x, taps = _taps(mode, kind, "floor", before, after, scale)
    distance = np.abs(x[:, None] - taps)
    if mode == "nearest":
        weights = np.ones_like(distance)
    else:
        weights = 1 - distance if mode == "linear" else _cubic(distance, cubic_a)
        if inside:
            weights = np.where((taps >= 0) & (taps < before), weights, 0)
            weights = weights / weights.sum(axis=1, keepdims=True)
    return np.asarray(weights, _F)


def _cubic(d: Array, a: float) -> Array:
    """Keys, Cubic convolution interpolation for digital image processing, 1981."""
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.asarray(np.where(d <= 1, near, np.where(d < 2, far, 0)))
