"""Convolution of up to four channels: each row of taps is one step, read as it lies in memory.

The image is first brought to [N, H, W, 4] in the type of the products, so that taps of a row are
neighbours; weights are packed [R, BK, K'], zeros beyond the taps and channels that there are.
"""

import triton
import triton.language as tl

from saccade.kernels.cuda.conv2d.store_code import store


@triton.jit
def spread(
    x, wide, extra, n, h, wd, x_n, x_c, x_h, x_w,
    C: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, X_UNIT: tl.constexpr,
):  # fmt: skip
    """Pixels of four channels each, zeros beyond the `C` that there are."""
    step = 1 if X_UNIT == "w" else x_w
    blocks = tl.cdiv(wd, COLUMNS)
    row = tl.program_id(0) // blocks * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(0) % blocks * COLUMNS + tl.arange(0, COLUMNS)
    there = (row < n * h)[:, None] & (column < wd)[None, :]
    place = (row // h * x_n + row % h * x_h)[:, None] + (column * step)[None, :]
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
    to = (row * wd)[:, None] + column[None, :]
    tl.store(wide + to[:, :, None] * 4 + tl.arange(0, 4), pixels, mask=there[:, :, None])


@triton.jit
def convolve(
    wide, w, y, extra, n, h, wd, k, p, q, columns, channels, y_n, y_k, y_p, y_q,
    R: tl.constexpr, S: tl.constexpr, STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr,
    DILATION_H: tl.constexpr, PAD_T: tl.constexpr, PAD_L: tl.constexpr, PRECISION: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, Y_VEC: tl.constexpr,
    UNIT: tl.constexpr, BLOCK: tl.constexpr, CRD: tl.constexpr, PARTS: tl.constexpr,
    POSITION: tl.constexpr, EXCESS: tl.constexpr, ROOM: tl.constexpr,
    EPILOGUE: tl.constexpr, OTHERS: tl.constexpr = None,
):  # fmt: skip
    """One block of results; `k`, `channels` and the strides of y come divided by Y_VEC."""
    k, channels = k * Y_VEC, channels * Y_VEC
    y_n, y_p, y_q = y_n * Y_VEC, y_p * Y_VEC, y_q * Y_VEC
    col_blocks = tl.cdiv(k, BN)
    pid = tl.program_id(0)
    row = pid // col_blocks * BM + tl.arange(0, BM)
    col = pid % col_blocks * BN + tl.arange(0, BN)
    row_mask = row < n * p * q
    # So that loads need no mask of their own for rows.
    row = tl.minimum(row, n * p * q - 1)
    image = row // (p * q)
    out_p = row // q % p
    out_q = row % q
    top = out_p * STRIDE_H - PAD_T
    left = out_q * STRIDE_W - PAD_L
    term = tl.arange(0, BK)
    # One comparison for both edges: what is negative is large without a sign.
    across = (left[:, None] + term[None, :] // 4).to(tl.uint32) < wd.to(tl.uint32)
    # Weights are zeros there, but with an infinity of the next pixel they would give NaN.
    across &= (term < 4 * S)[None, :]
    pixel = wide + ((image * h + top) * wd + left)[:, None] * 4 + term[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for r in range(R):
        down = (top + r * DILATION_H).to(tl.uint32) < h.to(tl.uint32)
        a = tl.load(pixel + r * DILATION_H * wd * 4, mask=across & down[:, None], other=0.0)
        place = (r * BK + term)[:, None] * columns + col[None, :]
        b = tl.load(w + place, mask=(col < columns)[None, :], other=0.0)
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
    store(
        y, acc, image, pid % col_blocks * BN, k, out_p, out_q, row_mask, extra,
        channels, y_n, y_k, y_p, y_q, UNIT, BLOCK, CRD, PARTS, POSITION,
        EXCESS, ROOM, EPILOGUE, OTHERS,
    )  # fmt: skip
