"""Gradients of norms of rows that lie one behind the other, whatever their length."""

import triton
import triton.language as tl

from saccade.kernels.cuda.norm.gradient_code import factor, slope
from saccade.kernels.cuda.reduce.axis_loops_code import element, stepped


@triton.jit
def row_factor(grad, norm, row, rows, g_step, n_step, P: tl.constexpr, WIDE: tl.constexpr):
    there = row < rows
    g = tl.load(grad + row * g_step, mask=there, other=0)
    n = tl.load(norm + row * n_step, mask=there, other=1)
    return factor(g.to(element(WIDE)), n.to(element(WIDE)), P=P)


@triton.jit
def gradient_flat(
    grad, x, norm, y, extra,
    rows, reduced, count, g_step, n_step,
    P: tl.constexpr, WIDE: tl.constexpr, STEP: tl.constexpr, GROUPS: tl.constexpr,
    EACH: tl.constexpr,
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
    here = row_factor(grad, norm, row, rows, g_step, n_step, P=P, WIDE=WIDE)
    behind = row_factor(grad, norm, row + 1, rows, g_step, n_step, P=P, WIDE=WIDE)
    shared = tl.where(each < left[:, None], here[:, None], behind[:, None])
    tl.store(y + at, (slope(value, P=P) * shared).to(y.dtype.element_ty), mask=mask)
