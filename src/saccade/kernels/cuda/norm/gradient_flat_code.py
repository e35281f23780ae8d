"""Gradients of norms of rows that lie one behind the other, whatever their length."""

import triton
import triton.language as tl

from saccade.kernels.cuda.norm.gradient_code import factor, sign_of, slope
from saccade.kernels.cuda.reduce.axis_loops_code import element, stepped


@triton.jit
def row_factor(
    grad, norm, ties, row, rows, g_step, n_step, t_step,
    P: tl.constexpr, EXTREME: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """What all elements of a row are multiplied by, and its norm."""
    there = row < rows
    g = tl.load(grad + row * g_step, mask=there, other=0).to(element(WIDE))
    n = tl.load(norm + row * n_step, mask=there, other=1).to(element(WIDE))
    if EXTREME:
        count = tl.load(ties + row * t_step, mask=there, other=1)
        result = g / tl.maximum(count, 1).to(element(WIDE))
    else:
        result = factor(g, n, P=P)
    return result, n


@triton.jit
def gradient_flat(
    grad, x, norm, y, ties, extra,
    rows, reduced, count, g_step, n_step, t_step,
    P: tl.constexpr, EXTREME: tl.constexpr, WIDE: tl.constexpr, STEP: tl.constexpr,
    GROUPS: tl.constexpr, EACH: tl.constexpr,
):  # fmt: skip
    """Groups of EACH neighbours, which lie in one row or in two: none is shorter than a group."""
    count = stepped(count, STEP=STEP)
    first = (tl.program_id(0) * GROUPS + tl.arange(0, GROUPS)) * EACH
    each = tl.arange(0, EACH)[None, :]
    at = first[:, None] + each
    mask = at < count
    value = tl.load(x + at, mask=mask, other=0).to(element(WIDE))
    row = first // reduced
    left = (row + 1) * reduced - first  # elements from the group's first on that are of its row
    here, first_norm = row_factor(
        grad, norm, ties, row, rows, g_step, n_step, t_step, P=P, EXTREME=EXTREME, WIDE=WIDE
    )
    behind, second_norm = row_factor(
        grad, norm, ties, row + 1, rows, g_step, n_step, t_step, P=P, EXTREME=EXTREME, WIDE=WIDE
    )
    own = each < left[:, None]
    shared = tl.where(own, here[:, None], behind[:, None])
    if EXTREME:
        n = tl.where(own, first_norm[:, None], second_norm[:, None])
        part = sign_of(value) * (tl.abs(value) == n).to(element(WIDE))
    else:
        part = slope(value, P=P)
    tl.store(y + at, (part * shared).to(y.dtype.element_ty), mask=mask)
