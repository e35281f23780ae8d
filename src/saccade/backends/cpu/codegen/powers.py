"""Powers of magnitudes to one exponent, exponentials and logarithms in float64.

    x^y = 2^(y · log2 x),  log2 x = e + 2 / ln 2 · atanh(s),  s = (m - 1) / (m + 1),  x = m · 2^e

An error of the logarithm grows by `y · log2 x`, which may be a thousand: the logarithm is a sum of
two float64 with some 60 bits, its product with y as well. The result is within some units in the
last place wherever it is normal.
"""

from __future__ import annotations

import math
from typing import Any

from saccade.backends.cpu.codegen import llvm, math64
from saccade.backends.cpu.codegen import math as math32
from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.backends.cpu.codegen.math import absolute, horner
from saccade.backends.cpu.codegen.values import Vec, literal, vector_of

__all__ = ["exp", "log", "power"]

_INF = float("inf")
_ATANH = tuple(1.0 / (2 * n + 1) for n in range(1, 11))  # of s², beyond s: |s| ≤ 0.1716
_EXP2 = tuple(math.log(2.0) ** n / math.factorial(n) for n in range(14))
# 2 / ln 2, and what float64 leaves of it.
_SCALE = 2.8853900817779268
_SCALE_REST = 4.0710547481862066e-17
# 1 / ln 2 and ln 2, and what float64 leaves of them.
_LOG2E = 1.4426950408889634
_LOG2E_REST = 2.0355273740931033e-17
_LN2 = 0.6931471805599453
_LN2_REST = 2.3190468138462996e-17
_ROOT_HALF = 0x3FE6A09E667F3BCD  # bits of √½
_SMALLEST_NORMAL = 2.0**-1022  # float64; below it exponents are no longer in their place
_MAGIC = 1.5 * 2.0**52  # adding it leaves an integer in the low bits
_MAGIC_BITS = 0x4338000000000000  # of it
_FAR = 1100.0  # beyond 2^±1100 all is infinite or zero


def power(k: KernelBuilder, x: Vec, y: Vec) -> Vec:
    """x^y for lanes x ≥ 0 of float32 or float64 and a float64 scalar y other than 0; NaN stays."""
    exponent = k.broadcast(y, x.lanes)
    if _is_short(x):
        return math64.power(k, x, exponent)
    return _power(k, x, exponent)


def exp(k: KernelBuilder, x: Vec) -> Vec:
    """e^x of float32 or float64 lanes; NaN stays."""
    if _is_short(x):
        return math32.exp(k, x)
    finite = absolute(k, x).compare("<", _INF)
    inside = finite.select(x, x.like(0.0))
    product = inside * _LOG2E
    rest = k.fma(inside, inside.like(_LOG2E), -product) + inside * _LOG2E_REST
    special = x.compare("<", 0.0).select(x.like(0.0), x)
    return finite.select(_power_of_two(k, product, rest), special)


def log(k: KernelBuilder, x: Vec) -> Vec:
    """The natural logarithm of float32 or float64 lanes; NaN below 0."""
    if _is_short(x):
        return math32.log(k, x)
    inside = x.compare(">", 0.0) & x.compare("<", _INF)
    high, low = _log2(k, inside.select(x, x.like(1.0)))
    value = k.fma(high, high.like(_LN2), k.fma(high, high.like(_LN2_REST), low * _LN2))
    special = x.compare("<", 0.0).select(x.like(float("nan")), x)  # infinity and NaN
    special = x.compare("==", 0.0).select(x.like(-_INF), special)
    return inside.select(value, special)


def _is_short(x: Vec) -> bool:
    return "float" in str(x.type)


def _power(k: KernelBuilder, x: Vec, y: Vec) -> Vec:
    inside = x.compare(">", 0.0) & x.compare("<", _INF)
    high, low = _log2(k, inside.select(x, x.like(1.0)))
    product = y * high
    value = _power_of_two(k, product, k.fma(y, high, -product) + y * low)
    special = y.compare(">", 0.0).select(x, 1.0 / x)  # of 0, infinity and NaN
    return inside.select(value, special)


def _power_of_two(k: KernelBuilder, product: Vec, rest: Vec) -> Vec:
    """2 to a power in two parts, of any size."""
    near = absolute(k, product).compare("<", _FAR)
    rest = near.select(rest, rest.like(0.0))
    product = k.minimum(k.maximum(product, -_FAR), _FAR)
    whole = k.call("rint", product)
    return _scaled(k, horner(k, (product - whole) + rest, _EXP2), whole)


def _log2(k: KernelBuilder, x: Vec) -> tuple[Vec, Vec]:
    """The logarithm of positive finite lanes, in two parts."""
    m, e = _split(k, x)
    f = m - 1.0
    divisor = f + 2.0
    over = f - (divisor - 2.0)  # what rounding took from the divisor
    s = f / divisor
    rest = (k.fma(-s, divisor, f) - s * over) / divisor
    square = s * s
    rest = k.fma(s * square, horner(k, square, _ATANH), rest)
    product = s * _SCALE
    low = k.fma(s, s.like(_SCALE), -product) + k.fma(s, s.like(_SCALE_REST), rest * _SCALE)
    high = e + product
    low = ((e - high) + product) + low
    total = high + low
    return total, (high - total) + low


def _split(k: KernelBuilder, x: Vec) -> tuple[Vec, Vec]:
    """`x = m · 2^e` with m in [√½, √2), e as a float."""
    kind = vector_of(llvm.I64, x.lanes)
    small = x.compare("<", _SMALLEST_NORMAL)
    scaled = small.select(x * 2.0**54, x)
    i = k.b.sub(k.b.bitcast(scaled.value, kind), literal(kind, _ROOT_HALF))
    fraction = k.b.and_(i, literal(kind, (1 << 52) - 1))
    m = _float(k, k.b.add(fraction, literal(kind, _ROOT_HALF)), x)
    e = k.b.add(k.b.ashr(i, literal(kind, 52)), literal(kind, _MAGIC_BITS))
    exponent = _float(k, e, x) - _MAGIC
    return m, small.select(exponent - 54.0, exponent)


def _scaled(k: KernelBuilder, v: Vec, n: Vec) -> Vec:
    """`v · 2^n`, in two steps: 2^n may be no float64."""
    kind = vector_of(llvm.I64, v.lanes)
    integer = k.b.sub(k.b.bitcast((n + _MAGIC).value, kind), literal(kind, _MAGIC_BITS))
    half = k.b.ashr(integer, literal(kind, 1))
    for part in (half, k.b.sub(integer, half)):
        exponent = k.b.shl(k.b.add(part, literal(kind, 1023)), literal(kind, 52))
        v = v * _float(k, exponent, v)
    return v


def _float(k: KernelBuilder, bits: Any, like: Vec) -> Vec:  # noqa: ANN401
    return Vec(k.b, k.b.bitcast(bits, like.type))
