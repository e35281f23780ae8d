"""Resize to sizes that data decide: along one axis after the other, made of gathers.

Where an element of the result lies in the operand is a fraction of integers, `(2i + 1)·n / 2m - ½`
for half pixels (`n` elements become `m`), and computed as such: nothing is rounded but the weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from saccade.frontend.onnx.call import OnnxNode
from saccade.frontend.onnx.moves import reshaped
from saccade.frontend.onnx.open_axes import places, planned, reopened
from saccade.frontend.onnx.refusal import Refusal
from saccade.ir import Dim, DType, Value
from saccade.ir.expr import IDENTITY, Expr, apply, arg, const
from saccade.opdefs import Gather, Pointwise

__all__ = ["resized_to_measured"]

_NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


@dataclass(frozen=True, slots=True)
class _Fractions:
    """Where the elements of one axis come from, int64.

    Attributes:
        numerator: Of the places, which are fractions, [size].
        denominator: Of the places, at least 1; [1].
    """

    numerator: Value
    denominator: Value


def resized_to_measured(call: OnnxNode, x: Value, sizes: Sequence[Dim], mode: str) -> Value:
    """A resize of floating point numbers, of whose sizes some depend on data.

    Raises:
        Refusal: If it is in a way that only sizes known beforehand allow.
    """
    if not x.dtype.is_float or call.flag("exclude_outside") or call.flag("antialias"):
        raise Refusal("the size of a resize depends on data, of integers or as no gather does it")
    wide = x if x.dtype is DType.F32 else call.emit(Pointwise(IDENTITY, DType.F32), x)
    # Axes that grow least come first: what follows has less to do.
    changing = [axis for axis in range(x.rank) if sizes[axis] != x.shape[axis]]
    for axis in sorted(changing, key=lambda axis: _known(planned(call, sizes[axis]))):
        before = x.shape[axis]
        if not isinstance(before, int) or before < 1:
            raise Refusal(f"the size of a resize depends on data, of an axis of {before}")
        wide = _picked(call, wide, axis, _axis(call, before, sizes[axis]), mode)
    return wide if x.dtype is DType.F32 else call.emit(Pointwise(IDENTITY, x.dtype), wide)


def _known(room: Dim) -> float:
    """A number; none is larger than what the sizes of the inputs decide."""
    return room if isinstance(room, int) else math.inf


def _axis(call: OnnxNode, before: int, size: Dim) -> _Fractions:
    """Places along an axis, as the coordinate transformation says."""
    coordinate = call.text("coordinate_transformation_mode", "half_pixel")
    i = reopened(call, places(call, planned(call, size)), 0, size)
    after = call.build.sized(size, call.name)
    m = apply("max", arg(1), const(1))
    doubled = apply("mul", arg(0), const(2)), apply("mul", m, const(2))
    halves = apply("mul", apply("add", doubled[0], const(1)), const(before))
    half = apply("sub", halves, m), doubled[1]
    ways: dict[str, tuple[Expr, Expr]] = {
        "half_pixel": half,
        # Of one element the first.
        "pytorch_half_pixel": (
            apply("where", apply("greater", m, const(1)), half[0], const(0)), half[1],
        ),
        "asymmetric": (apply("mul", arg(0), const(before)), m),
        "align_corners": (
            apply("mul", arg(0), const(before - 1)),
            apply("max", apply("sub", m, const(1)), const(1)),
        ),
    }  # fmt: skip
    if coordinate not in ways:
        raise Refusal(f"the size of a resize depends on data, {coordinate}")
    top, bottom = ways[coordinate]
    # The second without the places: `$1` alone.
    last = call.emit(Pointwise(_first(bottom), DType.I64), after)
    return _Fractions(call.emit(Pointwise(top, DType.I64), i, after), last)


def _first(expr: Expr) -> Expr:
    """With `$1` called `$0`."""
    if expr.op == "arg":
        return arg(0)
    return Expr(expr.op, tuple(map(_first, expr.args)), expr.index, expr.value)


def _floor() -> Expr:
    """Of `$0 / $1`, integers: without the rest there is nothing to round."""
    return apply("div", apply("sub", arg(0), apply("mod", arg(0), arg(1))), arg(1))


def _picked(call: OnnxNode, x: Value, axis: int, at: _Fractions, mode: str) -> Value:
    """The operand's elements at these places, or what lies between them."""
    last = x.shape[axis]
    assert isinstance(last, int), "looked at by the caller"

    def taken(place: Expr, *operands: Value) -> Value:
        inside = apply("clip", place, const(0), const(last - 1))
        return call.emit(Gather(axis), x, call.emit(Pointwise(inside, DType.I64), *operands))

    n, d = at.numerator, at.denominator
    if mode == "nearest":
        return taken(_nearest(call), n, d)
    down = call.emit(Pointwise(_floor(), DType.I64), n, d)
    rest = call.emit(Pointwise(apply("mod", arg(0), arg(1)), DType.I64), n, d)
    numbers = [call.emit(Pointwise(IDENTITY, DType.F32), one) for one in (rest, d)]
    t = call.emit(Pointwise(apply("div", arg(0), arg(1)), DType.F32), *numbers)
    t = reshaped(call, t, tuple(t.shape[0] if a == axis else 1 for a in range(x.rank)))
    weights = _weights(mode, call.finite("cubic_coeff_a", -0.75))
    first = 0 if len(weights) == 2 else -1
    parts = [taken(apply("add", arg(0), const(first + k)), down) for k in range(len(weights))]
    terms = [apply("mul", arg(k), weight) for k, weight in enumerate(weights)]
    return call.emit(Pointwise(reduce(_sum, terms), DType.F32), *parts, t)


def _sum(a: Expr, b: Expr) -> Expr:
    return apply("add", a, b)


def _nearest(call: OnnxNode) -> Expr:
    """The nearest integer of `$0 / $1`."""
    way = call.text("nearest_mode", "round_prefer_floor")
    if way not in _NEAREST:
        raise call.broken(f"nearest_mode {way!r}")
    n, d = arg(0), arg(1)
    if way == "round_prefer_ceil":
        n, d = apply("add", apply("mul", n, const(2)), d), apply("mul", d, const(2))
    if way == "round_prefer_floor":
        n, d = apply("sub", apply("mul", n, const(2)), d), apply("mul", d, const(2))
    if way in ("ceil", "round_prefer_floor"):
        n = apply("add", n, apply("sub", d, const(1)))
    return apply("div", apply("sub", n, apply("mod", n, d)), d)


def _weights(mode: str, a: float) -> tuple[Expr, ...]:
    """Of the elements around a place, over the fraction behind all of them."""
    if mode == "linear":
        t = arg(2)
        return apply("sub", const(1), t), t
    if mode != "cubic":
        raise Refusal(f"the size of a resize depends on data, mode {mode}")
    t = arg(4)
    back = apply("sub", const(1), t)
    return (
        _outer(apply("add", t, const(1)), a),
        _inner(t, a),
        _inner(back, a),
        _outer(apply("add", back, const(1)), a),
    )


def _inner(s: Expr, a: float) -> Expr:
    """`(a + 2)s³ - (a + 3)s² + 1`, up to 1 from the place."""
    slope = apply("sub", apply("mul", s, const(a + 2)), const(a + 3))
    return apply("add", apply("mul", apply("mul", slope, s), s), const(1))


def _outer(s: Expr, a: float) -> Expr:
    """`a(s³ - 5s² + 8s - 4)`, between 1 and 2 from it."""
    inner = apply("add", apply("mul", apply("sub", s, const(5)), s), const(8))
    return apply("mul", apply("sub", apply("mul", inner, s), const(4)), const(a))
