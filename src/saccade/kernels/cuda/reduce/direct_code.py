"""Reductions of any axes: blocks of rows (results) times elements behind each of them."""

import triton
import triton.language as tl

from saccade.kernels.cuda.reduce.axis_loops_code import (
    coordinates,
    element,
    is_nan,
    place,
    stepped,
)


@triton.jit
def term(x, POWER: tl.constexpr, TERM: tl.constexpr):
    """What of an element is combined."""
    value = x
    if TERM == "abs":
        value = tl.abs(x)
    elif TERM == "square":
        value = x * x
    elif TERM == "cube":
        value = tl.abs(x * x * x)
    elif TERM == "nonzero":
        value = tl.where(x != 0, 1.0, 0.0).to(x.dtype)
    elif TERM == "power":
        value = tl.exp2(POWER * tl.log2(tl.abs(x)))
    return value


@triton.jit
def multiply(a, b):
    return a * b


@triton.jit
def combined(acc, COMBINE: tl.constexpr):
    """[rows, elements] over all elements, NaN where there is one."""
    if COMBINE == "sum":
        best = tl.sum(acc, 1)
    elif COMBINE == "prod":
        best = tl.reduce(acc, 1, multiply)
    else:
        best = tl.max(acc, 1) if COMBINE == "max" else tl.min(acc, 1)
        if acc.dtype.is_floating():
            best = tl.where(tl.max(is_nan(acc).to(tl.int32), 1) != 0, float("nan"), best)
    return best


@triton.jit
def finished(total, count, ROOT: tl.constexpr, FINISH: tl.constexpr):
    """What becomes of what was combined, of `count` elements."""
    real: tl.constexpr = total.dtype.is_floating()
    result = total
    if FINISH == "mean" and real:
        result = total / count.to(total.dtype)
    elif FINISH == "mean":
        size = tl.abs(total) // tl.maximum(count, 1).to(total.dtype)
        result = tl.where(total < 0, -size, size)
    elif FINISH == "sqrt" and total.dtype == tl.float32:
        result = tl.sqrt_rn(total)
    elif FINISH == "sqrt":
        result = tl.sqrt(total.to(tl.float64))
    elif FINISH == "log":
        result = tl.log(total)
    elif FINISH == "root":
        result = tl.exp2(tl.log2(total) * ROOT)
    return result


@triton.constexpr_function
def initial(combine, limit, wide):
    """What combining nothing gives; `limit` for integers."""
    if not element(wide).is_floating():
        return limit
    return {"max": float("-inf"), "min": float("inf"), "prod": 1.0}.get(combine, 0.0)


@triton.jit
def added(acc, value, COMBINE: tl.constexpr):
    """Two blocks combined element by element."""
    if COMBINE == "prod":
        result = acc * value
    elif COMBINE == "max":
        result = tl.maximum(acc, value, propagate_nan=tl.PropagateNan.ALL)
    elif COMBINE == "min":
        result = tl.minimum(acc, value, propagate_nan=tl.PropagateNan.ALL)
    else:
        result = acc + value
    return result


@triton.jit
def settled(top):
    """What exponents are taken relative to: infinite maxima are none."""
    return tl.where((top - top) == 0, top, 0.0)


@triton.jit
def log_sum_exp(acc, top):
    """[rows, elements]: sums of powers relative to `top`, the largest exponent of each."""
    best = settled(tl.max(top, 1))
    total = tl.sum(tl.where(acc == 0, 0.0, acc * tl.exp(top - best[:, None])), 1)
    return tl.log(total) + best


@triton.jit
def reduce_rows(
    x, y, extra,
    count, rows, k1, k2, reduced, tiles, r1, r2,
    x_k0, x_k1, x_k2, x_r0, x_r1, x_r2, y_part, y_k0, y_k1, y_k2,
    WIDE: tl.constexpr, LIMIT: tl.constexpr, TERM: tl.constexpr, COMBINE: tl.constexpr,
    FINISH: tl.constexpr, POWER: tl.constexpr, ROOT: tl.constexpr,
    KEPT: tl.constexpr, REDUCED: tl.constexpr, UNIT: tl.constexpr, Y_UNIT: tl.constexpr,
    STEP: tl.constexpr, BM: tl.constexpr, BR: tl.constexpr, STAGES: tl.constexpr,
    EPILOGUE: tl.constexpr,
):  # fmt: skip
    """A part is `tiles` blocks of BR elements; its results lie `y_part` behind those before."""
    kept_step: tl.constexpr = STEP if UNIT == "kept" else 1
    reduced_step: tl.constexpr = STEP if UNIT == "reduced" else 1
    rows = stepped(rows, STEP=kept_step)
    k2 = stepped(k2, STEP=kept_step)
    reduced = stepped(reduced, STEP=reduced_step)
    r2 = stepped(r2, STEP=reduced_step)
    x_k0 = stepped(x_k0, STEP=STEP)
    x_k1 = stepped(x_k1, STEP=STEP)
    x_r0 = stepped(x_r0, STEP=STEP)
    x_r1 = stepped(x_r1, STEP=STEP)
    blocks = tl.cdiv(rows, BM)
    part = tl.program_id(0) // blocks
    row = tl.program_id(0) % blocks * BM + tl.arange(0, BM)
    row_mask = row < rows
    if UNIT == "reduced":
        x_k2 = stepped(x_k2, STEP=STEP)
    else:
        x_r2 = stepped(x_r2, STEP=STEP)
    x_row = place(row, k1, k2, x_k0, x_k1, x_k2, AXES=KEPT, UNIT=UNIT == "kept")
    wide: tl.constexpr = element(WIDE)
    start: tl.constexpr = initial(COMBINE, LIMIT, WIDE)
    acc = tl.full((BM, BR), start, wide)
    top = tl.full((BM, BR), float("-inf"), tl.float32)  # of log_sum_exp alone
    first = part * tiles * BR
    last = tl.minimum(first + tiles * BR, reduced)
    for at in tl.range(first, last, BR, num_stages=STAGES):
        r = at + tl.arange(0, BR)
        x_r = place(r, r1, r2, x_r0, x_r1, x_r2, AXES=REDUCED, UNIT=UNIT == "reduced")
        mask = row_mask[:, None] & (r < reduced)[None, :]
        value = tl.load(x + x_row[:, None] + x_r[None, :], mask=mask, other=0).to(wide)
        if COMBINE == "log_sum_exp":
            value = tl.where(mask, value, float("-inf"))
            higher = tl.maximum(top, value)
            base = settled(higher)
            acc = acc * tl.exp(top - base) + tl.exp(value - base)  # of nothing yet, exp(-inf) = 0
            top = higher
        else:
            value = tl.where(mask, term(value, POWER=POWER, TERM=TERM), start)
            acc = added(acc, value, COMBINE=COMBINE)
    total = log_sum_exp(acc, top) if COMBINE == "log_sum_exp" else combined(acc, COMBINE=COMBINE)
    if not wide.is_floating():
        total = total.to(x.dtype.element_ty).to(wide)  # it wraps around as the operand's type does
    total = finished(total, count, ROOT=ROOT, FINISH=FINISH)
    k, p, q = coordinates(row, k1, k2, AXES=KEPT)
    one = tl.arange(0, 1)
    result = EPILOGUE(total[:, None], k, one, p, q, row_mask, one == 0, extra)
    y_row = place(row, k1, k2, y_k0, y_k1, y_k2, AXES=KEPT, UNIT=Y_UNIT)
    to = y + part * y_part + y_row[:, None]
    tl.store(to, result.to(y.dtype.element_ty), mask=row_mask[:, None])
