"""Rows that updates replace, or are combined with in their order.

`heads` [rows] is each row's last update, or its first one where they are combined; `following`
[count] is then for each update the next one of its row. -1 and `count` stand for none.
"""

import triton
import triton.language as tl

from saccade.kernels.cuda.reduce.axis_loops_code import is_nan, stepped


@triton.jit
def none(heads, extra, rows, count, LAST: tl.constexpr, BLOCK: tl.constexpr):
    """No row has an update."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    nothing = tl.zeros((BLOCK,), tl.int32) + (-1 if LAST else count)
    tl.store(heads + row, nothing, mask=row < rows)


@triton.jit
def link(
    indices, heads, following, extra, rows, count, step,
    LAST: tl.constexpr, BLOCK: tl.constexpr, LATER: tl.constexpr,
):  # fmt: skip
    """BLOCK updates tell their rows; and find the next ones of these."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    index = tl.load(indices + at * step, mask=at < count, other=-1)
    there = (index >= 0) & (index < rows)
    row = tl.where(there, index, 0).to(tl.int32)
    if LAST:
        tl.atomic_max(heads + row, at, mask=there)
    else:
        tl.atomic_min(heads + row, at, mask=there)
        best = tl.zeros((BLOCK, LATER), tl.int32) + count
        for start in range(tl.program_id(0) * BLOCK, count, LATER):
            other = start + tl.arange(0, LATER)
            theirs = tl.load(indices + other * step, mask=other < count, other=-1)
            same = (theirs[None, :] == index[:, None]) & (other[None, :] > at[:, None])
            best = tl.where(same, tl.minimum(best, other[None, :]), best)
        tl.store(following + at, tl.min(best, 1), mask=there)


@triton.jit
def _combined(old, new, REDUCTION: tl.constexpr):
    """NaN stays, from either side."""
    if REDUCTION == "add":
        value = old + new
    elif REDUCTION == "mul":
        value = old * new
    else:
        better = new < old if REDUCTION == "min" else new > old
        better = (better | is_nan(new)) & (is_nan(old) == 0)
        value = tl.where(better, new, old)
    return value


@triton.jit
def apply(
    data, updates, y, heads, following, extra,
    rows, count, columns, d_row, d_column, u_row, u_column, y_row, y_column,
    REDUCTION: tl.constexpr, FLOAT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    STEP: tl.constexpr, D_UNIT: tl.constexpr, U_UNIT: tl.constexpr, Y_UNIT: tl.constexpr,
):  # fmt: skip
    """A block of rows and columns; FLOAT: sums in float32, rounded after each update."""
    columns = stepped(columns, STEP=STEP)
    d_row = stepped(d_row, STEP=STEP) if D_UNIT else d_row
    u_row = stepped(u_row, STEP=STEP) if U_UNIT else u_row
    y_row = stepped(y_row, STEP=STEP) if Y_UNIT else y_row
    wide = tl.cdiv(columns, COLUMNS)
    row = tl.program_id(0) // wide * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(0) % wide * COLUMNS + tl.arange(0, COLUMNS)
    mask = (row < rows)[:, None] & (column < columns)[None, :]
    d_at = column if D_UNIT else column * d_column
    u_at = column if U_UNIT else column * u_column
    y_at = column if Y_UNIT else column * y_column
    head = tl.load(heads + row, mask=row < rows, other=-1 if REDUCTION == "none" else count)
    # In the place of the data all is there already but what updates change.
    apart = row * 0 + (data.to(tl.int64) - y.to(tl.int64))
    mask = mask & (((head >= 0) & (head < count)) | (apart != 0))[:, None]
    if REDUCTION == "none":
        kept = mask & (head < 0)[:, None]
        old = tl.load(data + (row * d_row)[:, None] + d_at[None, :], mask=kept, other=0)
        put = mask & (head >= 0)[:, None]
        new = tl.load(updates + (head * u_row)[:, None] + u_at[None, :], mask=put, other=0)
        value = tl.where(put, new, old)
    else:
        value = tl.load(data + (row * d_row)[:, None] + d_at[None, :], mask=mask, other=0)
        while tl.min(head, 0) < count:
            put = mask & (head < count)[:, None]
            new = tl.load(updates + (head * u_row)[:, None] + u_at[None, :], mask=put, other=0)
            if FLOAT:
                both = _combined(value.to(tl.float32), new.to(tl.float32), REDUCTION=REDUCTION)
            else:
                both = _combined(value, new, REDUCTION=REDUCTION)
            value = tl.where(put, both.to(value.dtype), value)
            head = tl.load(following + head, mask=head < count, other=count)
    tl.store(y + (row * y_row)[:, None] + y_at[None, :], value, mask=mask)
