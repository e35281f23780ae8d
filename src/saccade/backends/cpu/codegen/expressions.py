"""Scalar expressions (`saccade.ir.expr`) to vector code."""

from __future__ import annotations

import math as pymath
from collections.abc import Callable, Sequence

from saccade.backends.cpu.codegen import gates, math, math64, powers
from saccade.backends.cpu.codegen.bfloat16 import BFLOAT16
from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.backends.cpu.codegen.values import Mask, Vec
from saccade.ir.expr import ARITY, BIT_OPERATORS, Expr

__all__ = ["DOUBLE", "emit_expr"]


def emit_expr(
    k: KernelBuilder, expr: Expr, operands: Sequence[Vec], lanes: int | None = None,
    stored: str = "float32",
) -> Vec:  # fmt: skip
    """Code that evaluates `expr` on float32 vectors; on float64 ones what `DOUBLE` lists.

    Truth values are 1.0 and 0.0. NaN passes through `relu`, `clip`, `min` and `max` as in ONNX
    Runtime.

    Args:
        k: Builder to emit into.
        expr: What to compute.
        operands: The vectors `$0, $1, …`, all with the same number of lanes.
        lanes: Number of lanes, needed only where the expression has no operand.
        stored: Element that the result is rounded to at once. What bfloat16 does not show is not
            computed, where the relative error of the result is that of a function, or of factors.
            Of float64 vectors, float64.
    """
    count = lanes or (operands[0].lanes if operands else k.lanes)
    done: dict[tuple[Expr, bool], Vec] = {}

    def visit(e: Expr, coarse: bool = False) -> Vec:
        if (e, coarse) not in done:
            if e.op == "arg":
                return operands[e.index]
            if e.op == "const":
                return k.number(e.value, count, "float64" if stored == "float64" else "float32")
            done[e, coarse] = _coarse(k, e, visit) if coarse else _emit(k, e, visit)
        return done[e, coarse]

    return visit(expr, stored == BFLOAT16)


def _coarse(k: KernelBuilder, e: Expr, visit: Callable[..., Vec]) -> Vec:
    """One operator whose relative error may be one that bfloat16 hardly shows."""
    if e.op == "mul":
        return visit(e.args[0], coarse=True) * visit(e.args[1], coarse=True)
    gate = {"sigmoid": gates.sigmoid, "silu": gates.silu}.get(e.op)
    return gate(k, visit(e.args[0]), coarse=True) if gate else visit(e)


def _emit(k: KernelBuilder, e: Expr, visit: Callable[..., Vec]) -> Vec:
    """One operator; the forms below are cheaper than the operator taken by itself."""
    last = e.args[-1]
    if e.op == "add":
        for product, other in (e.args, e.args[::-1]):
            if product.op == "mul":
                return k.fma(visit(product.args[0]), visit(product.args[1]), visit(other))
    values = [visit(a) for a in e.args]
    if last.op == "const":
        if e.op == "pow":
            return _constant_power(k, values[0], last.value, values[1])
        if e.op in ("min", "max") and not pymath.isnan(last.value):
            return (k.minimum if e.op == "min" else k.maximum)(values[0], values[1])
    return _EMIT[e.op](k, *values)


def _constant_power(k: KernelBuilder, x: Vec, exponent: float, spread: Vec) -> Vec:
    """Small powers by multiplication, as ONNX Runtime does; the rest in float64."""
    if exponent == 1.0:
        return x
    if exponent == 2.0:
        return x * x
    if exponent == 3.0:
        return x * x * x
    if exponent == -1.0:
        return 1.0 / x
    return math64.pow_(k, x, spread)


def _truth(mask: Mask, like: Vec) -> Vec:
    return mask.select(like.like(1.0), like.like(0.0))


def _holds(x: Vec) -> Mask:
    return x.compare("!=", 0.0)


def _comparison(sign: str) -> Callable[[KernelBuilder, Vec, Vec], Vec]:
    return lambda _k, a, b: _truth(a.compare(sign, b), a)


def _minimum(k: KernelBuilder, a: Vec, b: Vec) -> Vec:
    return math.is_nan(b).select(b, k.minimum(a, b))


def _maximum(k: KernelBuilder, a: Vec, b: Vec) -> Vec:
    return math.is_nan(b).select(b, k.maximum(a, b))


def _clip(k: KernelBuilder, x: Vec, low: Vec, high: Vec) -> Vec:
    return k.minimum(k.maximum(x, low), high)


def _hard_sigmoid(k: KernelBuilder, x: Vec, alpha: Vec, beta: Vec) -> Vec:
    return k.minimum(k.maximum(k.fma(x, alpha, beta), 0.0), 1.0)


def _hardswish(k: KernelBuilder, x: Vec) -> Vec:
    return x * _hard_sigmoid(k, x, x.like(1.0 / 6.0), x.like(0.5))


def _sign(k: KernelBuilder, x: Vec) -> Vec:
    signed = math.copysign(k, x.like(1.0), x)
    zero_or_nan = x.compare("==", 0.0) | math.is_nan(x)
    return zero_or_nan.select(x + 0.0, signed)


def _leaky_relu(_k: KernelBuilder, x: Vec, slope: Vec) -> Vec:
    return x.compare("<", 0.0).select(x * slope, x)


def _elu(k: KernelBuilder, x: Vec, alpha: Vec) -> Vec:
    return x.compare("<", 0.0).select(alpha * math.expm1(k, k.minimum(x, 0.0)), x)


_EMIT: dict[str, Callable[..., Vec]] = {
    "neg": lambda _k, x: -x,
    "abs": math.absolute,
    "exp": powers.exp,
    "log": powers.log,
    "sqrt": math.sqrt,
    "rsqrt": lambda k, x: 1.0 / math.sqrt(k, x),
    "reciprocal": lambda _k, x: 1.0 / x,
    "floor": lambda k, x: k.call("floor", x),
    "ceil": lambda k, x: k.call("ceil", x),
    "round": math.round_even,
    "sign": _sign,
    "relu": lambda k, x: k.maximum(x, 0.0),
    "sigmoid": gates.sigmoid,
    "tanh": math.tanh,
    "erf": math.erf,
    "softplus": math.softplus,
    "softsign": lambda k, x: x / (math.absolute(k, x) + 1.0),
    "hardswish": _hardswish,
    "silu": gates.silu,
    "gelu": math.gelu,
    "mish": math.mish,
    "sin": math64.sin,
    "cos": math64.cos,
    "not": lambda _k, x: _truth(x.compare("==", 0.0), x),
    "isnan": lambda _k, x: _truth(math.is_nan(x), x),
    "add": lambda _k, a, b: a + b,
    "sub": lambda _k, a, b: a - b,
    "mul": lambda _k, a, b: a * b,
    "div": lambda _k, a, b: a / b,
    "pow": math64.pow_,
    "min": _minimum,
    "max": _maximum,
    "mod": math64.mod,
    "fmod": math64.fmod,
    "equal": _comparison("=="),
    "less": _comparison("<"),
    "less_equal": _comparison("<="),
    "greater": _comparison(">"),
    "greater_equal": _comparison(">="),
    "and": lambda _k, a, b: _truth(_holds(a) & _holds(b), a),
    "or": lambda _k, a, b: _truth(_holds(a) | _holds(b), a),
    "xor": lambda _k, a, b: _truth(Mask(a.b, a.b.xor(_holds(a).value, _holds(b).value)), a),
    "where": lambda _k, condition, then, other: _holds(condition).select(then, other),
    "clip": _clip,
    "hard_sigmoid": _hard_sigmoid,
    "leaky_relu": _leaky_relu,
    "elu": _elu,
}
DOUBLE = frozenset(
    (
        "neg", "abs", "exp", "log", "sqrt", "rsqrt", "reciprocal", "floor", "ceil", "round", "sign",
        "relu", "softsign", "hardswish", "not", "isnan", "add", "sub", "mul", "div", "min", "max",
        "equal", "less", "less_equal", "greater", "greater_equal", "and", "or", "xor", "where",
        "clip", "hard_sigmoid", "leaky_relu",
    )
)  # fmt: skip
"""Operators whose code computes in float64, too."""
assert _EMIT.keys() == ARITY.keys() - BIT_OPERATORS
