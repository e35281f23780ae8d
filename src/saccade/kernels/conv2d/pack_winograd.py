"""Winograd's weights: `G g Gᵀ` of every filter, in the panels that the matrix products stream."""

from __future__ import annotations

import numpy as np

from saccade.ir import Array
from saccade.kernels.conv2d.channel_order import channel_order
from saccade.kernels.conv2d.winograd_points import Tile, weight_matrix

__all__ = ["pack_spectra", "pack_winograd", "packed_bytes"]


def packed_bytes(panels: int, channels: int, m: int, panel: int, stride: int) -> int:
    """Size of `pack_winograd`'s result."""
    return 4 * panels * Tile(m, m, stride).weights ** 2 * channels * panel


def pack_winograd(
    weights: Array,
    m: int,
    panel: int,
    order: str = "natural",
    frequency_major: bool = False,
    stride: int = 1,
) -> Array:
    """Transform and reorder filters.

    Args:
        weights: [K, C, 3, 3], float32 or bfloat16.
        m: Edge of the output tile whose points are used.
        panel: Filters side by side in a panel; the last panel is filled up with zeros.
        order: Order of the filters, see `channel_order`; padding in it becomes zeros.
        frequency_major: Whether all panels of a frequency lie together, or all frequencies of a
            panel.
        stride: Of the convolution.

    Returns:
        float32: [⌈K / panel⌉, `Tile.weights`², C, panel], or with the first two axes swapped. The
        products of each sum are rounded in float32 (a relative error of about 1e-7, a tenth of
        what the convolution adds).
    """
    g = weight_matrix(m, stride)
    return pack_spectra(weights, np.kron(g, g), panel, order, frequency_major)


def pack_spectra(
    weights: Array, matrix: Array, panel: int, order: str, frequency_major: bool
) -> Array:
    """`pack_winograd` under any linear transform of the nine taps, `matrix` of [squares, 9]."""
    transform = matrix.astype(np.float32)
    channels, numbers = weights.shape[1], channel_order(order, len(weights))
    panels, squares = -(-len(numbers) // panel), len(transform)
    first = (squares, panels) if frequency_major else (panels, squares)
    packed = np.empty((*first, channels, panel), np.float32)
    for index, block in enumerate(packed.swapaxes(0, 1) if frequency_major else packed):
        chosen = numbers[index * panel : (index + 1) * panel]
        (filled,) = np.nonzero(chosen >= 0)
        part = weights[chosen[filled]].astype(np.float32).reshape(-1, channels, 9)
        taps = np.zeros((9, channels, panel), np.float32)
        taps[:, :, filled] = part.transpose(2, 1, 0)
        # Not `@`: BLAS would wait for threads of its own beside compilers that have every core.
        product = np.einsum("sk,kx->sx", transform, taps.reshape(9, -1))
        block[...] = product.reshape(block.shape)
    return packed
