"""Matrix products without matrix units, in the type that sums are kept in."""

import triton
import triton.language as tl

from saccade.kernels.cuda.matmul.axes_code import axes_of, matrix_of


@triton.jit
def multiply_plain(
    a, b, y, extra,
    n1, m, rows, inner, columns, width, depth,
    a_0, a_1, a_m, a_k, b_0, b_1, b_k, b_n, y_0, y_1, y_m, y_n,
    DEPENDS: tl.constexpr, FLAT: tl.constexpr, ACC: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    sums: tl.constexpr = (
        tl.float64 if ACC == "fp64" else tl.int64 if ACC == "int64" else tl.int32
    )  # fmt: skip
    across = tl.cdiv(columns, BN)
    tiles = tl.cdiv(rows, BM) * across
    pid = tl.program_id(0)
    z = pid // tiles
    row = pid % tiles // across * BM + tl.arange(0, BM)
    col = pid % across * BN + tl.arange(0, BN)
    n, p, q = axes_of(z, row, n1, m, DEPENDS, FLAT)
    a_row = n * a_0 + p * a_1 + q * a_m
    b_col = matrix_of(z, n1, b_0, b_1, DEPENDS) + col * b_n
    acc = tl.zeros((BM, BN), sums)
    for t in range(tl.cdiv(inner, BK)):
        at = t * BK + tl.arange(0, BK)
        left = tl.load(
            a + a_row[:, None] + (at * a_k)[None, :],
            mask=(row < rows)[:, None] & (at < inner)[None, :], other=0,
        ).to(sums)  # fmt: skip
        right = tl.load(
            b + (at * b_k)[:, None] + b_col[None, :],
            mask=(at < depth)[:, None] & (col < width)[None, :], other=0,
        ).to(sums)  # fmt: skip
        acc += tl.sum(left[:, :, None] * right[None, :, :], 1)
    to = (n * y_0 + p * y_1 + q * y_m)[:, None] + (col * y_n)[None, :]
    mask = (row < rows)[:, None] & (col < columns)[None, :]
    tl.store(y + to, acc.to(y.dtype.element_ty), mask=mask)
