"""Convolution of few channels: sums run over taps times channels, padded to whole steps.

Weights are packed [depth', K'], zeros beyond the terms that there are, or found by strides.
"""

import triton
import triton.language as tl

from saccade.kernels.cuda.conv2d.implicit_gemm_code import block_of, pixels_of, within
from saccade.kernels.cuda.conv2d.store_code import store


@triton.jit
def convolve(
    x, w, y, extra,
    n, h, wd, k, p, q, columns, x_n, x_c, x_h, x_w, w_r, w_s, w_c, w_k,
    channels, y_n, y_k, y_p, y_q,
    C: tl.constexpr, R: tl.constexpr, S: tl.constexpr, STRIDE_H: tl.constexpr,
    STRIDE_W: tl.constexpr, DILATION_H: tl.constexpr, DILATION_W: tl.constexpr,
    PAD_T: tl.constexpr, PAD_L: tl.constexpr, PADDED: tl.constexpr, PRECISION: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, TAPS_FIRST: tl.constexpr,
    PACKED: tl.constexpr, X_UNIT: tl.constexpr, X_VEC: tl.constexpr, Y_VEC: tl.constexpr,
    UNIT: tl.constexpr, BLOCK: tl.constexpr, CRD: tl.constexpr, PARTS: tl.constexpr,
    POSITION: tl.constexpr, EXCESS: tl.constexpr, ROOM: tl.constexpr,
    EPILOGUE: tl.constexpr, PROLOGUE: tl.constexpr = None,
    OTHERS: tl.constexpr = None,
):  # fmt: skip
    """One block of results. X_UNIT: the axis of x along which neighbours lie side by side.

    Strides of x come divided by X_VEC, `k`, `channels` and the strides of y by Y_VEC.
    """
    x_n, x_h, x_w = x_n * X_VEC, x_h * X_VEC, x_w * X_VEC
    k, channels = k * Y_VEC, channels * Y_VEC
    y_n, y_p, y_q = y_n * Y_VEC, y_p * Y_VEC, y_q * Y_VEC
    if X_UNIT == "c":
        x_c = 1
    elif X_UNIT == "w":
        x_w = 1
    col_blocks = tl.cdiv(k, BN)
    row_block, col_block = block_of(tl.program_id(0), 1, col_blocks, 1)
    row = row_block * BM + tl.arange(0, BM)
    col = col_block * BN + tl.arange(0, BN)
    row_mask = row < n * p * q
    # So that loads need no mask of their own for rows.
    row = tl.minimum(row, n * p * q - 1)
    image, out_p, out_q = pixels_of(row, p, q)
    top = out_p * STRIDE_H - PAD_T
    left = out_q * STRIDE_W - PAD_L
    pixel = (x + (image * x_n + top * x_h + left * x_w))[:, None]
    term = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, R * S * C, BK):
        at = start + term
        # C, R and S are constants of the code, so that these divisions are multiplications.
        if TAPS_FIRST:
            tap = at // C
            chan = at % C
        else:
            tap = at % (R * S)
            chan = at // (R * S)
        dy = tap // S * DILATION_H
        dx = tap % S * DILATION_W
        inside = (at < R * S * C)[None, :]
        if PADDED:
            tall = within(top[:, None] + dy[None, :], h)
            inside &= tall & within(left[:, None] + dx[None, :], wd)
        a = tl.load(
            pixel + (dy * x_h + dx * x_w + chan * x_c)[None, :],
            mask=inside, other=0.0,
        )  # fmt: skip
        if PROLOGUE is not None:
            wide = PROLOGUE(
                a.to(tl.float32), image, chan, out_p, out_q, row_mask, at < R * S * C, extra
            )
            # What lies outside is zero behind the prologue, not in front of it.
            a = tl.where(inside, wide, 0.0).to(a.dtype)
        if PACKED:
            place = at[:, None] * columns + col[None, :]
        else:
            place = (tap // S * w_r + tap % S * w_s + chan * w_c)[:, None] + (col * w_k)[None, :]
        b = tl.load(w + place, mask=(at < R * S * C)[:, None] & (col < columns)[None, :], other=0.0)
        if w.dtype.element_ty.primitive_bitwidth < a.dtype.primitive_bitwidth:
            a = a.to(w.dtype.element_ty)  # packed in the type that products are made in
        acc = tl.dot(a, b.to(a.dtype), acc, input_precision=PRECISION)
    store(
        y, acc, image, col_block * BN, k, out_p, out_q, row_mask, extra,
        channels, y_n, y_k, y_p, y_q, UNIT, BLOCK, CRD, PARTS, POSITION,
        EXCESS, ROOM, EPILOGUE, OTHERS,
    )  # fmt: skip
