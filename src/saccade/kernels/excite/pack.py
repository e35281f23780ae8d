"""Weights of gates, in the order in which vectors over filters read them."""

from __future__ import annotations

import numpy as np

from saccade.ir import Array, DType

__all__ = ["pack_gates"]


def pack_gates(weights: Array, width: int, element: str) -> Array:
    """Blocks of filters, input channel by input channel.

    Args:
        weights: [K, C, 1, 1].
        width: Filters of a block; the last one may have fewer.
        element: Type of the result's elements, `float32` or `bfloat16`.

    Returns:
        flat: for each block [C, its filters].
    """
    rows = weights.reshape(weights.shape[0], -1)
    blocks = [rows[i : i + width].T.reshape(-1) for i in range(0, len(rows), width)]
    return np.concatenate(blocks).astype(DType(element).numpy)
