"""Softmax of ROWS rows, held in registers (ONCE) or read three times, LENGTH elements at a time."""

import triton
import triton.language as tl


@triton.jit
def softmax(
    y, x, extra, rows, length,
    ROWS: tl.constexpr, LENGTH: tl.constexpr, ROWS_STEP: tl.constexpr, LENGTH_STEP: tl.constexpr,
    SPLIT: tl.constexpr, ONCE: tl.constexpr, LOG: tl.constexpr,
    X_PLACES: tl.constexpr, Y_PLACES: tl.constexpr,
):  # fmt: skip
    """SPLIT says that rows are one axis, and what is outside of it counted for itself.

    Both sizes come divided by steps, so that the code knows what divides them.
    """
    rows = rows * ROWS_STEP
    length = length * LENGTH_STEP
    pid = tl.program_id(0)
    if SPLIT:
        blocks = tl.cdiv(rows, ROWS)
        row = pid % blocks * ROWS + tl.arange(0, ROWS)
        outer = pid // blocks
    else:
        row = pid * ROWS + tl.arange(0, ROWS)
        outer = row
    there = (row < rows)[:, None]
    lane = tl.arange(0, LENGTH)
    low = float("-inf")
    if ONCE:
        mask = there & (lane < length)[None, :]
        v = tl.load(x + X_PLACES(extra, outer, row, lane), mask=mask, other=low).to(tl.float32)
        v = v - tl.max(v, axis=1)[:, None]
        powers = tl.exp(v)
        total = tl.sum(powers, axis=1)
        result = v - tl.log(total)[:, None] if LOG else powers * (1.0 / total)[:, None]
        tl.store(y + Y_PLACES(extra, outer, row, lane), result.to(y.dtype.element_ty), mask=mask)
    else:
        tops = tl.full((ROWS, LENGTH), low, tl.float32)
        for start in range(0, length, LENGTH):
            at = start + lane
            mask = there & (at < length)[None, :]
            v = tl.load(x + X_PLACES(extra, outer, row, at), mask=mask, other=low)
            tops = tl.maximum(tops, v.to(tl.float32))
        top = tl.max(tops, axis=1)[:, None]
        sums = tl.zeros((ROWS, LENGTH), tl.float32)
        for start in range(0, length, LENGTH):
            at = start + lane
            mask = there & (at < length)[None, :]
            v = tl.load(x + X_PLACES(extra, outer, row, at), mask=mask, other=low)
            sums += tl.exp(v.to(tl.float32) - top)
        total = tl.sum(sums, axis=1)[:, None]
        shift = tl.log(total)
        scale = 1.0 / total
        for start in range(0, length, LENGTH):
            at = start + lane
            mask = there & (at < length)[None, :]
            v = tl.load(x + X_PLACES(extra, outer, row, at), mask=mask, other=low)
            v = v.to(tl.float32) - top
            result = v - shift if LOG else tl.exp(v) * scale
            place = Y_PLACES(extra, outer, row, at)
            tl.store(y + place, result.to(y.dtype.element_ty), mask=mask)
