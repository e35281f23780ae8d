"""Interpolation of rows of an image: blocks of output columns times channels.

A program has one output row, so that what belongs to rows is computed once.
"""

import triton
import triton.language as tl

from saccade.kernels.cuda.reduce.axis_loops_code import element, stepped


@triton.jit
def position(i, before, after, scale, shift, COORDINATE: tl.constexpr):
    """Where output position i lies in the operand, operation by operation as ONNX Runtime does.

    `scale` and `shift` are the bits of float32 numbers.
    """
    x = i.to(tl.float32)
    by = scale.to(tl.float32, bitcast=True)
    if COORDINATE == "asymmetric":
        at = tl.div_rn(x, by)
    elif COORDINATE == "align_corners":
        steps = tl.maximum(after - 1, 1).to(tl.float32)
        at = tl.div_rn(x * (before - 1).to(tl.float32), steps)
    else:
        at = tl.div_rn(x + 0.5, by) - 0.5
        if COORDINATE == "half_pixel_symmetric":
            at += shift.to(tl.float32, bitcast=True)
        if COORDINATE == "pytorch_half_pixel":
            at = tl.where(after > 1, at, 0.0)
    return at


@triton.jit
def nearest(at, NEAREST: tl.constexpr):
    """A position rounded to a whole one."""
    if NEAREST == "floor":
        result = tl.floor(at)
    elif NEAREST == "ceil":
        result = tl.ceil(at)
    elif NEAREST == "round_prefer_floor":
        result = tl.ceil(at - 0.5)
    else:
        result = tl.floor(at + 0.5)
    return result


@triton.jit
def weight(at, place, before, MODE: tl.constexpr, A: tl.constexpr, EXCLUDE: tl.constexpr):
    """What the element at a whole position weighs."""
    d = tl.abs(at - place)
    if MODE == "linear":
        result = 1.0 - d
    else:  # Keys, Cubic convolution interpolation for digital image processing, 1981
        near = ((A + 2) * d - (A + 3)) * d * d + 1
        far = ((A * d - 5 * A) * d + 8 * A) * d - 4 * A
        result = tl.where(d <= 1, near, tl.where(d < 2, far, 0.0))
    if EXCLUDE:
        result = tl.where((place >= 0) & (place < before), result, 0.0)
    return result


@triton.jit
def all_weights(at, first, before, MODE: tl.constexpr, A: tl.constexpr, TAPS: tl.constexpr):
    """The sum of the weights of those taps that lie inside."""
    total = at * 0
    for t in tl.static_range(TAPS):
        total += weight(at, first + t, before, MODE=MODE, A=A, EXCLUDE=True)
    return total


@triton.jit
def first_tap(at, MODE: tl.constexpr, NEAREST: tl.constexpr):
    """The whole position of the first tap."""
    if MODE == "same":
        first = at
    elif MODE == "nearest":
        first = nearest(at, NEAREST=NEAREST)
    elif MODE == "linear":
        first = tl.floor(at)
    else:
        first = tl.floor(at) - 1
    return first


@triton.jit
def inside(place, before):
    """An element's index: positions beyond an edge read the edge."""
    return tl.minimum(tl.maximum(place.to(tl.int32), 0), before - 1)


@triton.jit
def resize(
    x, y, extra,
    n, c, c_read, h, w, p, q, x_n, x_c, x_h, x_w, y_n, y_c, y_p, y_q,
    h_scale, w_scale, h_shift, w_shift,
    MODE_H: tl.constexpr, MODE_W: tl.constexpr, COORDINATE: tl.constexpr, NEAREST: tl.constexpr,
    A: tl.constexpr, EXCLUDE: tl.constexpr, TAPS_H: tl.constexpr, TAPS_W: tl.constexpr,
    WIDE: tl.constexpr, X_UNIT: tl.constexpr, Y_UNIT: tl.constexpr, X_STEP: tl.constexpr,
    Y_STEP: tl.constexpr, BQ: tl.constexpr, BC: tl.constexpr, EPILOGUE: tl.constexpr,
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
        y_q = stepped(y_q, STEP=Y_STEP)
    if Y_UNIT == "columns":
        y_c = stepped(y_c, STEP=Y_STEP)
        q = stepped(q, STEP=Y_STEP)
    y_n = stepped(y_n, STEP=Y_STEP)
    y_p = stepped(y_p, STEP=Y_STEP)
    channel_blocks = tl.cdiv(c, BC)
    column_blocks = tl.cdiv(q, BQ)
    pid = tl.program_id(0)
    col = pid % channel_blocks * BC + tl.arange(0, BC)
    out_q = pid // channel_blocks % column_blocks * BQ + tl.arange(0, BQ)
    row = pid // (channel_blocks * column_blocks)
    out_p = row % p
    image = row // p
    col_mask = col < c
    row_mask = out_q < q
    mask = row_mask[:, None] & col_mask[None, :]
    read_mask = row_mask[:, None] & (col < c_read)[None, :]
    top = out_p.to(tl.float32)
    if MODE_H != "same":
        top = position(out_p, h, p, h_scale, h_shift, COORDINATE=COORDINATE)
    left = out_q.to(tl.float32)
    if MODE_W != "same":
        left = position(out_q, w, q, w_scale, w_shift, COORDINATE=COORDINATE)
    first_y = first_tap(top, MODE=MODE_H, NEAREST=NEAREST)
    first_x = first_tap(left, MODE=MODE_W, NEAREST=NEAREST)
    wide: tl.constexpr = element(WIDE)
    channel = (col if X_UNIT == "channels" else col * x_c)[None, :]
    acc = tl.zeros((BQ, BC), wide)
    for r in tl.static_range(TAPS_H):
        line = x + (image * x_n + inside(first_y + r, h) * x_h)
        sums = tl.zeros((BQ, BC), wide)
        for s in tl.static_range(TAPS_W):
            at = inside(first_x + s, w)
            at = at if X_UNIT == "columns" else at * x_w
            value = tl.load(line + at[:, None] + channel, mask=read_mask, other=0).to(wide)
            if TAPS_W > 1:
                by = weight(left, first_x + s, w, MODE=MODE_W, A=A, EXCLUDE=EXCLUDE)
                if EXCLUDE:
                    by = by / all_weights(left, first_x, w, MODE=MODE_W, A=A, TAPS=TAPS_W)
                sums += value * by[:, None]
            else:
                sums = value
        if TAPS_H > 1:
            by = weight(top, first_y + r, h, MODE=MODE_H, A=A, EXCLUDE=EXCLUDE)
            if EXCLUDE:
                by = by / all_weights(top, first_y, h, MODE=MODE_H, A=A, TAPS=TAPS_H)
            acc += sums * by
        else:
            acc = sums
    images = image + tl.zeros((BQ,), tl.int32)
    acc = EPILOGUE(acc, images, col, out_p + images * 0, out_q, row_mask, col_mask, extra)
    start = y + (image * y_n + out_p * y_p)
    across = (out_q if Y_UNIT == "columns" else out_q * y_q)[:, None]
    place = across + (col if Y_UNIT == "channels" else col * y_c)[None, :]
    tl.store(start + place, acc.to(y.dtype.element_ty), mask=mask)
