"""Expressions and their operands: composing them, reading constants as numbers per channel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from saccade.ir import Array, Expr, Node, Op, Value
from saccade.ir import expr as e
from saccade.limits import Limits
from saccade.opdefs import Conv2d, ConvTranspose2d, MatMul, Pool2d, Reduce, Resize
from saccade.opdefs._taps import expr_flops, expr_length

__all__ = [
    "Fusible",
    "affine",
    "channel_axis",
    "channel_vector",
    "epilogue_operands",
    "first_epilogue_operand",
    "inline",
    "too_large",
]

_REPEATED = 16
"""Terms of an expression as it is written, for each operator that it may have."""

Fusible = Conv2d | ConvTranspose2d | MatMul | Pool2d | Reduce | Resize
"""Operators with an epilogue."""


def first_epilogue_operand(op: Fusible) -> int:
    """Position of the first epilogue operand among the operands."""
    if isinstance(op, Conv2d):
        return 2 + op.n_prologue
    return 2 if isinstance(op, ConvTranspose2d | MatMul) else 1


def epilogue_operands(node: Node) -> tuple[Value, ...]:
    """The operands `$1…` of the epilogue."""
    op = node.op
    assert isinstance(op, Fusible)
    end = len(node.inputs) - (op.n_store if isinstance(op, Conv2d) else 0)
    return node.inputs[first_epilogue_operand(op) : end]


def channel_axis(op: Op, rank: int) -> int:
    """The axis of a result along which biases run."""
    return rank - 1 if isinstance(op, MatMul) else 1


def channel_vector(array: Array, rank: int, axis: int) -> Array | None:
    """A constant that broadcasts to `rank` axes as float64 [C], or [1] for a scalar.

    None if it varies along another axis than `axis`.
    """
    shape = (1,) * (rank - array.ndim) + array.shape
    if any(size != 1 for at, size in enumerate(shape) if at != axis):
        return None
    return array.astype(np.float64).reshape(-1)


def affine(expr: Expr, x: int, vectors: dict[int, Array]) -> tuple[Array, Array] | None:
    """`(a, b)` with `expr = a · $x + b`, other operands being known; None if it is not affine."""
    one, zero = np.ones(1), np.zeros(1)
    Pair = tuple[Array, Array] | None  # noqa: N806 - a type

    def on_arg(index: int) -> Pair:
        return (one, zero) if index == x else (zero, vectors[index])

    def on_apply(op: str, args: tuple[Pair, ...]) -> Pair:
        known = [pair for pair in args if pair is not None]
        return _affine_step(op, known) if len(known) == len(args) else None

    with np.errstate(all="ignore"):  # what is not finite is for the caller to refuse
        return e.fold(expr, on_arg, lambda value: (zero, np.full(1, value)), on_apply)


def _affine_step(op: str, args: Sequence[tuple[Array, Array]]) -> tuple[Array, Array] | None:
    if op == "neg":
        return -args[0][0], -args[0][1]
    if op not in ("add", "sub", "mul", "div"):
        return None
    (a, b), (c, d) = args
    if op == "add":
        return a + c, b + d
    if op == "sub":
        return a - c, b - d
    if op == "mul" and not c.any():
        return a * d, b * d
    if op == "mul" and not a.any():
        return b * c, b * d
    if op == "div" and not c.any() and d.all():
        return a / d, b / d
    return None


def too_large(
    outer: Expr, inputs: Sequence[Value], value: Value, inner: Expr, limits: Limits
) -> str | None:
    """Why `inner` must not be put for `value` in `outer`, which is over `inputs`.

    Long expressions compile slowly, and Python recurses in them. What reads itself twice at each
    step (`x + x` of `x + x`) has few operators, but is written and compared at twice the length:
    that is told from the parts, as the whole could not be handled.
    """
    at = [expr_length(inner) if operand is value else 1 for operand in inputs]
    length = e.fold(outer, at.__getitem__, lambda _: 1, lambda _, parts: 1 + sum(parts))
    most = limits.expression
    if length > _REPEATED * most:
        return f"the expression is written with {length} terms, more than {_REPEATED * most}"
    if expr_flops(outer) + expr_flops(inner) <= most:
        return None
    apart = e.substitute(inner, {i: e.arg(len(inputs) + i) for i in range(inner.operands)})
    whole = e.substitute(outer, {i: apart for i, v in enumerate(inputs) if v is value})
    count = expr_flops(whole)
    return f"the expression has {count} operators, more than {most}" if count > most else None


def inline(
    outer: Expr,
    inputs: Sequence[Value],
    value: Value,
    inner: Expr,
    operands: Sequence[Value],
    *,
    offset: int = 0,
) -> tuple[Expr, tuple[Value, ...]]:
    """Put `inner` for `value` in `outer`; each distinct operand appears once.

    Args:
        outer: Over `inputs`, one of which is `value`.
        inputs: Operands of `outer`, from `$0`.
        value: What `inner` computes.
        inner: Over `operands`, and over `$0…` below `offset`, which stay.
        operands: Operands of `inner`, from `$offset`.
        offset: Number of the first operand.

    Returns:
        The composed expression and its operands, from `$offset`.
    """
    found: dict[Value, int] = {}

    def place(operand: Value) -> Expr:
        return e.arg(found.setdefault(operand, offset + len(found)))

    renamed = e.substitute(inner, {offset + i: place(v) for i, v in enumerate(operands)})
    put = {i: renamed if v is value else place(v) for i, v in enumerate(inputs)}
    return e.substitute(outer, put), tuple(found)
