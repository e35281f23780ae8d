"""Weights of convolutions over short lattices, transformed, in the panels that products stream."""

from __future__ import annotations

import numpy as np

from saccade.ir import Array
from saccade.kernels.conv2d.lattice_points import weight_matrix
from saccade.kernels.conv2d.pack_winograd import pack_spectra

__all__ = ["pack_lattice"]


def pack_lattice(
    weights: Array, bases: tuple[int, int], panel: int, order: str = "natural"
) -> Array:
    """Transform and reorder filters.

    Args:
        weights: [K, C, 3, 3], float32 or bfloat16.
        bases: Pixels of the longest lattices down and along.
        panel: Filters side by side in a panel; the last panel is filled up with zeros.
        order: Order of the filters, see `channel_order`; padding in it becomes zeros.

    Returns:
        float32: [frequencies, ⌈K / panel⌉, C, panel]. The sums are of integer multiples of the
        taps, divided at the end, so that they are exact where the taps are multiples of 144.
    """
    (down, by_down), (along, by_along) = map(weight_matrix, bases)
    packed = pack_spectra(weights, np.kron(down, along), panel, order, frequency_major=True)
    divisor = by_down * by_along
    return packed if divisor == 1 else np.divide(packed, np.float32(divisor), out=packed)
