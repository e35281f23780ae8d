"""Split sums: parts of the taps and channels side by side, then their sum in a fixed order."""

import triton
import triton.language as tl

from saccade.kernels.cuda.conv2d.implicit_gemm_code import block_of, block_sums, pixels_of
from saccade.kernels.cuda.conv2d.store_code import store


@triton.jit
def sum_parts(
    x, w, parts, extra,
    n, h, wd, c, k, p, q, columns, x_n, x_c, x_h, x_w, w_g, w_r, w_s, w_c, w_k, pitch,
    SPLITS: tl.constexpr, R: tl.constexpr, S: tl.constexpr, STRIDE_H: tl.constexpr,
    STRIDE_W: tl.constexpr, DILATION_H: tl.constexpr, DILATION_W: tl.constexpr,
    PAD_T: tl.constexpr, PAD_L: tl.constexpr, PADDED: tl.constexpr, PRECISION: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
    TAPS_INNER: tl.constexpr, X_UNIT: tl.constexpr, W_UNIT: tl.constexpr, EVEN_C: tl.constexpr,
    EVEN_K: tl.constexpr, X_VEC: tl.constexpr, Y_VEC: tl.constexpr, PROLOGUE: tl.constexpr = None,
):  # fmt: skip
    """One block of one part, to `parts` [SPLITS, N·P·Q, pitch] in float32.

    `c`, the strides of x and `k` come divided as for `implicit_gemm_code.convolve`.
    """
    c, x_n, x_h, x_w = c * X_VEC, x_n * X_VEC, x_h * X_VEC, x_w * X_VEC
    rows = n * p * q
    col_blocks = tl.cdiv(k * Y_VEC, BN)
    row_blocks = tl.cdiv(rows, BM)
    pid = tl.program_id(0)
    part = pid // (row_blocks * col_blocks)
    row_block, col_block = block_of(pid % (row_blocks * col_blocks), row_blocks, col_blocks, GROUP)
    row = row_block * BM + tl.arange(0, BM)
    col = col_block * BN + tl.arange(0, BN)
    row_mask = row < rows
    # `block_sums` loads rows beyond the last as well: they read the last one's pixels.
    image, out_p, out_q = pixels_of(tl.minimum(row, rows - 1), p, q)
    steps = R * S * tl.cdiv(c, BK)
    # The last parts may get fewer steps or none: their sums are zeros then.
    share = tl.cdiv(steps, SPLITS)
    acc = block_sums(
        x, w, extra, image, out_p * STRIDE_H - PAD_T, out_q * STRIDE_W - PAD_L, row_mask, 0, col,
        part * share, tl.minimum(steps, (part + 1) * share),
        h, wd, c, columns, x_n, x_c, x_h, x_w, w_g, w_r, w_s, w_c, w_k,
        R, S, DILATION_H, DILATION_W, PADDED, PRECISION, BM, BN, BK, TAPS_INNER, X_UNIT, W_UNIT,
        EVEN_C, EVEN_K, PROLOGUE,
    )  # fmt: skip
    # Up to the pitch, so that `add_parts` reads nothing that was never written.
    place = (part * rows + row)[:, None] * pitch + col[None, :]
    tl.store(parts + place, acc, mask=row_mask[:, None] & (col < pitch)[None, :])


@triton.jit
def add_parts(
    parts, y, extra, n, k, p, q, pitch, channels, y_n, y_k, y_p, y_q,
    SPLITS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, Y_VEC: tl.constexpr,
    UNIT: tl.constexpr, BLOCK: tl.constexpr, CRD: tl.constexpr, PARTS: tl.constexpr,
    POSITION: tl.constexpr, EXCESS: tl.constexpr, ROOM: tl.constexpr,
    EPILOGUE: tl.constexpr, OTHERS: tl.constexpr = None,
):  # fmt: skip
    """One block of results: the parts' sum, first to last, with the epilogue."""
    k, channels = k * Y_VEC, channels * Y_VEC
    y_n, y_p, y_q = y_n * Y_VEC, y_p * Y_VEC, y_q * Y_VEC
    rows = n * p * q
    col_blocks = tl.cdiv(k, BN)
    pid = tl.program_id(0)
    row = pid // col_blocks * BM + tl.arange(0, BM)
    start = pid % col_blocks * BN
    col = start + tl.arange(0, BN)
    row_mask = row < rows
    mask = row_mask[:, None] & (col < pitch)[None, :]
    image, out_p, out_q = pixels_of(row, p, q)
    acc = tl.zeros((BM, BN), tl.float32)
    # By number, not by which is done first: results are the same in every run.
    for part in tl.static_range(SPLITS):
        place = (part * rows + row)[:, None] * pitch + col[None, :]
        acc += tl.load(parts + place, mask=mask, other=0.0)
    store(
        y, acc, image, start, k, out_p, out_q, row_mask, extra,
        channels, y_n, y_k, y_p, y_q, UNIT, BLOCK, CRD, PARTS, POSITION,
        EXCESS, ROOM, EPILOGUE, OTHERS,
    )  # fmt: skip
