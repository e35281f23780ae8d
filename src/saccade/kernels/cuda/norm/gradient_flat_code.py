"""Gradients of norms of rows that lie one behind the other, whatever their length."""

import triton
import triton.language as tl

from saccade.kernels.cuda.norm.gradient_code import factor, sign_of, slope
from saccade.kernels.cuda.reduce.axis_loops_code import element, stepped


@triton.jit
def shared_of(
    grad, norm, ties, g_at, n_at, t_at, there,
    P: tl.constexpr, EXTREME: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """What elements of norms at some places are multiplied by, and the norms."""
    g = tl.load(grad + g_at, mask=there, other=0).to(element(WIDE))
    n = tl.load(norm + n_at, mask=there, other=1).to(element(WIDE))
    if EXTREME:
        count = tl.load(ties + t_at, mask=there, other=1)
        result = g / tl.maximum(count, 1).to(element(WIDE))
    else:
        result = factor(g, n, P=P)
    return result, n


@triton.jit
def part_of(value, n, P: tl.constexpr, EXTREME: tl.constexpr):
    """What of the gradient each element has for itself."""
    tied = sign_of(value) * (tl.abs(value) == n).to(value.dtype)
    return tied if EXTREME else slope(value, P=P)


@triton.jit
def gradient_flat(
    grad, x, norm, y, ties, extra,
    rows, length, count, g_step, n_step, t_step, g_next, n_next, t_next,
    P: tl.constexpr, EXTREME: tl.constexpr, ACROSS: tl.constexpr, WIDE: tl.constexpr,
    STEP: tl.constexpr, GROUPS: tl.constexpr, EACH: tl.constexpr,
):  # fmt: skip
    """Groups of EACH neighbours, which lie in one row or in two: none is shorter than a group.

    A row has a norm; where norms go ACROSS them, `rows` of them share those of their columns.
    """
    count = stepped(count, STEP=STEP)
    first = (tl.program_id(0) * GROUPS + tl.arange(0, GROUPS)) * EACH
    each = tl.arange(0, EACH)[None, :]
    at = first[:, None] + each
    mask = at < count
    value = tl.load(x + at, mask=mask, other=0).to(element(WIDE))
    row = first // length
    left = (row + 1) * length - first  # elements from the group's first on that are of its row
    own = each < left[:, None]
    behind = row + 1
    if ACROSS:
        block = tl.where(own, (row // rows)[:, None], (behind // rows)[:, None])
        column = tl.where(own, (first - row * length)[:, None] + each, each - left[:, None])
        shared, n = shared_of(
            grad, norm, ties, block * g_step + column * g_next, block * n_step + column * n_next,
            block * t_step + column * t_next, mask, P=P, EXTREME=EXTREME, WIDE=WIDE,
        )  # fmt: skip
    else:
        shared_first, n_first = shared_of(
            grad, norm, ties, row * g_step, row * n_step, row * t_step, row < rows,
            P=P, EXTREME=EXTREME, WIDE=WIDE,
        )  # fmt: skip
        shared_second, n_second = shared_of(
            grad, norm, ties, behind * g_step, behind * n_step, behind * t_step, behind < rows,
            P=P, EXTREME=EXTREME, WIDE=WIDE,
        )  # fmt: skip
        shared = tl.where(own, shared_first[:, None], shared_second[:, None])
        n = tl.where(own, n_first[:, None], n_second[:, None])
    part = part_of(value, n, P=P, EXTREME=EXTREME)
    tl.store(y + at, (part * shared).to(y.dtype.element_ty), mask=mask)
