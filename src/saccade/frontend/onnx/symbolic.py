"""What is known of a small tensor at import: dims, and fractions of dims in float chains.

Exporters spell `x.view(n, 2, c // 2, h, w)` as Shape, Gather, Div, Cast, Unsqueeze, Concat,
Reshape. While importing, the results of such nodes are `Symbolic`: NumPy object arrays whose
elements are dims, so that indexing and concatenating them is plain NumPy, and arithmetic is one
function per element.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeGuard

import numpy as np

from saccade.frontend.onnx.refusal import Refusal
from saccade.ir import DType, dim
from saccade.ir.dim import Affine, Dim, Symbol, Term

__all__ = ["ELEMENTWISE", "Quotient", "Symbolic", "cast", "is_static", "non_negative"]

MAX_ELEMENTS = 4096
MAX_TEXT = 4096
MAX_DEPTH = 64
_INT64 = 2**63


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
        if self.array.size > MAX_ELEMENTS:
            raise Refusal("a computed shape has more elements than any tensor has axes")
        for element in self.elements():
            check_size(element)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the tensor."""
        return tuple(self.array.shape)

    def elements(self) -> list[Element]:
        """All elements, row-major."""
        found: list[Element] = self.array.ravel().tolist()
        return found


def check_size(element: Element) -> None:
    """Refuse integers beyond int64 and expressions that grew out of proportion."""
    if isinstance(element, int):
        if not -_INT64 <= element < _INT64:
            raise Refusal("a computed shape overflows int64")
    elif isinstance(element, Affine):
        if _text_length(element, 0, 0) > MAX_TEXT:
            raise Refusal("the expression of a computed dim is too large")
    elif isinstance(element, Quotient):
        check_size(element.numerator)


def _text_length(value: Dim, used: int, depth: int) -> int:
    """A lower bound of `len(str(value))`; stops once that is too large or terms nest too deeply."""
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


def _at_least(value: Dim, bound: int) -> bool:
    """Whether `value >= bound` holds for all sizes, as far as can be told."""
    low = _lower_bound(value)
    return low is not None and low >= bound


def non_negative(value: Dim) -> bool:
    """Whether the dim is known to be zero or more for all sizes."""
    return _at_least(value, 0)


def _lower_bound(value: Dim) -> int | None:
    if isinstance(value, int):
        return value
    total = value.constant
    for atom, coefficient in value.terms:
        low = _atom_bound(atom)
        if low is None or coefficient < 0:
            return None
        total += coefficient * low
    return total


def _atom_bound(atom: Symbol | Term) -> int | None:
    if isinstance(atom, Symbol):
        return 0
    left, right = _lower_bound(atom.left), _lower_bound(atom.right)
    if atom.op == "mod":
        return 0 if right is not None and right > 0 else None
    if atom.op == "max":
        known = [bound for bound in (left, right) if bound is not None]
        return max(known) if known else None
    if left is None or right is None:
        return None
    if atom.op == "min":
        return min(left, right)
    if left < 0 or right < 0:
        return None
    if atom.op == "mul":
        return left * right
    return left // atom.right if isinstance(atom.right, int) and atom.right > 0 else 0


def _fraction(element: float) -> Fraction:
    """The value of a number; short decimals are meant as such (0.7 is 7/10, not its float32)."""
    number = float(element)
    if not np.isfinite(number):
        raise Refusal("a computed shape is not finite")
    short = Fraction(number).limit_denominator(1000)
    return short if np.float32(short) == np.float32(number) else Fraction(number)


def _scaled(element: Element, factor: Fraction) -> Element:
    if isinstance(element, Affine):
        return Quotient(element, factor)
    assert isinstance(element, Quotient)
    return Quotient(element.numerator, element.factor * factor)


def _whole(element: Element) -> Dim | None:
    """The dim behind an element of a floating-point chain, if it is one."""
    if isinstance(element, Affine):
        return element
    if isinstance(element, Quotient) and element.factor.denominator == 1:
        return dim.mul(element.numerator, element.factor.numerator)
    if isinstance(element, (int, float)) and float(element).is_integer():
        return int(element)
    return None


def _arithmetic(
    on_dims: Callable[[Dim, Dim], Dim],
) -> Callable[[Element, Element], Element]:
    """Lift an operation on dims to elements; fractions only as far as they are whole."""

    def apply(left: Element, right: Element) -> Element:
        a, b = _whole(left), _whole(right)
        if a is None or b is None:
            raise Refusal("arithmetic on a fraction of a symbolic size")
        return on_dims(a, b)

    return apply


def _mul(left: Element, right: Element) -> Element:
    if is_static(right) and isinstance(right, float):
        return 0 if right == 0 else _scaled(left, _fraction(right))
    if is_static(left) and isinstance(left, float):
        return 0 if left == 0 else _scaled(right, _fraction(left))
    return _arithmetic(dim.mul)(left, right)


def _div(left: Element, right: Element) -> Element:
    if right == 0:
        raise Refusal("a computed shape divides by zero")
    return _arithmetic(dim.truncdiv)(left, right)


def _true_div(left: Element, right: Element) -> Element:
    if right == 0:
        raise Refusal("a computed shape divides by zero")
    if is_static(right):
        return _scaled(left, 1 / _fraction(right))
    raise Refusal("a fraction of two symbolic sizes")


def _mod(left: Element, right: Element) -> Element:
    if right == 0:
        raise Refusal("a computed shape divides by zero")
    return _arithmetic(dim.mod)(left, right)


def _floor(element: Element) -> Element:
    return element.floor() if isinstance(element, Quotient) else element


def _ceil(element: Element) -> Element:
    if isinstance(element, Quotient):
        return dim.neg(Quotient(element.numerator, -element.factor).floor())
    return element


def _truncate(element: Element) -> Element:
    if isinstance(element, Quotient):
        if element.factor < 0 or not non_negative(element.numerator):
            raise Refusal("a symbolic size of unknown sign is truncated")
        return element.floor()
    return element


def _equal(left: Element, right: Element) -> bool:
    a, b = _whole(left), _whole(right)
    if a is not None and b is not None:
        gap = dim.sub(a, b)
        if isinstance(gap, int):
            return gap == 0
        if _at_least(gap, 1) or _at_least(dim.neg(gap), 1):
            return False
    raise Refusal("a comparison of symbolic sizes cannot be decided while compiling")


def _less(left: Element, right: Element) -> bool:
    a, b = _whole(left), _whole(right)
    if a is not None and b is not None:
        gap = dim.sub(b, a)
        if _at_least(gap, 1):
            return True
        if _at_least(dim.neg(gap), 0):
            return False
    raise Refusal("a comparison of symbolic sizes cannot be decided while compiling")


ELEMENTWISE: dict[str, Callable[..., Element]] = {
    "Add": _arithmetic(dim.add),
    "Sub": _arithmetic(dim.sub),
    "Mul": _mul,
    "Div": _div,
    "TrueDiv": _true_div,
    "Mod": _mod,
    "Min": _arithmetic(dim.minimum),
    "Max": _arithmetic(dim.maximum),
    "Neg": lambda a: _arithmetic(dim.mul)(a, -1),
    "Floor": _floor,
    "Ceil": _ceil,
    "Equal": _equal,
    "Less": _less,
    "Greater": lambda a, b: _less(b, a),
    "LessOrEqual": lambda a, b: not _less(b, a),
    "GreaterOrEqual": lambda a, b: not _less(a, b),
    "Where": lambda c, a, b: a if c else b,
    "Not": lambda a: not a,
    "And": lambda a, b: bool(a and b),
    "Or": lambda a, b: bool(a or b),
}
"""What an ONNX operator does to single elements; `TrueDiv` is `Div` of floating-point numbers."""


def cast(element: Element, dtype: DType) -> Element:
    """An element after ONNX `Cast`."""
    if dtype is DType.BOOL:
        return not _equal(element, 0)
    if dtype.is_float:
        return element if isinstance(element, (Affine, Quotient)) else float(element)
    if isinstance(element, (Affine, Quotient)):
        return _truncate(element)
    return int(element)
