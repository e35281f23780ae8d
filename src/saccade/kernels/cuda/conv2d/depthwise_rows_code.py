"""Depthwise convolution by rows of x that go by in registers, beside weights that stay there.

A row of the block is a strip: ACROSS neighbouring results, as many rows of them as it takes, and a
few channels. A row of x is read once for all the results whose windows have it: their sums wait in
slots, each of them a row of results further on than the one before.
"""

import triton
import triton.language as tl

from saccade.kernels.cuda.conv2d.depthwise_code import filters, tap_of
from saccade.kernels.cuda.conv2d.implicit_gemm_code import pixels_of, within
from saccade.kernels.cuda.conv2d.store_code import store


@triton.jit
def rows_of(
    x, corner, line, left, h, wd, row_mask, read, x_h, STRIDE_H: tl.constexpr,
    PLACES: tl.constexpr, X_W: tl.constexpr,
):  # fmt: skip
    """PLACES elements of each of STRIDE_H rows from `line` on as they are, zeros off the image."""
    found = ()
    for j in tl.static_range(STRIDE_H):
        inside = row_mask & within(line + j, h)
        for x0 in tl.static_range(PLACES):
            mask = (inside & within(left + x0, wd))[:, None] & read[None, :]
            found = found + (tl.load(x + corner + (j * x_h + x0 * X_W), mask, 0.0),)  # noqa: RUF005
    return found


@triton.constexpr_function
def tap_in(slot, row, place, result, shape, stride):
    """Which tap of a result in a slot is a place of a row; -1 if none is."""
    line, across = slot * stride[0] + row, tap_of(place, result, stride[1], 1, shape[1])
    return line * shape[1] + across if line < shape[0] and across >= 0 else -1


@triton.jit
def with_rows(
    sums, rows, taps, SHAPE: tl.constexpr, STRIDE: tl.constexpr, ACROSS: tl.constexpr,
    PLACES: tl.constexpr,
):  # fmt: skip
    """Sums in all slots with the products of a stride of rows."""
    for j in tl.static_range(len(rows)):
        a = rows[j].to(tl.float32)
        for i in tl.static_range(len(sums)):
            if tap_in(i // ACROSS, j // PLACES, j % PLACES, i % ACROSS, SHAPE, STRIDE) >= 0:
                tap = taps[tap_in(i // ACROSS, j // PLACES, j % PLACES, i % ACROSS, SHAPE, STRIDE)]
                sums = sums[:i] + (sums[i] + a * tap,) + sums[i + 1 :]  # noqa: RUF005
    return sums


@triton.jit
def convolve_rows(
    x, w, y, extra,
    n, h, wd, k, p, q, down, x_n, x_h, w_r, w_s, w_k, channels, y_n, y_k, y_p, y_q,
    R: tl.constexpr, S: tl.constexpr, STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr,
    PAD_T: tl.constexpr, PAD_L: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    ACROSS: tl.constexpr, AHEAD: tl.constexpr, UNROLL: tl.constexpr, WHOLE: tl.constexpr,
    X_W: tl.constexpr, W_UNIT: tl.constexpr, X_WIDE: tl.constexpr, W_WIDE: tl.constexpr,
    X_VEC: tl.constexpr, Y_VEC: tl.constexpr, UNIT: tl.constexpr, BLOCK: tl.constexpr,
    CRD: tl.constexpr, PARTS: tl.constexpr, POSITION: tl.constexpr, EXCESS: tl.constexpr,
    ROOM: tl.constexpr, EPILOGUE: tl.constexpr, OTHERS: tl.constexpr = None,
):  # fmt: skip
    """A block of strips, each of `down` rows of results; WHOLE: of all rows that an image has.

    Rows of x are asked for AHEAD steps before they are multiplied, each step a stride of them.
    Strides of x come divided by X_VEC, but for X_W, that of neighbours in a row; `k`, `channels`
    and the strides of y by Y_VEC. Otherwise see `depthwise_code.convolve`.
    """
    PLACES: tl.constexpr = (ACROSS - 1) * STRIDE_W + S
    SLOTS: tl.constexpr = (R + STRIDE_H - 1) // STRIDE_H
    x_n, x_h = x_n * X_VEC, x_h * X_VEC
    k, channels = k * Y_VEC, channels * Y_VEC
    y_n, y_p, y_q = y_n * Y_VEC, y_p * Y_VEC, y_q * Y_VEC
    k_step = 1 if W_UNIT else w_k
    col_blocks = tl.cdiv(k, BN)
    spans, strips = tl.cdiv(q, ACROSS), tl.cdiv(p, down)
    pid = tl.program_id(0)
    row = pid // col_blocks * BM + tl.arange(0, BM)
    start = pid % col_blocks * BN
    col = start + tl.arange(0, BN)
    there = col < k - EXCESS
    read = col < k if X_WIDE else there
    weighted = col < k if W_WIDE else there
    row_mask = row < n * strips * spans
    row = tl.minimum(row, n * strips * spans - 1)
    image, strip, span = pixels_of(row, strips, spans)
    first_p, out_q = strip * down, span * ACROSS
    top = first_p * STRIDE_H - PAD_T
    left = out_q * STRIDE_W - PAD_L
    taps = ()
    for r in tl.static_range(R):
        for s in tl.static_range(S):
            where = w + r * w_r + s * w_s
            taps = taps + (filters(where, col * k_step, weighted, BM),)  # noqa: RUF005
    sums = (tl.zeros((BM, BN), tl.float32),) * (SLOTS * ACROSS)
    # Rows above the image add nothing, and the sums of all slots are 0 at first. Results whose
    # windows are all above it are stored as well, the first one once its sums are in the last slot.
    begin: tl.constexpr = min(PAD_T // STRIDE_H, SLOTS - 1) if WHOLE else 0
    line = top + begin * STRIDE_H
    corner = (image * x_n + line * x_h + left * X_W)[:, None] + col[None, :]
    coming = ()
    for _ in tl.static_range(AHEAD):
        coming = coming + rows_of(
            x, corner, line, left, h, wd, row_mask, read, x_h, STRIDE_H, PLACES, X_W
        )
        line += STRIDE_H
        corner += STRIDE_H * x_h
    for t in tl.range(begin, down + SLOTS - 1, loop_unroll_factor=UNROLL):
        rows = coming[: STRIDE_H * PLACES]
        coming = coming[STRIDE_H * PLACES :] + rows_of(
            x, corner, line, left, h, wd, row_mask, read, x_h, STRIDE_H, PLACES, X_W
        )
        line += STRIDE_H
        corner += STRIDE_H * x_h
        sums = with_rows(sums, rows, taps, (R, S), (STRIDE_H, STRIDE_W), ACROSS, PLACES)
        done = t - (SLOTS - 1)
        out_p = first_p + done
        stored = row_mask & (out_p >= first_p) & (out_p < p)
        for i in tl.static_range(ACROSS):
            store(
                y, sums[(SLOTS - 1) * ACROSS + i], image, start, k, out_p, out_q + i,
                stored & (out_q + i < q), extra, channels, y_n, y_k, y_p, y_q, UNIT, BLOCK, CRD,
                PARTS, POSITION, EXCESS, ROOM, EPILOGUE, OTHERS,
            )  # fmt: skip
        sums = (tl.zeros((BM, BN), tl.float32),) * ACROSS + sums[: (SLOTS - 1) * ACROSS]
