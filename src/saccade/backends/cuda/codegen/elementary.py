"""Elementary functions in float32, as Triton functions that generated text calls.

Within 4 ulp of the exact value unless said, for NaN, infinities, subnormal and huge operands what
IEEE arithmetic would give. The approximate exponential of the hardware (`tl.exp`) loses |x| / 2
ulp on the way to it, which only `sigmoid` and `silu`, the gates of whole networks, put up with.

Nothing here depends on whether a product and a sum are fused: the compiler fuses, the interpreter
does not. Coefficients are least-squares fits, reweighted to the least maximum, of the error
relative to the result.
"""

import triton
import triton.language as tl

# Ln 2; the high part has 10 bits, so that its products with exponents are exact.
_LOG2E = tl.constexpr(1.4426950408889634)
_LN2_HIGH = tl.constexpr(0.693359375)
_LN2_LOW = tl.constexpr(-2.12194440054690583e-4)
_MAGIC = tl.constexpr(12582912.0)  # 1.5 · 2^23: adding it rounds to an integer


@triton.jit
def is_nan(x):
    return x != x  # noqa: PLR0124


@triton.jit
def minimum(x, y):
    """NaN if either is."""
    return tl.minimum(x, y, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def maximum(x, y):
    """NaN if either is."""
    return tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def clip(x, low, high):
    """An empty range gives `high`."""
    return minimum(maximum(x, low), high)


@triton.jit
def relu(x):
    """NaN stays NaN."""
    return maximum(x, 0.0)


@triton.jit
def leaky_relu(x, slope):
    return tl.where(x < 0, slope * x, x)


@triton.jit
def sign(x):
    """Zeros and NaN stay."""
    return tl.where(x > 0, 1.0, tl.where(x < 0, -1.0, x))


@triton.jit
def round_even(x):
    """To the nearest integer, halves to even."""
    size = tl.abs(x)
    rounded = (size + 8388608.0) - 8388608.0  # 2^23: from there on all are integers
    rounded = tl.where(x < 0, -rounded, rounded)
    # Zeros keep their sign.
    return tl.where((size < 8388608.0) & (x != 0), rounded, x)


@triton.jit
def _power_of_two(n):
    """2^n for integral n in [-126, 127]."""
    return ((n.to(tl.int32) + 127) << 23).to(tl.float32, bitcast=True)


@triton.jit
def _exp_parts(x):
    """`e^x = a · b · (1 + p)`: a and b powers of two. Huge operands saturate, NaN stays in p."""
    # Beyond, the result is 0 or infinite all the same, and n is the sum of two exponents.
    x = clip(x, -104.5, 89.5)
    n = (x * _LOG2E + _MAGIC) - _MAGIC
    # What NaN is as an integer is not defined; r has it, and so p.
    n = tl.where(is_nan(n), 0.0, n)
    r = (x - n * _LN2_HIGH) - n * _LN2_LOW
    p = 0.00836878869 + r * 0.00138144331
    p = 0.166665200 + r * (0.0416683958 + r * p)
    p = r + r * r * (0.499999934 + r * p)
    half = tl.floor(n * 0.5)  # in two steps: 2^n may be no float32
    return _power_of_two(half), _power_of_two(n - half), p


@triton.jit
def exp(x):
    a, b, p = _exp_parts(x)
    return (1.0 + p) * a * b


@triton.jit
def expm1(x):
    """`e^x - 1` for x ≤ 88, exact to the last bits also near 0; infinite or NaN above."""
    a, b, p = _exp_parts(x)
    power = a * b
    # Near 0 the power is 1 and p the result, which 1 + p would round. Zeros keep their sign.
    return tl.where(x == 0, x, power * p + (power - 1.0))


@triton.jit
def elu(x, alpha):
    return tl.where(x < 0, alpha * expm1(minimum(x, 0.0)), x)


@triton.jit
def sigmoid(x):
    """Within 4 ulp above 0, |x| / 2 more below; 0 below -87."""
    # Five instructions, where `tl.exp` and `/` also scale what may be subnormal: here it is 1 or 0.
    power = tl.inline_asm_elementwise(
        "ex2.approx.ftz.f32 $0, $1;", "=f,f", [x * -_LOG2E], tl.float32, is_pure=True, pack=1
    )
    return tl.inline_asm_elementwise(
        "rcp.approx.ftz.f32 $0, $1;", "=f,f", [1.0 + power], tl.float32, is_pure=True, pack=1
    )


@triton.jit
def silu(x):
    """As exact as `sigmoid`."""
    return x * sigmoid(x)


@triton.jit
def tanh(x):
    size = tl.abs(x)
    z = x * x
    near = -0.0537491217 + z * (0.0206714869 + z * -0.00574301137)
    near = x + x * z * (-0.333332866 + z * (0.133315489 + z * near))
    # Exact enough further out only: near 0 the difference cancels.
    far = 1.0 - 2.0 / (1.0 + tl.exp(2.0 * size))
    return tl.where(size < 0.62, near, tl.where(x < 0, -far, far))


@triton.jit
def gelu(x):
    """`x · Φ(x)`, to 2 ulp of x.

    Below 0 Φ is `2^R(|x|)`, one exponential of a polynomial that is fitted to 6e-8 of Φ, so that it
    costs a third of what an error function does: it stands in the epilogues of transformers.
    """
    size = tl.abs(x)
    r = 1.41190436e-05 + size * -8.16834756e-07
    r = -4.38326131e-04 + size * (-6.25546506e-05 + size * r)
    r = -5.27538366e-02 + size * (7.45128819e-03 + size * r)
    r = -1.15111418 + size * (-0.459128377 + size * r)
    tail = tl.exp2(-0.999999834 + size * r)
    return x * tl.where(x < 0, tail, 1.0 - tail)


@triton.jit
def gelu_rounded(x):
    """`gelu` for results of 16 bits: Φ within 1.3e-4 of itself above -4.75, within 1e-8 below.

    Of -∞ it is 0, the limit. The fewest instructions: an epilogue has registers for few elements at
    a time, whose steps wait for each other.
    """
    size = tl.minimum(tl.abs(x), 16.0)
    r = 0.00551873678 + size * -0.000290302094
    r = -0.465660751 + size * (-0.047149051 + size * r)
    r = -1.00017703 + size * (-1.14842975 + size * r)
    tail = tl.inline_asm_elementwise(
        "ex2.approx.ftz.f32 $0, $1;", "=f,f", [r], tl.float32, is_pure=True, pack=1
    )
    return maximum(x, 0.0) - size * tail


@triton.jit
def softplus(x):
    """`log(1 + e^x)`."""
    # Of what is never positive, so that it cannot overflow.
    small = exp(-tl.abs(x))
    near = 1.0 + small
    # What rounding took from 1 + small is put back as a factor.
    rest = near - 1.0
    log1p = tl.where(rest == 0, small, tl.log(near) * tl.div_rn(small, rest))
    return maximum(x, 0.0) + log1p


@triton.jit
def mish(x):
    """`x · tanh(softplus(x))`: with u = e^x the second factor is u (u + 2) / (u (u + 2) + 2)."""
    u = exp(tl.where(x > 20.0, 20.0, x))  # beyond, the quotient is 1
    n = u * (u + 2.0)
    return x * (n / (n + 2.0))


@triton.jit
def softsign(x):
    return tl.div_rn(x, 1.0 + tl.abs(x))


@triton.jit
def hard_sigmoid(x, alpha, beta):
    return clip(alpha * x + beta, 0.0, 1.0)


@triton.jit
def hardswish(x):
    return x * clip(x * 0.16666666666666666 + 0.5, 0.0, 1.0)


@triton.jit
def power(x, y):
    """`x^y` with the special cases of C's `pow`, through float64."""
    size = tl.abs(x)
    value = tl.exp2(y.to(tl.float64) * tl.log2(size.to(tl.float64))).to(tl.float32)
    integer = tl.floor(y) == y
    odd = integer & (tl.floor(y * 0.5) != y * 0.5)
    negative = (x < 0) | ((x == 0) & (1.0 / x < 0))  # the second of -0
    infinite = tl.abs(y) == float("inf")
    value = tl.where(negative & odd, -value, value)
    # Of minus infinity C has any power, of other negative numbers integral ones only.
    undefined = (x < 0) & (size != float("inf")) & (is_nan(y) == 0) & (integer == 0)
    value = tl.where(undefined, float("nan"), value)
    # 1 to any power and anything to the power 0 are 1, NaN included; so is -1 to an infinite one.
    one = (x == 1.0) | (y == 0.0) | ((x == -1.0) & infinite)
    return tl.where(one, 1.0, value)


@triton.jit
def fmod(x, y):
    """Remainder with the sign of x, exact (C's `fmod`)."""
    a = tl.abs(x).to(tl.float64)
    b = tl.abs(y).to(tl.float64)
    r = a
    # Quotients have up to 278 bits. Each step takes 27 of them off, so that the product is exact;
    # where the quotient was rounded up the rest is negative, less than the divisor.
    for _ in range(11):
        q = r / b
        q = (q.to(tl.int64, bitcast=True) & -33554432).to(tl.float64, bitcast=True)
        # From 2^27 on, what the mask has left of it is an integer.
        q = tl.where(tl.abs(q) < 1.0, 0.0, tl.where(q < 134217728.0, tl.floor(q), q))
        r = r - q * b
    r = tl.where(r < 0, r + b, r)
    infinity = float("inf")
    # 0 times infinity, which was subtracted, is NaN.
    r = tl.where((b == infinity) & (a < infinity), a, r).to(tl.float32)
    return tl.where(x < 0, -r, r)


@triton.jit
def mod(x, y):
    """Remainder with the sign of y (Python's `%`)."""
    r = fmod(x, y)
    return tl.where(((r < 0) & (y > 0)) | ((r > 0) & (y < 0)), r + y, r)


@triton.jit
def integer_div(x, y):
    """Quotient rounded towards zero, 0 where the divisor is."""
    # Every element is divided, whichever of the two is chosen: by 0 the result is not defined.
    return tl.where(y == 0, 0, x // tl.where(y == 0, 1, y))


@triton.jit
def integer_fmod(x, y):
    """Remainder with the sign of x, 0 where the divisor is."""
    return tl.where(y == 0, 0, x % tl.where(y == 0, 1, y))


@triton.jit
def integer_mod(x, y):
    """Remainder with the sign of y, 0 where the divisor is."""
    r = integer_fmod(x, y)
    return tl.where((r != 0) & ((r < 0) != (y < 0)), r + y, r)


@triton.jit
def shift_left(x, y):
    """0 where `y` is negative or at least as many as there are bits."""
    bits = x.dtype.primitive_bitwidth
    # Shifts by as many bits as there are, or more, are not defined: elements shift by 0 then.
    there = (y >= 0) & (y < bits)
    return tl.where(there, x << tl.where(there, y, 0), 0).to(x.dtype)


@triton.jit
def shift_right(x, y):
    """The sign alone, or 0 without one, where `y` is negative or at least as many as bits."""
    bits = x.dtype.primitive_bitwidth
    there = (y >= 0) & (y < bits)
    fill = tl.where(x < 0, -1, 0)
    return tl.where(there, x >> tl.where(there, y, 0), fill).to(x.dtype)


@triton.jit
def integer_sign(x):
    return tl.where(x > 0, 1, 0).to(x.dtype) - tl.where(x < 0, 1, 0).to(x.dtype)
