"""Gradients of deformable convolution by its samples: columns, places, and the weights' sums."""

import triton
import triton.language as tl

from saccade.kernels.cuda.deform.gradient_samples_code import load_wide
from saccade.kernels.cuda.deform.half_products_code import (
    exponent_of,
    exponent_of_samples,
    load_parts,
    multiply,
    raised,
    together,
)


@triton.jit
def _corner(cell, h, wd, x_image, x_n, x_h, x_w):
    """Row and column of the pixel above and left of each sample, and where it is in x."""
    line = cell // (wd + 1)
    image = x_image + line // (h + 1)
    top = line % (h + 1) - 1
    left = cell % (wd + 1) - 1
    return top, left, image * x_n + top * x_h + left * x_w


@triton.jit
def _block_of(
    at, w, segment, segments, offset_groups, shared, first_channel, channels, c, k,
    TAPS: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """A block's channels in its segment, where these begin in a pixel's columns; group, weights."""
    wide = tl.cdiv(segment, BN)
    first = at % wide * BN + tl.arange(0, BN)
    begin = at // wide % segments * segment
    tap = at // (wide * segments) % TAPS
    own = at // (wide * segments * TAPS)
    channel = own * shared + first_channel + begin
    group = channel // c
    weights = w + (tap * (shared * offset_groups // c) + group) * k * c + channel % c
    return first, (tap * offset_groups + own) * channels + begin, group, weights


@triton.jit
def _columns_step(
    start, grad, places, weights, first, plane, w_plane, group, k, c, row_mask, known, whole, rest,
    PARTS: tl.constexpr, PRECISION: tl.constexpr, WIDE: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """The result's gradient [pixels, outputs] times weights [outputs, channels]."""
    depth = start + tl.arange(0, BK)
    deep = depth < k
    a, a_low = load_parts(
        grad + places[:, None] + (group * k + depth)[None, :], plane,
        row_mask[:, None] & deep[None, :], PARTS,
    )  # fmt: skip
    b, b_low = load_parts(
        weights + depth[:, None] * c + first[None, :], w_plane, deep[:, None] & known[None, :],
        PARTS,
    )  # fmt: skip
    return multiply(a, a_low, b, b_low, whole, rest, PARTS, PRECISION, WIDE)


@triton.jit
def columns(
    grad, w, kept, slots, extra,
    pixels, p, q, offset_groups, shared, segment, c, k, first_channel, channels, plane, shares,
    g_n, g_p, g_q, g_image,
    TAPS: tl.constexpr, DOUBLE: tl.constexpr, PRECISION: tl.constexpr, PARTS: tl.constexpr,
    CHUNK: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Blocks of the columns' gradient [pixel, tap, offset group, `channels`], one after the other.

    A program has one of `shares` of some pixels' blocks: one block with two PARTS. `w` is [taps,
    outputs, channels of a group]. The channels of an offset group begin with `first_channel` and
    come in segments that lie in one group. Images of `grad` begin with `g_image`.
    """
    WIDE: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    segments = channels // segment
    pid = tl.program_id(0)
    local = pid // shares * BM + tl.arange(0, BM)
    row_mask = local < pixels
    places = (g_image + local // (p * q)) * g_n + local // q % p * g_p + local % q * g_q
    w_plane = TAPS * shared * offset_groups * k
    line = kept + local[:, None] * (TAPS * offset_groups * channels)
    blocks = tl.cdiv(segment, BN) * segments * TAPS * offset_groups
    share = tl.cdiv(blocks, shares)
    begin = pid % shares * share
    end = tl.minimum(blocks, begin + share)
    if PARTS == 2:
        # One block.
        first, column, group, weights = _block_of(
            begin, w, segment, segments, offset_groups, shared, first_channel, channels, c, k,
            TAPS, BN,
        )  # fmt: skip
        known = first < segment
        acc = tl.zeros((BM, BN), tl.float32)
        # Matrix units cut sums off: those of some steps are added up by themselves.
        for chunk in range(0, k, CHUNK * BK):
            whole = tl.zeros((BM, BN), tl.float32)
            rest = tl.zeros((BM, BN), tl.float32)
            for start in range(chunk, tl.minimum(k, chunk + CHUNK * BK), BK):
                whole, rest = _columns_step(
                    start, grad, places, weights, first, plane, w_plane, group, k, c, row_mask,
                    known, whole, rest, PARTS, PRECISION, WIDE, BK,
                )  # fmt: skip
            acc += together(whole, rest)
        acc = raised(acc, exponent_of(slots, 3) + exponent_of(slots, 2) - 30)
        mask = row_mask[:, None] & known[None, :]
        tl.store(line + (column + first)[None, :], acc.to(kept.dtype.element_ty), mask=mask)
    else:
        # In one loop, so that a block's operands are on their way while that before is stored.
        steps = tl.cdiv(k, BK)
        acc = tl.zeros((BM, BN), WIDE)
        for at in range(begin * steps, end * steps):
            first, column, group, weights = _block_of(
                at // steps, w, segment, segments, offset_groups, shared, first_channel, channels,
                c, k, TAPS, BN,
            )  # fmt: skip
            known = first < segment
            acc, _ = _columns_step(
                at % steps * BK, grad, places, weights, first, plane, w_plane, group, k, c,
                row_mask, known, acc, acc, PARTS, PRECISION, WIDE, BK,
            )  # fmt: skip
            if at % steps == steps - 1:
                if PARTS == 1:
                    acc = raised(acc, exponent_of(slots, 3) + exponent_of(slots, 2) - 30)
                mask = row_mask[:, None] & known[None, :]
                tl.store(line + (column + first)[None, :], acc.to(kept.dtype.element_ty), mask=mask)
                acc = tl.zeros((BM, BN), WIDE)


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
def _weights_step(
    begin, grad, kept, out, at, plane, kept_plane, g_image, pixels, p, q, width, out_mask, known,
    g_n, g_p, g_q, whole, rest,
    PARTS: tl.constexpr, PRECISION: tl.constexpr, WIDE: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """The result's gradient [pixels, outputs], the other way round, times columns of channels."""
    local = begin + tl.arange(0, BK)
    row_mask = local < pixels
    grads = (g_image + local // (p * q)) * g_n + local // q % p * g_p + local % q * g_q
    a, a_low = load_parts(
        grad + grads[:, None] + out[None, :], plane, row_mask[:, None] & out_mask[None, :], PARTS
    )
    b, b_low = load_parts(
        kept + local[:, None] * width + at[None, :], kept_plane, row_mask[:, None] & known[None, :],
        PARTS,
    )  # fmt: skip
    return multiply(tl.trans(a), tl.trans(a_low), b, b_low, whole, rest, PARTS, PRECISION, WIDE)


@triton.jit
def weights(
    grad, kept, parts, slots, extra,
    pixels, p, q, offset_groups, shared, segment, c, k, first_channel, channels, plane, kept_plane,
    splits, again, g_n, g_p, g_q, g_image,
    TAPS: tl.constexpr, DOUBLE: tl.constexpr, MASK: tl.constexpr, PRECISION: tl.constexpr,
    PARTS: tl.constexpr, CHUNK: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """A block [outputs, channels] of the weights' gradient for a tap, over a part of the pixels.

    From columns [pixel, tap, offset group, `channels`] to `parts` [splits, taps, outputs, channels
    of a group], on top of what is there if `again`.
    """
    WIDE: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    tall, wide = tl.cdiv(k, BM), tl.cdiv(segment, BN)
    segments = channels // segment
    pid = tl.program_id(0)
    out = pid % tall * BM + tl.arange(0, BM)
    first = pid // tall % wide * BN + tl.arange(0, BN)
    begin = pid // (tall * wide) % segments * segment
    tap = pid // (tall * wide * segments) % TAPS
    own = pid // (tall * wide * segments * TAPS) % offset_groups
    split = pid // (tall * wide * segments * TAPS * offset_groups)
    channel = own * shared + first_channel + begin
    group = channel // c
    out_mask, known = out < k, first < segment
    width = TAPS * offset_groups * channels
    at = (tap * offset_groups + own) * channels + begin + first
    share = tl.cdiv(tl.cdiv(pixels, splits), BK) * BK
    end = tl.minimum(pixels, (split + 1) * share)
    acc = tl.zeros((BM, BN), WIDE)
    if PARTS == 2:
        for chunk in range(split * share, end, CHUNK * BK):
            whole = tl.zeros((BM, BN), tl.float32)
            rest = tl.zeros((BM, BN), tl.float32)
            for local in range(chunk, tl.minimum(end, chunk + CHUNK * BK), BK):
                whole, rest = _weights_step(
                    local, grad, kept, group * k + out, at, plane, kept_plane, g_image, pixels,
                    p, q, width, out_mask, known, g_n, g_p, g_q, whole, rest,
                    PARTS, PRECISION, WIDE, BK,
                )  # fmt: skip
            acc += together(whole, rest)
    else:
        for local in range(split * share, end, BK):
            acc, _ = _weights_step(
                local, grad, kept, group * k + out, at, plane, kept_plane, g_image, pixels,
                p, q, width, out_mask, known, g_n, g_p, g_q, acc, acc,
                PARTS, PRECISION, WIDE, BK,
            )  # fmt: skip
    if PARTS > 0:
        acc = raised(acc, exponent_of(slots, 3) + exponent_of_samples(slots, MASK) - 30)
    groups = shared * offset_groups // c
    line = ((split * TAPS + tap) * groups + group) * k + out
    to = parts + line[:, None] * c + (channel % c + first)[None, :]
    mask = out_mask[:, None] & known[None, :]
    if again != 0:
        acc += tl.load(to, mask=mask, other=0)
    tl.store(to, acc, mask=mask)
