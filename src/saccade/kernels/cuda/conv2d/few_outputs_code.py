"""Convolution to few channels: strips of rows, each row of x loaded once for all its results.

Weights are packed [R, S, C', columns], zeros beyond the channels that there are.
"""

import triton
import triton.language as tl

from saccade.kernels.cuda.conv2d.depthwise_code import tap_of
from saccade.kernels.cuda.conv2d.implicit_gemm_code import within
from saccade.kernels.cuda.conv2d.store_code import store


@triton.jit
def row_of_taps(
    x, left, line, h, wd, x_h, x_w, chan, channels, to, S: tl.constexpr, DILATION_W: tl.constexpr
):
    """Blocks [BM, BC] of x, one for each tap of a row, in the type of products; zero outside."""
    blocks = ()
    there = within(line + tl.zeros_like(left), h)
    pixel = x + line * x_h
    for s in tl.static_range(S):
        at = left + s * DILATION_W
        # Blocks may end beyond the row, whether there is padding or not.
        mask = (within(at, wd) & there)[:, None] & (chan < channels)[None, :]
        a = tl.load(pixel + (at * x_w)[:, None] + chan[None, :], mask=mask, other=0.0)
        blocks = blocks + (a.to(to),)  # noqa: RUF005 - no Triton
    return blocks


@triton.jit
def with_products(total, blocks, taps, S: tl.constexpr, ROW: tl.constexpr, PRECISION: tl.constexpr):
    """Sums with the products of a row of x, if it is in the window of the results at all."""
    if ROW >= 0:
        for s in tl.static_range(S):
            total = tl.dot(blocks[s], taps[ROW * S + s], total, input_precision=PRECISION)
    return total


@triton.jit
def convolve(
    x, w, y, extra,
    n, h, wd, c, k, p, q, columns, x_n, x_h, x_w, channels, y_n, y_k, y_p, y_q,
    R: tl.constexpr, S: tl.constexpr, STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr,
    DILATION_H: tl.constexpr, DILATION_W: tl.constexpr, PAD_T: tl.constexpr, PAD_L: tl.constexpr,
    PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    BC: tl.constexpr, STRIP: tl.constexpr, X_VEC: tl.constexpr, Y_VEC: tl.constexpr,
    ROWS: tl.constexpr, UNIT: tl.constexpr, BLOCK: tl.constexpr, CRD: tl.constexpr,
    PARTS: tl.constexpr, POSITION: tl.constexpr, EXCESS: tl.constexpr, ROOM: tl.constexpr,
    EPILOGUE: tl.constexpr,
    OTHERS: tl.constexpr = None,
):  # fmt: skip
    """STRIP blocks of results, below each other. ROWS: neighbours of a row of y lie side by side.

    `c` and the strides of x come divided by X_VEC, `k`, `channels` and the strides of y by Y_VEC.
    """
    c, x_n, x_h, x_w = c * X_VEC, x_n * X_VEC, x_h * X_VEC, x_w * X_VEC
    k, channels = k * Y_VEC, channels * Y_VEC
    y_n, y_p, y_q = y_n * Y_VEC, y_p * Y_VEC, y_q * Y_VEC
    if ROWS:
        y_q = 1
    spans = tl.cdiv(q, BM)
    strips = tl.cdiv(p, STRIP)
    pid = tl.program_id(0)
    out_q = pid % spans * BM + tl.arange(0, BM)
    out_p = pid // spans % strips * STRIP
    image = pid // (spans * strips)
    left = out_q * STRIDE_W - PAD_L
    top = out_p * STRIDE_H - PAD_T
    x += image * x_n
    chan = tl.arange(0, BC)
    col = tl.arange(0, BN)
    taps = ()
    for tap in tl.static_range(R * S):
        # Without a mask: packed weights have zeros for all of a block's channels and columns.
        place = (tap * BC + chan)[:, None] * columns + col[None, :]
        taps = taps + (tl.load(w + place),)  # noqa: RUF005
    sums = ()
    for _ in tl.static_range(STRIP):
        sums = sums + (tl.zeros((BM, BN), tl.float32),)  # noqa: RUF005
    element = w.dtype.element_ty
    ahead = row_of_taps(x, left, top, h, wd, x_h, x_w, chan, c, element, S, DILATION_W)
    for y0 in tl.static_range((STRIP - 1) * STRIDE_H + (R - 1) * DILATION_H + 1):
        blocks = ahead
        # The next row is on its way while this one is multiplied.
        if y0 < (STRIP - 1) * STRIDE_H + (R - 1) * DILATION_H:
            ahead = row_of_taps(
                x, left, top + y0 + 1, h, wd, x_h, x_w, chan, c, element, S, DILATION_W
            )
        for i in tl.static_range(STRIP):
            new = with_products(
                sums[i], blocks, taps, S, tap_of(y0, i, STRIDE_H, DILATION_H, R), PRECISION
            )
            sums = sums[:i] + (new,) + sums[i + 1 :]  # noqa: RUF005
        for i in tl.static_range(STRIP):
            # Stored with the last row of x that it takes, so that its registers are free again.
            if y0 == i * STRIDE_H + (R - 1) * DILATION_H:
                line = out_p + i + tl.zeros((BM,), tl.int32)
                store(
                    y, sums[i], image + tl.zeros((BM,), tl.int32), 0, k, line, out_q,
                    (out_q < q) & (line < p), extra, channels, y_n, y_k, y_p, y_q, UNIT, BLOCK,
                    CRD, PARTS, POSITION, EXCESS, ROOM, EPILOGUE, OTHERS,
                )  # fmt: skip
