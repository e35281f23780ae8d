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
def pixels_of(row, p, q):
    """Image, row and column [BM] of results that are numbered over images of p x q."""
    # Without a sign, division takes fewer instructions.
    line = row.to(tl.uint32) // q.to(tl.uint32)
    image = line // p.to(tl.uint32)
    out_p = line - image * p.to(tl.uint32)
    out_q = row.to(tl.uint32) - line * q.to(tl.uint32)
    return image.to(tl.int32), out_p.to(tl.int32), out_q.to(tl.int32)


@triton.jit
def within(at, size):
    """Whether places are from 0 to below a size: without a sign, below 0 is far."""
    return at.to(tl.uint32) < size.to(tl.uint32)


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
    wk_step = 1 if W_UNIT == "k" else w_k
    wc_step = 1 if W_UNIT == "c" else w_c
    # What changes from step to step is one number for all rows, so that a load costs an addition.
    corner = image * x_n + top * x_h + left * x_w + group * c * c_step
    pixels = x + corner[:, None] + (chan * c_step)[None, :]
    filters = w + group * w_g + (chan * wc_step)[:, None] + (col * wk_step)[None, :]
    steps = tl.cdiv(c, BK)
    # Counted up, as there is no cheap division by what only the launch knows.
    if TAPS_INNER:
        tap, first = begin % (R * S), begin // (R * S) * BK
    else:
        tap, first = begin // steps, begin % steps * BK
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(begin, end):
        dy = tap // S * DILATION_H
        dx = tap % S * DILATION_W
        pointers = pixels + (dy * x_h + dx * x_w + first * c_step)
        inside = row_mask
        if PADDED:
            inside = within(top + dy, h) & within(left + dx, wd)
        chan_mask = chan < c - first
        # A mask costs instructions in every step: there is one only where something may be missing.
        if PADDED and EVEN_C:
            a = tl.load(pointers, mask=inside[:, None], other=0.0)
        elif PADDED:
            a = tl.load(pointers, mask=inside[:, None] & chan_mask[None, :], other=0.0)
        elif EVEN_C:
            a = tl.load(pointers)
        else:
            a = tl.load(pointers, mask=chan_mask[None, :], other=0.0)
        if PROLOGUE is not None:
            at = group * c + first + chan
            wide = PROLOGUE(a.to(tl.float32), image, at, top, left, row_mask, chan_mask, extra)
            # What lies outside is zero behind the prologue, not in front of it.
            wide = tl.where(inside[:, None] & chan_mask[None, :], wide, 0.0)
            a = wide.to(a.dtype)
        places = filters + (tap // S * w_r + tap % S * w_s + first * wc_step)
        if EVEN_C and EVEN_K:
            b = tl.load(places)
        elif EVEN_C:
            b = tl.load(places, mask=(col < columns)[None, :], other=0.0)
        elif EVEN_K:
            b = tl.load(places, mask=chan_mask[:, None], other=0.0)
        else:
            b = tl.load(places, mask=chan_mask[:, None] & (col < columns)[None, :], other=0.0)
        if w.dtype.element_ty.primitive_bitwidth < a.dtype.primitive_bitwidth:
            a = a.to(w.dtype.element_ty)  # packed in the type that products are made in
        acc = tl.dot(a, b.to(a.dtype), acc, input_precision=PRECISION)
        if TAPS_INNER:
            first += tl.where(tap == R * S - 1, BK, 0)
            tap = tl.where(tap == R * S - 1, 0, tap + 1)
        else:
            tap += tl.where(first + BK >= c, 1, 0)
            first = tl.where(first + BK >= c, 0, first + BK)
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
    CRD: tl.constexpr, PARTS: tl.constexpr, POSITION: tl.constexpr,
    EXCESS: tl.constexpr, ROOM: tl.constexpr, EPILOGUE: tl.constexpr,
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
    # `block_sums` loads rows beyond the last as well: they read the last one's pixels.
    row = tl.minimum(row, n * p * q - 1)
    image, out_p, out_q = pixels_of(row, p, q)
    acc = block_sums(
        x, w, extra, image, out_p * STRIDE_H - PAD_T, out_q * STRIDE_W - PAD_L, row_mask, group,
        col, 0, R * S * tl.cdiv(c, BK),
        h, wd, c, columns, x_n, x_c, x_h, x_w, w_g, w_r, w_s, w_c, w_k,
        R, S, DILATION_H, DILATION_W, PADDED, PRECISION, BM, BN, BK, TAPS_INNER, X_UNIT, W_UNIT,
        EVEN_C, EVEN_K, PROLOGUE,
    )  # fmt: skip
    store(
        y, acc, image, group * k + col_block * BN, (group + 1) * k, out_p, out_q, row_mask, extra,
        channels, y_n, y_k, y_p, y_q, UNIT, BLOCK, CRD, PARTS, POSITION,
        EXCESS, ROOM, EPILOGUE, OTHERS,
    )  # fmt: skip
