"""Weights of a recurrent layer, in the order in which vectors over units read them."""

from __future__ import annotations

import numpy as np

from saccade.ir import Array

__all__ = ["pack_recurrent"]


def pack_recurrent(weights: Array, gates: int, width: int) -> Array:
    """Panels of units, element by element of the state.

    Args:
        weights: [D, G·H, H].
        gates: G.
        width: Units of a panel; the last one repeats the last unit.

    Returns:
        [D, panels, H, G, width], float32.
    """
    directions, _, size = weights.shape
    units = np.minimum(np.arange(-(-size // width) * width), size - 1)
    by_gate = weights.reshape(directions, gates, size, size)[:, :, units]
    panels = by_gate.reshape(directions, gates, -1, width, size)
    return np.ascontiguousarray(panels.transpose(0, 2, 4, 1, 3), dtype=np.float32)
