"""A row times a matrix: each program streams some columns, or a part of their sums."""

import triton
import triton.language as tl

from saccade.kernels.cuda.matmul.axes_code import axes_of, matrix_of


@triton.jit
def multiply_row(
    a, b, y, extra,
    n1, m, rows, inner, columns, width, depth,
    a_0, a_1, a_m, a_k, b_0, b_1, b_k, b_n, y_0, y_1, y_m, y_n, matrices, steps, pitch,
    DEPENDS: tl.constexpr, FLAT: tl.constexpr, A_UNIT: tl.constexpr, B_UNIT: tl.constexpr,
    Y_UNIT: tl.constexpr, SPLIT: tl.constexpr, BK: tl.constexpr, BN: tl.constexpr,
    STAGES: tl.constexpr, EPILOGUE: tl.constexpr,
):  # fmt: skip
    across = tl.cdiv(columns, BN)
    pid = tl.program_id(0)
    col = pid % across * BN + tl.arange(0, BN)
    row = pid // across % rows + tl.arange(0, 1)
    z = pid // across // rows % matrices
    part = pid // across // rows // matrices
    n, p, q = axes_of(z, row, n1, m, DEPENDS, FLAT)
    a_row = n * a_0 + p * a_1 + q * a_m
    b_col = matrix_of(z, n1, b_0, b_1, DEPENDS) + col * (1 if B_UNIT == "n" else b_n)
    first = 0
    last = tl.cdiv(inner, BK)
    if SPLIT:
        first = part * steps
        last = tl.minimum(last, first + steps)
    # Sums of every BK-th product, so that no step waits for a reduction among threads.
    acc = tl.zeros((BK, BN), tl.float32)
    for t in tl.range(first, last, num_stages=STAGES):
        at = t * BK + tl.arange(0, BK)
        left = tl.load(a + a_row + at * (1 if A_UNIT == "k" else a_k), mask=at < inner, other=0.0)
        right = tl.load(
            b + (at * (1 if B_UNIT == "k" else b_k))[:, None] + b_col[None, :],
            mask=(at < depth)[:, None] & (col < width)[None, :], other=0.0,
        )  # fmt: skip
        acc += left.to(tl.float32)[:, None] * right.to(tl.float32)
    total = tl.sum(acc, 0)[None, :]
    if SPLIT:
        place = ((part * matrices + z) * rows + row) * pitch
        tl.store(y + place[:, None] + col[None, :], total, mask=(col < pitch)[None, :])
    else:
        col_mask = col < columns
        row_mask = row < rows
        total = EPILOGUE(total, n, col, p, q, row_mask, col_mask, extra)
        to = (n * y_0 + p * y_1 + q * y_m)[:, None] + (col * (1 if Y_UNIT else y_n))[None, :]
        tl.store(y + to, total.to(y.dtype.element_ty), mask=col_mask[None, :])
