"""Matrix products in blocks, whose sums may be divided among programs."""

import triton
import triton.language as tl

from saccade.kernels.cuda.matmul.axes_code import axes_of, matrix_of
from saccade.kernels.cuda.precision_code import dot_type


@triton.jit
def _block(tile, rows, columns, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr):
    """Block of rows and of columns of a tile: GROUP blocks of rows go through all columns first."""
    down = tl.cdiv(rows, BM)
    across = tl.cdiv(columns, BN)
    if GROUP == 1:
        return tile // across, tile % across
    first = tile // (GROUP * across) * GROUP
    high = tl.minimum(down - first, GROUP)
    within = tile % (GROUP * across)
    return first + within % high, within // high


@triton.jit
def multiply(
    a, b, y, extra,
    n1, m, rows, inner, columns, width, depth,
    a_0, a_1, a_m, a_k, b_0, b_1, b_k, b_n, y_0, y_1, y_m, y_n, matrices, steps, pitch,
    DEPENDS: tl.constexpr, FLAT: tl.constexpr, A_UNIT: tl.constexpr, B_UNIT: tl.constexpr,
    Y_UNIT: tl.constexpr, OPERAND: tl.constexpr, PRECISION: tl.constexpr, GROUP: tl.constexpr,
    SPLIT: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    EPILOGUE: tl.constexpr,
):  # fmt: skip
    kind: tl.constexpr = dot_type(OPERAND)
    tiles = tl.cdiv(rows, BM) * tl.cdiv(columns, BN)
    pid = tl.program_id(0)
    z = pid // tiles % matrices
    part = pid // tiles // matrices
    block_row, block_column = _block(pid % tiles, rows, columns, BM, BN, GROUP)
    row = block_row * BM + tl.arange(0, BM)
    col = block_column * BN + tl.arange(0, BN)
    row_mask = row < rows
    n, p, q = axes_of(z, row, n1, m, DEPENDS, FLAT)
    a_row = n * a_0 + p * a_1 + q * (1 if A_UNIT == "m" else a_m)
    b_col = matrix_of(z, n1, b_0, b_1, DEPENDS) + col * (1 if B_UNIT == "n" else b_n)
    acc = tl.zeros((BM, BN), tl.float32)
    last = tl.cdiv(inner, BK)
    first = 0
    if SPLIT:
        first = part * steps
        last = tl.minimum(last, first + steps)
    for t in range(first, last):
        at = t * BK + tl.arange(0, BK)
        left = tl.load(
            a + a_row[:, None] + (at * (1 if A_UNIT == "k" else a_k))[None, :],
            mask=row_mask[:, None] & (at < inner)[None, :], other=0.0,
        )  # fmt: skip
        right = tl.load(
            b + (at * (1 if B_UNIT == "k" else b_k))[:, None] + b_col[None, :],
            mask=(at < depth)[:, None] & (col < width)[None, :], other=0.0,
        )  # fmt: skip
        acc = tl.dot(left.to(kind), right.to(kind), acc, input_precision=PRECISION)
    if SPLIT:
        place = ((part * matrices + z) * rows + row) * pitch
        inside = row_mask[:, None] & (col < pitch)[None, :]
        tl.store(y + place[:, None] + col[None, :], acc, mask=inside)
    else:
        col_mask = col < columns
        acc = EPILOGUE(acc, n, col, p, q, row_mask, col_mask, extra)
        place = n * y_0 + p * y_1 + q * y_m
        to = place[:, None] + (col * (1 if Y_UNIT else y_n))[None, :]
        tl.store(y + to, acc.to(y.dtype.element_ty), mask=row_mask[:, None] & col_mask[None, :])
