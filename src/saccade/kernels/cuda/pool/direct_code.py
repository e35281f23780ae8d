"""Pooling: blocks of output pixels times channels, one load of the block for each tap."""

import triton
import triton.language as tl

from saccade.kernels.cuda.reduce.axis_loops_code import element, stepped


@triton.constexpr_function
def nothing(largest, limit, wide):
    """The result of no taps, which padding counts as; `limit` for integers."""
    if not element(wide).is_floating():
        return limit
    return float("-inf") if largest else 0.0


@triton.jit
def tap(
    x, acc, base, top, left, r, s, h, w, x_h, x_w, row_mask, read_mask, START: tl.constexpr,
    DILATION_H: tl.constexpr, DILATION_W: tl.constexpr, LARGEST: tl.constexpr,
):  # fmt: skip
    """`acc` with one tap of every window; `base` [rows, channels] is the window's corner."""
    y = top + r * DILATION_H
    z = left + s * DILATION_W
    inside = row_mask & (y >= 0) & (y < h) & (z >= 0) & (z < w)
    mask = inside[:, None] & read_mask[None, :]
    at = base + (r * DILATION_H * x_h + s * DILATION_W * x_w)
    value = tl.load(x + at, mask=mask, other=START).to(acc.dtype)
    return tl.maximum(acc, value, propagate_nan=tl.PropagateNan.ALL) if LARGEST else acc + value


@triton.jit
def taps_before(first, low, end, TAPS: tl.constexpr, DILATION: tl.constexpr):
    """How many of the taps from `first` on lie at or after `low` and before `end`."""
    after = tl.minimum(tl.cdiv(tl.maximum(end - first, 0), DILATION), TAPS)
    ahead = tl.minimum(tl.cdiv(tl.maximum(low - first, 0), DILATION), TAPS)
    return tl.maximum(after - ahead, 0)


@triton.jit
def pool(
    x, y, extra,
    n, c, c_read, h, w, p, q, x_n, x_c, x_h, x_w, y_n, y_c, y_p, y_q, h_low, w_low, h_end, w_end,
    LARGEST: tl.constexpr, R: tl.constexpr, S: tl.constexpr, STRIDE_H: tl.constexpr,
    STRIDE_W: tl.constexpr, DILATION_H: tl.constexpr, DILATION_W: tl.constexpr,
    PAD_T: tl.constexpr, PAD_L: tl.constexpr, WIDE: tl.constexpr, LIMIT: tl.constexpr,
    X_UNIT: tl.constexpr, Y_UNIT: tl.constexpr, X_STEP: tl.constexpr, Y_STEP: tl.constexpr,
    BM: tl.constexpr, BC: tl.constexpr, UNROLLED: tl.constexpr, STAGES: tl.constexpr,
    EPILOGUE: tl.constexpr,
):  # fmt: skip
    """`c_read` channels may be loaded; X_UNIT, Y_UNIT: what lies side by side, "channels",
    "columns" or "".
    """
    if X_UNIT == "channels":
        c_read = stepped(c_read, STEP=X_STEP)
        x_n = stepped(x_n, STEP=X_STEP)
        x_h = stepped(x_h, STEP=X_STEP)
        x_w = stepped(x_w, STEP=X_STEP)
    if Y_UNIT == "channels":
        c = stepped(c, STEP=Y_STEP)
        y_n = stepped(y_n, STEP=Y_STEP)
        y_p = stepped(y_p, STEP=Y_STEP)
        y_q = stepped(y_q, STEP=Y_STEP)
    blocks = tl.cdiv(c, BC)
    row = tl.program_id(0) // blocks * BM + tl.arange(0, BM)
    col = tl.program_id(0) % blocks * BC + tl.arange(0, BC)
    row_mask = row < n * p * q
    col_mask = col < c
    read_mask = col < c_read
    out_q = row % q
    out_p = row // q % p
    image = row // (p * q)
    top = out_p * STRIDE_H - PAD_T
    left = out_q * STRIDE_W - PAD_L
    column = 1 if X_UNIT == "columns" else x_w
    corner = image * x_n + top * x_h + left * column
    base = corner[:, None] + (col if X_UNIT == "channels" else col * x_c)[None, :]
    wide: tl.constexpr = element(WIDE)
    start: tl.constexpr = nothing(LARGEST, LIMIT, WIDE)
    acc = tl.full((BM, BC), start, wide)
    if UNROLLED:
        for r in tl.static_range(R):
            for s in tl.static_range(S):
                acc = tap(
                    x, acc, base, top, left, r, s, h, w, x_h, column, row_mask, read_mask,
                    START=start, DILATION_H=DILATION_H, DILATION_W=DILATION_W, LARGEST=LARGEST,
                )  # fmt: skip
    else:
        for t in tl.range(0, R * S, num_stages=STAGES):
            acc = tap(
                x, acc, base, top, left, t // S, t % S, h, w, x_h, column, row_mask, read_mask,
                START=start, DILATION_H=DILATION_H, DILATION_W=DILATION_W, LARGEST=LARGEST,
            )  # fmt: skip
    if not LARGEST:
        high = taps_before(top, h_low, h_end, TAPS=R, DILATION=DILATION_H)
        wide_taps = taps_before(left, w_low, w_end, TAPS=S, DILATION=DILATION_W)
        acc = acc / (high * wide_taps).to(acc.dtype)[:, None]
    acc = EPILOGUE(acc, image, col, out_p, out_q, row_mask, col_mask, extra)
    to = image * y_n + out_p * y_p + (out_q if Y_UNIT == "columns" else out_q * y_q)
    place = to[:, None] + (col if Y_UNIT == "channels" else col * y_c)[None, :]
    tl.store(y + place, acc.to(y.dtype.element_ty), mask=row_mask[:, None] & col_mask[None, :])
