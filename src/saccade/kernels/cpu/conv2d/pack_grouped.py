"""Weights of narrow grouped convolutions."""

from __future__ import annotations

import numpy as np

from saccade.ir import Array

__all__ = ["pack_grouped"]


def pack_grouped(weights: Array, groups: int, width: int, block: int) -> Array:
    """Lane by lane what each lane's element of the image is multiplied with, sum by sum.

    A lane's element counts for the filter of its own lane in the first sum, and for those of the
    lanes `lane ^ 1, lane ^ 2, …` in the others: it meets all filters of its block of lanes.

    Args:
        weights: [K, C/groups, R, S].
        groups: Of the K filters.
        width: Lanes of a vector, which holds neighbouring filters; the last ones are zero.
        block: Lanes of a block, a power of two that divides filters and channels of a group.

    Returns:
        float32, flat: [⌈K / width⌉, R, C/groups/block, S, block, width].
    """
    filters, channels, rows, columns = weights.shape
    vectors, steps = -(-filters // width), channels // block
    padded = np.zeros((vectors * width, channels, rows, columns), np.float32)
    padded[:filters] = weights
    assert filters // groups % block == 0
    lane, sums = np.arange(vectors * width), np.arange(block)
    # [steps, block, lanes, R, S]
    found = padded[lane ^ sums[:, None], np.arange(steps)[:, None, None] * block + lane % block]
    apart = found.reshape(steps, block, vectors, width, rows, columns)
    return np.ascontiguousarray(apart.transpose(2, 4, 0, 5, 1, 3)).reshape(-1)
