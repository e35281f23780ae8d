"""What deformable convolution on Hopper reads: weights, pixels, and where they are sampled."""

import triton
import triton.language as tl

from saccade.kernels.cuda.deform.gradient_copies_code import _last, taps_of
from saccade.kernels.cuda.deform.implicit_gemm_code import load_wide, square


@triton.jit
def _arrange(
    pid, w, packed, outputs, padded, c, columns, w_k, w_c, w_r, w_s,
    TAPS: tl.constexpr, BLOCK: tl.constexpr, BT: tl.constexpr,
):  # fmt: skip
    """Some channels of one output to [blocks of 64 channels, taps, padded outputs, 64].

    A block's rows are swizzled as in shared memory, and its channels in the order in which
    `hopper_code` samples them: eight of a thread for one operand's pairs, and quarters of those.
    """
    out, channel, tap, value = taps_of(
        pid, w, c, columns, w_k, w_c, w_r, w_s, TAPS=TAPS, BLOCK=BLOCK, BT=BT
    )
    term = channel // 32 % 2 * 32 + channel // 2 % 4 * 8 + channel // 8 % 4 * 2 + channel % 2
    place = ((term // 8) ^ (out % 8)) * 8 + term % 8
    at = (channel // 64 * (TAPS * padded * 64) + place)[None, :]
    at += ((tap * padded + out) * 64)[:, None]
    tl.store(packed + at, value, mask=(tap < TAPS)[:, None] & (channel < c)[None, :])


@triton.jit
def _four(a, b, c, d, BP: tl.constexpr):
    """[BP, 4] of four of [BP]."""
    return tl.reshape(tl.join(tl.join(a, c), tl.join(b, d)), (BP, 4))


@triton.jit
def _in_word(weight, HALF: tl.constexpr):
    """A weight in both halves of a word, or as it is."""
    if HALF:
        bits = weight.to(tl.float16).to(tl.int16, bitcast=True).to(tl.int32) & 0xFFFF
        word = bits | (bits << 16)
    else:
        word = weight.to(tl.int32, bitcast=True)
    return word


@triton.jit
def _weight(of, factor, MASK: tl.constexpr, HALF: tl.constexpr):
    """A pixel's weight times the mask; zero stays zero whatever the mask is."""
    if MASK:
        of = tl.where(of == 0, 0.0, of * factor)
    return _in_word(of, HALF)


@triton.jit
def _squares(
    pid, offset, mask, squares, p, q, h, wd, offset_groups, pixels, rows, l_n, l_h, l_w,
    o_n, o_c, o_p, o_q, m_n, m_c, m_p, m_q,
    R: tl.constexpr, S: tl.constexpr, STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr,
    DILATION_H: tl.constexpr, DILATION_W: tl.constexpr, PAD_T: tl.constexpr, PAD_L: tl.constexpr,
    MASK: tl.constexpr, HALF: tl.constexpr, BP: tl.constexpr,
):  # fmt: skip
    """The four pixels around some samples of a tap, in eighths of elements of x (-1 for none).

    And their weights: [offset groups, pixels or weights, taps, rows, 4], beyond the pixels none.
    """
    tiles = rows // BP
    row = pid % tiles * BP + tl.arange(0, BP)
    own = pid // tiles  # offset group and tap
    tap = own % (R * S)
    there = row < pixels
    image = row // (p * q)
    out_p = row // q % p
    out_q = row % q
    offsets = offset + image * o_n + out_p * o_p + out_q * o_q + 2 * own * o_c
    at_y = (out_p * STRIDE_H - PAD_T + tap // S * DILATION_H).to(tl.float32)
    at_x = (out_q * STRIDE_W - PAD_L + tap % S * DILATION_W).to(tl.float32)
    at_y += load_wide(offsets, there, 0, False)
    at_x += load_wide(offsets + o_c, there, 0, False)
    (
        top, left, has_top, has_bottom, upper_left, upper_right, lower_left, lower_right
    ) = square(at_y, at_x, there, h, wd)  # fmt: skip
    factor = at_y
    if MASK:
        masks = mask + image * m_n + out_p * m_p + out_q * m_q + own * m_c
        factor = load_wide(masks, there, 0, False)
        # Of samples outside, too, an infinite mask times zero is no number.
        none = (upper_left == 0) & (upper_right == 0) & (lower_left == 0) & (lower_right == 0)
        upper_left += tl.where(none & there, factor * 0.0, 0.0)
    corner = (image * l_n + top * l_h + left * l_w) // 8
    has_left, has_right = left >= 0, left + 1 < wd
    places = _four(
        tl.where(has_top & has_left, corner, -1),
        tl.where(has_top & has_right, corner + l_w // 8, -1),
        tl.where(has_bottom & has_left, corner + l_h // 8, -1),
        tl.where(has_bottom & has_right, corner + (l_h + l_w) // 8, -1), BP,
    )  # fmt: skip
    weights = _four(
        _weight(upper_left, factor, MASK, HALF), _weight(upper_right, factor, MASK, HALF),
        _weight(lower_left, factor, MASK, HALF), _weight(lower_right, factor, MASK, HALF), BP,
    )  # fmt: skip
    plane = R * S * rows
    at = squares + (own // (R * S) * (2 * plane) + tap * rows) * 4
    at += row[:, None] * 4 + tl.arange(0, 4)[None, :]
    tl.store(at, places)
    tl.store(at + plane * 4, weights)


@triton.jit
def arranged(
    w, packed, x, x_last, offset, mask, squares, extra,
    squaring, packing, first_image, p, q, h, wd, offset_groups, pixels, rows, outputs, padded, c,
    columns, w_k, w_c, w_r, w_s, x_n, x_c, x_h, x_w, l_n, l_h, l_w,
    o_n, o_c, o_p, o_q, m_n, m_c, m_p, m_q,
    R: tl.constexpr, S: tl.constexpr, STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr,
    DILATION_H: tl.constexpr, DILATION_W: tl.constexpr, PAD_T: tl.constexpr, PAD_L: tl.constexpr,
    MASK: tl.constexpr, HALF: tl.constexpr, BLOCK: tl.constexpr, BT: tl.constexpr,
    BP: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """By programs of their own: `squaring` of them squares, `packing` weights, others x.

    x, if it has to be copied, as [images, h, wd, channels].
    """
    pid = tl.program_id(0)
    if pid < squaring:
        _squares(
            pid, offset, mask, squares, p, q, h, wd, offset_groups, pixels, rows, l_n, l_h, l_w,
            o_n, o_c, o_p, o_q, m_n, m_c, m_p, m_q, R, S, STRIDE_H, STRIDE_W, DILATION_H,
            DILATION_W, PAD_T, PAD_L, MASK, HALF, BLOCK,
        )  # fmt: skip
    elif pid < squaring + packing:
        _arrange(
            pid - squaring, w, packed, outputs, padded, c, columns, w_k, w_c, w_r, w_s, R * S,
            BLOCK, BT,
        )  # fmt: skip
    else:
        _last(
            pid - squaring - packing, x, x_last, x, first_image, c, h, wd, 0, x_n, x_c, x_h, x_w, 0,
            BP, BC,
        )  # fmt: skip
