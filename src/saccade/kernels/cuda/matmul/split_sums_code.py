"""Adds the parts of sums that were divided among programs."""

import triton
import triton.language as tl

from saccade.kernels.cuda.matmul.axes_code import axes_of


@triton.jit
def add_parts(
    parts, y, extra,
    n1, m, rows, columns, y_0, y_1, y_m, y_n, matrices, pitch, count,
    DEPENDS: tl.constexpr, FLAT: tl.constexpr, Y_UNIT: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, EPILOGUE: tl.constexpr,
):  # fmt: skip
    """Adds the sums of `count` parts [count, matrices, rows, pitch], always in their order."""
    across = tl.cdiv(columns, BN)
    tiles = tl.cdiv(rows, BM) * across
    pid = tl.program_id(0)
    z = pid // tiles
    row = pid % tiles // across * BM + tl.arange(0, BM)
    col = pid % across * BN + tl.arange(0, BN)
    row_mask = row < rows
    place = parts + ((z * rows + row) * pitch)[:, None] + col[None, :]
    inside = row_mask[:, None] & (col < pitch)[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for i in range(count):
        acc += tl.load(place + i * (matrices * rows * pitch), mask=inside, other=0.0)
    n, p, q = axes_of(z, row, n1, m, DEPENDS, FLAT)
    col_mask = col < columns
    acc = EPILOGUE(acc, n, col, p, q, row_mask, col_mask, extra)
    to = (n * y_0 + p * y_1 + q * y_m)[:, None] + (col * (1 if Y_UNIT else y_n))[None, :]
    tl.store(y + to, acc.to(y.dtype.element_ty), mask=row_mask[:, None] & col_mask[None, :])
