"""Running sums: blocks of rows times elements, one block along the axis after the other."""

import triton
import triton.language as tl

from saccade.kernels.cuda.reduce.axis_loops_code import element, place, stepped
from saccade.kernels.cuda.reduce.direct_code import multiply


@triton.jit
def scan_rows(
    x, y, extra,
    rows, k1, k2, length, x_k0, x_k1, x_k2, x_r, y_k0, y_k1, y_k2, y_r,
    WIDE: tl.constexpr, EXCLUSIVE: tl.constexpr, REVERSE: tl.constexpr, PRODUCT: tl.constexpr,
    KEPT: tl.constexpr, UNIT: tl.constexpr, Y_UNIT: tl.constexpr, STEP: tl.constexpr,
    BM: tl.constexpr, BR: tl.constexpr,
):  # fmt: skip
    """UNIT and Y_UNIT: whose neighbours lie side by side."""
    if UNIT == "kept":
        rows = stepped(rows, STEP=STEP)
        k2 = stepped(k2, STEP=STEP)
        x_r = stepped(x_r, STEP=STEP)
    if UNIT == "reduced":
        length = stepped(length, STEP=STEP)
        x_k2 = stepped(x_k2, STEP=STEP)
    x_k0 = stepped(x_k0, STEP=STEP)
    x_k1 = stepped(x_k1, STEP=STEP)
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    row_mask = row < rows
    x_row = place(row, k1, k2, x_k0, x_k1, x_k2, AXES=KEPT, UNIT=UNIT == "kept")
    y_row = place(row, k1, k2, y_k0, y_k1, y_k2, AXES=KEPT, UNIT=Y_UNIT == "kept")
    wide: tl.constexpr = element(WIDE)
    one: tl.constexpr = 1 if PRODUCT else 0
    carry = tl.full((BM,), one, wide)
    shift: tl.constexpr = 1 if EXCLUSIVE else 0
    for start in range(0, length, BR):
        at = start + tl.arange(0, BR)
        from_at = length - 1 - at if REVERSE else at
        x_at = from_at if UNIT == "reduced" else from_at * x_r
        mask = row_mask[:, None] & (at < length)[None, :]
        value = tl.load(x + x_row[:, None] + x_at[None, :], mask=mask, other=one).to(wide)
        if PRODUCT:
            sums = tl.cumprod(value, 1) * carry[:, None]
            carry *= tl.reduce(value, 1, multiply)
        else:
            sums = tl.cumsum(value, 1) + carry[:, None]
            carry += tl.sum(value, 1)
        to_at = from_at - shift if REVERSE else from_at + shift
        y_at = to_at if Y_UNIT == "reduced" else to_at * y_r
        inside = mask & ((to_at >= 0) & (to_at < length))[None, :]
        tl.store(y + y_row[:, None] + y_at[None, :], sums.to(y.dtype.element_ty), mask=inside)
    if EXCLUSIVE:
        first = length - 1 if REVERSE else 0
        y_first = first if Y_UNIT == "reduced" else first * y_r
        none = tl.full((BM,), one, wide).to(y.dtype.element_ty)
        tl.store(y + y_row + y_first, none, mask=row_mask)
