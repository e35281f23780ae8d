"""Between which numbers the elements of a value lie, as far as what makes it tells.

A box that is clipped to its image says how large a mask is at most that is enlarged to it. What is
found holds for all elements together, whatever the data are, NaN aside; where products, or the
model's inputs, make a value, nothing is known of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from math import ceil, floor, inf, isnan
from typing import TypeAlias

import numpy as np

from saccade.frontend.onnx.builder import Builder
from saccade.ir import DType, Value
from saccade.ir.expr import fold
from saccade.opdefs import Concat, Gather, GatherNd, Move, Pad, Pointwise, Reduce, TopK

__all__ = ["Interval", "interval_of"]

Interval: TypeAlias = tuple[float, float]
"""The least and the largest number."""

_ANYTHING: Interval = (-inf, inf)
_MOST = 1 << 12
"""Values behind one that are looked at."""


def interval_of(build: Builder, value: Value) -> Interval:
    """Least and largest element that there could be, infinite where nothing tells."""
    looked = _Intervals(build)
    waiting = [value]
    # Not by recursion: there may be thousands of nodes one behind the other.
    while waiting:
        last = waiting[-1]
        left = [x for x in looked.behind(last) if x not in looked.found]
        if left and len(looked.found) + len(waiting) < _MOST:
            waiting += left
            continue
        looked.found[last] = looked.look(last)
        waiting.pop()
    return looked.found[value]


class _Intervals:
    """What was found of the values behind one.

    Args:
        build: The graph under construction, which knows what makes each of them.

    Attributes:
        found: By value.
    """

    def __init__(self, build: Builder) -> None:
        self._build = build
        self.found: dict[Value, Interval] = {}
        self._counts = {value: count.bound for count, value in build.counts.values()}

    def behind(self, value: Value) -> Sequence[Value]:
        """The values that one is between the ends of, or computed from in a way that tells."""
        maker = self._build.makers.get(value)
        if maker is None or value in self._counts or self._build.is_known(value):
            return ()
        op, data = maker.op, maker.inputs[:1]
        if isinstance(op, Concat | Pointwise):
            return maker.inputs
        if isinstance(op, Move | Gather | GatherNd | Pad):
            return data
        if isinstance(op, TopK):
            return data if value is maker.outputs[0] else ()
        if isinstance(op, Reduce) and op.kind in ("max", "min") and len(maker.inputs) == 1:
            # Of no elements it is the least number, or the largest, of the type.
            sizes = [data[0].shape[axis] for axis in op.axes]
            return data if all(isinstance(size, int) and size > 0 for size in sizes) else ()
        return ()

    def look(self, value: Value) -> Interval:
        """Of a value, once those behind it were looked at."""
        array = self._build.array(value)
        if array is not None:
            return _of_array(array)
        if value in self._counts:
            bound = self._counts[value]
            return 0, bound if isinstance(bound, int) else inf
        maker, behind = self._build.makers.get(value), self.behind(value)
        if maker is None or not behind:
            return _any_of(value.dtype)
        parts = [self.found.get(x, _any_of(x.dtype)) for x in behind]
        if isinstance(maker.op, Pointwise):
            found = _pointwise(maker.op, behind, parts)
        else:
            found = _union(parts)
            if isinstance(maker.op, Pad):
                found = _union([found, (maker.op.value, maker.op.value)])
        return _of_type(found, value.dtype)


def _pointwise(op: Pointwise, operands: Sequence[Value], parts: Sequence[Interval]) -> Interval:
    # Arithmetic happens in the type of the operands, bools aside.
    computed = next((x.dtype for x in operands if x.dtype is not DType.BOOL), op.dtype)
    found = fold(
        op.expr,
        parts.__getitem__,
        lambda number: (number, number),
        lambda name, given: _of_type(_stored(_applied(name, given), computed), computed),
    )
    return _stored(found, op.dtype)


def _any_of(dtype: DType) -> Interval:
    """What all elements of a type lie between."""
    if dtype is DType.BOOL:
        return 0, 1
    if dtype.is_float:
        return _ANYTHING
    kind = np.iinfo(dtype.arithmetic.numpy)
    return int(kind.min), int(kind.max)


def _of_type(found: Interval, dtype: DType) -> Interval:
    """As found, unless some of it is no number of the type: that becomes any of it."""
    least, largest = _any_of(dtype)
    return found if least <= found[0] and found[1] <= largest else (least, largest)


def _of_array(array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> Interval:
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
