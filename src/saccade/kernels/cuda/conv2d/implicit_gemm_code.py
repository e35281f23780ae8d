"""Implicit GEMM: rows are output pixels, columns output channels, sums run over taps and channels.

Weights are packed [R·S, C', K'], zeros beyond the channels that there are.
"""

import triton
import triton.language as tl

from saccade.kernels.cuda.conv2d.store_code import places


@triton.jit
def convolve(
    x, w, y, extra,
    n, h, wd, c, k, p, q, c_padded, k_padded, x_n, x_h, x_w, channels, y_n, y_k, y_p, y_q,
    R: tl.constexpr, S: tl.constexpr, STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr,
    DILATION_H: tl.constexpr, DILATION_W: tl.constexpr, PAD_T: tl.constexpr, PAD_L: tl.constexpr,
    PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    UNIT: tl.constexpr, BLOCK: tl.constexpr, CRD: tl.constexpr, EPILOGUE: tl.constexpr,
):  # fmt: skip
    blocks = tl.cdiv(k, BN)
    pid = tl.program_id(0)
    row = pid // blocks * BM + tl.arange(0, BM)
    col = pid % blocks * BN + tl.arange(0, BN)
    row_mask = row < n * p * q
    image = row // (p * q)
    out_p = row // q % p
    out_q = row % q
    top = out_p * STRIDE_H - PAD_T
    left = out_q * STRIDE_W - PAD_L
    base = image * x_n + top * x_h + left * x_w
    chan = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    steps = tl.cdiv(c, BK)
    for t in range(R * S * steps):
        tap = t // steps
        at = t % steps * BK + chan
        dy = tap // S * DILATION_H
        dx = tap % S * DILATION_W
        inside = row_mask & (top + dy >= 0) & (top + dy < h) & (left + dx >= 0) & (left + dx < wd)
        a = tl.load(
            x + (base + dy * x_h + dx * x_w)[:, None] + at[None, :],
            mask=inside[:, None] & (at < c)[None, :], other=0.0,
        )  # fmt: skip
        b = tl.load(
            w + (tap * c_padded + at)[:, None] * k_padded + col[None, :],
            mask=(at < c)[:, None] & (col < k_padded)[None, :], other=0.0,
        )  # fmt: skip
        acc = tl.dot(a.to(w.dtype.element_ty), b, acc, input_precision=PRECISION)
    col_mask = col < k
    acc = EPILOGUE(acc, image, col, out_p, out_q, row_mask, col_mask, extra)
    place = places(
        image, col, out_p, out_q, channels, y_n, y_k, y_p, y_q, UNIT=UNIT, BLOCK=BLOCK, CRD=CRD
    )
    tl.store(y + place, acc.to(y.dtype.element_ty), mask=row_mask[:, None] & col_mask[None, :])
