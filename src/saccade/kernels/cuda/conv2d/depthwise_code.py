"""Depthwise convolution on the CUDA cores: blocks of pixels times channels, taps unrolled.

A row of the block is a run of ACROSS neighbouring results, so that what it reads of x and of the
weights is read once for all the results whose windows have it.
"""

import triton
import triton.language as tl

from saccade.kernels.cuda.conv2d.implicit_gemm_code import pixels_of, within
from saccade.kernels.cuda.conv2d.store_code import store


@triton.jit
def pixels(
    x, pixel, at, c_step, x_h, x_w, dy, dx, window, extra,
    TALL: tl.constexpr, WIDE: tl.constexpr, PROLOGUE: tl.constexpr,
):  # fmt: skip
    """Elements of x at one tap, in float32, zero outside the image.

    TALL and WIDE say that windows may reach over its edges. Rows are those of results that there
    are, so that nothing else keeps a load inside.
    """
    image, top, left, h, wd, row_mask, col_mask, read_mask, _ = window
    # All true, in the rows' layout: rows beyond the last were brought back to it.
    inside = row_mask | True
    if TALL:
        inside = inside & within(top + dy, h)
    if WIDE:
        inside = inside & within(left + dx, wd)
    mask = inside[:, None] & read_mask[None, :]
    place = (pixel + dy * x_h + dx * x_w)[:, None] + (at * c_step)[None, :]
    a = tl.load(x + place, mask=mask, other=0.0).to(tl.float32)
    # Padding lies behind the prologue: it is zero whatever the prologue makes of zeros.
    if PROLOGUE is not None:
        a = tl.where(mask, PROLOGUE(a, image, at, top, left, row_mask, col_mask, extra), 0.0)
    return a


@triton.jit
def filters(w, place, col_mask, BM: tl.constexpr):
    """Weights of one tap for each row of the block: threads load them as they load x."""
    places = place[None, :] + tl.zeros((BM, 1), tl.int32)
    mask = col_mask[None, :] & (tl.zeros((BM, 1), tl.int32) == 0)
    return tl.load(w + places, mask=mask, other=0.0).to(tl.float32)


@triton.constexpr_function
def tap_of(place, result, stride, dilation, taps):
    """Which tap of a result has a place of the run's windows; -1 if none has."""
    from_first = place - result * stride
    tap = from_first // dilation
    return tap if from_first >= 0 and from_first % dilation == 0 and tap < taps else -1


@triton.constexpr_function
def is_read(place, results, stride, dilation, taps):
    """Whether any result of a run has a place in its window."""
    return any(tap_of(place, i, stride, dilation, taps) >= 0 for i in range(results))


@triton.jit
def with_tap(total, a, taps, TAP: tl.constexpr):
    """A sum with one more product, if the result has the element in its window at all."""
    if TAP >= 0:
        total += a * taps[TAP]
    return total


@triton.jit
def run_sums(
    x, w, pixel, chan, col, c_step, k_step, x_h, x_w, w_r, w_s, w_c, window, extra,
    C: tl.constexpr, R: tl.constexpr, S: tl.constexpr, STRIDE_W: tl.constexpr,
    DILATION_H: tl.constexpr, DILATION_W: tl.constexpr, PADDED: tl.constexpr, BM: tl.constexpr,
    BN: tl.constexpr, ACROSS: tl.constexpr, UNROLL: tl.constexpr, PROLOGUE: tl.constexpr,
):  # fmt: skip
    """Sums [BM, BN] of each of the ACROSS results, over the taps and the C channels of a group.

    Each step has a row of taps of one channel: the row's weights stay, elements of x go by. All
    rows at once would be more loads on their way than there are registers, and too much code.
    """
    sums = ()
    for _ in tl.static_range(ACROSS):
        sums = sums + (tl.zeros((BM, BN), tl.float32),)  # noqa: RUF005 - no Triton
    for t in tl.range(C * R, loop_unroll_factor=UNROLL):
        j = 0 if C == 1 else t // R
        r = t - j * R
        taps = ()
        for s in tl.static_range(S):
            where = w + j * w_c + r * w_r + s * w_s
            taps = taps + (filters(where, col * k_step, window[8], BM),)  # noqa: RUF005
        for x0 in tl.static_range((ACROSS - 1) * STRIDE_W + (S - 1) * DILATION_W + 1):
            if is_read(x0, ACROSS, STRIDE_W, DILATION_W, S):
                # The last run of a row may reach beyond it, padding or not.
                a = pixels(
                    x, pixel, chan + j, c_step, x_h, x_w, r * DILATION_H, x0, window, extra,
                    PADDED, PADDED or ACROSS > 1, PROLOGUE,
                )  # fmt: skip
                for i in tl.static_range(ACROSS):
                    new = with_tap(sums[i], a, taps, tap_of(x0, i, STRIDE_W, DILATION_W, S))
                    sums = sums[:i] + (new,) + sums[i + 1 :]  # noqa: RUF005
    return sums


@triton.jit
def convolve(
    x, w, y, extra,
    n, h, wd, k, p, q, x_n, x_c, x_h, x_w, w_r, w_s, w_c, w_k,
    channels, y_n, y_k, y_p, y_q,
    C: tl.constexpr, MULTIPLIER: tl.constexpr, R: tl.constexpr, S: tl.constexpr,
    STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr, DILATION_H: tl.constexpr,
    DILATION_W: tl.constexpr, PAD_T: tl.constexpr, PAD_L: tl.constexpr, PADDED: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, ACROSS: tl.constexpr, UNROLL: tl.constexpr,
    X_UNIT: tl.constexpr, W_UNIT: tl.constexpr, X_WIDE: tl.constexpr, W_WIDE: tl.constexpr,
    X_VEC: tl.constexpr, Y_VEC: tl.constexpr, UNIT: tl.constexpr,
    BLOCK: tl.constexpr, CRD: tl.constexpr, PARTS: tl.constexpr,
    POSITION: tl.constexpr, EXCESS: tl.constexpr, ROOM: tl.constexpr, EPILOGUE: tl.constexpr,
    PROLOGUE: tl.constexpr = None, OTHERS: tl.constexpr = None,
):  # fmt: skip
    """ACROSS blocks of results; C channels of x and MULTIPLIER of y make a group.

    X_WIDE and W_WIDE say that x and the weights may be read in the EXCESS, the last of the `k`.
    Strides of x come divided by X_VEC, `k`, `channels` and the strides of y by Y_VEC.
    """
    x_n, x_h, x_w = x_n * X_VEC, x_h * X_VEC, x_w * X_VEC
    k, channels = k * Y_VEC, channels * Y_VEC
    y_n, y_p, y_q = y_n * Y_VEC, y_p * Y_VEC, y_q * Y_VEC
    c_step = 1 if X_UNIT else x_c
    k_step = 1 if W_UNIT else w_k
    col_blocks = tl.cdiv(k, BN)
    spans = tl.cdiv(q, ACROSS)
    pid = tl.program_id(0)
    row = pid // col_blocks * BM + tl.arange(0, BM)
    start = pid % col_blocks * BN
    col = start + tl.arange(0, BN)
    there = col < k - EXCESS
    read = col < k if X_WIDE else there
    weighted = col < k if W_WIDE else there
    row_mask = row < n * p * spans
    # So that loads need no mask of their own for rows.
    row = tl.minimum(row, n * p * spans - 1)
    image, out_p, span = pixels_of(row, p, spans)
    out_q = span * ACROSS
    top = out_p * STRIDE_H - PAD_T
    left = out_q * STRIDE_W - PAD_L
    chan = col // MULTIPLIER * C
    pixel = image * x_n + top * x_h + left * x_w
    window = (image, top, left, h, wd, row_mask, there, read, weighted)
    sums = run_sums(
        x, w, pixel, chan, col, c_step, k_step, x_h, x_w, w_r, w_s, w_c, window, extra,
        C, R, S, STRIDE_W, DILATION_H, DILATION_W, PADDED, BM, BN, ACROSS, UNROLL, PROLOGUE,
    )  # fmt: skip
    for i in tl.static_range(ACROSS):
        store(
            y, sums[i], image, start, k, out_p, out_q + i, row_mask & (out_q + i < q), extra,
            channels, y_n, y_k, y_p, y_q, UNIT, BLOCK, CRD, PARTS, POSITION,
            EXCESS, ROOM, EPILOGUE, OTHERS,
        )  # fmt: skip
