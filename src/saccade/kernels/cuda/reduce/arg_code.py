"""Places of extremes: blocks of rows times elements, compared as integers."""

import triton
import triton.language as tl

from saccade.kernels.cuda.reduce.axis_loops_code import is_nan, place, stepped


@triton.jit
def ordered(x, LARGEST: tl.constexpr):
    """Integers in the order of x, or in the opposite one; NaN comes last in both, as in NumPy."""
    if x.dtype == tl.float64:
        bits = tl.where(x == 0, 0.0, x).to(tl.int64, bitcast=True)
        key = bits ^ ((bits >> 63) & 0x7FFFFFFFFFFFFFFF)
        key = tl.where(is_nan(x), 0x7FFFFFFFFFFFFFFF, key if LARGEST else ~key)
    elif x.dtype.is_floating():
        single = x.to(tl.float32)
        bits = tl.where(single == 0, 0.0, single).to(tl.int32, bitcast=True)
        key = bits ^ ((bits >> 31) & 0x7FFFFFFF)
        key = tl.where(is_nan(single), 0x7FFFFFFF, key if LARGEST else ~key)
    else:
        key = x.to(tl.int64)
        if x.dtype == tl.uint64:
            key = key ^ (-0x7FFFFFFFFFFFFFFF - 1)
        key = key if LARGEST else ~key
    return key


@triton.jit
def better(key, at, best, where, LAST: tl.constexpr):
    """Whether an element comes before the best one so far; of equal ones the first, or the last."""
    nearer = at > where if LAST else at < where
    return (key > best) | ((key == best) & nearer)


@triton.jit
def place_extreme(
    x, y, extra,
    rows, k1, k2, reduced, x_k0, x_k1, x_k2, x_r, y_k0, y_k1, y_k2,
    LARGEST: tl.constexpr, LAST: tl.constexpr, WIDE: tl.constexpr, KEPT: tl.constexpr,
    UNIT: tl.constexpr, Y_UNIT: tl.constexpr, STEP: tl.constexpr, BM: tl.constexpr,
    BR: tl.constexpr, STAGES: tl.constexpr, COUNTED: tl.constexpr,
):  # fmt: skip
    """WIDE: whether keys have 64 bits. COUNTED: whether `extra` says how many elements are true."""
    if UNIT == "kept":
        rows = stepped(rows, STEP=STEP)
        k2 = stepped(k2, STEP=STEP)
        x_r = stepped(x_r, STEP=STEP)
    else:
        x_k2 = stepped(x_k2, STEP=STEP)
    if UNIT == "reduced":
        reduced = stepped(reduced, STEP=STEP)
    x_k0 = stepped(x_k0, STEP=STEP)
    x_k1 = stepped(x_k1, STEP=STEP)
    true = reduced
    if COUNTED:
        true = tl.minimum(tl.maximum(tl.load(extra[0]), 1), reduced).to(tl.int32)
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    row_mask = row < rows
    x_row = place(row, k1, k2, x_k0, x_k1, x_k2, AXES=KEPT, UNIT=UNIT == "kept")
    least: tl.constexpr = -0x7FFFFFFFFFFFFFFF - 1 if WIDE else -0x7FFFFFFF - 1
    nowhere: tl.constexpr = -1 if LAST else 0x7FFFFFFF
    best = tl.full((BM, BR), least, tl.int64 if WIDE else tl.int32)
    where = tl.full((BM, BR), nowhere, tl.int32)
    for start in tl.range(0, true, BR, num_stages=STAGES):
        at = start + tl.arange(0, BR)
        x_r_at = at if UNIT == "reduced" else at * x_r
        mask = row_mask[:, None] & (at < reduced)[None, :]
        value = tl.load(x + x_row[:, None] + x_r_at[None, :], mask=mask, other=0)
        key = ordered(value, LARGEST=LARGEST)
        here = at[None, :] + tl.zeros((BM, BR), tl.int32)
        take = mask & better(key, here, best, where, LAST=LAST)
        if COUNTED:
            take = take & (at < true)[None, :]
        best = tl.where(take, key, best)
        where = tl.where(take, here, where)
    most = tl.max(best, 1)
    mine = tl.where(best == most[:, None], where, nowhere)
    found = tl.max(mine, 1) if LAST else tl.min(mine, 1)
    y_row = place(row, k1, k2, y_k0, y_k1, y_k2, AXES=KEPT, UNIT=Y_UNIT)
    tl.store(y + y_row, found.to(tl.int64), mask=row_mask)
