"""Shorter expressions of the same value, and the activations that exporters spell out.

    x + 0, x · 1, x / 1, x ** 1, -(-x)             ->  x
    (x + c1) + c2, (x · c1) · c2                   ->  x + c, x · c
    clip(x, 0, inf), max(x, 0)                     ->  relu(x)
    clip(relu(x), l, h), min(max(x, l), h)         ->  clip(x, l', h')
    x · sigmoid(x)                                 ->  silu(x)
    clip(x + 3, 0, 6) / 6                          ->  hard_sigmoid(x, 1/6, 1/2)
    x · hard_sigmoid(x, 1/6, 1/2)                  ->  hardswish(x)
    x · tanh(softplus(x))                          ->  mish(x)
    ½ · x · (1 + erf(x / √2))                      ->  gelu(x)

Literals fold as float64. Must not touch integer arithmetic (it wraps and truncates), `x · 0` (not
0 for NaN), divisions by what is no power of two (the quotient is not the product with the
inverse), and the Pointwise operators that change the element type.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

from saccade.ir import Expr, Node, Op
from saccade.ir import expr as e
from saccade.opdefs import Conv2d, Pointwise
from saccade.passes._editor import Editor
from saccade.passes._operands import Fusible
from saccade.passes._pass import Pass, Rule

__all__ = ["PASS", "simplify"]


@lru_cache(maxsize=4096)
def simplify(expr: Expr) -> Expr:
    """The same value of floating-point operands, in fewer steps."""
    while (shorter := e.fold(expr, e.arg, e.const, _apply)) != expr:
        expr = shorter
    return expr


def _apply(op: str, args: tuple[Expr, ...]) -> Expr:
    made = Expr(op, args)
    for rule in _RULES.get(op, ()):
        shorter = rule(args)
        if shorter is not None:
            return shorter if shorter.op != op or shorter.args == args else _apply(op, shorter.args)
    return made


Args = tuple[Expr, ...]


def _is(expr: Expr, value: float, tolerance: float = 0.0) -> bool:
    return expr.op == "const" and abs(expr.value - value) <= tolerance * abs(value)


def _const_last(args: Args) -> Args:
    """Operands of a commutative operator, a literal second."""
    left, right = args
    return (right, left) if left.op == "const" else (left, right)


def _add(args: Args) -> Expr | None:
    left, right = _const_last(args)
    if right.op != "const":
        return None
    if left.op == "const":
        return e.const(left.value + right.value)
    if right.value == 0:
        return left
    if left.op == "add" and left.args[1].op == "const":
        return Expr("add", (left.args[0], e.const(left.args[1].value + right.value)))
    return Expr("add", (left, right)) if (left, right) != args else None


def _sub(args: Args) -> Expr | None:
    left, right = args
    if right.op == "const":
        return _apply("add", (left, e.const(-right.value)))
    return Expr("neg", (right,)) if _is(left, 0) else None


def _mul(args: Args) -> Expr | None:
    left, right = _const_last(args)
    if left.op == "const":
        return e.const(left.value * right.value)
    if right.op == "const":
        if right.value == 1:
            return left
        if right.value == -1:
            return Expr("neg", (left,))
        if left.op == "mul" and left.args[1].op == "const":
            return _apply("mul", (left.args[0], e.const(left.args[1].value * right.value)))
    return Expr("mul", (left, right)) if (left, right) != args else None


def _named_product(args: Args) -> Expr | None:
    """silu, hardswish, mish: x times a gate of x."""
    for x, gate in (args, args[::-1]):
        if gate == Expr("sigmoid", (x,)):
            return Expr("silu", (x,))
        if gate == Expr("tanh", (Expr("softplus", (x,)),)):
            return Expr("mish", (x,))
        if gate.op == "hard_sigmoid" and gate.args[0] == x and _is_sixth(gate):
            return Expr("hardswish", (x,))
        # Files hold the float32 nearest to a sixth; it is a division by 6 all the same.
        if x == e.const(1 / 6) or _is(x, 1 / 6, 1e-6):
            scaled = _sixth(gate)
            if scaled is not None:
                return scaled
    return None


def _is_sixth(gate: Expr) -> bool:
    return _is(gate.args[1], 1 / 6, 1e-6) and _is(gate.args[2], 0.5)


def _gelu(args: Args) -> Expr | None:
    scale, factors = _factors(Expr("mul", args))
    # Exporters put the half in front, behind, or into one of the factors: only the product counts.
    if len(factors) != 2:
        return None
    for x, gate in (factors, factors[::-1]):
        if gate.op == "add" and _is(gate.args[1], 1) and gate.args[0].op == "erf":
            inner, found = _factors(gate.args[0].args[0])
            if found == [x] and abs(inner - math.sqrt(0.5)) < 1e-6:
                twice = Expr("gelu", (x,))
                return _apply("mul", (twice, e.const(2 * scale)))
    return None


def _factors(expr: Expr) -> tuple[float, list[Expr]]:
    """A product as a literal and the other factors; a quotient by a literal counts as a product."""
    if expr.op == "const":
        return expr.value, []
    if expr.op == "div" and expr.args[1].op == "const" and expr.args[1].value:
        scale, factors = _factors(expr.args[0])
        return scale / expr.args[1].value, factors
    if expr.op != "mul":
        return 1.0, [expr]
    (one, left), (two, right) = map(_factors, expr.args)
    return one * two, left + right


def _div(args: Args) -> Expr | None:
    left, right = args
    if right.op != "const":
        return Expr("reciprocal", (right,)) if _is(left, 1) else None
    if left.op == "const" and right.value:
        return e.const(left.value / right.value)
    if right.value == 6:
        scaled = _sixth(left)
        if scaled is not None:
            return scaled
    # Only the inverse of a power of two is exact.
    if right.value and abs(math.frexp(right.value)[0]) == 0.5:
        return _apply("mul", (left, e.const(1 / right.value)))
    return None


def _sixth(expr: Expr) -> Expr | None:
    """`expr / 6` for clip(x + 3, 0, 6), alone or times x."""
    if expr.op == "clip" and _is(expr.args[1], 0) and _is(expr.args[2], 6):
        inner = expr.args[0]
        if inner.op == "add" and _is(inner.args[1], 3):
            return Expr("hard_sigmoid", (inner.args[0], e.const(1 / 6), e.const(0.5)))
    if expr.op == "mul":
        for x, gate in (expr.args, expr.args[::-1]):
            scaled = _sixth(gate)
            if scaled is not None and scaled.op == "hard_sigmoid":
                return _apply("mul", (x, scaled))
    return None


def _clip(args: Args) -> Expr | None:
    x, low, high = args
    if low.op != "const" or high.op != "const":
        return None
    if low.value == -math.inf and high.value == math.inf:
        return x
    if low.value == 0 and high.value == math.inf:
        return Expr("relu", (x,))
    if x.op == "relu" and high.value >= 0:
        return Expr("clip", (x.args[0], e.const(max(low.value, 0.0)), high))
    return None


def _relu(args: Args) -> Expr | None:
    (x,) = args
    if x.op == "relu":
        return x
    if x.op == "clip" and x.args[1].op == x.args[2].op == "const" and x.args[2].value >= 0:
        return Expr("clip", (x.args[0], e.const(max(x.args[1].value, 0.0)), x.args[2]))
    return None


def _max(args: Args) -> Expr | None:
    x, low = _const_last(args)
    if low.op != "const" or math.isnan(low.value):
        return None
    if x.op == "min":
        inner = _const_last(x.args)
        # Where the bounds cross, this gives `low`, and a clip over an empty range gives `high`.
        if inner[1].op == "const" and low.value <= inner[1].value:
            return _apply("clip", (inner[0], low, inner[1]))
    return Expr("relu", (x,)) if low.value == 0 else None


def _min(args: Args) -> Expr | None:
    x, high = _const_last(args)
    if high.op != "const" or math.isnan(high.value):
        return None
    if x.op == "relu" and high.value >= 0:
        return Expr("clip", (x.args[0], e.const(0), high))
    if x.op == "max":
        inner = _const_last(x.args)
        if inner[1].op == "const" and inner[1].value <= high.value:
            return _apply("clip", (inner[0], inner[1], high))
    return None


def _pow(args: Args) -> Expr | None:
    x, power = args
    if _is(power, 1):
        return x
    if _is(power, 2):
        return Expr("mul", (x, x))
    return Expr("sqrt", (x,)) if _is(power, 0.5) else None


def _neg(args: Args) -> Expr | None:
    (x,) = args
    if x.op == "const":
        return e.const(-x.value)
    return x.args[0] if x.op == "neg" else None


def _leaky_relu(args: Args) -> Expr | None:
    x, slope = args
    if _is(slope, 0):
        return Expr("relu", (x,))
    return x if _is(slope, 1) else None


_RULES: dict[str, tuple[Callable[[Args], Expr | None], ...]] = {
    "add": (_add,),
    "sub": (_sub,),
    "mul": (_named_product, _gelu, _mul),
    "div": (_div,),
    "clip": (_clip,),
    "relu": (_relu,),
    "max": (_max,),
    "min": (_min,),
    "pow": (_pow,),
    "neg": (_neg,),
    "leaky_relu": (_leaky_relu,),
}


@dataclass(frozen=True, slots=True)
class _ExpressionMatch:
    node: Node
    op: Op


def match(_editor: Editor, node: Node) -> _ExpressionMatch | None:
    """An operator with an expression that has a shorter form."""
    op = node.op
    shorter = op
    if isinstance(op, Pointwise):
        shorter = replace(op, expr=simplify(op.expr))
    elif isinstance(op, Fusible) and op.epilogue != e.IDENTITY:
        shorter = replace(op, epilogue=simplify(op.epilogue))
    if isinstance(shorter, Conv2d) and shorter.prologue != e.IDENTITY:
        shorter = replace(shorter, prologue=simplify(shorter.prologue))
    return _ExpressionMatch(node, shorter) if shorter != op else None


def refuse(_editor: Editor, found: _ExpressionMatch) -> str | None:
    """Arithmetic that is not in one floating-point type."""
    if not all(value.dtype.is_float for value in (*found.node.inputs, *found.node.outputs)):
        return "the arithmetic is not floating point throughout"
    return None


def rewrite(editor: Editor, found: _ExpressionMatch) -> None:
    """The same operands, the shorter expression."""
    editor.replace(found.node, found.op, found.node.inputs)


PASS = Pass("simplify_expressions", (Rule(match, refuse, rewrite),), after=("normalise_operands",))
