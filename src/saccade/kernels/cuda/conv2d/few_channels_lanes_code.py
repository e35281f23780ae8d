"""Convolution of few channels, each term gathered by the lane that multiplies it.

A lane has the sums 2q and 2q+1 of eight columns. Which column is which channel is free: here they
are numbered so that a lane's are neighbours of a pixel.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import mma_v2

from saccade.kernels.cuda.conv2d.lanes_code import channels_together, runs_of, store_pixels


@gluon.jit
def channel_of_column(column, RUN: gl.constexpr):
    """Which channel a column of the products is, for `channels_together`."""
    part = column // 8
    inner = column % 8 // 2 * (2 * RUN) + part % RUN * 2 + column % 2
    return part // RUN * (8 * RUN) + inner


@gluon.jit
def convolve(
    x, w, y, extra, h, wd, k, p, q, x_n, x_c, x_h, x_w, y_n, y_p, y_q,
    C: gl.constexpr, R: gl.constexpr, S: gl.constexpr, STRIDE_H: gl.constexpr,
    STRIDE_W: gl.constexpr, DILATION_H: gl.constexpr, DILATION_W: gl.constexpr,
    PAD_T: gl.constexpr, PAD_L: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr,
    DEPTH: gl.constexpr, STRIP: gl.constexpr, WARPS: gl.constexpr, X_UNIT: gl.constexpr,
    EPILOGUE: gl.constexpr, FETCH: gl.constexpr = None,
):  # fmt: skip
    """STRIP rows of BM results below each other, of BN channels.

    Terms are channels, then taps, DEPTH of them with zeros behind, and each element of x is loaded
    by its own address. X_UNIT: the axis of x along which neighbours lie side by side. `k` and the
    strides of y come divided by 8. Weights are packed [K', DEPTH].
    """
    sums: gl.constexpr = gl.NVMMADistributedLayout(
        version=[2, 0], warps_per_cta=[WARPS, 1], instr_shape=[16, 8]
    )
    first_operand: gl.constexpr = gl.DotOperandLayout(0, sums, k_width=2)
    second_operand: gl.constexpr = gl.DotOperandLayout(1, sums, k_width=2)
    if X_UNIT == "w":
        x_w = 1
    blocks = gl.cdiv(k * 8, BN)
    spans = gl.cdiv(q, BM)
    strips = gl.cdiv(p, STRIP)
    pid = gl.program_id(0)
    col = pid % blocks * BN
    first = pid // blocks % spans * BM
    out_p = pid // (blocks * spans) % strips * STRIP
    image = pid // (blocks * spans * strips)
    x += image * x_n
    column = gl.arange(0, BN, layout=gl.SliceLayout(0, second_operand))
    filters = w + (col + channel_of_column(column, runs_of(BN))) * DEPTH
    inner = gl.arange(0, 16, layout=gl.SliceLayout(1, second_operand))
    own = gl.arange(0, 16, layout=gl.SliceLayout(0, first_operand))
    left = (first + gl.arange(0, BM, layout=gl.SliceLayout(1, first_operand))) * STRIDE_W - PAD_L
    weights = ()
    terms = ()
    for i in gl.static_range(DEPTH // 16):
        weights = weights + (gl.load(filters[None, :] + (i * 16 + inner)[:, None]),)  # noqa: RUF005
        term = i * 16 + own
        tap = term % (R * S)
        dy = tap // S * DILATION_H
        dx = tap % S * DILATION_W
        # Rows outside of the image, and terms that are none, have no pixels inside.
        dy = gl.where(term < R * S * C, dy, -(1 << 30))
        at = tap // S * DILATION_H * x_h + dx * x_w + term // (R * S) * x_c
        place = (left * x_w)[:, None] + at[None, :]
        terms = terms + ((dy, (left[:, None] + dx[None, :]).to(gl.uint32), place),)  # noqa: RUF005
    for i in gl.static_range(STRIP):
        line = out_p + i
        top = line * STRIDE_H - PAD_T
        acc = gl.zeros((BM, BN), gl.float32, layout=sums)
        row = x + top * x_h
        for j in gl.static_range(DEPTH // 16):
            at_row = top + terms[j][0]
            # One comparison for both edges of a row, and for rows outside.
            there = gl.where((at_row >= 0) & (at_row < h), wd, 0).to(gl.uint32)
            a = gl.load(row + terms[j][2], mask=terms[j][1] < there[None, :], other=0.0)
            acc = mma_v2(a.to(w.dtype.element_ty), weights[j], acc)
        store_pixels(
            channels_together(acc, WARPS), y, extra, image, line, first, col, k, p, q, y_n, y_p,
            y_q, BM, EPILOGUE, FETCH,
        )  # fmt: skip
