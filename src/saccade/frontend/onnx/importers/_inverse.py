"""Inverse trigonometric and hyperbolic functions as expressions: polynomials of float32's accuracy.

Ranges and coefficients are those of Moshier's Cephes library for single precision.
"""

from __future__ import annotations

import math
from functools import reduce

from saccade.ir import Expr
from saccade.ir.expr import apply, const

__all__ = ["INVERSE"]

_ATAN = 8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1
_ASIN = 4.2163199048e-2, 2.4181311049e-2, 4.5470025998e-2, 7.4953002686e-2, 1.6666752422e-1
_ASINH = 2.0122003309e-2, -4.2699340972e-2, 7.4847586088e-2, -1.6666288134e-1
_ACOSH = 1.7596881071e-3, -7.5272886713e-3, 2.6454905019e-2, -1.1784741703e-1, 1.4142135263
_ATANH = 1.81740078349e-1, 8.24370301058e-2, 1.46691431730e-1, 1.99782164500e-1, 3.33337300303e-1
# Squares of what is larger than this add nothing that counts, and soon are infinite.
_LARGE = 1500.0


def _add(x: Expr, y: Expr) -> Expr:
    return apply("add", x, y)


def _sub(x: Expr, y: Expr) -> Expr:
    return apply("sub", x, y)


def _mul(x: Expr, y: Expr) -> Expr:
    return apply("mul", x, y)


def _where(condition: Expr, yes: Expr, no: Expr) -> Expr:
    return apply("where", condition, yes, no)


def _above(x: Expr, bound: float) -> Expr:
    return apply("greater", x, const(bound))


def _series(z: Expr, coefficients: tuple[float, ...]) -> Expr:
    """A polynomial, the coefficient of the highest power first."""
    return reduce(lambda e, c: _add(_mul(e, z), const(c)), coefficients[1:], const(coefficients[0]))


def _odd(x: Expr, coefficients: tuple[float, ...]) -> Expr:
    """`x + x³ · series(x²)`."""
    z = _mul(x, x)
    return _add(_mul(_mul(_series(z, coefficients), z), x), x)


def _signed(x: Expr, magnitude: Expr) -> Expr:
    """The magnitude with the sign of x: an odd function's value; NaN stays."""
    return _where(apply("less", x, const(0)), apply("neg", magnitude), magnitude)


def _atan(x: Expr) -> Expr:
    a = apply("abs", x)
    far, middle = _above(a, math.tan(3 * math.pi / 8)), _above(a, math.tan(math.pi / 8))
    near = _where(middle, apply("div", _sub(a, const(1)), _add(a, const(1))), a)
    reduced = _where(far, apply("neg", apply("reciprocal", a)), near)
    base = _where(far, const(math.pi / 2), _where(middle, const(math.pi / 4), const(0)))
    return _signed(x, _add(base, _odd(reduced, _ATAN)))


def _asin(x: Expr) -> Expr:
    a = apply("abs", x)
    return _signed(x, _where(_above(a, 0.5), _sub(const(math.pi / 2), _ends(a)), _odd(a, _ASIN)))


def _ends(a: Expr) -> Expr:
    """`acos(a)` where that is small."""
    half = apply("sqrt", _mul(const(0.5), _sub(const(1), a)))
    return _mul(const(2), _odd(half, _ASIN))


def _acos(x: Expr) -> Expr:
    a = apply("abs", x)
    end = _where(apply("less", x, const(0)), _sub(const(math.pi), _ends(a)), _ends(a))
    return _where(_above(a, 0.5), end, _sub(const(math.pi / 2), _odd(x, _ASIN)))


def _logarithm(a: Expr, one: float) -> Expr:
    """`log(a + sqrt(a² + one))`."""
    sum_ = _add(a, apply("sqrt", _add(_mul(a, a), const(one))))
    far = _add(apply("log", a), const(math.log(2)))
    return _where(_above(a, _LARGE), far, apply("log", sum_))


def _asinh(x: Expr) -> Expr:
    a = apply("abs", x)
    return _signed(x, _where(_above(a, 0.5), _logarithm(a, 1.0), _odd(a, _ASINH)))


def _acosh(x: Expr) -> Expr:
    z = _sub(x, const(1))
    return _where(_above(z, 0.5), _logarithm(x, -1.0), _mul(apply("sqrt", z), _series(z, _ACOSH)))


def _atanh(x: Expr) -> Expr:
    a = apply("abs", x)
    ratio = apply("div", _add(const(1), a), _sub(const(1), a))
    far = _mul(const(0.5), apply("log", ratio))
    return _signed(x, _where(_above(a, 0.5), far, _odd(a, _ATANH)))


INVERSE = {
    "Acos": _acos, "Acosh": _acosh, "Asin": _asin, "Asinh": _asinh, "Atan": _atan, "Atanh": _atanh,
}  # fmt: skip
"""Expressions by ONNX's operators."""
