"""Which matrix and row a row of a block is."""

import triton
import triton.language as tl


@triton.jit
def axes_of(z, row, n1, m, DEPENDS: tl.constexpr, FLAT: tl.constexpr):
    """Place (n, p, q) in the result [n0, n1, M] of rows of the matrix z.

    DEPENDS says how many of the axes z goes over, FLAT whether rows go over the others and M.
    """
    zero = row * 0
    if DEPENDS == 0:
        if FLAT:
            return row // (n1 * m), row // m % n1, row % m
        return zero, zero, row
    if DEPENDS == 1:
        if FLAT:
            return zero + z, row // m, row % m
        return zero + z, zero, row
    return zero + z // n1, zero + z % n1, row


@triton.jit
def matrix_of(z, n1, b_0, b_1, DEPENDS: tl.constexpr):
    """Elements from the first to the matrix z of b."""
    if DEPENDS == 0:
        return 0
    if DEPENDS == 1:
        return z * b_0
    return z // n1 * b_0 + z % n1 * b_1
