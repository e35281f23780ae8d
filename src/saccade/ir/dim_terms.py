"""What dims are made of (`saccade.ir.dim` makes them), and their text."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

__all__ = ["Affine", "Dim", "Symbol", "Term"]


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

    def __str__(self) -> str:
        sign = {"mul": "*", "floordiv": "//", "truncdiv": "/", "mod": "%"}.get(self.op)
        if sign is None:
            return f"{self.op}({self.left}, {self.right})"
        return f"({_operand(self.left)}{sign}{_operand(self.right)})"


@dataclass(frozen=True, slots=True)
class Affine:
    """`constant + Σ coefficient · atom`: one atom at least, sorted by text, no coefficient 0."""

    constant: int
    terms: tuple[tuple[Symbol | Term, int], ...]

    def __str__(self) -> str:
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


def degree(dim: Dim) -> int:
    """As what power of the symbols, all of them together, a dim grows: 2 of `H*W`, 0 of a number.

    A bound: `H*W//W` counts as 2.
    """
    return 0 if isinstance(dim, int) else max(_atom_degree(atom) for atom, _ in dim.terms)


def _atom_degree(atom: Symbol | Term) -> int:
    if isinstance(atom, Symbol):
        return 1
    left, right = degree(atom.left), degree(atom.right)
    if atom.op == "mul":
        return left + right
    if atom.op == "max":
        return max(left, right)
    # A remainder is smaller than the divisor.
    return min(left, right) if atom.op in ("min", "mod") else left
