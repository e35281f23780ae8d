"""What dims are made of (`saccade.ir.dim` makes them), and their text."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

__all__ = ["Affine", "Dim", "Symbol", "Term", "growth"]


@dataclass(frozen=True, slots=True)
class Symbol:
    """A named, non-negative unknown, such as the batch `N`."""

    name: str

    def __str__(self) -> str:
        """The name; quoted where it would read as something else (a model may name a dim `a+b`)."""
        # `min` and `max` are words of the text form, which `dim_parser` reads back.
        plain = re.fullmatch(r"[^\W\d][\w.]*", self.name) and self.name not in ("min", "max")
        return self.name if plain else json.dumps(self.name)


@dataclass(frozen=True, slots=True)
class Term:
    """A non-affine term: one of `mul floordiv truncdiv mod min max` over two dims."""

    op: str
    left: Dim
    right: Dim
    _text: str = field(default="", init=False, repr=False, compare=False)  # once it was asked for

    def __str__(self) -> str:
        if not self._text:
            object.__setattr__(self, "_text", self._spelled())
        return self._text

    def _spelled(self) -> str:
        sign = {"mul": "*", "floordiv": "//", "truncdiv": "/", "mod": "%"}.get(self.op)
        if sign is None:
            return f"{self.op}({self.left}, {self.right})"
        return f"({_operand(self.left)}{sign}{_operand(self.right)})"


@dataclass(frozen=True, slots=True)
class Affine:
    """`constant + Σ coefficient · atom`: one atom at least, sorted by text, no coefficient 0."""

    constant: int
    terms: tuple[tuple[Symbol | Term, int], ...]
    _text: str = field(default="", init=False, repr=False, compare=False)  # once it was asked for

    def __str__(self) -> str:
        if not self._text:
            object.__setattr__(self, "_text", self._spelled())
        return self._text

    def _spelled(self) -> str:
        parts = [str(a) if c == 1 else f"{c}*{a}" for a, c in self.terms]
        if self.constant:
            parts.append(str(self.constant))
        return parts[0] if len(parts) == 1 else "(" + "+".join(parts).replace("+-", "-") + ")"


Dim = int | Affine


def _operand(dim: Dim) -> str:
    """Text that stays one operand beside `*`, `/` and `%`."""
    # Sums have parentheses already; `2*N` has none, and `a//2*N` would read as another dim.
    scaled = isinstance(dim, Affine) and not dim.constant and dim.terms[0][1] != 1
    bare = scaled and isinstance(dim, Affine) and len(dim.terms) == 1
    return f"({dim})" if bare or (isinstance(dim, int) and dim < 0) else str(dim)


def growth(dim: Dim) -> tuple[int, float]:
    """How a dim grows with sizes: the power of the symbols, all of them together, and a factor.

    2 and 3.0 of `3*H*W + H`, 1 and 0.25 of `H//4`. Both are bounds: `H*W//W` counts as `H*W`.
    """
    if isinstance(dim, int):
        return 0, float(abs(dim))
    parts = [(power, factor * abs(c)) for a, c in dim.terms for power, factor in [_atom_growth(a)]]
    highest = max(power for power, _ in parts)
    return highest, sum(factor for power, factor in parts if power == highest)


def _atom_growth(atom: Symbol | Term) -> tuple[int, float]:
    if isinstance(atom, Symbol):
        return 1, 1.0
    left, right = growth(atom.left), growth(atom.right)
    if atom.op == "mul":
        return left[0] + right[0], left[1] * right[1]
    if atom.op == "max":
        return max(left, right)
    if atom.op in ("min", "mod"):  # a remainder is smaller than the divisor
        return min(left, right)
    return left if right[0] else (left[0], left[1] / right[1])
