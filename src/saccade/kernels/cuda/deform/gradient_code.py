"""Gradients of deformable convolution by its samples: columns, places, and the weights' sums."""

import triton
import triton.language as tl

from saccade.kernels.cuda.deform.gradient_samples_code import load_wide


@triton.jit
def _corner(cell, h, wd, x_image, x_n, x_h, x_w):
    """Row and column of the pixel above and left of each sample, and where it is in x."""
    line = cell // (wd + 1)
    image = x_image + line // (h + 1)
    top = line % (h + 1) - 1
    left = cell % (wd + 1) - 1
    return top, left, image * x_n + top * x_h + left * x_w


@triton.jit
def columns(
    grad, w, kept, extra,
    pixels, p, q, offset_groups, shared, segment, c, k, first_channel, channels,
    g_n, g_p, g_q, g_image,
    TAPS: tl.constexpr, DOUBLE: tl.constexpr, PRECISION: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """A block of the columns' gradient [pixel, tap, offset group, `channels`].

    `w` is [taps, outputs, channels of a group]. The channels of an offset group begin with
    `first_channel` and come in segments that lie in one group. Images of `grad` begin with
    `g_image`.
    """
    WIDE: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    wide = tl.cdiv(segment, BN)
    segments = channels // segment
    pid = tl.program_id(0)
    first = pid % wide * BN + tl.arange(0, BN)
    known = first < segment
    begin = pid // wide % segments * segment
    tap = pid // (wide * segments) % TAPS
    own = pid // (wide * segments * TAPS) % offset_groups
    local = pid // (wide * segments * TAPS * offset_groups) * BM + tl.arange(0, BM)
    row_mask = local < pixels
    places = (g_image + local // (p * q)) * g_n + local // q % p * g_p + local % q * g_q
    channel = own * shared + first_channel + begin
    group = channel // c
    weights = w + (tap * (shared * offset_groups // c) + group) * k * c + channel % c
    depth = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), WIDE)
    for start in range(0, k, BK):
        deep = start + depth < k
        a = tl.load(
            grad + places[:, None] + (group * k + start + depth)[None, :],
            mask=row_mask[:, None] & deep[None, :], other=0.0,
        )  # fmt: skip
        b = tl.load(
            weights + (start + depth)[:, None] * c + first[None, :],
            mask=deep[:, None] & known[None, :], other=0.0,
        )  # fmt: skip
        acc = tl.dot(a, b, acc, input_precision=PRECISION, out_dtype=WIDE)
    rows = (local * TAPS + tap) * (offset_groups * channels) + own * channels + begin
    mask = row_mask[:, None] & known[None, :]
    tl.store(kept + rows[:, None] + first[None, :], acc.to(kept.dtype.element_ty), mask=mask)


@triton.jit
def slopes(
    kept, x, cells, below, beyond, factor, sums, d_offset, d_mask, extra,
    number, pixels, first_image, p, q, h, wd, offset_groups, shared, first_channel, channels,
    again, pieces, x_n, x_h, x_w, o_n, o_c, o_p, o_q, m_n, m_c, m_p, m_q, x_image,
    TAPS: tl.constexpr, OFFSET: tl.constexpr, MASK: tl.constexpr, DOUBLE: tl.constexpr,
    BP: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """What offset and mask get of the columns' gradient, for some pixels of a tap.

    Sums over channels of the four products with x's pixels, whose weights come after the sums. If
    channels come in several `pieces`, `sums` [4, samples] have those of the pieces before.
    """
    WIDE: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    pid = tl.program_id(0)
    tap = pid % TAPS
    own = pid // TAPS % offset_groups
    local = pid // (TAPS * offset_groups) * BP + tl.arange(0, BP)
    there = local < pixels
    sample = (own * TAPS + tap) * pixels + local
    cell = tl.load(cells + sample, mask=there, other=-1)
    top, left, corner = _corner(cell, h, wd, x_image, x_n, x_h, x_w)
    up, down = (cell >= 0) & (top >= 0), (cell >= 0) & (top + 1 < h)
    before, after = left >= 0, left + 1 < wd
    row = (local * TAPS + tap) * (offset_groups * channels) + own * channels
    lane = tl.arange(0, BC)
    wide_0 = tl.zeros((BP, BC), WIDE)
    wide_1 = tl.zeros((BP, BC), WIDE)
    wide_2 = tl.zeros((BP, BC), WIDE)
    wide_3 = tl.zeros((BP, BC), WIDE)
    for first in range(0, channels, BC):
        known = (first + lane < channels)[None, :]
        value = load_wide(
            kept + row[:, None] + (first + lane)[None, :], there[:, None] & known, DOUBLE
        )
        at = x + corner[:, None] + (own * shared + first_channel + first + lane)[None, :]
        wide_0 += value * load_wide(at, (up & before)[:, None] & known, DOUBLE)
        wide_1 += value * load_wide(at + x_w, (up & after)[:, None] & known, DOUBLE)
        wide_2 += value * load_wide(at + x_h, (down & before)[:, None] & known, DOUBLE)
        wide_3 += value * load_wide(at + x_h + x_w, (down & after)[:, None] & known, DOUBLE)
    sum_0, sum_1 = tl.sum(wide_0, 1), tl.sum(wide_1, 1)
    sum_2, sum_3 = tl.sum(wide_2, 1), tl.sum(wide_3, 1)
    if pieces > 1:
        if again != 0:
            sum_0 += tl.load(sums + sample, mask=there, other=0)
            sum_1 += tl.load(sums + number + sample, mask=there, other=0)
            sum_2 += tl.load(sums + 2 * number + sample, mask=there, other=0)
            sum_3 += tl.load(sums + 3 * number + sample, mask=there, other=0)
        tl.store(sums + sample, sum_0, mask=there)
        tl.store(sums + number + sample, sum_1, mask=there)
        tl.store(sums + 2 * number + sample, sum_2, mask=there)
        tl.store(sums + 3 * number + sample, sum_3, mask=there)
    low = load_wide(below + sample, there, DOUBLE)
    right = load_wide(beyond + sample, there, DOUBLE)
    image = first_image + local // (p * q)
    out_p = local // q % p
    out_q = local % q
    if OFFSET:
        share = load_wide(factor + sample, there, DOUBLE)
        by_row = ((1 - right) * (sum_2 - sum_0) + right * (sum_3 - sum_1)) * share
        by_column = ((1 - low) * (sum_1 - sum_0) + low * (sum_3 - sum_2)) * share
        place = d_offset + image * o_n + out_p * o_p + out_q * o_q + 2 * (own * TAPS + tap) * o_c
        tl.store(place, by_row.to(d_offset.dtype.element_ty), mask=there)
        tl.store(place + o_c, by_column.to(d_offset.dtype.element_ty), mask=there)
    if MASK:
        upper = (1 - right) * sum_0 + right * sum_1
        lower = (1 - right) * sum_2 + right * sum_3
        plain = (1 - low) * upper + low * lower
        place = d_mask + image * m_n + out_p * m_p + out_q * m_q + (own * TAPS + tap) * m_c
        tl.store(place, plain.to(d_mask.dtype.element_ty), mask=there)


@triton.jit
def weights(
    grad, x, cells, below, beyond, factor, parts, extra,
    pixels, p, q, h, wd, offset_groups, shared, segment, c, k, splits, again,
    g_n, g_p, g_q, x_n, x_h, x_w, g_image, x_image,
    TAPS: tl.constexpr, DOUBLE: tl.constexpr, PRECISION: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """A block [outputs, channels] of the weights' gradient for a tap, over a part of the pixels.

    To `parts` [splits, taps, outputs, channels of a group], on top of what is there if `again`.
    """
    WIDE: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    tall, wide = tl.cdiv(k, BM), tl.cdiv(segment, BN)
    segments = shared * offset_groups // segment
    pid = tl.program_id(0)
    out = pid % tall * BM + tl.arange(0, BM)
    tap = pid // tall % TAPS
    first = pid // (tall * TAPS) % wide * BN + tl.arange(0, BN)
    channel = pid // (tall * TAPS * wide) % segments * segment
    split = pid // (tall * TAPS * wide * segments)
    own = channel // shared
    group = channel // c
    out_mask, known = out < k, first < segment
    share = tl.cdiv(tl.cdiv(pixels, splits), BK) * BK
    acc = tl.zeros((BM, BN), WIDE)
    for begin in range(split * share, tl.minimum(pixels, (split + 1) * share), BK):
        local = begin + tl.arange(0, BK)
        row_mask = local < pixels
        image = local // (p * q)
        sample = (own * TAPS + tap) * pixels + local
        cell = tl.load(cells + sample, mask=row_mask, other=-1)
        low = load_wide(below + sample, row_mask, DOUBLE)
        right = load_wide(beyond + sample, row_mask, DOUBLE)
        scale = load_wide(factor + sample, row_mask, DOUBLE)
        top, left, corner = _corner(cell, h, wd, x_image, x_n, x_h, x_w)
        up, down = (cell >= 0) & (top >= 0), (cell >= 0) & (top + 1 < h)
        at = x + corner[:, None] + (channel + first)[None, :]
        there = (up & (left >= 0))[:, None] & known[None, :]
        b = load_wide(at, there, DOUBLE) * ((1 - low) * (1 - right))[:, None]
        there = (up & (left + 1 < wd))[:, None] & known[None, :]
        b += load_wide(at + x_w, there, DOUBLE) * ((1 - low) * right)[:, None]
        there = (down & (left >= 0))[:, None] & known[None, :]
        b += load_wide(at + x_h, there, DOUBLE) * (low * (1 - right))[:, None]
        there = (down & (left + 1 < wd))[:, None] & known[None, :]
        b += load_wide(at + x_h + x_w, there, DOUBLE) * (low * right)[:, None]
        b = (b * scale[:, None]).to(grad.dtype.element_ty)
        grads = (g_image + image) * g_n + local // q % p * g_p + local % q * g_q
        a = tl.load(
            grad + grads[:, None] + (group * k + out)[None, :],
            mask=row_mask[:, None] & out_mask[None, :], other=0.0,
        )  # fmt: skip
        acc = tl.dot(tl.trans(a), b, acc, input_precision=PRECISION, out_dtype=WIDE)
    groups = shared * offset_groups // c
    line = ((split * TAPS + tap) * groups + group) * k + out
    at = parts + line[:, None] * c + (channel % c + first)[None, :]
    mask = out_mask[:, None] & known[None, :]
    if again != 0:
        acc += tl.load(at, mask=mask, other=0)
    tl.store(at, acc, mask=mask)
