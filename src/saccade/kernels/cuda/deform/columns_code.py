"""Deformable convolution by its columns: samples of some images, then their product with weights.

Columns are [pixel, tap, channel], the weights [tap, output, channel of a group]. Where there are
PARTS, products of float32 are those of `half_products_code`.
"""

import triton
import triton.language as tl

from saccade.kernels.cuda.deform.half_products_code import (
    exponent_of,
    exponent_of_samples,
    load_parts,
    multiply,
    raised,
    store_parts,
    together,
)
from saccade.kernels.cuda.deform.implicit_gemm_code import load_wide, pixel_of, square


@triton.jit
def sampled(
    x, offset, mask, slots, kept, extra,
    pixels, first_image, x_image, p, q, h, wd, offset_groups, shared, first_channel, channels,
    plane, x_n, x_h, x_w, o_n, o_c, o_p, o_q, m_n, m_c, m_p, m_q,
    R: tl.constexpr, S: tl.constexpr, STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr,
    DILATION_H: tl.constexpr, DILATION_W: tl.constexpr, PAD_T: tl.constexpr, PAD_L: tl.constexpr,
    MASK: tl.constexpr, DOUBLE: tl.constexpr, PARTS: tl.constexpr,
    BP: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """The columns of some pixels for one tap: `channels` that share an offset.

    Of each offset group those from `first_channel` on. Images of x, whose channels are neighbours,
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
    if PARTS > 0:
        exponent = exponent_of_samples(slots, MASK)
    begin = own // (R * S) * shared + first_channel
    to = kept + own // (R * S) * channels
    line = (row.to(tl.int64) * (R * S) + tap) * (offset_groups * channels)
    for first in range(0, channels, BC):
        lane = first + tl.arange(0, BC)
        known = lane < channels
        channel = begin + lane
        a = pixel_of(x, corner, has_top & has_left, upper_left, channel, known, True, DOUBLE)
        a += pixel_of(
            x, corner + x_w, has_top & has_right, upper_right, channel, known, True, DOUBLE
        )
        a += pixel_of(
            x, corner + x_h, has_bottom & has_left, lower_left, channel, known, True, DOUBLE
        )
        a += pixel_of(
            x, corner + x_h + x_w, has_bottom & has_right, lower_right, channel, known, True, DOUBLE
        )
        if MASK:
            a *= factor[:, None]
        at = to + (line[:, None] + lane[None, :])
        stored = there[:, None] & known[None, :]
        if PARTS > 0:
            store_parts(at, plane, a, exponent, stored, PARTS)
        else:
            tl.store(at, a.to(kept.dtype.element_ty), mask=stored)


@triton.jit
def _forward_step(
    step, line, w, plane, w_plane, wide, c, col, outputs, row_mask, col_mask, whole, rest,
    PARTS: tl.constexpr, PRECISION: tl.constexpr, WIDE: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Columns [pixels, channels] times weights [outputs, channels] of a tap."""
    steps = tl.cdiv(c, BK)
    tap = step // steps
    channel = step % steps * BK + tl.arange(0, BK)
    known = channel < c
    a, a_low = load_parts(
        line + (tap * wide + channel)[None, :], plane, row_mask[:, None] & known[None, :], PARTS
    )
    weights = w + (tap * outputs + col)[:, None] * c + channel[None, :]
    b, b_low = load_parts(weights, w_plane, col_mask[:, None] & known[None, :], PARTS)
    return multiply(a, a_low, tl.trans(b), tl.trans(b_low), whole, rest, PARTS, PRECISION, WIDE)


@triton.jit
def multiplied(
    kept, w, slots, parts, extra,
    pixels, groups, c, k, splits, plane,
    TAPS: tl.constexpr, PRECISION: tl.constexpr, DOUBLE: tl.constexpr, MASK: tl.constexpr,
    PARTS: tl.constexpr, CHUNK: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """A block of pixels and of a group's k outputs, one part of the sums.

    To `parts` [splits, pixels, outputs].
    """
    WIDE: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    blocks = tl.cdiv(k, BN)
    tiles = tl.cdiv(pixels, BM)
    pid = tl.program_id(0)
    group = pid // blocks % groups
    row = pid // (blocks * groups) % tiles * BM + tl.arange(0, BM)
    part = pid // (blocks * groups * tiles)
    col = pid % blocks * BN + tl.arange(0, BN)
    row_mask = row < pixels
    col_mask = col < k
    col += group * k
    line = kept + row.to(tl.int64)[:, None] * (groups * TAPS * c) + group * c
    w_plane = TAPS * groups * k * c
    steps = tl.cdiv(c, BK) * TAPS
    share = tl.cdiv(steps, splits)
    begin = part * share
    end = tl.minimum(steps, begin + share)
    acc = tl.zeros((BM, BN), WIDE)
    if PARTS == 2:
        # Matrix units cut sums off: those of some steps are added up by themselves.
        for chunk in range(begin, end, CHUNK):
            whole = tl.zeros((BM, BN), tl.float32)
            rest = tl.zeros((BM, BN), tl.float32)
            for step in range(chunk, tl.minimum(end, chunk + CHUNK)):
                whole, rest = _forward_step(
                    step, line, w, plane, w_plane, groups * c, c, col, groups * k, row_mask,
                    col_mask, whole, rest, PARTS, PRECISION, WIDE, BK,
                )  # fmt: skip
            acc += together(whole, rest)
    else:
        for step in range(begin, end):
            acc, _ = _forward_step(
                step, line, w, plane, w_plane, groups * c, c, col, groups * k, row_mask, col_mask,
                acc, acc, PARTS, PRECISION, WIDE, BK,
            )  # fmt: skip
    if PARTS > 0:
        acc = raised(acc, exponent_of_samples(slots, MASK) + exponent_of(slots, 2) - 30)
    to = parts + (part * pixels + row).to(tl.int64)[:, None] * (groups * k)
    tl.store(to + col[None, :], acc, mask=row_mask[:, None] & col_mask[None, :])


@triton.jit
def summed(
    parts, bias, y, extra,
    pixels, first_image, p, q, outputs, splits, b_k, y_n, y_k, y_p, y_q,
    BIAS: tl.constexpr, LAST: tl.constexpr, FLAT: tl.constexpr, DOUBLE: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Parts of sums [splits, pixels, outputs] added up, first to last, and the bias.

    A block is of one image. LAST: its outputs are neighbours; FLAT: its pixels are.
    """
    blocks = tl.cdiv(outputs, BN)
    tiles = tl.cdiv(p * q, BM)
    pid = tl.program_id(0)
    pixel = pid // blocks % tiles * BM + tl.arange(0, BM)
    image = pid // (blocks * tiles)
    row_mask = pixel < p * q
    col = pid % blocks * BN + tl.arange(0, BN)
    col_mask = col < outputs
    mask = row_mask[:, None] & col_mask[None, :]
    at = parts + (image * p * q + pixel).to(tl.int64)[:, None] * outputs + col[None, :]
    total = tl.load(at, mask=mask, other=0)
    for _ in range(1, splits):
        at += pixels * outputs
        total += tl.load(at, mask=mask, other=0)
    if BIAS:
        total += load_wide(bias + col * b_k, col_mask, 0, DOUBLE)[None, :]
    result = total.to(y.dtype.element_ty)
    to = y + (first_image + image) * y_n
    place = pixel if FLAT else pixel // q * y_p + pixel % q * y_q
    if LAST:
        tl.store(to + (place[:, None] + col[None, :]), result, mask=mask)
    else:
        there = row_mask[None, :] & col_mask[:, None]
        tl.store(to + (place[None, :] + (col * y_k)[:, None]), tl.trans(result), mask=there)
