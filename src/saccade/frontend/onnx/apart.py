"""How far apart two numbers can be at most that are made from one: the ends of a slice.

`Range(i, Min(n, i + 1))` is one number long, whatever a loop's `i` is, which intervals of the two
ends do not tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, isfinite

from saccade.frontend.onnx.builder import Builder
from saccade.frontend.onnx.intervals import interval_of
from saccade.ir import DType, Expr, Value
from saccade.ir.dim import product
from saccade.ir.expr import IDENTITY
from saccade.opdefs import Move, Pointwise

__all__ = ["most_apart"]

_EXACT = 1 << 24  # up to here float32 has every integer
_INTEGERS = (DType.I32, DType.I64)
_DEEP = 32
"""Nodes behind each other that are looked at."""


def most_apart(build: Builder, last: Value, first: Value) -> float:
    """The largest `last - first` that there can be, of single integers; infinite if nothing tells.

    Sums may be of float32, where exporters count: up to 2^24 these are exact, and beyond that
    `last` is known to be less than `first`. So no more than the interval of each tells if `first`
    may be negative, or `last` larger.
    """
    below = _source(build, first)
    low, high = interval_of(build, below)[0], interval_of(build, last)[1]
    if low < 0 or high > _EXACT:
        return high - low
    return min(high - low, max(_above(build, last, _DEEP, {}).get(below, inf), 0))


def _source(build: Builder, x: Value) -> Value:
    """A single element before it was moved, or given more bits."""
    while (maker := build.makers.get(x)) is not None and _is_one(x):
        op, before = maker.op, maker.inputs[0]
        wider = isinstance(op, Pointwise) and op.expr == IDENTITY and x.dtype is DType.I64
        if not (isinstance(op, Move) or (wider and before.dtype in _INTEGERS)):
            break
        if not _is_one(before):
            break
        x = before
    return x


def _is_one(x: Value) -> bool:
    return product(x.shape) == 1


def _above(
    build: Builder, x: Value, deep: int, seen: dict[Value, Mapping[Value, float]]
) -> Mapping[Value, float]:
    """Integers that a single number exceeds by so much at most, if all are within what is exact."""
    x = _source(build, x)
    if x not in seen:
        seen[x] = {**_by_maker(build, x, deep, seen), **({x: 0.0} if x.dtype in _INTEGERS else {})}
    return seen[x]


def _by_maker(
    build: Builder, x: Value, deep: int, seen: dict[Value, Mapping[Value, float]]
) -> Mapping[Value, float]:
    maker = build.makers.get(x)
    if maker is None or not isinstance(maker.op, Pointwise) or not deep:
        return {}
    if x.dtype not in (*_INTEGERS, DType.F32) or not all(map(_is_one, maker.inputs)):
        return {}
    parts = [_above(build, y, deep - 1, seen) for y in maker.inputs]
    return _above_of(maker.op.expr, parts, [_number(build, y) for y in maker.inputs])


def _number(build: Builder, x: Value) -> float | None:
    """A whole number that is known."""
    array = build.array(_source(build, x))
    if array is None or array.size != 1:
        return None
    return _whole(float(array.item()))


def _whole(number: float) -> float | None:
    return number if isfinite(number) and number == int(number) else None


def _above_of(
    e: Expr, parts: list[Mapping[Value, float]], known: list[float | None]
) -> Mapping[Value, float]:
    if e.op == "arg":
        return parts[e.index]
    if e.op == "min":
        one, other = (_above_of(part, parts, known) for part in e.args)
        return {**one, **{x: min(c, one.get(x, inf)) for x, c in other.items()}}
    if e.op in ("add", "sub"):
        left, right = e.args
        by = _constant(right, known)
        if by is None and e.op == "add":
            left, by = right, _constant(left, known)
        by = -by if by is not None and e.op == "sub" else by
        # Of what is taken away and added again float32 may have rounded the part between.
        if by is not None and by >= 0:
            return {x: c + by for x, c in _above_of(left, parts, known).items()}
    return {}


def _constant(e: Expr, known: list[float | None]) -> float | None:
    if e.op == "const":
        return _whole(e.value)
    return known[e.index] if e.op == "arg" else None
