"""Elementary functions on float32 vectors, emitted inline.

Each is at most 4 ulp from the exact value
(tests/codegen/test_math.py holds every one of them against float64), and gives what IEEE arithmetic
would for NaN, infinities, subnormal and huge operands. No tables, no branches, no calls, so that
they work on any number of lanes and LLVM schedules them freely. Those that need more than float32
on the way are in `math64`, sigmoid and silu in `gates`.

Coefficients are minimax fits (Lawson's weighted least squares on Chebyshev nodes) of the error
relative to the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from saccade.backends.cpu.codegen import llvm
from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.backends.cpu.codegen.values import Mask, Vec, literal, vector_of

__all__ = [
    "absolute",
    "copysign",
    "erf",
    "exp",
    "expm1",
    "float_from",
    "gelu",
    "horner",
    "int_constant",
    "log",
    "mish",
    "round_even",
    "scale_by_power",
    "softplus",
    "split_exponent",
    "sqrt",
    "tanh",
]

_LOG2E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = (
    0.693359375,
    -2.12194440054690583e-4,
)  # the high part has 10 bits: n · it is exact
_MAGIC = (
    12582912.0  # 1.5 · 2^23: adding it rounds to an integer and leaves that integer in the low bits
)
_MAGIC_BITS = 0x4B400000  # of it
# (e^r - 1 - r) / r² in powers of r, |r| ≤ ln 2 / 2
_EXP = (
    0.4999999340342120,
    0.1666651997342679,
    0.0416683957960417,
    0.0083687966884030,
    0.0013814433141641,
)
# (log(1 + r) - r + r²/2) / r³ in powers of r, 1 + r from √½ to √2
_LOG = (
    0.3333331260405858, -0.2500000959941426, 0.2000211865906503, -0.1666799585318083,
    0.1421955235490138, -0.1240558893143887, 0.1188816232374400, -0.1167565176773712,
    0.0674664032242240,
)  # fmt: skip
# erf after N. Juffa: x + x · P(x²) near 0, 1 - exp(Q(|x|)) beyond 475/512.
_ERF_NEAR = (
    1.28379166e-1, -3.76125336e-1, 1.12819925e-1, -2.67681349e-2, 4.99119423e-3, -5.96761703e-4,
)  # fmt: skip
_ERF_FAR = (
    -1.28717512e-1, -6.34846687e-1, -1.06777877e-1, 2.42546219e-2, -3.88396438e-3, 3.83197126e-4,
    -1.72853470e-5,
)  # fmt: skip

# erf(x/√2) = x · P(x²) / Q(x²) within 1.5e-8 for |x| ≤ 5.5, where the quotient is exactly 1.
_GELU_END = 5.5
_GELU_ABOVE = (
    0.7978844692406397, 0.06770555244914701, 0.009354538117889704, 3.3765410176454585e-4,
    1.27042648917637e-5, 4.549867475160076e-8,
)  # fmt: skip
_GELU_BELOW = (
    1.0, 0.25152224434547277, 0.028645947026815638, 1.8844525951827416e-3, 7.36479707588579e-5,
    1.1975041909824302e-6,
)  # fmt: skip


def _int_type(v: Vec) -> Any:  # noqa: ANN401
    return vector_of(llvm.I32, v.lanes)


def int_constant(v: Vec, value: int) -> Any:  # noqa: ANN401
    """A 32-bit integer in as many lanes as `v` has."""
    return literal(_int_type(v), value)


def bits(k: KernelBuilder, v: Vec) -> Any:  # noqa: ANN401
    """The bits of float32 lanes as 32-bit integers."""
    return k.b.bitcast(v.value, _int_type(v))


def float_from(k: KernelBuilder, integers: Any) -> Vec:  # noqa: ANN401
    """Float32 lanes from their bits."""
    kind = vector_of(llvm.ir.FloatType(), getattr(integers.type, "count", 1))
    return Vec(k.b, k.b.bitcast(integers, kind))


def horner(k: KernelBuilder, x: Vec, coefficients: Sequence[float]) -> Vec:
    """`c[0] + c[1] x + c[2] x² …` by fused multiply-adds."""
    total = x.like(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        total = k.fma(total, x, x.like(c))
    return total


def absolute(k: KernelBuilder, x: Vec) -> Vec:
    """|x|."""
    return k.call("fabs", x)


def copysign(k: KernelBuilder, magnitude: Vec, sign: Vec) -> Vec:
    """`magnitude` with the sign bit of `sign`."""
    return k.call("copysign", magnitude, sign)


def sqrt(k: KernelBuilder, x: Vec) -> Vec:
    """Correctly rounded square root."""
    return k.call("sqrt", x)


def round_even(k: KernelBuilder, x: Vec) -> Vec:
    """To the nearest integer, halves to even."""
    return k.call("rint", x)


def is_nan(x: Vec) -> Mask:
    """Lanes that are NaN."""
    return x.compare("!=", x)


# Exponentials


def _reduce(k: KernelBuilder, x: Vec) -> tuple[Vec, Vec, Vec]:
    """`x = n ln 2 + r`, |r| ≤ ln 2 / 2: n + magic, n, r. Huge operands saturate."""
    x = k.minimum(k.maximum(x, -104.5), 89.5)
    shifted = k.fma(x, x.like(_LOG2E), x.like(_MAGIC))
    n = shifted - _MAGIC
    r = k.fma(n, n.like(-_LN2_HIGH), x)
    return shifted, n, k.fma(n, n.like(-_LN2_LOW), r)


def _exp_minus_one(k: KernelBuilder, r: Vec) -> Vec:
    """exp(r) - 1 for |r| ≤ ln 2 / 2."""
    return k.fma(r * r, horner(k, r, _EXP), r)


def _has_scalef(k: KernelBuilder, v: Vec) -> bool:
    return k.target.vector_isa == "avx512" and v.lanes % 8 == 0


def _scalef(k: KernelBuilder, p: Vec, n: Vec) -> Vec:
    """AVX-512's `p · 2^n`, correctly rounded also where the result is subnormal."""
    if p.lanes > k.lanes:
        parts = zip(k.split(p, k.lanes), k.split(n, k.lanes), strict=True)
        return k.concat([_scalef(k, *part) for part in parts])
    width = 32 * p.lanes
    mask = llvm.ir.IntType(p.lanes)
    kinds = [p.type, p.type, p.type, mask]
    operands = [p.value, n.value, p.value, llvm.ir.Constant(mask, -1)]
    if width == 512:  # the widest form also takes a rounding mode: 4 is the current one
        kinds.append(llvm.I32)
        operands.append(llvm.ir.Constant(llvm.I32, 4))
    name = f"llvm.x86.avx512.mask.scalef.ps.{width}"
    known = k.module.globals.get(name)
    function = known or llvm.ir.Function(k.module, llvm.ir.FunctionType(p.type, kinds), name)
    return Vec(k.b, k.b.call(function, operands))


def scale_by_power(k: KernelBuilder, p: Vec, n: Vec) -> Vec:
    """`p · 2^n` for an integral n in [-252, 254]."""
    if _has_scalef(k, p):
        return _scalef(k, p, n)
    return _scale_by_bits(k, p, n + _MAGIC)


def _scale_by_bits(k: KernelBuilder, p: Vec, shifted: Vec) -> Vec:
    """`p · 2^n`, n in the low bits of `shifted`; in two steps: 2^n may be no float32."""
    n = k.b.sub(bits(k, shifted), int_constant(p, _MAGIC_BITS))
    half = k.b.ashr(n, int_constant(p, 1))
    for part in (half, k.b.sub(n, half)):
        exponent = k.b.shl(k.b.add(part, int_constant(p, 127)), int_constant(p, 23))
        p = p * float_from(k, exponent)
    return p


def exp(k: KernelBuilder, x: Vec) -> Vec:
    """e^x."""
    shifted, n, r = _reduce(k, x)
    p = _exp_minus_one(k, r) + 1.0
    return _scalef(k, p, n) if _has_scalef(k, p) else _scale_by_bits(k, p, shifted)


def expm1(k: KernelBuilder, x: Vec) -> Vec:
    """e^x - 1, exact to the last bits also near 0, for x ≤ 88 (infinite above)."""
    shifted, n, r = _reduce(k, x)
    p = _exp_minus_one(k, r)
    one = p.like(1.0)
    power = _scalef(k, one, n) if _has_scalef(k, p) else _scale_by_bits(k, one, shifted)
    return k.fma(power, p, power - 1.0)


def tanh(k: KernelBuilder, x: Vec) -> Vec:
    """Hyperbolic tangent."""
    t = k.minimum(absolute(k, x), 10.0)
    e = expm1(k, t + t)
    return copysign(k, e / (e + 2.0), x)


# Logarithms


def split_exponent(k: KernelBuilder, x: Vec) -> tuple[Vec, Vec]:
    """`x = m · 2^e` with m in [√½, √2), for positive finite x; e as a float."""
    small = x.compare("<", 1.17549435e-38)
    scaled = small.select(x * 8388608.0, x)
    i = k.b.sub(bits(k, scaled), int_constant(x, 0x3F3504F3))
    e = Vec(k.b, k.b.sitofp(k.b.ashr(i, int_constant(x, 23)), x.type))
    fraction = k.b.and_(i, int_constant(x, 0x7FFFFF))
    m = float_from(k, k.b.add(fraction, int_constant(x, 0x3F3504F3)))
    return m, small.select(e - 23.0, e)


def _log_reduced(k: KernelBuilder, f: Vec, e: Vec) -> Vec:
    """`log(1 + f) + e ln 2` for 1 + f in [√½, √2)."""
    square = f * f
    tail = k.fma(square * f, horner(k, f, _LOG), square * -0.5)
    tail = k.fma(e, e.like(_LN2_LOW), tail)
    return k.fma(e, e.like(_LN2_HIGH), tail + f)


def log(k: KernelBuilder, x: Vec) -> Vec:
    """Natural logarithm; -inf at 0, NaN below."""
    m, e = split_exponent(k, x)
    value = _log_reduced(k, m - 1.0, e)
    infinity = float("inf")
    value = x.compare("<", infinity).select(value, x)  # +inf and NaN stay
    value = x.compare("==", 0.0).select(x.like(-infinity), value)
    return x.compare("<", 0.0).select(x.like(float("nan")), value)


def _log1p_unit(k: KernelBuilder, u: Vec) -> Vec:
    """log(1 + u) for u in [0, 1]."""
    upper = u.compare(">", 0.41421354)
    f = upper.select(u * 0.5 - 0.5, u)
    return _log_reduced(k, f, upper.select(u.like(1.0), u.like(0.0)))


def softplus(k: KernelBuilder, x: Vec) -> Vec:
    """log(1 + e^x)."""
    small = exp(k, -absolute(k, x))
    return k.maximum(x, 0.0) + _log1p_unit(k, small)


def mish(k: KernelBuilder, x: Vec) -> Vec:
    """X · tanh(softplus(x)): with u = e^x, tanh(log(1 + u)) = u (u + 2) / (u (u + 2) + 2)."""
    u = exp(k, k.minimum(x, 20.0))  # beyond, the quotient is 1
    n = u * (u + 2.0)
    return x * (n / (n + 2.0))


def erf(k: KernelBuilder, x: Vec) -> Vec:
    """Error function."""
    t = k.minimum(absolute(k, x), 4.0)  # erf(4) rounds to 1
    near = k.fma(horner(k, x * x, _ERF_NEAR), x, x)
    exponent = k.fma(horner(k, t, _ERF_FAR), t, -t)
    far = copysign(k, 1.0 - exp(k, exponent), x)
    return t.compare(">", 0.927734375).select(far, near)


def gelu(k: KernelBuilder, x: Vec) -> Vec:
    """X · Φ(x), Φ within 1.5 · 2^-23, in a third of the operations that `erf` takes."""
    t = k.minimum(k.maximum(x, -_GELU_END), _GELU_END)
    square, half = t * t, x * 0.5
    quotient = t * horner(k, square, _GELU_ABOVE) / horner(k, square, _GELU_BELOW)
    return k.fma(half, quotient, half)
