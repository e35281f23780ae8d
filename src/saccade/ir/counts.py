"""Sizes that a step finds out while it runs: symbols with a bound.

A suppression of boxes keeps as many as its operands ask for. Its result has a symbol of its own for
an axis, and memory for the most that there can be: memory, kernels and all that follows are planned
for that bound, and what lies beyond the true number is computed like the rest and never shown. That
is right as long as every element that is shown comes from elements that are: an axis may be
repeated, reordered against others, merged with axes inside it, or cut short at its end, but nothing
may add up, rank or shift its elements (`frontend/onnx/rows.py` refuses that).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from saccade.ir.dim import Affine, Dim, Symbol, Term, mul, symbols_of

__all__ = ["Count", "depends", "multiple_of"]


@dataclass(frozen=True, slots=True)
class Count:
    """A symbol whose size a step finds out.

    Attributes:
        symbol: Its name.
        bound: What the size never exceeds, over the symbols of the inputs.
    """

    symbol: str
    bound: Dim


def depends(dim: Dim, counted: Collection[str]) -> bool:
    """Whether a dim depends on the size of one of these symbols."""
    return not isinstance(dim, int) and not symbols_of(dim).isdisjoint(counted)


def multiple_of(dim: Dim, counted: Collection[str]) -> tuple[str, Dim] | None:
    """Symbol and factor of a dim that is their product, or the smaller of that and a fixed size.

    Of an axis that is planned for the symbol's bound, the first `factor · size` elements are then
    true, as far as there are as many. None for other dims: their true elements may be anywhere.
    """
    # A sum puts what is true of one term behind what is not of another.
    if not isinstance(dim, Affine) or dim.constant or len(dim.terms) != 1:
        return None
    ((atom, coefficient),) = dim.terms
    found = _atom(atom, counted)
    # The more of the symbol there is, the fewer elements there would be.
    if found is None or coefficient < 1:
        return None
    return found[0], mul(found[1], coefficient)


def _atom(atom: Symbol | Term, counted: Collection[str]) -> tuple[str, Dim] | None:
    if isinstance(atom, Symbol):
        return (atom.name, 1) if atom.name in counted else None
    # The side that depends on the symbol last; if both do, the first one shows it below.
    sides = sorted((atom.left, atom.right), key=lambda side: depends(side, counted))
    if atom.op not in ("min", "mul") or depends(sides[0], counted):
        return None
    found = multiple_of(sides[1], counted)
    # The fixed side of a minimum only cuts elements off the end.
    if found is None or atom.op == "min":
        return found
    return found[0], mul(found[1], sides[0])
