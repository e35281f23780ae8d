"""Products of float32 by units for float16: each number is the sum of two, on a tensor's scale.

The larger part is what float16 keeps of a number (11 bits), on a scale that brings the largest of
the tensor just below 2^15; the smaller is what is left, 2^11 times. Together they hold 22 bits of
whatever is above 2^-28 of the largest. Of each product of sums the one of the two smaller parts is
left out. Source: Ootomo and Yokota, "Recovering single precision accuracy from Tensor Cores".
"""

import triton
import triton.language as tl


@triton.jit
def cleared(slots, extra, BLOCK: tl.constexpr):
    """Slots of nothing."""
    tl.store(slots + tl.arange(0, BLOCK), tl.zeros((BLOCK,), tl.int32))


@triton.jit
def _largest_of(x, slot, block, number, n_1, n_2, n_3, x_0, x_1, x_2, x_3, BLOCK: tl.constexpr):
    at = block * BLOCK + tl.arange(0, BLOCK)
    places = at % n_3 * x_3 + at // n_3 % n_2 * x_2 + at // (n_3 * n_2) % n_1 * x_1
    places += at // (n_3 * n_2 * n_1) * x_0
    value = tl.load(x + places, mask=at < number, other=0).to(tl.float32)
    bits = tl.abs(value).to(tl.int32, bitcast=True)
    tl.atomic_max(slot, tl.max(tl.where(bits < 0x7F800000, bits, 0), 0), sem="relaxed")


@triton.jit
def largest(
    x, mask, w, grad, slots, extra,
    x_number, x_1, x_2, x_3, x_s0, x_s1, x_s2, x_s3, m_number, m_1, m_2, m_3, m_s0, m_s1, m_s2,
    m_s3, w_number, w_1, w_2, w_3, w_s0, w_s1, w_s2, w_s3, g_number, g_1, g_2, g_3, g_s0, g_s1,
    g_s2, g_s3, BLOCK: tl.constexpr,
):  # fmt: skip
    """The largest finite number of each of four [.., size 1, size 2, size 3], as bits, to slots."""
    of_x, of_mask = tl.cdiv(x_number, BLOCK), tl.cdiv(m_number, BLOCK)
    of_w = tl.cdiv(w_number, BLOCK)
    block = tl.program_id(0)
    if block < of_x:
        _largest_of(x, slots, block, x_number, x_1, x_2, x_3, x_s0, x_s1, x_s2, x_s3, BLOCK)
    elif block < of_x + of_mask:
        _largest_of(
            mask, slots + 1, block - of_x, m_number, m_1, m_2, m_3, m_s0, m_s1, m_s2, m_s3, BLOCK
        )
    elif block < of_x + of_mask + of_w:
        block -= of_x + of_mask
        _largest_of(w, slots + 2, block, w_number, w_1, w_2, w_3, w_s0, w_s1, w_s2, w_s3, BLOCK)
    else:
        block -= of_x + of_mask + of_w
        _largest_of(grad, slots + 3, block, g_number, g_1, g_2, g_3, g_s0, g_s1, g_s2, g_s3, BLOCK)


@triton.jit
def exponent_of(slots, slot):
    """E, where the largest number is less than 2^e; what is smaller than 2^-100 counts as that."""
    return tl.maximum((tl.load(slots + slot) >> 23) - 126, -100)


@triton.jit
def exponent_of_samples(slots, MASK: tl.constexpr):
    """The same of pixels between those of slot 0, times masks of slot 1 where there are any."""
    found = exponent_of(slots, 0)
    if MASK:
        found += exponent_of(slots, 1)
    return tl.minimum(tl.maximum(found, -100), 128)


@triton.jit
def power(exponent):
    """2^exponent, from -126 to 127."""
    return ((exponent + 127) << 23).to(tl.float32, bitcast=True)


@triton.jit
def raised(value, exponent):
    """Value times 2^exponent, where neither of two steps leaves float32 before the result does."""
    half = exponent >> 1
    return value * power(half) * power(exponent - half)


@triton.jit
def split(value, exponent):
    """The two parts of numbers below 2^exponent; the smaller of what is not finite is 0."""
    scaled = value * power(15 - exponent)
    high = scaled.to(tl.float16)
    rest = (scaled - high.to(tl.float32)) * 2048.0
    return high, tl.where(rest == rest, rest, 0.0).to(tl.float16)  # noqa: PLR0124 - NaN


@triton.jit
def store_parts(at, plane, value, exponent, mask, PARTS: tl.constexpr):
    """One part or both, `plane` elements apart."""
    high, low = split(value, exponent)
    tl.store(at, high, mask=mask)
    if PARTS == 2:
        tl.store(at + plane, low, mask=mask)


@triton.jit
def load_parts(at, plane, mask, PARTS: tl.constexpr):
    """Both parts; twice the same where there is one."""
    high = tl.load(at, mask=mask, other=0.0)
    low = high
    if PARTS == 2:
        low = tl.load(at + plane, mask=mask, other=0.0)
    return high, low


@triton.jit
def multiply(
    a, a_low, b, b_low, whole, rest,
    PARTS: tl.constexpr, PRECISION: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """On top of two sums: products of the larger parts, and of a larger with a smaller one."""
    if PARTS == 2:
        rest = tl.dot(a, b_low, rest)
        rest = tl.dot(a_low, b, rest)
    whole = tl.dot(a, b, whole, input_precision=PRECISION, out_dtype=WIDE)
    return whole, rest


@triton.jit
def together(whole, rest):
    """What both sums are of: all of what is not finite is in the larger one."""
    return whole + tl.where((rest - rest) == 0, rest, 0.0) * (1.0 / 2048.0)
