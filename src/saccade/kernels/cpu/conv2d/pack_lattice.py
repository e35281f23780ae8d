"""Weights of convolutions over short lattices, transformed, in the panels that products stream."""

from __future__ import annotations

from collections.abc import Sequence

from saccade.ir import Array
from saccade.kernels.cpu.conv2d.lattice_points import weight_matrix
from saccade.kernels.cpu.conv2d.pack_winograd import pack_spectra, spectra_panels
from saccade.kernels.cpu.pack.panels_config import Panels, Spectra

__all__ = ["lattice_panels", "pack_lattice"]


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
    return pack_spectra(weights, _spectra(bases), panel, order)


def lattice_panels(
    shape: Sequence[int], bases: tuple[int, int], panel: int, order: str = "natural"
) -> tuple[Panels, ...]:
    """`pack_lattice` of weights of this shape, for native packers."""
    return spectra_panels(shape, _spectra(bases), panel, order)


def _spectra(bases: tuple[int, int]) -> Spectra:
    (down, by_down), (along, by_along) = map(weight_matrix, bases)
    return Spectra(down, along, by_down * by_along, frequency_major=True)
