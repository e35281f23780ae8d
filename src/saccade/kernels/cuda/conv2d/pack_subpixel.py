"""Weights of a 3x3 convolution of an image of which blocks of 2x2 pixels are the operand."""

from __future__ import annotations

from itertools import product

import numpy as np

from saccade.ir import Array, DType

__all__ = ["SUBPIXEL_SUMS", "pack_subpixel"]

SUBPIXEL_SUMS = 64
"""Of a block: 4x4 results of four channels, the last of which may be none."""


def pack_subpixel(w: Array, dtype: str, columns: int) -> Array:
    """[K, M, 3, 3] as [64, columns]: what a block of pixels adds to all the results around it.

    Columns are the block's pixels, row by row, M channels each, zeros beyond them. The results
    under its windows are four rows of four, from one pixel above and to the left of the block. Sums
    are the upper two rows, then the lower two, of each the four places of a row, of each the upper
    and the lower result, of four channels each.

    Args:
        w: Weights; K is at most 4.
        dtype: Element type to round them to.
        columns: At least 4·M.
    """
    k, m, *_ = w.shape
    # Results of a block: which half, which place of a row, which row of the half, which channel.
    packed = np.zeros((2, 4, 2, 4, columns), DType(dtype).numpy)
    for row, place, y, x in product(range(4), range(4), range(2), range(2)):
        r, s = y - row + 2, x - place + 2
        if r in range(3) and s in range(3):
            first = (2 * y + x) * m
            packed[row // 2, place, row % 2, :k, first : first + m] = w[:, :, r, s]
    return packed.reshape(SUBPIXEL_SUMS, columns)
