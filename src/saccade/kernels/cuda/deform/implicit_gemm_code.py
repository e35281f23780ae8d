"""Deformable convolution as a product of sampled pixels and weights: see `implicit_gemm`.

The channels of a group come in segments whose offsets are the same. Blocks of x are
[pixels, channels] where the channels of a pixel are neighbours, else [channels, pixels].
"""

import triton
import triton.language as tl


@triton.jit
def load_wide(pointer, mask, other, DOUBLE: tl.constexpr):
    """In float64 or float32."""
    value = tl.load(pointer, mask=mask, other=other)
    if value.dtype.is_bf16():
        value = value.to(tl.float32)
    return value.to(tl.float64) if DOUBLE else value.to(tl.float32)


@triton.jit
def pixel_of(
    x, place, there, weight, channel, known,
    LAST: tl.constexpr, DOUBLE: tl.constexpr,
):  # fmt: skip
    """One of the four pixels of each sample, times its weight."""
    if LAST:
        mask = there[:, None] & known[None, :]
        value = load_wide(x + (place[:, None] + channel[None, :]), mask, 0, DOUBLE)
        return value * weight[:, None]
    else:  # noqa: RET505 - what follows a return is compiled, too
        mask = there[None, :] & known[:, None]
        value = load_wide(x + (place[None, :] + channel[:, None]), mask, 0, DOUBLE)
        return value * weight[None, :]


@triton.jit
def square(at_y, at_x, there, h, wd):
    """The four pixels around each sample.

    Row and column of the one above and left; whether the row, and the one below, are in the image
    for samples that are; the weights of the four, 0 for samples outside, NaN for those nowhere.
    """
    inside = there & (at_y >= -1) & (at_y < h) & (at_x >= -1) & (at_x < wd)
    strictly = inside & (at_y > -1) & (at_x > -1)
    unknown = (at_y != at_y) | (at_x != at_x)  # noqa: PLR0124 - NaN
    top_y = tl.floor(tl.where(inside, at_y, 0))
    left_x = tl.floor(tl.where(inside, at_x, 0))
    below = tl.where(strictly, at_y - top_y, 0)
    beyond = tl.where(strictly, at_x - left_x, 0)
    whole = tl.where(strictly, 1.0, 0.0).to(at_y.dtype)
    # Outside all four weights are 0; where the place is not a number, neither are they.
    lost = tl.where(unknown, float("nan"), 0.0).to(at_y.dtype)
    top = top_y.to(tl.int32)
    return (
        top, left_x.to(tl.int32), inside & (top >= 0), inside & (top + 1 < h),
        (whole - below) * (1 - beyond) + lost, (whole - below) * beyond + lost,
        below * (1 - beyond) + lost, below * beyond + lost,
    )  # fmt: skip


@triton.jit
def deform(
    x, w, offset, mask, bias, y, extra,
    rows, p, q, h, wd, groups, c, k, segment, shared, w_r, w_s, w_c, w_k,
    x_n, x_c, x_h, x_w, o_n, o_c, o_p, o_q, m_n, m_c, m_p, m_q, b_k, y_n, y_k, y_p, y_q,
    R: tl.constexpr, S: tl.constexpr, STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr,
    DILATION_H: tl.constexpr, DILATION_W: tl.constexpr, PAD_T: tl.constexpr, PAD_L: tl.constexpr,
    MASK: tl.constexpr, BIAS: tl.constexpr, LAST: tl.constexpr, PACKED: tl.constexpr,
    UNIT: tl.constexpr, DOUBLE: tl.constexpr, PRECISION: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    WIDE: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    blocks = tl.cdiv(k, BN)
    pid = tl.program_id(0)
    group = pid // blocks % groups
    row = pid // (blocks * groups) * BM + tl.arange(0, BM)
    col = pid % blocks * BN + tl.arange(0, BN)
    row_mask = row < rows
    col_mask = col < k
    col += group * k
    image = row // (p * q)
    out_p = row // q % p
    out_q = row % q
    offsets = offset + image * o_n + out_p * o_p + out_q * o_q
    masks = mask + image * m_n + out_p * m_p + out_q * m_q
    lane = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), WIDE)
    for tap in range(R * S):
        base_y = (out_p * STRIDE_H - PAD_T + tap // S * DILATION_H).to(WIDE)
        base_x = (out_q * STRIDE_W - PAD_L + tap % S * DILATION_W).to(WIDE)
        weights = w + tap // S * w_r + tap % S * w_s
        for start in range(0, c, segment):
            own = (group * c + start) // shared * (R * S) + tap
            at_y = base_y + load_wide(offsets + 2 * own * o_c, row_mask, 0, DOUBLE)
            at_x = base_x + load_wide(offsets + (2 * own + 1) * o_c, row_mask, 0, DOUBLE)
            (
                top, left, has_top, has_bottom, upper_left, upper_right, lower_left, lower_right
            ) = square(at_y, at_x, row_mask, h, wd)  # fmt: skip
            corner = image * x_n + top * x_h + left * x_w
            if MASK:
                factor = load_wide(masks + own * m_c, row_mask, 0, DOUBLE)
            for first in range(0, segment, BK):
                known = first + lane < segment
                channel = (group * c + start + first + lane) * (1 if LAST else x_c)
                a = pixel_of(
                    x, corner, has_top & (left >= 0), upper_left, channel, known, LAST, DOUBLE
                )
                a += pixel_of(
                    x, corner + x_w, has_top & (left + 1 < wd), upper_right, channel, known,
                    LAST, DOUBLE,
                )  # fmt: skip
                a += pixel_of(
                    x, corner + x_h, has_bottom & (left >= 0), lower_left, channel, known,
                    LAST, DOUBLE,
                )  # fmt: skip
                a += pixel_of(
                    x, corner + x_h + x_w, has_bottom & (left + 1 < wd), lower_right, channel,
                    known, LAST, DOUBLE,
                )  # fmt: skip
                if MASK:
                    a *= factor[:, None] if LAST else factor[None, :]
                # NaN is no channel's that is not there.
                a = tl.where(known[None, :] if LAST else known[:, None], a, 0)
                a = a.to(w.dtype.element_ty)
                if not LAST:
                    a = tl.trans(a)
                b = tl.load(
                    weights + (start + first + lane)[:, None] * w_c
                    + col[None, :] * (1 if PACKED else w_k),
                    mask=known[:, None] & col_mask[None, :], other=0.0,
                )  # fmt: skip
                acc = tl.dot(a, b, acc, input_precision=PRECISION, out_dtype=WIDE)
    if BIAS:
        acc += load_wide(bias + col * b_k, col_mask, 0, DOUBLE)[None, :]
    place = (image * y_n + out_p * y_p + out_q * y_q)[:, None] + (col * (1 if UNIT else y_k))[
        None, :
    ]
    tl.store(y + place, acc.to(y.dtype.element_ty), mask=row_mask[:, None] & col_mask[None, :])
