"""Gradients of norms: blocks of rows times elements; rows are what the norm kept of all axes."""

import triton
import triton.language as tl

from saccade.kernels.cuda.reduce.axis_loops_code import element, place, stepped


@triton.jit
def power(a, EXPONENT: tl.constexpr):
    """Of a number that is not negative; halves are exact up to rounding."""
    if EXPONENT == 0.5:
        result = root(a)
    elif EXPONENT == 1.0:
        result = a
    elif EXPONENT == 1.5:
        result = a * root(a)
    elif EXPONENT == 2.0:
        result = a * a
    elif EXPONENT == 3.0:
        result = a * a * a
    else:
        result = tl.exp2(tl.log2(a) * EXPONENT)
    return result


@triton.jit
def root(a):
    return tl.sqrt_rn(a) if a.dtype == tl.float32 else tl.sqrt(a)


@triton.jit
def sign_of(x):
    one = tl.full(x.shape, 1.0, x.dtype)
    return tl.where(x > 0, one, tl.where(x < 0, -one, 0.0))  # NaN has none


@triton.jit
def slope(x, P: tl.constexpr):
    """What of the gradient each element has for itself, for a finite p."""
    if P == 1.0:
        result = sign_of(x)
    elif P == 2.0:
        result = x
    elif P < 1.0:
        result = tl.where(x == 0, 0, sign_of(x) * power(tl.abs(x), EXPONENT=P - 1))
    else:
        result = sign_of(x) * power(tl.abs(x), EXPONENT=P - 1)
    return result


@triton.jit
def factor(g, n, P: tl.constexpr):
    """What all elements of a row are multiplied by, for a finite p."""
    if P == 1.0:
        result = g
    elif P == 2.0:
        result = tl.where(n == 0, g * 0, g / n)
    elif P < 1.0:
        result = g * power(n, EXPONENT=1 - P)
    else:
        result = tl.where(n == 0, 0, g / power(n, EXPONENT=P - 1))
    return result


@triton.jit
def flowing(x, g, n, ties, P: tl.constexpr, EXTREME: tl.constexpr):
    """What flows back to x [rows, elements] from g, n and ties [rows, 1]."""
    if EXTREME:
        share = g / tl.maximum(ties, 1).to(x.dtype)
        result = sign_of(x) * (tl.abs(x) == n).to(x.dtype) * share
    else:
        result = slope(x, P=P) * factor(g, n, P=P)
    return result


@triton.jit
def gradient(
    grad, x, norm, y, partial, extra,
    rows, k1, k2, reduced, tiles, parts, r1, r2,
    x_k0, x_k1, x_k2, x_r0, x_r1, x_r2, y_k0, y_k1, y_k2, y_r0, y_r1, y_r2,
    g_k0, g_k1, g_k2, n_k0, n_k1, n_k2, t_k0, t_k1, t_k2,
    P: tl.constexpr, EXTREME: tl.constexpr, PHASE: tl.constexpr, WIDE: tl.constexpr,
    KEPT: tl.constexpr, REDUCED: tl.constexpr, UNIT: tl.constexpr, Y_UNIT: tl.constexpr,
    STEP: tl.constexpr, Y_STEP: tl.constexpr, BM: tl.constexpr, BR: tl.constexpr, BP: tl.constexpr,
):  # fmt: skip
    """PHASE is "plain", "once" (a row is one block), "ties" (left in `partial`), "apply" (which
    adds them up) or "given" (they are there, one for each row)."""
    kept_step: tl.constexpr = STEP if UNIT == "kept" else 1
    reduced_step: tl.constexpr = STEP if UNIT == "reduced" else 1
    rows = stepped(rows, STEP=kept_step)
    k2 = stepped(k2, STEP=kept_step)
    reduced = stepped(reduced, STEP=reduced_step)
    r2 = stepped(r2, STEP=reduced_step)
    x_k0 = stepped(x_k0, STEP=STEP)
    x_k1 = stepped(x_k1, STEP=STEP)
    x_k2 = stepped(x_k2, STEP=reduced_step)
    x_r0 = stepped(x_r0, STEP=STEP)
    x_r1 = stepped(x_r1, STEP=STEP)
    x_r2 = stepped(x_r2, STEP=kept_step)
    y_k0 = stepped(y_k0, STEP=Y_STEP)
    y_k1 = stepped(y_k1, STEP=Y_STEP)
    y_k2 = stepped(y_k2, STEP=Y_STEP if UNIT == "reduced" else 1)
    y_r0 = stepped(y_r0, STEP=Y_STEP)
    y_r1 = stepped(y_r1, STEP=Y_STEP)
    y_r2 = stepped(y_r2, STEP=Y_STEP if UNIT == "kept" else 1)
    wide: tl.constexpr = element(WIDE)
    blocks = tl.cdiv(rows, BM)
    part = tl.program_id(0) // blocks
    row = tl.program_id(0) % blocks * BM + tl.arange(0, BM)
    row_mask = row < rows
    x_row = place(row, k1, k2, x_k0, x_k1, x_k2, AXES=KEPT, UNIT=UNIT == "kept")
    y_row = place(row, k1, k2, y_k0, y_k1, y_k2, AXES=KEPT, UNIT=Y_UNIT == "kept")
    g_row = place(row, k1, k2, g_k0, g_k1, g_k2, AXES=KEPT, UNIT=False)
    n_row = place(row, k1, k2, n_k0, n_k1, n_k2, AXES=KEPT, UNIT=False)
    g = tl.load(grad + g_row, mask=row_mask, other=0).to(wide)[:, None]
    n = tl.load(norm + n_row, mask=row_mask, other=0).to(wide)[:, None]
    first = part * tiles * BR
    last = tl.minimum(first + tiles * BR, reduced)
    ties = tl.zeros((BM,), tl.int32)
    if PHASE == "given":
        t_row = place(row, k1, k2, t_k0, t_k1, t_k2, AXES=KEPT, UNIT=False)
        ties = tl.load(partial + t_row, mask=row_mask, other=1)
    if PHASE == "apply":
        for p in range(0, parts, BP):
            here = p + tl.arange(0, BP)
            mask = row_mask[:, None] & (here < parts)[None, :]
            counts = tl.load(partial + (here[None, :] * rows + row[:, None]), mask=mask, other=0)
            ties += tl.sum(counts, 1)
    counted = tl.zeros((BM, BR), tl.int32)
    for at in range(first, last, BR):
        r = at + tl.arange(0, BR)
        x_r = place(r, r1, r2, x_r0, x_r1, x_r2, AXES=REDUCED, UNIT=UNIT == "reduced")
        mask = row_mask[:, None] & (r < reduced)[None, :]
        value = tl.load(x + x_row[:, None] + x_r[None, :], mask=mask, other=0).to(wide)
        if PHASE == "ties":
            counted += (mask & (tl.abs(value) == n)).to(tl.int32)
        else:
            if PHASE == "once":
                ties = tl.sum((mask & (tl.abs(value) == n)).to(tl.int32), 1)
            result = flowing(value, g, n, ties[:, None], P=P, EXTREME=EXTREME)
            y_r = place(r, r1, r2, y_r0, y_r1, y_r2, AXES=REDUCED, UNIT=Y_UNIT == "reduced")
            to = y + y_row[:, None] + y_r[None, :]
            tl.store(to, result.to(y.dtype.element_ty), mask=mask)
    if PHASE == "ties":
        tl.store(partial + (part * rows + row), tl.sum(counted, 1), mask=row_mask)
