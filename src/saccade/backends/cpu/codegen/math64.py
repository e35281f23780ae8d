"""Functions on float32 vectors that need float64 on the way: powers, sines, remainders.

They are rare in vision models, so they are written to be right everywhere rather than fast: sine
and cosine reduce any float32 exactly, powers carry 40 bits through the logarithm, remainders are
exact for every pair of operands.
"""

from __future__ import annotations

from typing import Any

from saccade.backends.cpu.codegen import llvm
from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.backends.cpu.codegen.math import (
    float_from,
    horner,
    int_constant,
    scale_by_power,
    split_exponent,
)
from saccade.backends.cpu.codegen.values import Mask, Vec, vector_of

__all__ = ["cos", "fmod", "mod", "pow_", "power", "sin"]

_INF = float("inf")
# 2/π in pieces of 28 bits (a float32 times a piece is exact in float64), then the rest.
_TWO_OVER_PI = (
    0.6366197690367699, 3.3308114738561656e-09, 2.276010047810136e-18, 2.5268260189002822e-26,
    1.6682867657019525e-34, 1.158871328288855e-43, 7.053959174404295e-52,
)  # fmt: skip
_HALF_PI = 1.5707963267948966
# (sin r - r) / r³ and (cos r - 1 + r²/2) / r⁴ in powers of r², |r| ≤ π/4
_SIN = (-0.16666666641371444, 0.008333329355788732, -0.00019839325022372482, 2.7182169250547814e-06)
_COS = (
    0.04166666662238127,
    -0.0013888883714220904,
    2.4799509513025518e-05,
    -2.7209359394343616e-07,
)
_MAGIC64 = 6755399441055744.0  # 1.5 · 2^52: adding it leaves an integer in the low bits
# log2((1 + s) / (1 - s)) / s in powers of s², |s| ≤ 0.1716
_LOG2 = (
    2.8853900817776634, 0.9617966944496352, 0.5770778475194676, 0.41221836196284517,
    0.3195655021239914, 0.28655495844499024, 0.023219219740642887, 0.0012261857600982583,
)  # fmt: skip
# 2^r in powers of r, |r| ≤ ½
_EXP2 = (
    0.9999999999997623, 0.6931471805465153, 0.24022650698880635, 0.055504109393400905,
    0.009618128542792204, 0.0013333452064142562, 0.0001540385180669222,
    1.530973686706294e-05, 1.3175843661815868e-06,
)  # fmt: skip


def _wide(k: KernelBuilder, v: Vec) -> Vec:
    return Vec(k.b, k.b.fpext(v.value, k.vector_type(v.lanes, "float64")))


def _narrow(k: KernelBuilder, v: Vec) -> Vec:
    return Vec(k.b, k.b.fptrunc(v.value, k.vector_type(v.lanes)))


# Sine and cosine


def _quadrant(k: KernelBuilder, x: Vec) -> tuple[Any, Vec]:
    """`x = (n + s) π/2`, |s| ≤ ½: n mod 4 as 32-bit integers, s π/2 as float32."""
    wide = _wide(k, x)
    n, s = wide.like(0.0), wide.like(0.0)
    for piece in _TWO_OVER_PI:
        # Whole turns go first, while the product is still exact; what is left is summed from large
        # to small.
        product = wide * piece
        turns = k.call("rint", product * 0.25)
        s = s + k.fma(turns, turns.like(-4.0), product)
        whole = k.call("rint", s)
        n, s = n + whole, s - whole
    integers = k.b.bitcast((n + _MAGIC64).value, _integers(x.lanes))
    narrow = k.b.trunc(integers, int_constant(x, 0).type)
    return narrow, _narrow(k, s * _HALF_PI)


def _integers(lanes: int) -> Any:  # noqa: ANN401
    return vector_of(llvm.I64, lanes)


def _sine_quadrants(k: KernelBuilder, x: Vec, shift: int) -> Vec:
    quadrant, r = _quadrant(k, x)
    z = r * r
    sine = k.fma(z * r, horner(k, z, _SIN), r)
    cosine = k.fma(z * z, horner(k, z, _COS), k.fma(z, z.like(-0.5), z.like(1.0)))
    rotated = k.b.add(quadrant, int_constant(x, shift))
    one = int_constant(x, 1)
    odd = Mask(k.b, k.b.icmp_signed("==", k.b.and_(rotated, one), one))
    value = odd.select(cosine, sine)
    sign = k.b.shl(k.b.and_(rotated, int_constant(x, 2)), int_constant(x, 30))
    flipped = float_from(k, k.b.xor(k.b.bitcast(value.value, sign.type), sign))
    # The reduction loses the sign of a zero.
    return x.compare("==", 0.0).select(x, flipped) if shift == 0 else flipped


def sin(k: KernelBuilder, x: Vec) -> Vec:
    """Sine; NaN at infinities."""
    return _sine_quadrants(k, x, 0)


def cos(k: KernelBuilder, x: Vec) -> Vec:
    """Cosine; NaN at infinities."""
    return _sine_quadrants(k, x, 1)


# Powers


def pow_(k: KernelBuilder, x: Vec, y: Vec) -> Vec:
    """x^y with the special cases of C's `pow`."""
    magnitude = _abs(k, x)
    value = power(k, magnitude, _wide(k, y))
    value = _signed(k, x, y, value, magnitude.compare("<", _INF))
    one = value.like(1.0)
    # 1 to any power and anything to the power 0 are 1, NaN included; so is -1 to an infinite power.
    value = (x.compare("==", 1.0) | y.compare("==", 0.0)).select(one, value)
    return (x.compare("==", -1.0) & _abs(k, y).compare("==", _INF)).select(one, value)


def power(k: KernelBuilder, x: Vec, y: Vec) -> Vec:
    """x^y for x ≥ 0 and float64 lanes y other than 0; NaN stays."""
    finite = x.compare("<", _INF)
    inside = (finite & x.compare(">", 0.0)).select(x, x.like(1.0))
    logarithm = _log2(k, inside)
    logarithm = x.compare("==", 0.0).select(logarithm.like(-_INF), logarithm)
    logarithm = finite.select(logarithm, _wide(k, x))  # inf and NaN
    return _exp2(k, logarithm * y)


def _signed(k: KernelBuilder, x: Vec, y: Vec, value: Vec, finite: Mask) -> Vec:
    """The sign that a negative base gives; NaN for a power that is no integer."""
    half = y * 0.5
    integer = k.call("rint", y).compare("==", y)
    odd = integer & k.call("rint", half).compare("!=", half)
    negative = k.call("copysign", x.like(1.0), x).compare("<", 0.0)
    value = (negative & odd).select(-value, value)
    undefined = x.compare("<", 0.0) & finite & ~integer & y.compare("==", y)
    return undefined.select(x.like(float("nan")), value)


def _abs(k: KernelBuilder, x: Vec) -> Vec:
    return k.call("fabs", x)


def _log2(k: KernelBuilder, x: Vec) -> Vec:
    """Float64 log2 of positive finite float32 lanes, to 2^-40."""
    m, e = split_exponent(k, x)
    wide = _wide(k, m)
    s = (wide - 1.0) / (wide + 1.0)
    return k.fma(s, horner(k, s * s, _LOG2), _wide(k, e))


def _exp2(k: KernelBuilder, z: Vec) -> Vec:
    """Float32 2^z of float64 lanes, z of any size."""
    z = k.minimum(k.maximum(z, -160.0), 130.0)
    n = k.call("rint", z)
    return scale_by_power(k, _narrow(k, horner(k, z - n, _EXP2)), _narrow(k, n))


# Remainders


def fmod(k: KernelBuilder, x: Vec, y: Vec) -> Vec:
    """Remainder with the sign of x, exact (C's `fmod`)."""
    a, b = _wide(k, _abs(k, x)), _wide(k, _abs(k, y))
    r = a
    # A step takes 52 bits off the quotient, which has 278 at most. A quotient that was rounded up
    # makes the rest negative: the next step sees to that, or the addition after the last.
    for _ in range(6):
        r = k.fma(-k.call("trunc", r / b), b, r)
    r = r.compare("<", 0.0).select(r + b, r)
    r = (b.compare("==", _INF) & a.compare("<", _INF)).select(a, r)
    return k.call("copysign", _narrow(k, r), x)


def mod(k: KernelBuilder, x: Vec, y: Vec) -> Vec:
    """Remainder with the sign of y (Python's `%`, ONNX's Mod with fmod=0)."""
    r = fmod(k, x, y)
    crossing = (r * k.call("copysign", y.like(1.0), y)).compare("<", 0.0)
    return crossing.select(r + y, r)
