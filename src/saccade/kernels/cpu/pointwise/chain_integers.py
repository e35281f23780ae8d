"""Expressions on int64 vectors: what index arithmetic, masks and integer images need.

Narrower integers are widened for it, and wrap around after each operator as they would in their own
type.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from saccade.backends.cpu.codegen import llvm
from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.backends.cpu.codegen.values import Vec, literal, vector_of
from saccade.ir import DType
from saccade.ir.expr import Expr
from saccade.kernels.cpu.pointwise.vector_elements import narrowed, to_integer

__all__ = ["INTEGER_OPERATORS", "emit_integer_expr"]

# Least and largest int64; and uint64, the largest of which has the bits of -1.
_BOUNDS = ((-(2**63), 2**63 - 1), (0, -1))


def emit_integer_expr(
    k: KernelBuilder, expr: Expr, operands: Sequence[Vec], lanes: int, elements: Sequence[str]
) -> tuple[Vec, str]:
    """Code that evaluates `expr` on int64 vectors; truth values are 1 and 0, `div` truncates.

    Returns:
        The value, and the type that it has the bits of.

    Args:
        k: Takes the code.
        expr: The expression.
        operands: Its operands, widened.
        lanes: Elements of a vector.
        elements: Types of the result, then of the operands: all that are no bool have one.
    """
    done: dict[Expr, Any] = {}
    first = next((e for e in elements[1:] if e != "bool"), elements[0])
    # Integers of less than a byte are computed with as bytes.
    element = DType(first).arithmetic.value
    table = _EMIT | _EMIT_UNSIGNED if element == "uint64" else _EMIT

    def visit(e: Expr) -> Any:  # noqa: ANN401 - LLVM values
        # Equal subtrees are emitted once.
        if e not in done:
            if e.op == "arg":
                done[e] = operands[e.index].value
            elif e.op == "const":
                done[e] = _literal(e.value, lanes, _BOUNDS[element == "uint64"])
            else:
                value = table[e.op](k.b, *(visit(a) for a in e.args))
                done[e] = _wrapped(k, value, element) if e.op in _OVERFLOWING else value
        return done[e]

    return Vec(k.b, visit(expr)), element


def _literal(value: float, lanes: int, bounds: tuple[int, int]) -> Any:  # noqa: ANN401
    """The number truncated; infinite bounds of a clip saturate."""
    low, high = bounds
    number = (low if value < 0 else high) if math.isinf(value) else max(low, int(value))
    return literal(vector_of(llvm.I64, lanes), number)


def _wrapped(k: KernelBuilder, value: Any, element: str) -> Any:  # noqa: ANN401
    """What is left of a value in an element's bits: the next operator has to see that."""
    if element in ("int64", "uint64", "bool"):
        return value
    lanes = getattr(value.type, "count", 1)  # of operands that have no neighbours
    return to_integer(k, narrowed(k, value, lanes, element), element).value


def _like(value: Any, number: int) -> Any:  # noqa: ANN401
    return literal(value.type, number)


def _truth(b: Any, condition: Any, like: Any) -> Any:  # noqa: ANN401
    return b.zext(condition, like.type)


def _holds(b: Any, value: Any) -> Any:  # noqa: ANN401
    return b.icmp_signed("!=", value, _like(value, 0))


def _compared(b: Any, sign: str, x: Any, y: Any, *, signed: bool) -> Any:  # noqa: ANN401
    return (b.icmp_signed if signed else b.icmp_unsigned)(sign, x, y)


def _pick(sign: str, *, signed: bool = True) -> Callable[..., Any]:
    return lambda b, x, y: b.select(_compared(b, sign, x, y, signed=signed), x, y)


def _comparison(sign: str, *, signed: bool = True) -> Callable[..., Any]:
    return lambda b, x, y: _truth(b, _compared(b, sign, x, y, signed=signed), x)


def _not_zero(b: Any, y: Any) -> Any:  # noqa: ANN401
    """The divisor, 1 in place of 0: a division by 0 traps."""
    return b.select(_holds(b, y), y, _like(y, 1))


def _logic(name: str) -> Callable[..., Any]:
    return lambda b, x, y: _truth(b, getattr(b, name)(_holds(b, x), _holds(b, y)), x)


def _safe_divisor(b: Any, y: Any) -> Any:  # noqa: ANN401
    """The divisor, 1 in place of 0 and -1, whose quotients and rests are made in other ways."""
    # Both sides of a select are computed. A division by 0 traps, and so does that of the least
    # integer by -1, whose quotient is no integer of so many bits.
    return b.select(b.or_(b.not_(_holds(b, y)), _is_minus_one(b, y)), _like(y, 1), y)


def _is_minus_one(b: Any, y: Any) -> Any:  # noqa: ANN401
    return b.icmp_signed("==", y, _like(y, -1))


def _div(b: Any, x: Any, y: Any) -> Any:  # noqa: ANN401
    quotient = b.select(_is_minus_one(b, y), b.neg(x), b.sdiv(x, _safe_divisor(b, y)))
    return b.select(_holds(b, y), quotient, _like(x, 0))


def _fmod(b: Any, x: Any, y: Any) -> Any:  # noqa: ANN401
    return b.srem(x, _safe_divisor(b, y))  # 0 where the divisor is 1 instead


def _mod(b: Any, x: Any, y: Any) -> Any:  # noqa: ANN401
    r = _fmod(b, x, y)
    # `mod` has the sign of the divisor, `fmod` that of what is divided.
    opposite = b.icmp_signed("<", b.xor(r, y), _like(x, 0))
    return b.select(b.and_(opposite, _holds(b, r)), b.add(r, y), r)


def _abs(b: Any, x: Any) -> Any:  # noqa: ANN401
    return b.select(b.icmp_signed("<", x, _like(x, 0)), b.neg(x), x)


def _sign(b: Any, x: Any) -> Any:  # noqa: ANN401
    zero = _like(x, 0)
    positive = _truth(b, b.icmp_signed(">", x, zero), x)
    return b.sub(positive, _truth(b, b.icmp_signed("<", x, zero), x))


def _clip(b: Any, x: Any, low: Any, high: Any) -> Any:  # noqa: ANN401
    return _pick("<")(b, _pick(">")(b, x, low), high)


def _shift_left(b: Any, x: Any, y: Any) -> Any:  # noqa: ANN401
    return b.select(_within_bits(b, y), b.shl(x, _safe_shift(b, y)), _like(x, 0))


def _shift_right(b: Any, x: Any, y: Any) -> Any:  # noqa: ANN401
    # Unsigned elements were widened with zeros, so that their sign is 0 here.
    return b.ashr(x, _safe_shift(b, y))


def _within_bits(b: Any, y: Any) -> Any:  # noqa: ANN401
    return b.icmp_unsigned("<", y, _like(y, 64))


def _safe_shift(b: Any, y: Any) -> Any:  # noqa: ANN401
    """A shift by 63 leaves the sign alone; one by more, or by less than none, is undefined."""
    return b.select(_within_bits(b, y), y, _like(y, 63))


_EMIT: dict[str, Callable[..., Any]] = {
    "neg": lambda b, x: b.neg(x),
    "abs": _abs,
    "sign": _sign,
    "floor": lambda _b, x: x,
    "ceil": lambda _b, x: x,
    "round": lambda _b, x: x,
    "relu": lambda b, x: _pick(">")(b, x, _like(x, 0)),
    "not": lambda b, x: _truth(b, b.icmp_signed("==", x, _like(x, 0)), x),
    "isnan": lambda _b, x: _like(x, 0),
    "add": lambda b, x, y: b.add(x, y),
    "sub": lambda b, x, y: b.sub(x, y),
    "mul": lambda b, x, y: b.mul(x, y),
    "div": _div,
    "mod": _mod,
    "fmod": _fmod,
    "min": _pick("<"),
    "max": _pick(">"),
    "equal": _comparison("=="),
    "less": _comparison("<"),
    "less_equal": _comparison("<="),
    "greater": _comparison(">"),
    "greater_equal": _comparison(">="),
    "and": _logic("and_"),
    "or": _logic("or_"),
    "xor": _logic("xor"),
    "bit_not": lambda b, x: b.not_(x),
    "bit_and": lambda b, x, y: b.and_(x, y),
    "bit_or": lambda b, x, y: b.or_(x, y),
    "bit_xor": lambda b, x, y: b.xor(x, y),
    "shift_left": _shift_left,
    "shift_right": _shift_right,
    "where": lambda b, c, x, y: b.select(_holds(b, c), x, y),
    "clip": _clip,
}
_EMIT_UNSIGNED: dict[str, Callable[..., Any]] = {
    "abs": lambda _b, x: x,
    "relu": lambda _b, x: x,
    "sign": lambda b, x: _truth(b, _holds(b, x), x),
    "div": lambda b, x, y: b.select(_holds(b, y), b.udiv(x, _not_zero(b, y)), _like(x, 0)),
    "mod": lambda b, x, y: b.urem(x, _not_zero(b, y)),
    "fmod": lambda b, x, y: b.urem(x, _not_zero(b, y)),
    "min": _pick("<", signed=False),
    "max": _pick(">", signed=False),
    "less": _comparison("<", signed=False),
    "less_equal": _comparison("<=", signed=False),
    "greater": _comparison(">", signed=False),
    "greater_equal": _comparison(">=", signed=False),
    "shift_right": lambda b, x, y: b.select(
        _within_bits(b, y), b.lshr(x, _safe_shift(b, y)), _like(x, 0)
    ),
    "clip": lambda b, x, low, high: _pick("<", signed=False)(
        b, _pick(">", signed=False)(b, x, low), high
    ),
}
"""What differs where the lanes are uint64; narrower types have been widened with zeros."""
_OVERFLOWING = frozenset(("neg", "abs", "add", "sub", "mul", "div", "bit_not", "shift_left"))
"""Operators whose results may not fit the type of their operands; `div`: the least one by -1."""
INTEGER_OPERATORS = frozenset(_EMIT)
