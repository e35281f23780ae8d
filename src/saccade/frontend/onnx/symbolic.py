"""What is known of a small tensor at import: dims, and fractions of dims in float chains.

Exporters spell `x.view(n, 2, c // 2, h, w)` as Shape, Gather, Div, Cast, Unsqueeze, Concat,
Reshape. While importing, the results of such nodes are `Symbolic`: NumPy object arrays whose
elements are dims, so that indexing and concatenating them is plain NumPy, and arithmetic is one
function per element (`symbolic_arithmetic`).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TypeGuard

import numpy as np

from saccade.frontend.onnx.refusal import Refusal
from saccade.ir import DType, dim
from saccade.ir.dim import Affine, Dim, Symbol, Term, neg

__all__ = [
    "Element",
    "Quotient",
    "Symbolic",
    "at_least",
    "check_count",
    "check_size",
    "is_static",
    "most_of",
    "non_negative",
    "whole_dims",
]

MAX_ELEMENTS = 4096
MAX_TEXT = 4096
MAX_DEPTH = 64
_INT64 = -(2**63), 2**63 - 1
_RANGES = {
    DType.I32: (-(2**31), 2**31 - 1),
    DType.I16: (-(2**15), 2**15 - 1),
    DType.I8: (-(2**7), 2**7 - 1),
    DType.U64: (0, 2**63 - 1),
    DType.U32: (0, 2**32 - 1),
    DType.U16: (0, 2**16 - 1),
    DType.U8: (0, 2**8 - 1),
}
"""Least and largest integer of a type, as far as int64 goes."""


@dataclass(frozen=True, slots=True)
class Quotient:
    """`numerator · factor`: an element of a floating-point chain that still depends on symbols."""

    numerator: Affine
    factor: Fraction

    def floor(self) -> Dim:
        """Rounded towards minus infinity."""
        scaled = dim.mul(self.numerator, self.factor.numerator)
        return dim.floordiv(scaled, self.factor.denominator)


Element = int | bool | float | Affine | Quotient


@dataclass(frozen=True, slots=True, eq=False)
class Symbolic:
    """A tensor whose contents are known as expressions.

    Attributes:
        dtype: Element type in the file.
        array: Object array of dims (integers), bools, or for floating point numbers and
            `Quotient`s.
    """

    dtype: DType
    array: np.ndarray[tuple[int, ...], np.dtype[np.object_]]

    def __post_init__(self) -> None:
        check_count(self.array.size)
        # At every step of a chain: an expression that doubles each time must stop early.
        for element in self.elements():
            check_size(element, self.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the tensor."""
        return tuple(self.array.shape)

    def elements(self) -> list[Element]:
        """All elements, row-major."""
        found: list[Element] = self.array.ravel().tolist()
        return found


def check_count(elements: int) -> None:
    """Refuse more contents than a shape ever has."""
    if elements > MAX_ELEMENTS:
        raise Refusal("a computed shape has more elements than any tensor has axes")


def check_size(element: Element, dtype: DType = DType.I64) -> None:
    """Refuse integers beyond their type, and expressions that grew out of proportion."""
    if isinstance(element, int):
        low, high = _RANGES.get(dtype, _INT64)
        if not low <= element <= high:
            raise Refusal(f"a computed shape overflows {dtype.value}")
    elif isinstance(element, Affine):
        if _text_length(element, 0, 0) > MAX_TEXT:
            raise Refusal("the expression of a computed dim is too large")
    elif isinstance(element, Quotient):
        check_size(element.numerator)


def _text_length(value: Dim, used: int, depth: int) -> int:
    """A lower bound of `len(str(value))`; stops once that is too large or terms nest too deeply."""
    # The text itself is never made here: terms that share parts may be exponentially long.
    if depth > MAX_DEPTH:
        return MAX_TEXT + 1
    used += 1
    if isinstance(value, Affine):
        for atom, _ in value.terms:
            if used > MAX_TEXT:
                return used
            if isinstance(atom, Term):
                used = _text_length(atom.left, used, depth + 1)
                used = _text_length(atom.right, used, depth + 1)
            else:
                used += len(atom.name)
    return used


def is_static(element: Element) -> TypeGuard[float]:
    """Whether an element does not depend on symbols."""
    return not isinstance(element, (Affine, Quotient))


def at_least(value: Dim, bound: int) -> bool:
    """Whether `value >= bound` holds for all sizes, as far as can be told."""
    low = _lower_bound(value)
    if low is not None and low >= bound:
        return True
    return dim.is_non_negative(dim.sub(value, bound))


def non_negative(value: Dim) -> bool:
    """Whether the dim is known to be zero or more for all sizes."""
    return at_least(value, 0)


def _lower_bound(value: Dim) -> int | None:
    if isinstance(value, int):
        return value
    total = value.constant
    for atom, coefficient in value.terms:
        low = _atom_bound(atom) if coefficient > 0 else _most_of_atom(atom)
        if low is None:
            return None
        total += coefficient * low
    return total


def _least_product(atom: Term) -> int | None:
    """Of factors that are of one sign."""
    for nearest, sign in ((_lower_bound, 1), (most_of, -1)):
        left, right = nearest(atom.left), nearest(atom.right)
        if left is not None and right is not None and min(sign * left, sign * right) >= 0:
            return left * right
    return None


def _most_of_atom(atom: Symbol | Term) -> int | None:
    """What an atom never exceeds; sizes have no such bound."""
    if isinstance(atom, Symbol):
        return None
    if atom.op == "min":
        known = [most for most in map(most_of, (atom.left, atom.right)) if most is not None]
        return min(known, default=None)
    # As sizes are rounded up: less the floor of what is at most 0.
    if atom.op == "floordiv" and isinstance(atom.right, int) and atom.right > 0:
        most = most_of(atom.left)
        return None if most is None else most // atom.right
    return None


def most_of(value: Dim) -> int | None:
    """What a dim never exceeds, whatever the sizes; None if that cannot be told."""
    low = _lower_bound(neg(value))
    return None if low is None else -low


def _atom_bound(atom: Symbol | Term) -> int | None:
    # Sizes are 0 at least, and no more is known of them.
    if isinstance(atom, Symbol):
        return 0
    if atom.op == "mul":
        return _least_product(atom)
    left, right = _lower_bound(atom.left), _lower_bound(atom.right)
    if atom.op == "mod":
        return 0 if right is not None and right > 0 else None
    if atom.op == "max":
        # The larger of two is at least what either of them is.
        known = [bound for bound in (left, right) if bound is not None]
        return max(known) if known else None
    if left is None or right is None:
        return None
    if atom.op == "min":
        return min(left, right)
    if atom.op == "floordiv" and isinstance(atom.right, int) and atom.right > 0:
        return left // atom.right
    if left < 0 or right < 0:
        return None
    # Neither is negative: divisions round down, and at least to 0.
    return 0


def whole_dims(content: Symbolic) -> tuple[Dim, ...]:
    """The elements of an integer tensor as dims.

    Raises:
        Refusal: If they are not integers.
    """
    elements = content.elements()
    # Elements alone do not tell: chains of floats hold dims as well.
    dims = tuple(e for e in elements if not isinstance(e, (float, Quotient)))
    if content.dtype.is_float or content.dtype is DType.BOOL or len(dims) < len(elements):
        raise Refusal("a shape must be made of integers")
    return dims
