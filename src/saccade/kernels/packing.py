"""The table of packing functions: how constants are laid out for the kernels that read them.

Each is a pure function of arrays and plain parameters, so that a plan can name it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from saccade.ir import Array
from saccade.kernels.conv2d.direct_regions import pack_regions
from saccade.kernels.conv2d.pack import (
    pack_channels,
    pack_conv_weights,
    pack_matrix,
    pack_pairs_of_taps,
    pack_parts_of_channels,
    pack_transposed,
    zeros,
)
from saccade.kernels.conv2d.pack_depthwise import pack_depthwise, pack_few_outputs
from saccade.kernels.conv2d.pack_lattice import pack_lattice
from saccade.kernels.conv2d.pack_winograd import pack_winograd
from saccade.kernels.excite.pack import pack_gates
from saccade.kernels.movement.pack import one_element
from saccade.kernels.resize.pack import axis_indices, axis_weights

__all__ = ["FUNCTIONS"]

FUNCTIONS: Mapping[str, Callable[..., Array]] = MappingProxyType(
    {
        "axis_indices": axis_indices,
        "axis_weights": axis_weights,
        "one_element": one_element,
        "pack_channels": pack_channels,
        "pack_conv_weights": pack_conv_weights,
        "pack_depthwise": pack_depthwise,
        "pack_few_outputs": pack_few_outputs,
        "pack_gates": pack_gates,
        "pack_matrix": pack_matrix,
        "pack_pairs_of_taps": pack_pairs_of_taps,
        "pack_parts_of_channels": pack_parts_of_channels,
        "pack_regions": pack_regions,
        "pack_transposed": pack_transposed,
        "pack_lattice": pack_lattice,
        "pack_winograd": pack_winograd,
        "zeros": zeros,
    }
)
