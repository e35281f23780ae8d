"""Interpolation along one axis as a sparse matrix: runs of elements, and their weights."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from saccade.ir.op import Array
from saccade.opdefs._resize_numpy import coordinates, cubic, nearest_indices

__all__ = ["AxisRule", "AxisTables", "axis_tables", "resample"]


class AxisRule(NamedTuple):
    """How positions along an axis are made, as plain numbers: see `Resample` for each."""

    mode: str
    coordinate: str
    nearest: str
    scale: float
    region: tuple[float, float]
    cubic_a: float
    exclude_outside: bool
    antialias: bool


class AxisTables(NamedTuple):
    """What each position of the result reads.

    Attributes:
        first: int64 [after]: the first element.
        length: int64 [after]: how many neighbours, from the first on; 0 outside the operand.
        weights: float64 [after, most]: of each, 0 behind the last.
    """

    first: Array
    length: Array
    weights: Array


def axis_tables(rule: AxisRule, before: int, after: int) -> AxisTables:
    """The matrix of an axis of `before` elements whose result has `after`.

    Positions are made in float32, operation by operation, as others do, so that rounding falls on
    the same side; weights are float64.
    """
    at = _positions(rule, before, after)
    outside = np.zeros(after, bool)
    if rule.coordinate == "tf_crop_and_resize":
        outside = (at < 0) | (at > before - 1)
    if rule.mode == "nearest":
        first = nearest_indices(rule.nearest, at, before)
        tables = AxisTables(first, np.ones(after, np.int64), np.ones((after, 1)))
    else:
        tables = _folded(*_taps(rule, at.astype(np.float64), before), before)
    return tables._replace(length=np.where(outside, 0, tables.length))


def _positions(rule: AxisRule, before: int, after: int) -> Array:
    if rule.coordinate != "tf_crop_and_resize":
        return coordinates(rule.coordinate, before, after, rule.scale, np.float32)
    start, end = (np.float32(edge) for edge in rule.region)
    last = np.float32(before - 1)
    if after <= 1:
        return np.full(after, np.float32(0.5) * (start + end) * last, np.float32)
    step = (end - start) * last / np.float32(after - 1)
    return np.asarray(start * last + np.arange(after, dtype=np.float32) * step)


def _taps(rule: AxisRule, at: Array, before: int) -> tuple[Array, Array]:
    """Unclipped neighbours of each position, [after, taps], and their weights."""
    reach = 1 if rule.mode == "linear" else 2
    # A filter as wide as an element of the result, where that is wider than one of the operand.
    narrow = min(rule.scale, 1.0) if rule.antialias else 1.0
    wide = int(np.ceil(reach / narrow))
    taps = np.floor(at)[:, None] + np.arange(1 - wide, wide + 1)
    distance = np.abs(at[:, None] - taps) * narrow
    if rule.mode == "linear":
        weights = np.maximum(1 - distance, 0)
    else:
        weights = cubic(distance, rule.cubic_a)
    if rule.exclude_outside:
        weights = np.where((taps >= 0) & (taps < before), weights, 0)
    if rule.exclude_outside or rule.antialias:
        weights = weights / weights.sum(axis=1, keepdims=True)
    return taps.astype(np.int64), weights


def _folded(taps: Array, weights: Array, before: int) -> AxisTables:
    """Weights of neighbours beyond an edge go to the edge; what weighs nothing is left out."""
    inside = np.clip(taps, 0, max(before - 1, 0))
    low = inside.min(axis=1, initial=0) if not inside.size else inside.min(axis=1)
    # No more places than elements that there are.
    folded = np.zeros((len(taps), min(taps.shape[1], max(before, 1))))
    rows = np.arange(len(taps))
    for place, weight in zip(inside.T, weights.T, strict=True):
        folded[rows, place - low] += weight
    used = folded != 0
    skip = np.where(used.any(axis=1), used.argmax(axis=1), 0)
    last = folded.shape[1] - used[:, ::-1].argmax(axis=1)
    count = np.maximum(np.where(used.any(axis=1), last - skip, 1), 1)
    most = int(count.max(initial=1))
    columns = np.minimum(skip[:, None] + np.arange(most), folded.shape[1] - 1)
    kept = np.take_along_axis(folded, columns, axis=1)
    kept[np.arange(most) >= count[:, None]] = 0
    return AxisTables(low + skip, count, kept)


def resample(x: Array, axis: int, tables: AxisTables, fill: float) -> Array:
    """The matrix times x along an axis, in the type of x; positions that read nothing are `fill`.

    The sum takes the neighbours one after the other.
    """
    along = (-1, *(1 for _ in x.shape[axis + 1 :]))
    total: Array = np.full((), fill, x.dtype) * (tables.length == 0).astype(x.dtype).reshape(along)
    for tap in range(tables.weights.shape[1]):
        used = tap < tables.length
        picked = np.take(x, np.where(used, tables.first + tap, 0), axis=axis)
        weight = tables.weights[:, tap].astype(x.dtype).reshape(along)
        total = np.where(used.reshape(along), total + picked * weight, total)
    return np.asarray(
        np.broadcast_to(total, (*x.shape[:axis], len(tables.length), *x.shape[axis + 1 :]))
    )
