"""Convolutions in NumPy: one matrix product per tap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from saccade.ir.op import Array
from saccade.opdefs._rules import static_count
from saccade.opdefs._store_maps import DepthToSpaceStore, StoreMap
from saccade.opdefs.expr_numpy import accumulator, finish

if TYPE_CHECKING:
    from saccade.opdefs.conv import Conv2d, ConvTranspose2d

__all__ = ["conv2d", "conv_transpose2d"]


def _product(w: Array, x: Array) -> Array:
    """[g, k, c] times [n, g, c, i].

    With one channel a group it is a plain product: far faster than many tiny matrices.
    """
    return w * x if w.shape[2] == 1 else np.matmul(w, x)


def _by_tap(w: Array) -> Array:
    """[g, k, c, r, s] as dense [r, s, g, k, c]: NumPy hands only dense matrices to BLAS."""
    return np.ascontiguousarray(w.transpose(3, 4, 0, 1, 2))


def _strided(start: int, count: int, step: int) -> slice:
    return slice(start, start + max(count - 1, 0) * step + min(count, 1), step)


def conv2d(op: Conv2d, inputs: Sequence[Array]) -> Array:
    """The result of `op`, sums kept in the accumulator type."""
    x, w = inputs[:2]
    first, last = 2 + op.n_prologue, len(inputs) - op.n_store
    wide = accumulator(x.dtype)
    n, (k, depth, taps_r, taps_s) = x.shape[0], w.shape
    p, q = (static_count((d,)) for d in op.sum_shape(x.shape, w.shape)[2:])
    top, left, bottom, right = op.padding
    loaded = finish(op.prologue, x, inputs[2:first], wide)
    padded = np.pad(loaded, ((0, 0), (0, 0), (top, bottom), (left, right)))
    weights = _by_tap(w.astype(wide).reshape(op.groups, k // op.groups, depth, taps_r, taps_s))
    sums = np.zeros((n, op.groups, k // op.groups, p * q), wide)
    for r in range(taps_r):
        rows = _strided(r * op.dilation[0], p, op.stride[0])
        for s in range(taps_s):
            patch = padded[:, :, rows, _strided(s * op.dilation[1], q, op.stride[1])]
            sums += _product(weights[r, s], patch.reshape(n, op.groups, depth, p * q))
    result = finish(op.epilogue, sums.reshape(n, k, p, q), inputs[first:last], x.dtype)
    return _store(op.store, result, inputs[last:])


def _store(store: StoreMap | None, result: Array, others: Sequence[Array]) -> Array:
    if store is None:
        return result
    n, k, p, q = result.shape
    if isinstance(store, DepthToSpaceStore):
        b = store.block
        if store.mode == "DCR":
            blocks = result.reshape(n, b, b, k // b**2, p, q).transpose(0, 3, 4, 1, 5, 2)
        else:
            blocks = result.reshape(n, k // b**2, b, b, p, q).transpose(0, 1, 4, 2, 5, 3)
        return np.ascontiguousarray(blocks).reshape(n, k // b**2, p * b, q * b)
    parts = [*others[: store.position], result, *others[store.position :]]
    return np.stack(parts, axis=2).reshape(n, k * store.parts, p, q)


def conv_transpose2d(op: ConvTranspose2d, inputs: Sequence[Array]) -> Array:
    """The result of `op`, sums kept in the accumulator type."""
    x, w = inputs[:2]
    wide = accumulator(x.dtype)
    (n, c, h, width), (_, k, taps_r, taps_s) = x.shape, w.shape
    g = op.groups
    pixels = x.astype(wide).reshape(n, g, c // g, h * width)
    weights = _by_tap(w.astype(wide).reshape(g, c // g, k, taps_r, taps_s).swapaxes(1, 2))
    spread = [
        (size - 1) * op.stride[axis] + (taps - 1) * op.dilation[axis] + 1 + op.output_padding[axis]
        for axis, size, taps in ((0, h, taps_r), (1, width, taps_s))
    ]
    sums = np.zeros((n, g * k, *spread), wide)
    for r in range(taps_r):
        rows = _strided(r * op.dilation[0], h, op.stride[0])
        for s in range(taps_s):
            part = _product(weights[r, s], pixels).reshape(n, g * k, h, width)
            sums[:, :, rows, _strided(s * op.dilation[1], width, op.stride[1])] += part
    top, left, bottom, right = op.padding
    kept = sums[:, :, top : spread[0] - bottom, left : spread[1] - right]
    return finish(op.epilogue, kept, inputs[2:], x.dtype)
