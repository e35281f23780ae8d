"""What ONNX operators do to single elements of symbolic contents.

A number is computed as the operator computes it, in its type. What depends on symbols stays exact:
dims, and dims times a fraction (`Quotient`).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from saccade.frontend.onnx.refusal import Refusal
from saccade.frontend.onnx.symbolic import (
    Element,
    Quotient,
    at_least,
    check_size,
    is_static,
    non_negative,
)
from saccade.ir import DType, dim
from saccade.ir.dim import Affine, Dim

__all__ = ["cast", "on_elements", "rounded_up", "whole"]

_MOST_FACTORS = 4
"""Of a power: volumes have three, and terms of a product are as many as those of its factors."""


def _fraction(element: float) -> Fraction:
    """The value of a number; short decimals are meant as such (0.7 is 7/10, not its float32)."""
    number = _finite(float(element))
    # A scale of 0.7 that is the float32 beside 7/10 would make sizes off by one at multiples of 10.
    short = Fraction(number).limit_denominator(1000)
    return short if np.float32(short) == np.float32(number) else Fraction(number)


def _finite(number: float) -> float:
    if not math.isfinite(number):
        raise Refusal("a computed shape is not finite")
    return number


def _check_divisor(element: Element | np.floating) -> None:
    if element == 0:
        raise Refusal("a computed shape divides by zero")


def _scaled(element: Affine | Quotient, factor: Fraction) -> Quotient:
    if isinstance(element, Affine):
        return Quotient(element, factor)
    return Quotient(element.numerator, element.factor * factor)


def whole(element: Element) -> Dim | None:
    """The dim behind an element of a floating-point chain, if it is one."""
    if isinstance(element, Affine):
        return element
    if isinstance(element, Quotient) and element.factor.denominator == 1:
        return dim.mul(element.numerator, element.factor.numerator)
    # Chains of floats hold whole numbers as floats; as dims they combine with symbols.
    if isinstance(element, (int, float)) and float(element).is_integer():
        return int(element)
    return None


def _arithmetic(
    on_dims: Callable[[Dim, Dim], Dim],
) -> Callable[[Element, Element], Element]:
    """Lift an operation on dims to elements; fractions only as far as they are whole."""

    def apply(left: Element, right: Element) -> Element:
        a, b = whole(left), whole(right)
        if a is None or b is None:
            raise Refusal("arithmetic on a fraction of a symbolic size")
        return on_dims(a, b)

    return apply


def _mul(left: Element, right: Element) -> Element:
    if isinstance(left, float):
        left, right = right, left
    if isinstance(right, float) and isinstance(left, Affine | Quotient):
        # A factor of 0 would keep a symbol that no longer counts.
        return 0 if right == 0 else _scaled(left, _fraction(right))
    return _arithmetic(dim.mul)(left, right)


def _div(left: Element, right: Element) -> Element:
    _check_divisor(right)
    return _arithmetic(dim.truncdiv)(left, right)


def _true_div(left: Element, right: Element) -> Element:
    _check_divisor(right)
    # Exact as a fraction; rounding comes with the Floor, Ceil or Cast that follows.
    if is_static(right) and isinstance(left, Affine | Quotient):
        return _scaled(left, 1 / _fraction(right))
    raise Refusal("a fraction of two symbolic sizes")


def _mod(left: Element, right: Element) -> Element:
    _check_divisor(right)
    return _arithmetic(dim.mod)(left, right)


def _pow(base: Element, exponent: Element) -> Element:
    count = whole(exponent)
    if not isinstance(count, int) or not 0 <= count <= _MOST_FACTORS:
        raise Refusal("a power of a symbolic size")
    result: Element = 1
    for _ in range(count):
        result = _mul(result, base)
    return result


def _floor(element: Element) -> Element:
    return element.floor() if isinstance(element, Quotient) else element


def rounded_up(element: Element) -> Element:
    """An element of a floating-point chain after ONNX `Ceil`, if it is no plain number."""
    if isinstance(element, Quotient):
        # ceil(x) = -floor(-x)
        return dim.neg(Quotient(element.numerator, -element.factor).floor())
    return element


def _truncate(element: Affine | Quotient) -> Dim:
    if isinstance(element, Affine):
        return element
    if element.factor.denominator == 1:
        return dim.mul(element.numerator, element.factor.numerator)
    # Truncation is floor above 0 and ceil below; of either sign it is neither.
    if element.factor < 0 or not non_negative(element.numerator):
        raise Refusal("a symbolic size of unknown sign is truncated")
    return element.floor()


def _equal(left: Element, right: Element) -> bool:
    a, b = whole(left), whole(right)
    if a is not None and b is not None:
        gap = dim.sub(a, b)
        if isinstance(gap, int):
            return gap == 0
        # Equal for some sizes and not for others: no single plan would be right.
        if at_least(gap, 1) or at_least(dim.neg(gap), 1):
            return False
        if gap.constant % math.gcd(*(count for _, count in gap.terms)):
            return False  # `7*H - 6` is 0 for no integer
    raise Refusal("a comparison of symbolic sizes cannot be decided while compiling")


def _less(left: Element, right: Element) -> bool:
    a, b = whole(left), whole(right)
    if a is not None and b is not None:
        # Of integers: less means by 1 at least.
        gap = dim.sub(b, a)
        if at_least(gap, 1):
            return True
        if at_least(dim.neg(gap), 0):
            return False
    raise Refusal("a comparison of symbolic sizes cannot be decided while compiling")


_ON_SIZES: dict[str, Callable[..., Element]] = {
    "Add": _arithmetic(dim.add),
    "Sub": _arithmetic(dim.sub),
    "Mul": _mul,
    "Div": _div,
    "TrueDiv": _true_div,
    "Mod": _mod,
    "Pow": _pow,
    "Min": _arithmetic(dim.minimum),
    "Max": _arithmetic(dim.maximum),
    "Neg": lambda a: _arithmetic(dim.mul)(a, -1),
    "Floor": _floor,
    "Ceil": rounded_up,
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
"""What an ONNX operator does to dims and fractions of dims; `TrueDiv` is `Div` of floats."""


def _quotient(left: np.floating, right: np.floating) -> np.floating:
    _check_divisor(right)
    return left / right


_ON_NUMBERS: dict[str, Callable[..., np.floating | np.bool_]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "TrueDiv": _quotient,
    "Pow": np.power,
    "Min": np.minimum,
    "Max": np.maximum,
    "Neg": operator.neg,
    "Floor": np.floor,
    "Ceil": np.ceil,
    "Equal": operator.eq,
    "Less": operator.lt,
    "Greater": operator.gt,
    "LessOrEqual": operator.le,
    "GreaterOrEqual": operator.ge,
}
"""The same to NumPy's floating-point numbers."""


def on_elements(kind: str, dtype: DType) -> Callable[..., Element] | None:
    """What an ONNX operator does to single elements of `dtype`; None if it cannot be told.

    Args:
        kind: The operator, or `TrueDiv` for `Div` of floating-point numbers.
        dtype: Of the operands. Floating-point numbers are rounded as the operator rounds them.
    """
    on_sizes = _ON_SIZES.get(kind)
    # Integers are exact as dims; only floating-point numbers round.
    on_numbers = _ON_NUMBERS.get(kind) if dtype.is_float else None
    if on_sizes is None or on_numbers is None:
        return on_sizes
    number = dtype.arithmetic.numpy.type

    def apply(*elements: Element) -> Element:
        if all(map(is_static, elements)):
            return _finite(on_numbers(*map(number, elements)).item())
        return on_sizes(*elements)

    return apply


def cast(element: Element, dtype: DType) -> Element:
    """An element after ONNX `Cast`."""
    if isinstance(element, Affine | Quotient):
        if dtype is DType.BOOL:
            return not _equal(element, 0)
        return element if dtype.is_float else _truncate(element)
    if dtype is DType.BOOL:
        return bool(element)
    if dtype.is_float:
        number: float = dtype.arithmetic.numpy.type(element).item()
        return number
    whole = int(element)
    check_size(whole)
    # Wraps around in a narrower type, as Cast does; what int64 cannot hold is refused above.
    return int(np.int64(whole).astype(dtype.numpy))
