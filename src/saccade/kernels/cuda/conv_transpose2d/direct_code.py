"""Transposed convolution as a gather: an implicit GEMM for each residue class of the result.

Results whose place plus padding leaves the same remainder by the stride, along rows and along
columns, read the same taps, and x at whole pixels: those of a class are the rows of one product.
"""

import triton
import triton.language as tl

from saccade.kernels.cuda.conv2d.implicit_gemm_code import pixels_of, within
from saccade.kernels.cuda.conv2d.store_code import store


@triton.jit
def first_tap(residue, TAPS: tl.constexpr, STRIDE: tl.constexpr, DILATION: tl.constexpr,
              STEP: tl.constexpr):  # fmt: skip
    """The first tap that results of a residue read; TAPS if there is none."""
    found = TAPS + residue * 0
    for i in tl.static_range(STEP):
        r = STEP - 1 - i
        if r < TAPS:
            found = tl.where((r * DILATION + STRIDE - residue) % STRIDE == 0, r, found)
    return found


@triton.jit
def convolve_transposed(
    x, w, y, extra,
    n, h, wd, c, k, p, q, columns, x_n, x_c, x_h, x_w, w_g, w_r, w_s, w_c, w_k, groups,
    channels, y_n, y_k, y_p, y_q,
    R: tl.constexpr, S: tl.constexpr, STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr,
    DILATION_H: tl.constexpr, DILATION_W: tl.constexpr, PAD_T: tl.constexpr, PAD_L: tl.constexpr,
    STEP_H: tl.constexpr, STEP_W: tl.constexpr, PRECISION: tl.constexpr, BM: tl.constexpr,
    BN: tl.constexpr, BK: tl.constexpr, X_UNIT: tl.constexpr, W_UNIT: tl.constexpr,
    EVEN_C: tl.constexpr, EVEN_K: tl.constexpr, X_VEC: tl.constexpr, Y_VEC: tl.constexpr,
    UNIT: tl.constexpr, BLOCK: tl.constexpr, CRD: tl.constexpr, PARTS: tl.constexpr,
    POSITION: tl.constexpr, EXCESS: tl.constexpr, ROOM: tl.constexpr,
    EPILOGUE: tl.constexpr, OTHERS: tl.constexpr = None,
):  # fmt: skip
    """One block of results of one class; STEP_H and STEP_W are the distances of taps of a class.

    `c`, `k`, `channels` and strides come divided as for `conv2d.implicit_gemm_code.convolve`.
    """
    c, x_n, x_h, x_w = c * X_VEC, x_n * X_VEC, x_h * X_VEC, x_w * X_VEC
    k, channels = k * Y_VEC, channels * Y_VEC
    y_n, y_p, y_q = y_n * Y_VEC, y_p * Y_VEC, y_q * Y_VEC
    c_step = 1 if X_UNIT else x_c
    wk_step = 1 if W_UNIT == "k" else w_k
    wc_step = 1 if W_UNIT == "c" else w_c
    # Neighbouring programs are of one block of places: its classes fill whole lines together.
    pid = tl.program_id(0)
    kind = pid % (STRIDE_H * STRIDE_W)
    pid = pid // (STRIDE_H * STRIDE_W)
    col_blocks = tl.cdiv(k, BN)
    group = pid // col_blocks % groups
    start = pid % col_blocks * BN
    tall, wide = tl.cdiv(p, STRIDE_H), tl.cdiv(q, STRIDE_W)
    rows = n * tall * wide
    row = pid // (col_blocks * groups) * BM + tl.arange(0, BM)
    col = start + tl.arange(0, BN)
    row_mask = row < rows
    row = tl.minimum(row, rows - 1)
    image, line, column = pixels_of(row, tall, wide)
    out_p = line * STRIDE_H + kind // STRIDE_W
    out_q = column * STRIDE_W + kind % STRIDE_W
    row_mask = row_mask & (out_p < p) & (out_q < q)
    r0 = first_tap((kind // STRIDE_W + PAD_T) % STRIDE_H, R, STRIDE_H, DILATION_H, STEP_H)
    s0 = first_tap((kind % STRIDE_W + PAD_L) % STRIDE_W, S, STRIDE_W, DILATION_W, STEP_W)
    in_h = (out_p + PAD_T - r0 * DILATION_H) // STRIDE_H
    in_w = (out_q + PAD_L - s0 * DILATION_W) // STRIDE_W
    s_count = (S - s0 + STEP_W - 1) // STEP_W
    taps = (R - r0 + STEP_H - 1) // STEP_H * s_count
    steps = tl.cdiv(c, BK)
    chan = tl.arange(0, BK)
    corner = image * x_n + in_h * x_h + in_w * x_w + group * c * c_step
    pixels = x + corner[:, None] + (chan * c_step)[None, :]
    filters = w + group * w_g + r0 * w_r + s0 * w_s
    filters += (chan * wc_step)[:, None] + (col * wk_step)[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    # Counted up, as there is no cheap division by what only the launch knows.
    u = 0
    v = 0
    first = 0
    for _ in range(taps * steps):
        up = u * (STEP_H * DILATION_H // STRIDE_H)
        back = v * (STEP_W * DILATION_W // STRIDE_W)
        mask = (row_mask & within(in_h - up, h) & within(in_w - back, wd))[:, None]
        if not EVEN_C:
            mask = mask & (chan < c - first)[None, :]
        a = tl.load(pixels + (first * c_step - up * x_h - back * x_w), mask=mask, other=0.0)
        places = filters + (u * STEP_H * w_r + v * STEP_W * w_s + first * wc_step)
        if EVEN_C and EVEN_K:
            b = tl.load(places)
        elif EVEN_C:
            b = tl.load(places, mask=(col < columns)[None, :], other=0.0)
        else:
            few = (chan < c - first)[:, None]
            b = tl.load(places, mask=few & (col < columns)[None, :], other=0.0)
        acc = tl.dot(a, b.to(a.dtype), acc, input_precision=PRECISION)
        first += BK
        v += tl.where(first >= c, 1, 0)
        first = tl.where(first >= c, 0, first)
        u += tl.where(v == s_count, 1, 0)
        v = tl.where(v == s_count, 0, v)
    store(
        y, acc, image, group * k + start, (group + 1) * k, out_p, out_q, row_mask, extra,
        channels, y_n, y_k, y_p, y_q, UNIT, BLOCK, CRD, PARTS, POSITION,
        EXCESS, ROOM, EPILOGUE, OTHERS,
    )  # fmt: skip
