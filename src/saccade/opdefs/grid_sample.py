"""Images sampled at given places (ONNX GridSample, PyTorch's grid_sample)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from saccade.ir.op import Array, Op, TensorType, Work
from saccade.opdefs._rules import (
    expect,
    expect_count,
    expect_float,
    static_count,
    tensor_bytes,
    text,
    unify,
)
from saccade.opdefs.expr_numpy import accumulator

__all__ = ["GridSample"]

_TAPS = {"nearest": 1, "linear": 2, "cubic": 4}
_CUBIC = -0.75


@dataclass(frozen=True)
class GridSample(Op):
    """Interpolates x at the places of a grid.

    Operands: x [N, C, …] with one spatial axis or more; grid [N, …, axes], floating-point places
    from -1 to 1, those along the last axis of x first. The result is [N, C, …] with the grid's
    spatial axes.

    Attributes:
        mode: "nearest" (halves to the even pixel), "linear" or "cubic".
        padding: What is outside: "zeros", "border" (the nearest pixel) or "reflection". Linear and
            nearest places are moved inside first; of cubic ones each of the four pixels is, as in
            PyTorch and ONNX Runtime.
        aligned: Whether -1 and 1 are the middles of the first and the last pixel, not their ends.
    """

    mode: str = "linear"
    padding: str = "zeros"
    aligned: bool = False

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(self, inputs, 2)
        x, grid = inputs
        expect(self, self.mode in _TAPS, f"mode {self.mode!r}")
        known = self.padding in ("zeros", "border", "reflection")
        expect(self, known, f"padding {self.padding!r}")
        expect_float(self, x, "x")
        expect_float(self, grid, "the grid")
        axes = len(x.shape) - 2
        fits = axes >= 1 and len(grid.shape) == axes + 2 and grid.shape[-1] == axes
        expect(self, fits, f"a grid {text(grid.shape)} over {text(x.shape)}")
        batch = unify(self, x.shape[0], grid.shape[0], "the number of images")
        empty = any(d == 0 for d in x.shape[2:])
        expect(self, not empty, f"samples an image without pixels: {text(x.shape)}")
        return (TensorType(x.dtype, (batch, x.shape[1], *grid.shape[1:-1])),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        x, grid = inputs
        wide = x.astype(accumulator(x.dtype), copy=False)
        axes = x.ndim - 2
        # The grid names columns before rows.
        taps = [
            self._taps(grid[..., axes - 1 - a].astype(accumulator(grid.dtype)), x.shape[2 + a])
            for a in range(axes)
        ]
        images = np.arange(len(x)).reshape(-1, *(1,) * axes)
        channels_last = np.moveaxis(wide, 1, -1)
        result = np.zeros((*grid.shape[:-1], x.shape[1]), wide.dtype)
        for chosen in product(*taps):
            places = tuple(index for index, _, _ in chosen)
            there = np.logical_and.reduce([inside for _, _, inside in chosen])
            weight = np.prod([w for _, w, _ in chosen], axis=0).astype(wide.dtype)
            # What is outside is no pixel's number, not one times zero.
            with np.errstate(all="ignore"):
                share = channels_last[(images, *places)] * weight[..., None]
            result += np.where(there[..., None], share, 0)
        return (np.ascontiguousarray(np.moveaxis(result, -1, 1), dtype=x.dtype),)

    def _taps(self, place: Array, size: int) -> list[tuple[Array, Array, Array]]:
        """Pixels along an axis, their weights, and whether they count."""
        with np.errstate(all="ignore"):
            at = self._padded(self._denormalised(place, size), size)
            # What is no number, or far away, has no pixel near it.
            at = np.where(at > -4, np.minimum(at, size + 3), -4)
        if self.mode == "nearest":
            base, weights = np.rint(at), [np.ones_like(at)]
        else:
            base = np.floor(at)
            t = at - base
            weights = [1 - t, t] if self.mode == "linear" else cubic_weights(t)
        first = base - (self.mode == "cubic")
        return [self._tap((first + n).astype(np.int64), w, size) for n, w in enumerate(weights)]

    def _tap(self, index: Array, weight: Array, size: int) -> tuple[Array, Array, Array]:
        inside = (index >= 0) & (index < size)
        if self.padding == "zeros":
            return np.clip(index, 0, size - 1), weight, inside
        if self.padding == "reflection" and self.mode == "cubic":
            index = np.rint(self._reflected(index.astype(weight.dtype), size)).astype(np.int64)
        return np.clip(index, 0, size - 1), weight, np.ones_like(inside)

    def _denormalised(self, place: Array, size: int) -> Array:
        half = place.dtype.type(0.5)
        if self.aligned:
            return np.asarray((place + 1) * half * (size - 1))
        return np.asarray(((place + 1) * size - 1) * half)

    def _padded(self, at: Array, size: int) -> Array:
        if self.padding == "reflection":
            at = self._reflected(at, size)
        return at if self.padding == "zeros" or self.mode == "cubic" else np.clip(at, 0, size - 1)

    def _reflected(self, at: Array, size: int) -> Array:
        low, length = (0.0, size - 1.0) if self.aligned else (-0.5, float(size))
        if length == 0:
            return np.zeros_like(at)
        shift = (at - low) - np.floor((at - low) / (2 * length)) * (2 * length)
        return np.where(shift > length, 2 * length - shift, shift) + low

    def work(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Work:
        taps = _TAPS[self.mode] ** (len(inputs[0].shape) - 2)
        return Work(2 * taps * static_count(outputs[0].shape), tensor_bytes((*inputs, *outputs)))


def cubic_weights(t: Array) -> list[Array]:
    """Of the four pixels around a place, `t` behind the second one."""
    a = _CUBIC

    def outer(d: Array) -> Array:
        return np.asarray(((a * d - 5 * a) * d + 8 * a) * d - 4 * a)

    def inner(d: Array) -> Array:
        return np.asarray(((a + 2) * d - (a + 3)) * d * d + 1)

    return [outer(t + 1), inner(t), inner(1 - t), outer(2 - t)]
