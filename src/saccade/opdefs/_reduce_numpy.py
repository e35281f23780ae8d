"""Reductions in NumPy."""

from __future__ import annotations

import numpy as np

from saccade.ir.op import Array
from saccade.opdefs.expr_numpy import accumulator

__all__ = ["reduce", "softmax"]


def reduce(kind: str, x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    """The reduction, in the type of `x`."""
    with np.errstate(all="ignore"):
        if kind in ("max", "min"):
            return _extremum(kind, x, axes, keepdims)
        if kind == "log_sum_exp":
            return _log_sum_exp(x, axes, keepdims)
        if kind == "prod":
            return np.asarray(np.prod(x, axis=axes, keepdims=keepdims, dtype=x.dtype))
        terms = np.abs(x) if kind == "l1" else x * x if kind in ("l2", "sum_square") else x
        total = np.asarray(np.sum(terms, axis=axes, keepdims=keepdims, dtype=x.dtype))
        if kind == "mean":
            return _mean(total, x, axes)
        result = {"l2": np.sqrt, "log_sum": np.log}.get(kind, np.positive)(total)
        return np.asarray(result).astype(x.dtype, copy=False)


def _mean(total: Array, x: Array, axes: tuple[int, ...]) -> Array:
    count = np.prod([x.shape[axis] for axis in axes], dtype=np.int64)
    if x.dtype.kind == "f":
        return np.asarray(total / x.dtype.type(count))
    return np.asarray(np.sign(total) * (np.abs(total) // max(int(count), 1))).astype(x.dtype)


def _extremum(kind: str, x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    least, largest = _range(x)
    if kind == "max":
        return np.asarray(np.max(x, axis=axes, keepdims=keepdims, initial=least))
    return np.asarray(np.min(x, axis=axes, keepdims=keepdims, initial=largest))


def _range(x: Array) -> tuple[float, float]:
    """Least and largest value of the type, which a maximum and a minimum of nothing are."""
    if x.dtype.kind == "b":
        return False, True
    if x.dtype.kind == "f":
        return -np.inf, np.inf
    info = np.iinfo(x.dtype)
    return info.min, info.max


def _log_sum_exp(x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    top = _extremum("max", x, axes, keepdims=True)
    top = np.where(np.isfinite(top), top, x.dtype.type(0))
    sums = np.log(np.sum(np.exp(x - top), axis=axes, keepdims=True, dtype=accumulator(x.dtype)))
    result = np.asarray(sums + top)
    return result if keepdims else np.squeeze(result, axis=axes)


def softmax(x: Array, axis: int, log: bool) -> Array:
    """Softmax or its logarithm, in the type of `x`."""
    with np.errstate(all="ignore"):
        shifted = x - _extremum("max", x, (axis,), keepdims=True)
        powers = np.exp(shifted)
        total = powers.sum(axis=axis, keepdims=True, dtype=x.dtype)
        return np.asarray(shifted - np.log(total) if log else powers / total)
