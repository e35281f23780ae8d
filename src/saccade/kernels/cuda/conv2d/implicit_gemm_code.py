"""Implicit GEMM: rows are output pixels, columns output channels, sums run over taps and channels.

Weights are found by strides, packed as [groups, R, S, C', K'] or as they are.
"""

import triton
import triton.language as tl

from saccade.kernels.cuda.conv2d.store_code import store


@triton.jit
def block_of(pid, row_blocks, col_blocks, GROUP: tl.constexpr):
    """Row block and column block of a program.

    Columns follow each other; with GROUP > 1 so many row blocks go together from column to column,
    so that programs that run at once share weights as well as pixels in the L2 cache.
    """
    if GROUP == 1:
        return pid // col_blocks, pid % col_blocks
    band = pid // (GROUP * col_blocks)
    size = tl.minimum(row_blocks - band * GROUP, GROUP)
    within = pid % (GROUP * col_blocks)
    return band * GROUP + within % size, within // size


@triton.jit
def block_sums(
    x, w, extra, image, top, left, row_mask, group, col, begin, end,
    h, wd, c, columns, x_n, x_c, x_h, x_w, w_g, w_r, w_s, w_c, w_k,
    R: tl.constexpr, S: tl.constexpr, DILATION_H: tl.constexpr, DILATION_W: tl.constexpr,
    PADDED: tl.constexpr, PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr, TAPS_INNER: tl.constexpr, X_UNIT: tl.constexpr, W_UNIT: tl.constexpr,
    EVEN_C: tl.constexpr, EVEN_K: tl.constexpr, PROLOGUE: tl.constexpr,
):  # fmt: skip
    """Sums [BM, BN] of steps `begin` to `end`, each one of BK channels at one tap.

    Rows beyond the last have to be those of some pixel that there is; `c` counts the channels of a
    group, `columns` how many columns of the weights may be read. EVEN_C and EVEN_K: blocks of
    channels and of columns are whole. X_UNIT: channels of x are neighbours; W_UNIT: the axis along
    which weights are.
    """
    chan = tl.arange(0, BK)
    c_step = 1 if X_UNIT else x_c
    pixel = image * x_n + top * x_h + left * x_w
    wk_step = 1 if W_UNIT == "k" else w_k
    wc_step = 1 if W_UNIT == "c" else w_c
    filters = w + group * w_g + (col * wk_step)[None, :]
    steps = tl.cdiv(c, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for t in range(begin, end):
        if R * S == 1:
            tap = 0
            at = t * BK + chan
        elif TAPS_INNER:
            tap = t % (R * S)
            at = t // (R * S) * BK + chan
        else:
            tap = t // steps
            at = t % steps * BK + chan
        dy = tap // S * DILATION_H
        dx = tap % S * DILATION_W
        pointers = x + (pixel + dy * x_h + dx * x_w)[:, None]
        pointers += ((group * c + at) * c_step)[None, :]
        inside = row_mask
        if PADDED:
            inside = (top + dy >= 0) & (top + dy < h) & (left + dx >= 0) & (left + dx < wd)
        chan_mask = at < c
        if PADDED and EVEN_C:
            a = tl.load(pointers, mask=inside[:, None], other=0.0)
        elif PADDED:
            a = tl.load(pointers, mask=inside[:, None] & chan_mask[None, :], other=0.0)
        elif EVEN_C:
            a = tl.load(pointers)
        else:
            a = tl.load(pointers, mask=chan_mask[None, :], other=0.0)
        if PROLOGUE is not None:
            wide = PROLOGUE(
                a.to(tl.float32), image, group * c + at, top, left, row_mask, chan_mask, extra
            )
            wide = tl.where(inside[:, None] & chan_mask[None, :], wide, 0.0)
            a = wide.to(a.dtype)
        place = filters + (tap // S * w_r + tap % S * w_s + at * wc_step)[:, None]
        if EVEN_C and EVEN_K:
            b = tl.load(place)
        elif EVEN_C:
            b = tl.load(place, mask=(col < columns)[None, :], other=0.0)
        elif EVEN_K:
            b = tl.load(place, mask=chan_mask[:, None], other=0.0)
        else:
            b = tl.load(place, mask=chan_mask[:, None] & (col < columns)[None, :], other=0.0)
        if w.dtype.element_ty.primitive_bitwidth < a.dtype.primitive_bitwidth:
            a = a.to(w.dtype.element_ty)  # packed in the type that products are made in
        acc = tl.dot(a, b.to(a.dtype), acc, input_precision=PRECISION)
    return acc


@triton.jit
def convolve(
    x, w, y, extra,
    n, h, wd, c, k, p, q, columns, x_n, x_c, x_h, x_w, w_g, w_r, w_s, w_c, w_k,
    channels, y_n, y_k, y_p, y_q,
    R: tl.constexpr, S: tl.constexpr, STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr,
    DILATION_H: tl.constexpr, DILATION_W: tl.constexpr, PAD_T: tl.constexpr, PAD_L: tl.constexpr,
    PADDED: tl.constexpr, PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr, GROUP: tl.constexpr, TAPS_INNER: tl.constexpr, X_UNIT: tl.constexpr,
    W_UNIT: tl.constexpr, EVEN_C: tl.constexpr, EVEN_K: tl.constexpr,
    X_VEC: tl.constexpr, Y_VEC: tl.constexpr, UNIT: tl.constexpr, BLOCK: tl.constexpr,
    CRD: tl.constexpr, PARTS: tl.constexpr, POSITION: tl.constexpr, EPILOGUE: tl.constexpr,
    PROLOGUE: tl.constexpr = None, OTHERS: tl.constexpr = None,
):  # fmt: skip
    """One block of results; `c` and `k` count the channels of a group.

    `c` and the strides of x come divided by X_VEC, `k`, `channels` and the strides of y by Y_VEC:
    so that the compiler knows what they are multiples of.
    """
    c, x_n, x_h, x_w = c * X_VEC, x_n * X_VEC, x_h * X_VEC, x_w * X_VEC
    k, channels = k * Y_VEC, channels * Y_VEC
    y_n, y_p, y_q = y_n * Y_VEC, y_p * Y_VEC, y_q * Y_VEC
    col_blocks = tl.cdiv(k, BN)
    row_blocks = tl.cdiv(n * p * q, BM)
    pid = tl.program_id(0)
    group = pid // (row_blocks * col_blocks)
    row_block, col_block = block_of(pid % (row_blocks * col_blocks), row_blocks, col_blocks, GROUP)
    row = row_block * BM + tl.arange(0, BM)
    col = col_block * BN + tl.arange(0, BN)
    row_mask = row < n * p * q
    row = tl.minimum(row, n * p * q - 1)
    image = row // (p * q)
    out_p = row // q % p
    out_q = row % q
    acc = block_sums(
        x, w, extra, image, out_p * STRIDE_H - PAD_T, out_q * STRIDE_W - PAD_L, row_mask, group,
        col, 0, R * S * tl.cdiv(c, BK),
        h, wd, c, columns, x_n, x_c, x_h, x_w, w_g, w_r, w_s, w_c, w_k,
        R, S, DILATION_H, DILATION_W, PADDED, PRECISION, BM, BN, BK, TAPS_INNER, X_UNIT, W_UNIT,
        EVEN_C, EVEN_K, PROLOGUE,
    )  # fmt: skip
    store(
        y, acc, image, group * k + col_block * BN, (group + 1) * k, out_p, out_q, row_mask, extra,
        channels, y_n, y_k, y_p, y_q, UNIT, BLOCK, CRD, PARTS, POSITION, EPILOGUE, OTHERS,
    )  # fmt: skip
