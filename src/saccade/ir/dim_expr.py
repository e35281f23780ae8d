"""Dims as expressions: a size that is computed while a plan runs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce

from saccade.ir.dim import Affine, Dim, Symbol, Term
from saccade.ir.expr import Expr, apply, arg, const

__all__ = ["size_expr"]

_OPERATORS = {"mul": "mul", "min": "min", "max": "max", "mod": "mod", "truncdiv": "div"}


def size_expr(size: Dim, symbols: Sequence[str]) -> Expr:
    """A size over its symbols as integer operands, in their order."""
    if isinstance(size, int):
        return const(size)
    assert isinstance(size, Affine)
    parts = [_scaled(_atom(atom, symbols), coefficient) for atom, coefficient in size.terms]
    if size.constant:
        parts.append(const(size.constant))
    return reduce(partial(apply, "add"), parts)


def _scaled(e: Expr, factor: int) -> Expr:
    return e if factor == 1 else apply("mul", e, const(factor))


def _atom(atom: Symbol | Term, symbols: Sequence[str]) -> Expr:
    if isinstance(atom, Symbol):
        return arg(symbols.index(atom.name))
    sides = size_expr(atom.left, symbols), size_expr(atom.right, symbols)
    if atom.op == "floordiv":
        # Division of integers rounds towards zero: without the rest there is nothing to round.
        return apply("div", apply("sub", sides[0], apply("mod", *sides)), sides[1])
    return apply(_OPERATORS[atom.op], *sides)
