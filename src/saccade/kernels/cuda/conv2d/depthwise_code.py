"""Depthwise convolution on the CUDA cores: blocks of pixels times channels, taps unrolled.

A row of the block is a column of STRIP results below each other, so that each row of x that it
reads serves all the results whose windows have it.
"""

import triton
import triton.language as tl

from saccade.kernels.cuda.conv2d.store_code import store


@triton.jit
def pixels(
    x, pixel, at, c_step, x_h, x_w, dy, dx, window, extra,
    TALL: tl.constexpr, WIDE: tl.constexpr, PROLOGUE: tl.constexpr,
):  # fmt: skip
    """Elements of x at one tap, in float32, zero outside the image.

    TALL and WIDE say that windows may reach over its edges.
    """
    image, top, left, h, wd, row_mask, col_mask = window
    inside = row_mask
    if TALL:
        inside = inside & (top + dy >= 0) & (top + dy < h)
    if WIDE:
        inside = inside & (left + dx >= 0) & (left + dx < wd)
    mask = inside[:, None] & col_mask[None, :]
    place = (pixel + dy * x_h + dx * x_w)[:, None] + (at * c_step)[None, :]
    a = tl.load(x + place, mask=mask, other=0.0).to(tl.float32)
    if PROLOGUE is not None:
        a = tl.where(mask, PROLOGUE(a, image, at, top, left, row_mask, col_mask, extra), 0.0)
    return a


@triton.jit
def filters(w, place, col_mask, BM: tl.constexpr):
    """Weights of one tap for each row of the block: threads load them as they load x."""
    places = place[None, :] + tl.zeros((BM, 1), tl.int32)
    mask = col_mask[None, :] & (tl.zeros((BM, 1), tl.int32) == 0)
    return tl.load(w + places, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def convolve(
    x, w, y, extra,
    n, h, wd, k, p, q, x_n, x_c, x_h, x_w, w_r, w_s, w_c, w_k,
    channels, y_n, y_k, y_p, y_q,
    C: tl.constexpr, MULTIPLIER: tl.constexpr, R: tl.constexpr, S: tl.constexpr,
    STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr, DILATION_H: tl.constexpr,
    DILATION_W: tl.constexpr, PAD_T: tl.constexpr, PAD_L: tl.constexpr, PADDED: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, STRIP: tl.constexpr,
    UNROLL: tl.constexpr, X_UNIT: tl.constexpr, W_UNIT: tl.constexpr, X_VEC: tl.constexpr,
    Y_VEC: tl.constexpr, UNIT: tl.constexpr, BLOCK: tl.constexpr, CRD: tl.constexpr,
    PARTS: tl.constexpr, POSITION: tl.constexpr, EPILOGUE: tl.constexpr,
    PROLOGUE: tl.constexpr = None, OTHERS: tl.constexpr = None,
):  # fmt: skip
    """STRIP blocks of results; C channels of x and MULTIPLIER of y make a group.

    Strides of x come divided by X_VEC, `k`, `channels` and the strides of y by Y_VEC.
    """
    x_n, x_h, x_w = x_n * X_VEC, x_h * X_VEC, x_w * X_VEC
    k, channels = k * Y_VEC, channels * Y_VEC
    y_n, y_p, y_q = y_n * Y_VEC, y_p * Y_VEC, y_q * Y_VEC
    c_step = 1 if X_UNIT else x_c
    k_step = 1 if W_UNIT else w_k
    col_blocks = tl.cdiv(k, BN)
    strips = tl.cdiv(p, STRIP)
    pid = tl.program_id(0)
    row = pid // col_blocks * BM + tl.arange(0, BM)
    start = pid % col_blocks * BN
    col = start + tl.arange(0, BN)
    col_mask = col < k
    row_mask = row < n * strips * q
    row = tl.minimum(row, n * strips * q - 1)
    image = row // (strips * q)
    out_p = row // q % strips * STRIP
    out_q = row % q
    top = out_p * STRIDE_H - PAD_T
    left = out_q * STRIDE_W - PAD_L
    chan = col // MULTIPLIER * C
    pixel = image * x_n + top * x_h + left * x_w
    window = (image, top, left, h, wd, row_mask, col_mask)
    sums = ()
    for _ in tl.static_range(STRIP):
        sums = sums + (tl.zeros((BM, BN), tl.float32),)  # noqa: RUF005 - no Triton
    if STRIP == 1:
        acc = sums[0]
        # Each step a row of taps of one channel: all of it at once would be too much code.
        for t in tl.range(C * R, loop_unroll_factor=UNROLL):
            j = 0 if C == 1 else t // R
            r = t - j * R
            for s in tl.static_range(S):
                a = pixels(
                    x, pixel, chan + j, c_step, x_h, x_w, r * DILATION_H, s * DILATION_W, window,
                    extra, PADDED, PADDED, PROLOGUE,
                )  # fmt: skip
                where = w + j * w_c + r * w_r + s * w_s
                acc += a * filters(where, col * k_step, col_mask, BM)
        sums = (acc,)
    else:
        for y0 in tl.static_range((STRIP - 1) * STRIDE_H + (R - 1) * DILATION_H + 1):
            for s in tl.static_range(S):
                # Whether a result of the strip has this row in its window.
                used = False
                for i in tl.static_range(STRIP):
                    r = y0 - i * STRIDE_H
                    if r >= 0 and r % DILATION_H == 0 and r // DILATION_H < R:
                        used = True
                if used:
                    a = pixels(
                        x, pixel, chan, c_step, x_h, x_w, y0, s * DILATION_W, window, extra,
                        True, PADDED, PROLOGUE,
                    )  # fmt: skip
                    for i in tl.static_range(STRIP):
                        r = y0 - i * STRIDE_H
                        if r >= 0 and r % DILATION_H == 0 and r // DILATION_H < R:
                            where = w + r // DILATION_H * w_r + s * w_s
                            new = sums[i] + a * filters(where, col * k_step, col_mask, BM)
                            sums = sums[:i] + (new,) + sums[i + 1 :]  # noqa: RUF005
    for i in tl.static_range(STRIP):
        store(
            y, sums[i], image, start, k, out_p + i, out_q, row_mask & (out_p + i < p), extra,
            channels, y_n, y_k, y_p, y_q, UNIT, BLOCK, CRD, PARTS, POSITION, EPILOGUE, OTHERS,
        )  # fmt: skip
