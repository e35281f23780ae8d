"""Convolution of up to four channels: each row of taps is one step, read as it lies in memory.

The image is first brought to [N, H', W', 4] in the type of the products, with the zeros around it
that windows reach, so that taps of a row are neighbours and no load asks where edges are; weights
are packed [R, BK, K'], zeros beyond the taps and channels that there are.
"""

import triton
import triton.language as tl

from saccade.kernels.cuda.conv2d.implicit_gemm_code import pixels_of
from saccade.kernels.cuda.conv2d.store_code import store


@triton.jit
def spread(
    x, wide, extra, n, h, wd, down, across, x_n, x_c, x_h, x_w,
    C: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, X_UNIT: tl.constexpr,
    PAD_T: tl.constexpr, PAD_L: tl.constexpr, LEAD: tl.constexpr,
):  # fmt: skip
    """Pixels of four channels each, zeros beyond the `C` that there are and around the image.

    `down` rows and `across` columns make an image. LEAD: how many columns before the image's first
    a program begins, so that what it loads begins at a multiple.
    """
    step = 1 if X_UNIT == "w" else x_w
    blocks = tl.cdiv(across - PAD_L + LEAD, COLUMNS)
    row = tl.program_id(0) // blocks * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(0) % blocks * COLUMNS - LEAD + tl.arange(0, COLUMNS)
    line = row % down - PAD_T
    there = ((row < n * down) & (line >= 0) & (line < h))[:, None]
    there = there & ((column >= 0) & (column < wd))[None, :]
    place = (row // down * x_n + line * x_h)[:, None] + (column * step)[None, :]
    zero = tl.zeros((ROWS, COLUMNS), wide.dtype.element_ty)
    a, b, c, d = zero, zero, zero, zero
    a = tl.load(x + place, mask=there, other=0).to(wide.dtype.element_ty)
    if C > 1:
        b = tl.load(x + place + x_c, mask=there, other=0).to(wide.dtype.element_ty)
    if C > 2:
        c = tl.load(x + place + 2 * x_c, mask=there, other=0).to(wide.dtype.element_ty)
    if C > 3:
        d = tl.load(x + place + 3 * x_c, mask=there, other=0).to(wide.dtype.element_ty)
    # The last join's axis is the innermost one: joined crosswise, channels come out in order.
    pixels = tl.reshape(tl.join(tl.join(a, c), tl.join(b, d)), (ROWS, COLUMNS, 4))
    at = column + PAD_L
    to = (row * across)[:, None] + at[None, :]
    kept = (row < n * down)[:, None] & ((at >= 0) & (at < across))[None, :]
    tl.store(wide + to[:, :, None] * 4 + tl.arange(0, 4), pixels, mask=kept[:, :, None])


@triton.jit
def convolve(
    wide, w, y, extra, n, down, across, k, p, q, columns, channels, y_n, y_k, y_p, y_q,
    R: tl.constexpr, S: tl.constexpr, STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr,
    DILATION_H: tl.constexpr, PRECISION: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, Y_VEC: tl.constexpr,
    UNIT: tl.constexpr, BLOCK: tl.constexpr, CRD: tl.constexpr, PARTS: tl.constexpr,
    POSITION: tl.constexpr, EXCESS: tl.constexpr, ROOM: tl.constexpr,
    EPILOGUE: tl.constexpr, OTHERS: tl.constexpr = None,
):  # fmt: skip
    """One block of results.

    `k`, `channels` and the strides of y come divided by Y_VEC, `across` by 2: an even stride then
    leaves 16 bytes together.
    """
    k, channels = k * Y_VEC, channels * Y_VEC
    y_n, y_p, y_q = y_n * Y_VEC, y_p * Y_VEC, y_q * Y_VEC
    line = across * 8
    col_blocks = tl.cdiv(k, BN)
    pid = tl.program_id(0)
    row = pid // col_blocks * BM + tl.arange(0, BM)
    col = pid % col_blocks * BN + tl.arange(0, BN)
    row_mask = row < n * p * q
    # So that loads need no mask of their own for rows.
    image, out_p, out_q = pixels_of(tl.minimum(row, n * p * q - 1), p, q)
    corner = wide + ((image * down + out_p * STRIDE_H) * line + out_q * (STRIDE_W * 4))
    there = (col < columns)[None, :]
    # Two halves, of which the first has taps in all its terms, so that only the second is masked.
    HALF: tl.constexpr = BK // 2 if BK > 16 else BK
    term = tl.arange(0, HALF)
    filters = w + term[:, None] * columns + col[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for r in range(R):
        pixel = corner[:, None] + (term[None, :] + r * DILATION_H * line)
        place = filters + r * BK * columns
        if BK > 16:
            a = tl.load(pixel)
            b = tl.load(place, mask=there, other=0.0)
            acc = tl.dot(a, b, acc, input_precision=PRECISION)
            pixel += HALF
            place += HALF * columns
        # Weights are zeros there, but with an infinity of the next pixel they would give NaN.
        if 4 * S < BK:
            a = tl.load(pixel, mask=(term < 4 * S - (BK - HALF))[None, :], other=0.0)
        else:
            a = tl.load(pixel)
        b = tl.load(place, mask=there, other=0.0)
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
    store(
        y, acc, image, pid % col_blocks * BN, k, out_p, out_q, row_mask, extra,
        channels, y_n, y_k, y_p, y_q, UNIT, BLOCK, CRD, PARTS, POSITION,
        EXCESS, ROOM, EPILOGUE, OTHERS,
    )  # fmt: skip
