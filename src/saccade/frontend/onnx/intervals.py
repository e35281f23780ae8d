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
from saccade.ir import DType, Node, Value
from saccade.ir.expr import fold
from saccade.opdefs import Concat, Gather, GatherNd, Move, Pad, Pointwise, Reduce, TopK

__all__ = ["Interval", "interval_of"]

Interval: TypeAlias = tuple[float, float]
"""The least and the largest number."""

_ANYTHING: Interval = (-inf, inf)
_DEEPEST = 100
"""Nodes one behind the other that are looked at."""


def interval_of(build: Builder, value: Value) -> Interval:
    """Least and largest element that there could be, infinite where nothing tells."""
    return _Intervals(build).of(value, 0)


class _Intervals:
    """What was found of the values behind one.

    Args:
        build: The graph under construction, which knows what makes each of them.
    """

    def __init__(self, build: Builder) -> None:
        self._build = build
        self._found: dict[Value, Interval] = {}
        self._counts = {value: count.bound for count, value in build.counts.values()}

    def of(self, value: Value, depth: int) -> Interval:
        """Of one value."""
        if value not in self._found:
            self._found[value] = self._look(value, depth)
        return self._found[value]

    def _look(self, value: Value, depth: int) -> Interval:
        array = self._build.array(value)
        if array is not None:
            return _of_array(array)
        if value in self._counts:
            bound = self._counts[value]
            return 0, bound if isinstance(bound, int) else inf
        maker = self._build.makers.get(value)
        if maker is None or depth > _DEEPEST:
            return _any_of(value.dtype)
        return _of_type(self._made(maker, value, depth + 1), value.dtype)

    def _made(self, maker: Node, value: Value, depth: int) -> Interval:
        op = maker.op
        if isinstance(op, Move | Gather | GatherNd | Concat):
            data = maker.inputs if isinstance(op, Concat) else maker.inputs[:1]
            return _union([self.of(x, depth) for x in data])
        if isinstance(op, Pad):
            return _union([self.of(maker.inputs[0], depth), (op.value, op.value)])
        if isinstance(op, Pointwise):
            return self._pointwise(op, maker, depth)
        if isinstance(op, Reduce) and op.kind in ("max", "min"):
            sizes = [maker.inputs[0].shape[axis] for axis in op.axes]
            # Of no elements it is the least number, or the largest, of the type.
            if len(maker.inputs) > 1 or not all(isinstance(n, int) and n > 0 for n in sizes):
                return _ANYTHING
            return self.of(maker.inputs[0], depth)
        if isinstance(op, TopK) and value is maker.outputs[0]:
            return self.of(maker.inputs[0], depth)
        return _ANYTHING

    def _pointwise(self, op: Pointwise, maker: Node, depth: int) -> Interval:
        # Arithmetic happens in the type of the operands, bools aside.
        computed = next((x.dtype for x in maker.inputs if x.dtype is not DType.BOOL), op.dtype)
        low, high = fold(
            op.expr,
            lambda index: self.of(maker.inputs[index], depth),
            lambda number: (number, number),
            lambda name, operands: _of_type(_applied(name, operands), computed),
        )
        if op.dtype.is_float:
            # What is stored may be rounded up.
            return _rounded(low, -inf), _rounded(high, inf)
        return low if abs(low) == inf else floor(low), high if abs(high) == inf else ceil(high)


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


def _rounded(number: float, towards: float) -> float:
    """A number that those in float32 beside it do not exceed; bfloat16 is stored, not computed."""
    with np.errstate(over="ignore"):
        return float(np.nextafter(np.float32(number), np.float32(towards)))


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
    return tuple(x if abs(x) == inf else function(x) for x in a)  # type: ignore[return-value]  # of two


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
