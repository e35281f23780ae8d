"""Winograd's weights: `G g Gᵀ` of every filter, in the panels that the matrix products stream.

What is packed natively (`winograd_panels`) has the same bits: each product and each sum is rounded
to float32, in the order that `kernels.pack.code` gives.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from saccade.ir import Array
from saccade.kernels.cpu.conv2d.channel_order import channel_order
from saccade.kernels.cpu.conv2d.winograd_points import WinogradTile, weight_matrix
from saccade.kernels.cpu.pack.panels_config import Panels, Spectra, row_panels

__all__ = [
    "pack_spectra",
    "pack_winograd",
    "packed_bytes",
    "spectra_panels",
    "winograd_panels",
]


def packed_bytes(panels: int, channels: int, m: int, panel: int, stride: int) -> int:
    """Size of `pack_winograd`'s result."""
    return 4 * panels * WinogradTile(m, m, stride).weights ** 2 * channels * panel


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
        float32: [⌈K / panel⌉, `WinogradTile.weights`², C, panel], or with the first two axes
            swapped. The
        products of each sum are rounded in float32 (a relative error of about 1e-7, a tenth of
        what the convolution adds).
    """
    return pack_spectra(weights, _spectra(m, stride, frequency_major), panel, order)


def winograd_panels(
    shape: Sequence[int],
    m: int,
    panel: int,
    order: str = "natural",
    frequency_major: bool = False,
    stride: int = 1,
) -> tuple[Panels, ...]:
    """`pack_winograd` of weights of this shape, for native packers."""
    return spectra_panels(shape, _spectra(m, stride, frequency_major), panel, order)


def _spectra(m: int, stride: int, frequency_major: bool) -> Spectra:
    g = weight_matrix(m, stride)
    return Spectra(g, g, frequency_major=frequency_major)


def pack_spectra(weights: Array, spectra: Spectra, panel: int, order: str) -> Array:
    """`pack_winograd` under any transform of the rows and columns of taps."""
    channels, numbers = weights.shape[1], channel_order(order, len(weights))
    panels, squares = -(-len(numbers) // panel), spectra.frequencies
    first = (squares, panels) if spectra.frequency_major else (panels, squares)
    packed = np.empty((*first, channels, panel), np.float32)
    for index, block in enumerate(packed.swapaxes(0, 1) if spectra.frequency_major else packed):
        chosen = numbers[index * panel : (index + 1) * panel]
        (filled,) = np.nonzero(chosen >= 0)
        part = weights[chosen[filled]].astype(np.float32).reshape(-1, channels, 9)
        taps = np.zeros((9, channels, panel), np.float32)
        taps[:, :, filled] = part.transpose(2, 1, 0)
        _transform(taps.reshape(3, 3, channels, panel), spectra, block)
    return packed


def _transform(taps: Array, spectra: Spectra, to: Array) -> None:
    """Both transforms of [3, 3, C, panel], one after the other, into [squares, C, panel]."""
    down, along = (side.astype(np.float32) for side in (spectra.down, spectra.along))
    for i, (a, b, c) in enumerate(down):
        sums = (a * taps[0] + b * taps[1]) + c * taps[2]
        for j, (d, e, f) in enumerate(along):
            total = (d * sums[0] + e * sums[1]) + f * sums[2]
            np.divide(total, np.float32(spectra.divisor), out=to[i * len(along) + j])


def spectra_panels(
    shape: Sequence[int], spectra: Spectra, panel: int, order: str
) -> tuple[Panels, ...]:
    """`pack_spectra` of weights of this shape, for native packers."""
    filters, channels = shape[:2]
    positions = channel_order(order, filters)
    starts = np.where(positions < 0, -1, positions * (9 * channels))
    return row_panels(starts, panel, channels, 9, spectra=spectra)
