"""Between which numbers the results of an operator lie, as far as those of its operands tell.

What is found holds for all elements together, whatever the data are, NaN aside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from math import ceil, floor, inf, isnan
from typing import TypeAlias

import numpy as np

from saccade.ir.dtype import DType
from saccade.ir.expr import fold
from saccade.ir.op import Array, Op, TensorType
from saccade.opdefs.movement import Concat, Gather, GatherNd, Move, Pad
from saccade.opdefs.nms import NonMaxSuppression
from saccade.opdefs.pointwise import Pointwise
from saccade.opdefs.reduce import ArgReduce, Reduce
from saccade.opdefs.select import NonZero, TopK

__all__ = ["Interval", "any_of", "interval_through", "of_array", "telling"]

Interval: TypeAlias = tuple[float, float]
"""The least and the largest number."""

_ANYTHING: Interval = (-inf, inf)
_PLACES = (ArgReduce, NonMaxSuppression, NonZero, TopK)


def telling(op: Op, inputs: Sequence[TensorType], result: int) -> range:
    """The operands that a result lies between the ends of, or is computed from in a way that tells.

    Args:
        op: The operator.
        inputs: Of its operands.
        result: Which of its results.
    """
    if isinstance(op, Concat | Pointwise):
        return range(len(inputs))
    if isinstance(op, Move | Gather | GatherNd | Pad):
        return range(1)
    if isinstance(op, TopK):
        return range(0 if result else 1)
    if isinstance(op, Reduce) and op.kind in ("max", "min") and len(inputs) == 1:
        # Of no elements it is the least number, or the largest, of the type.
        sizes = [inputs[0].shape[axis] for axis in op.axes]
        return range(1 if all(isinstance(size, int) and size > 0 for size in sizes) else 0)
    return range(0)


def interval_through(
    op: Op, inputs: Sequence[TensorType], dtype: DType, parts: Sequence[Interval]
) -> Interval:
    """Of a result.

    Args:
        op: The operator.
        inputs: Of its operands.
        dtype: Of the result.
        parts: Of the operands that tell.
    """
    if not parts:
        least, largest = any_of(dtype)
        # Places of elements count from the front; values of a TopK have a part that tells.
        return (0, largest) if isinstance(op, _PLACES) else (least, largest)
    if isinstance(op, Pointwise):
        found = _pointwise(op, inputs, parts)
    else:
        found = _union(parts)
        if isinstance(op, Pad):
            found = _union([found, (op.value, op.value)])
    return _of_type(found, dtype)


def _pointwise(op: Pointwise, inputs: Sequence[TensorType], parts: Sequence[Interval]) -> Interval:
    # Arithmetic happens in the type of the operands, bools aside.
    computed = next((x.dtype for x in inputs if x.dtype is not DType.BOOL), op.dtype)
    found = fold(
        op.expr,
        parts.__getitem__,
        lambda number: (number, number),
        lambda name, given: _of_type(_stored(_applied(name, given), computed), computed),
    )
    return _stored(found, op.dtype)


def any_of(dtype: DType) -> Interval:
    """What all elements of a type lie between."""
    if dtype is DType.BOOL:
        return 0, 1
    if dtype.is_float:
        return _ANYTHING
    kind = np.iinfo(dtype.arithmetic.numpy)
    return int(kind.min), int(kind.max)


def _of_type(found: Interval, dtype: DType) -> Interval:
    """As found, unless some of it is no number of the type: that becomes any of it."""
    least, largest = any_of(dtype)
    return found if least <= found[0] and found[1] <= largest else (least, largest)


def of_array(array: Array) -> Interval:
    """Of what is known."""
    if array.size == 0:
        return 0, 0
    low, high = float(array.min()), float(array.max())
    return _ANYTHING if isnan(low) or isnan(high) else (low, high)


def _stored(found: Interval, dtype: DType) -> Interval:
    """What numbers between two become in a type that rounds them."""
    low, high = found
    if not dtype.is_float:
        return low if low == -inf else floor(low), high if high == inf else ceil(high)
    with np.errstate(over="ignore"):
        if dtype.itemsize < np.dtype(np.float32).itemsize:
            share = 2.0**-7  # of bfloat16, which has the fewest bits of those that sizes are in
            return low - abs(low) * share, high + abs(high) * share
        ends = np.float32(low), np.float32(high)
        return float(np.nextafter(ends[0], -inf)), float(np.nextafter(ends[1], inf))


def _union(parts: Sequence[Interval]) -> Interval:
    return min(low for low, _ in parts), max(high for _, high in parts)


def _corners(function: Callable[[float, float], float], a: Interval, b: Interval) -> Interval:
    """Of what is monotonous in either operand."""
    found = [function(x, y) for x, y in product(a, b)]
    return (-inf, inf) if any(map(isnan, found)) else (min(found), max(found))


def _divided(a: Interval, b: Interval) -> Interval:
    return _ANYTHING if b[0] <= 0 <= b[1] else _corners(lambda x, y: x / y, a, b)


def _each(function: Callable[[float, float], float], a: Interval, b: Interval) -> Interval:
    """The least of both ends, or the largest."""
    return function(a[0], b[0]), function(a[1], b[1])


def _monotonous(function: Callable[[float], float], a: Interval) -> Interval:
    low, high = (x if abs(x) == inf else function(x) for x in a)
    return low, high


_RULES: dict[str, Callable[..., Interval]] = {
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "mul": partial(_corners, lambda x, y: x * y),
    "div": _divided,
    "neg": lambda a: (-a[1], -a[0]),
    "min": partial(_each, min),
    "max": partial(_each, max),
    "clip": lambda a, low, high: _each(min, _each(max, a, low), high),
    "where": lambda _, a, b: _union([a, b]),
    "floor": partial(_monotonous, floor),
    "ceil": partial(_monotonous, ceil),
    "round": partial(_monotonous, round),
    "relu": lambda a: (max(a[0], 0), max(a[1], 0)),
    "sigmoid": lambda _: (0, 1),
    "tanh": lambda _: (-1, 1),
    "abs": lambda a: (0, max(-a[0], a[1])),
}


def _applied(op: str, operands: tuple[Interval, ...]) -> Interval:
    rule = _RULES.get(op)
    found = _ANYTHING if rule is None else rule(*operands)
    return _ANYTHING if any(map(isnan, found)) else found
