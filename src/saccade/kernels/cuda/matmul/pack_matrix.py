"""Constant matrices as products read them: rows or columns, padded to whole vectors."""

from __future__ import annotations

import numpy as np

from saccade.ir import Array, DType

__all__ = ["pack_matrix"]


def pack_matrix(
    b: Array, dtype: str, transposed: bool, inner: int, columns: int, by_column: bool
) -> Array:
    """[..., K, N] as [..., inner, columns], or by column, zeros beyond the matrix.

    Args:
        b: The matrices; [..., N, K] if they are transposed.
        dtype: Element type to round them to.
        transposed: Whether they are.
        inner: At least K.
        columns: At least N.
        by_column: Whether to give [..., columns, inner].
    """
    b = b.swapaxes(-1, -2) if transposed else b
    packed = np.zeros((*b.shape[:-2], inner, columns), DType(dtype).numpy)
    packed[..., : b.shape[-2], : b.shape[-1]] = b.astype(packed.dtype)
    return np.ascontiguousarray(packed.swapaxes(-1, -2)) if by_column else packed
