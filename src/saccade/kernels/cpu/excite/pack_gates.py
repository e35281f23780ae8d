"""Weights of gates, in the order in which vectors over filters read them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from saccade.ir import Array, DType
from saccade.kernels.cpu.pack.panels_config import Panels, row_panels

__all__ = ["gates_panels", "pack_gates"]


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


def gates_panels(shape: Sequence[int], width: int, element: str) -> tuple[Panels, ...]:
    """`pack_gates` of weights of this shape, for native packers: of float32 only."""
    if element != DType.F32.value:
        return ()
    filters, channels = shape[:2]
    whole = filters // width * width
    starts = np.arange(filters) * channels
    full = row_panels(starts[:whole], width, channels, 1)
    if whole == filters:
        return full
    start = 4 * whole * channels  # bytes
    return full + row_panels(starts[whole:], filters - whole, channels, 1, start=start)
