"""The table of packing functions: how constants are laid out for the kernels that read them.

Each is a pure function of arrays and plain parameters, so that a plan can name it. Those whose
results may be large have a description too, from which generated code packs the same bits on all
cores, at the speed of memory; so it does not matter for a result who packed its constants.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from saccade.ir import Array
from saccade.kernels.cpu.conv2d.pack_depthwise import pack_depthwise, pack_few_outputs
from saccade.kernels.cpu.conv2d.pack_direct import (
    pack_channels,
    pack_conv_weights,
    pack_matrix,
    pack_pairs_of_taps,
    pack_parts_of_channels,
    pack_rows_of_taps,
    pack_transposed,
    zeros,
)
from saccade.kernels.cpu.conv2d.pack_grouped import pack_grouped
from saccade.kernels.cpu.conv2d.pack_lattice import pack_lattice
from saccade.kernels.cpu.conv2d.pack_regions import pack_regions
from saccade.kernels.cpu.conv2d.pack_winograd import pack_winograd
from saccade.kernels.cpu.excite.pack_gates import pack_gates
from saccade.kernels.cpu.movement.pack_element import one_element
from saccade.kernels.cpu.pack.pack_tables import PANELS, panel_beside, panel_lanes
from saccade.kernels.cpu.pack.panels_config import Panels
from saccade.kernels.cpu.recurrent.pack_recurrent import pack_recurrent
from saccade.kernels.cpu.resize.pack_axes import axis_indices, axis_weights
from saccade.kernels.cpu.resize.pack_resample import resample_spans, resample_weights
from saccade.kernels.cpu.select.pack_lists import list_rooms
from saccade.kernels.size_constant import SIZE_CONSTANT, size_constant

__all__ = ["FUNCTIONS", "PANELS", "panels_of"]

FUNCTIONS: Mapping[str, Callable[..., Array]] = MappingProxyType(
    {
        "axis_indices": axis_indices,
        "axis_weights": axis_weights,
        "list_rooms": list_rooms,
        "one_element": one_element,
        "pack_channels": pack_channels,
        "pack_conv_weights": pack_conv_weights,
        "pack_depthwise": pack_depthwise,
        "pack_few_outputs": pack_few_outputs,
        "pack_gates": pack_gates,
        "pack_grouped": pack_grouped,
        "pack_matrix": pack_matrix,
        "pack_pairs_of_taps": pack_pairs_of_taps,
        "pack_parts_of_channels": pack_parts_of_channels,
        "pack_recurrent": pack_recurrent,
        "pack_regions": pack_regions,
        "pack_rows_of_taps": pack_rows_of_taps,
        "pack_transposed": pack_transposed,
        "pack_lattice": pack_lattice,
        "pack_winograd": pack_winograd,
        "panel_beside": panel_beside,
        "panel_lanes": panel_lanes,
        "resample_spans": resample_spans,
        "resample_weights": resample_weights,
        SIZE_CONSTANT: size_constant,
        "zeros": zeros,
    }
)


def panels_of(
    function: str, parameters: Sequence[Any], sources: Sequence[Array]
) -> tuple[Panels, ...]:
    """What a native packer would make of these; nothing where it cannot.

    Sources must be float32 and contiguous: others go through the functions.
    """
    describe = PANELS.get(function)
    if describe is None or len(sources) != 1:
        return ()
    (source,) = sources
    if source.dtype != np.float32 or not source.flags.c_contiguous:
        return ()
    return describe(source.shape, *parameters)
