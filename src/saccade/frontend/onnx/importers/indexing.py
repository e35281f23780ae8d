"""Slice and Gathers: index maps where the indices are known, also over symbolic contents."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from saccade.frontend.onnx.call import OnnxNode, Operand
from saccade.frontend.onnx.intervals import interval_of
from saccade.frontend.onnx.measured import sliced
from saccade.frontend.onnx.moves import move, slice_map
from saccade.frontend.onnx.open_axes import close, from_the_end, is_open
from saccade.frontend.onnx.refusal import Refusal
from saccade.frontend.onnx.specialise import refuse_sizes
from saccade.frontend.onnx.symbolic import Symbolic, non_negative
from saccade.ir import Array, Dim, DType, Value
from saccade.ir.dim import add, ceildiv, minimum, sub
from saccade.opdefs import Concat, Gather, GatherNd

__all__ = ["import_gather", "import_gather_nd", "import_slice"]

_FAR = 2**31 - 1
"""Exporters write this and more for "to the end"."""


def import_slice(call: OnnxNode) -> Sequence[Operand]:
    """ONNX Slice 1 (attributes) to 13."""
    x = call.operand(0)
    rank = len(x.shape)
    if isinstance(x, Value) and call.opset >= 10 and None in (call.content(1), call.content(2)):
        return [_sliced_by_data(call, x)]
    ranges: dict[int, tuple[Dim, Dim, int]] = {}
    for axis, start, end, step in _bounds(call, rank):
        if axis in ranges:
            raise call.broken(f"slices axis {axis} twice")
        # To the end of what the file has, and nobody knows whether to the end of something else.
        refuse_sizes(f"Slice {call.name!r} to {end}", [x.shape[axis]], [end], call.build.own)
        ranges[axis] = _range(call, x.shape[axis], start, end, step)
    if isinstance(x, Symbolic):
        return [Symbolic(x.dtype, _slice_contents(x, ranges))]
    return [move(call, call.value(0), slice_map(x.shape, ranges))]


def _sliced_by_data(call: OnnxNode, x: Value) -> Value:
    """Along one axis after the other, between places that are known or not."""
    sides: list[list[Value | int]] = []
    for index in (1, 2):
        content = call.content(index)
        if content is not None:
            sides.append(list(call.integers_of(index, "the end of a slice")))
            continue
        given = call.value(index)
        length = given.shape[0] if given.rank == 1 else None
        if not isinstance(length, int) or given.dtype not in (DType.I32, DType.I64):
            raise Refusal("the start of a slice depends on data")
        parts = (slice_map(given.shape, {0: (place, 1, 1)}) for place in range(length))
        sides.append([move(call, given, part) for part in parts])
    count = len(sides[0])
    axes = call.integers_of(3, "the axes") if call.has(3) else tuple(range(count))
    steps = call.integers_of(4, "the steps") if call.has(4) else (1,) * count
    if not count == len(sides[1]) == len(axes) == len(steps):
        raise call.broken("starts, ends, axes and steps differ in number")
    if set(steps) - {1}:
        raise Refusal("the start of a slice depends on data, and its step is not 1")
    for axis, start, end in zip(axes, *sides, strict=True):
        x = sliced(call, x, call.axis(axis, x.rank), start, end)
    return x


def _bounds(call: OnnxNode, rank: int) -> list[tuple[int, Dim, Dim, int]]:
    starts: Sequence[Dim]
    ends: Sequence[Dim]
    if call.opset < 10:
        starts, ends = call.integers("starts") or (), call.integers("ends") or ()
        axes = call.integers("axes") or tuple(range(len(starts)))
        steps: tuple[int, ...] = (1,) * len(starts)
    else:
        starts, ends = call.dims(1, "the start of a slice"), call.dims(2, "the end of a slice")
        axes = call.integers_of(3, "the axes") if call.has(3) else tuple(range(len(starts)))
        steps = call.integers_of(4, "the steps") if call.has(4) else (1,) * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise call.broken("starts, ends, axes and steps differ in number")
    if 0 in steps:
        raise call.broken("a step of 0")
    axes = tuple(call.axis(axis, rank) for axis in axes)
    return list(zip(axes, starts, ends, steps, strict=True))


def _range(call: OnnxNode, size: Dim, start: Dim, end: Dim, step: int) -> tuple[Dim, Dim, int]:
    """Start, count and step after clamping as ONNX does.

    A known start inside a symbolic axis is taken to be inside for all sizes, and so are ends up to
    there, as of an axis that is rolled; the plan refuses a negative extent.
    """
    # The end is exclusive: backwards, the one before the first element is -1.
    low, top = (0, size) if step > 0 else (-1, sub(size, 1))
    first = _position(size, start)
    first = _clamped(first, low, top) if _decided(first, top) else first
    behind = sub(start, size)  # by which files mean the same as by a negative number
    start = behind if isinstance(behind, int) and -_FAR < behind < 0 else start
    reach = call.build.inside.get(size, 0)
    if isinstance(start, int) and not isinstance(size, int) and abs(start) < _FAR and step > 0:
        reach = max(reach, abs(start))
    last = _position(size, end)
    inside = isinstance(last, int) and 0 < last <= reach and step > 0
    last = last if inside else _clamped(last, low, top)
    span = sub(last, first) if step > 0 else sub(first, last)
    # Nothing is before the first element, wherever a slice begins.
    count = 0 if step > 0 and last == 0 else ceildiv(span, abs(step))
    if count != 0 and reach:
        call.build.inside[size] = reach
    if isinstance(count, int):
        count = max(count, 0)
        # A start beyond the axis must not get into the map where nothing is read.
        first = first if count else 0
    elif not isinstance(start, int) and not (non_negative(first) and non_negative(span)):
        raise Refusal("slices from a symbolic position")
    return first, count, step


def _position(size: Dim, at: Dim) -> Dim:
    """A bound with negative ones counted from the end."""
    # Farther ones mean "from the very start" and are clamped.
    if isinstance(at, int) and -_FAR < at < 0:
        return add(size, at)
    return at


def _decided(at: Dim, top: Dim) -> bool:
    return isinstance(sub(top, at), int) or (isinstance(at, int) and abs(at) >= _FAR)


def _clamped(at: Dim, low: int, top: Dim) -> Dim:
    """The position between `low` and `top`."""
    if isinstance(at, int):
        if at >= _FAR:
            return top
        if at <= low:
            return low
    if isinstance(at, int) and isinstance(top, int):
        return max(low, min(at, top))
    return at if non_negative(sub(top, at)) else minimum(at, top)


def _slice_contents(
    x: Symbolic, ranges: dict[int, tuple[Dim, Dim, int]]
) -> np.ndarray[tuple[int, ...], np.dtype[np.object_]]:
    array = x.array
    for axis, (start, count, step) in ranges.items():
        if not isinstance(start, int) or not isinstance(count, int):
            raise Refusal("slices a shape at a symbolic position")
        indices = start + step * np.arange(count)
        array = np.take(array, indices, axis=axis)
    return array


def import_gather(call: OnnxNode) -> Sequence[Operand]:
    """ONNX Gather 1 to 13; computed indices beyond the axis are clamped to its ends."""
    x = call.operand(0)
    axis = call.axis(call.integer("axis", 0), len(x.shape))
    if isinstance(x, Symbolic):
        indices = np.asarray(call.integers_of(1, "an index into a shape"), dtype=np.int64)
        if indices.size and not -x.shape[axis] <= indices.min() <= indices.max() < x.shape[axis]:
            raise call.broken(f"an index outside of {x.shape[axis]} elements")
        shape = [n for n in call.shape(1) if isinstance(n, int)]  # whose contents are known
        picked = np.take(x.array, indices.reshape(shape), axis=axis)
        return [Symbolic(x.dtype, np.asarray(picked, dtype=object))]
    data, where = call.value(0), call.value(1)
    if where.dtype not in (DType.I32, DType.I64):
        raise call.broken(f"indices of type {where.dtype.value}")
    if is_open(call, data.shape[axis]):
        where = from_the_end(call, where, data.shape[axis])
        return [call.emit(Gather(axis=axis), close(call, data, axis), where)]
    sliced = _as_slice(call, data, where, axis)
    return [call.emit(Gather(axis=axis), data, where) if sliced is None else sliced]


def _as_slice(call: OnnxNode, data: Value, where: Value, axis: int) -> Value | None:
    """The gather as a movement, if its indices are known, evenly spaced and of rank 0 or 1."""
    indices = call.build.constants.get(where)
    size = data.shape[axis]
    if indices is None or indices.size == 0:
        return None
    _check_indices(call, indices, size)
    # A slice that drops an axis needs another one to be left (`slice_map`).
    if indices.ndim > 1 or (indices.ndim == 0 and data.rank == 1):
        return None
    flat = [int(i) for i in indices.ravel()]
    steps = {b - a for a, b in pairwise(flat)} or {1}
    # Indices from both ends are evenly spaced for one size of the axis at most.
    if len(steps) != 1 or 0 in steps or (min(flat) < 0) != (max(flat) < 0):
        return None
    start = add(size, flat[0]) if flat[0] < 0 else flat[0]
    drop = (axis,) if indices.ndim == 0 else ()
    return move(call, data, slice_map(data.shape, {axis: (start, len(flat), steps.pop())}, drop))


def _check_indices(call: OnnxNode, indices: Array, size: Dim) -> None:
    """Raise where known indices, some at least, are outside of an axis of known size."""
    if isinstance(size, int) and not -size <= indices.min() <= indices.max() < size:
        raise call.broken(f"an index outside of {size} elements")


def import_gather_nd(call: OnnxNode) -> Sequence[Operand]:
    """ONNX GatherND 11 to 13; computed indices beyond an axis are clamped to its ends."""
    data, indices = call.value(0), call.value(1)
    if indices.dtype is not DType.I64:
        raise call.broken(f"indices of type {indices.dtype.value}")
    batch = call.integer("batch_dims", 0)
    if not indices.rank or not isinstance(indices.shape[-1], int):
        raise Refusal("takes tuples of indices of unknown length")
    known = call.build.constants.get(indices)
    if known is not None and known.size:
        for column, size in zip(
            np.moveaxis(known, -1, 0), data.shape[max(batch, 0) :], strict=False
        ):
            _check_indices(call, column, size)
    for axis in range(max(batch, 0), min(batch + indices.shape[-1], data.rank)):
        if is_open(call, data.shape[axis]):
            indices = _column_from_the_end(call, indices, axis - batch, data.shape[axis])
            data = close(call, data, axis)
    return [call.emit(GatherNd(batch), data, indices)]


def _column_from_the_end(call: OnnxNode, tuples: Value, column: int, size: Dim) -> Value:
    """Tuples of indices of which one counts from the front of an axis that is open."""
    last, length = tuples.rank - 1, tuples.shape[-1]
    assert isinstance(length, int)
    if length == 1 or interval_of(call.build, tuples)[0] >= 0:
        return from_the_end(call, tuples, size)
    cuts = ((0, column), (column, 1), (column + 1, length - column - 1))
    parts = [
        move(call, tuples, slice_map(tuples.shape, {last: (start, count, 1)}))
        for start, count in cuts
    ]
    parts[1] = from_the_end(call, parts[1], size)
    there = [part for part, (_, count) in zip(parts, cuts, strict=True) if count]
    return call.emit(Concat(axis=last), *there)
