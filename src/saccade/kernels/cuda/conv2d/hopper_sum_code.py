"""`hopper_code` with the second window's tensor maps where an `Entry` gives them, in front."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from saccade.kernels.cuda.conv2d.hopper_code import convolve, convolve_tiles


@gluon.jit
def convolve_sum(
    x, w, x2, w2, y, extra, rows, k, p, q, channels, steps, y_n, y_p, y_q, steps2,
    R: gl.constexpr, S: gl.constexpr, STRIDE_H: gl.constexpr, STRIDE_W: gl.constexpr,
    DILATION_H: gl.constexpr, DILATION_W: gl.constexpr, PAD_T: gl.constexpr, PAD_L: gl.constexpr,
    BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, WARPS: gl.constexpr,
    STAGES: gl.constexpr, TAPS_INNER: gl.constexpr, EVEN: gl.constexpr, BLOCK: gl.constexpr,
    CRD: gl.constexpr, EARLY: gl.constexpr, STRIDE2_H: gl.constexpr, STRIDE2_W: gl.constexpr,
    PERSISTENT: gl.constexpr, EPILOGUE: gl.constexpr, FETCH: gl.constexpr = None,
):  # fmt: skip
    """One tile of results a program, or several where PERSISTENT."""
    if PERSISTENT:
        convolve_tiles(
            x, w, y, extra, rows, k, p, q, channels, steps, y_n, y_p, y_q, R, S, STRIDE_H, STRIDE_W,
            DILATION_H, DILATION_W, PAD_T, PAD_L, BM, BN, BK, WARPS, STAGES, TAPS_INNER, EVEN,
            BLOCK, CRD, EARLY, EPILOGUE, FETCH, x2, w2, steps2, STRIDE2_H, STRIDE2_W,
        )  # fmt: skip
    else:
        convolve(
            x, w, y, extra, rows, k, p, q, channels, steps, y_n, y_p, y_q, R, S, STRIDE_H, STRIDE_W,
            DILATION_H, DILATION_W, PAD_T, PAD_L, BM, BN, BK, WARPS, STAGES, TAPS_INNER, EVEN,
            BLOCK, CRD, EARLY, EPILOGUE, FETCH, None, x2, w2, steps2, STRIDE2_H, STRIDE2_W,
        )  # fmt: skip
