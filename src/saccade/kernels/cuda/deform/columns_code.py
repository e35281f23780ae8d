"""Deformable convolution by its columns: samples of some images, then their product with weights.

Columns are [pixel, group, tap, channel of the group], the weights [tap, output, channel].
"""

import triton
import triton.language as tl

from saccade.kernels.cuda.deform.gradient_copies_code import upper
from saccade.kernels.cuda.deform.implicit_gemm_code import load_wide, pixel_of, square


@triton.jit
def sampled(
    x, offset, mask, kept, extra,
    pixels, first_image, x_image, p, q, h, wd, offset_groups, shared, segment, c, x_n, x_h, x_w,
    o_n, o_c, o_p, o_q, m_n, m_c, m_p, m_q,
    R: tl.constexpr, S: tl.constexpr, STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr,
    DILATION_H: tl.constexpr, DILATION_W: tl.constexpr, PAD_T: tl.constexpr, PAD_L: tl.constexpr,
    MASK: tl.constexpr, DOUBLE: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """The columns of some pixels for one tap: all channels that share an offset.

    Channels come in segments that lie in one group. Images of x, whose channels are neighbours,
    begin with `x_image`.
    """
    WIDE: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    tiles = tl.cdiv(pixels, BP)
    pid = tl.program_id(0)
    row = pid % tiles * BP + tl.arange(0, BP)
    own = pid // tiles  # offset group and tap
    tap = own % (R * S)
    there = row < pixels
    local = row // (p * q)
    out_p = row // q % p
    out_q = row % q
    image = first_image + local
    offsets = offset + image * o_n + out_p * o_p + out_q * o_q + 2 * own * o_c
    at_y = (out_p * STRIDE_H - PAD_T + tap // S * DILATION_H).to(WIDE)
    at_x = (out_q * STRIDE_W - PAD_L + tap % S * DILATION_W).to(WIDE)
    at_y += load_wide(offsets, there, 0, DOUBLE)
    at_x += load_wide(offsets + o_c, there, 0, DOUBLE)
    (
        top, left, has_top, has_bottom, upper_left, upper_right, lower_left, lower_right
    ) = square(at_y, at_x, there, h, wd)  # fmt: skip
    corner = (x_image + local) * x_n + top * x_h + left * x_w
    has_left = left >= 0
    has_right = left + 1 < wd
    if MASK:
        masks = mask + image * m_n + out_p * m_p + out_q * m_q + own * m_c
        factor = load_wide(masks, there, 0, DOUBLE)
    lane = tl.arange(0, BC)
    width = offset_groups * shared * (R * S)
    begin = own // (R * S) * shared
    for start in range(begin, begin + shared, segment):
        to = kept + start // c * (R * S) * c + tap * c + start % c
        for first in range(0, segment, BC):
            known = first + lane < segment
            channel = start + first + lane
            a = pixel_of(x, corner, has_top & has_left, upper_left, channel, known, True, DOUBLE)
            a += pixel_of(
                x, corner + x_w, has_top & has_right, upper_right, channel, known, True, DOUBLE
            )
            a += pixel_of(
                x, corner + x_h, has_bottom & has_left, lower_left, channel, known, True, DOUBLE
            )
            a += pixel_of(
                x, corner + x_h + x_w, has_bottom & has_right, lower_right, channel, known, True,
                DOUBLE,
            )  # fmt: skip
            if MASK:
                a *= factor[:, None]
            at = row[:, None].to(tl.int64) * width + (first + lane)[None, :]
            stored = there[:, None] & known[None, :]
            tl.store(to + at, a.to(kept.dtype.element_ty), mask=stored)


@triton.jit
def _operands(line, w, tap, channel, c, col, outputs, row_mask, col_mask):
    """Columns [pixels, channels] and weights [outputs, channels] of a tap; where these are."""
    known = channel < c
    a = tl.load(
        line + (tap * c + channel)[None, :], mask=row_mask[:, None] & known[None, :], other=0.0
    )
    there = col_mask[:, None] & known[None, :]
    weights = w + (tap * outputs + col)[:, None] * c + channel[None, :]
    return a, tl.load(weights, mask=there, other=0.0), there, weights


@triton.jit
def multiplied(
    kept, w, bias, y, extra,
    pixels, first_image, p, q, groups, c, k, b_k, y_n, y_k, y_p, y_q,
    TAPS: tl.constexpr, PRECISION: tl.constexpr, BIAS: tl.constexpr, UNIT: tl.constexpr,
    DOUBLE: tl.constexpr, SPLIT: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr,
):  # fmt: skip
    """A block of pixels and of a group's k outputs.

    SPLIT: float32 is the sum of two numbers of TF32, whose products are made but for that of the
    smaller ones; weights are there in both parts, one behind the other.
    """
    WIDE: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    blocks = tl.cdiv(k, BN)
    pid = tl.program_id(0)
    group = pid // blocks % groups
    row = pid // (blocks * groups) * BM + tl.arange(0, BM)
    col = pid % blocks * BN + tl.arange(0, BN)
    row_mask = row < pixels
    col_mask = col < k
    col += group * k
    lane = tl.arange(0, BK)
    line = kept + row.to(tl.int64)[:, None] * (groups * TAPS * c) + group * TAPS * c
    steps = tl.cdiv(c, BK)
    acc = tl.zeros((BM, BN), WIDE)
    if SPLIT:
        # Matrix units cut sums off: those of a tap are added up by themselves.
        for tap in range(TAPS):
            whole = tl.zeros((BM, BN), tl.float32)
            rest = tl.zeros((BM, BN), tl.float32)
            for first in range(0, c, BK):
                channel = first + lane
                a, b, there, weights = _operands(
                    line, w, tap, channel, c, col, groups * k, row_mask, col_mask
                )
                low = tl.load(weights + TAPS * groups * k * c, mask=there, other=0.0)
                high = upper(a)
                rest = tl.dot(a - high, tl.trans(b), rest, input_precision="tf32")
                rest = tl.dot(high, tl.trans(low), rest, input_precision="tf32")
                whole = tl.dot(high, tl.trans(b), whole, input_precision="tf32")
            # Infinities less themselves are no part of a sum.
            acc += whole + tl.where(rest == rest, rest, 0.0)  # noqa: PLR0124
    else:
        for step in range(0, TAPS * steps):
            channel = step % steps * BK + lane
            a, b, _, _ = _operands(
                line, w, step // steps, channel, c, col, groups * k, row_mask, col_mask
            )
            acc = tl.dot(a, tl.trans(b), acc, input_precision=PRECISION, out_dtype=WIDE)
    if BIAS:
        acc += load_wide(bias + col * b_k, col_mask, 0, DOUBLE)[None, :]
    image = first_image + row // (p * q)
    place = image * y_n + row // q % p * y_p + row % q * y_q
    at = place[:, None] + (col * (1 if UNIT else y_k))[None, :]
    tl.store(y + at, acc.to(y.dtype.element_ty), mask=row_mask[:, None] & col_mask[None, :])
