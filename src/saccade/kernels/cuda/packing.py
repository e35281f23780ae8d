"""Packed constants of GPU kernels, by the names that plans have for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from saccade.ir import Array
from saccade.kernels.cuda.conv2d.pack_filters import pack_filters
from saccade.kernels.cuda.conv2d.pack_groups import pack_groups
from saccade.kernels.cuda.conv2d.pack_lanes import (
    pack_lane_filters,
    pack_lane_rows,
    pack_lane_taps,
)
from saccade.kernels.cuda.conv2d.pack_subpixel import pack_subpixel
from saccade.kernels.cuda.conv2d.pack_taps import (
    pack_filter_rows,
    pack_flat_taps,
    pack_row_taps,
    pack_taps,
    pack_transposed_taps,
)
from saccade.kernels.cuda.matmul.pack_matrix import pack_matrix
from saccade.kernels.size_constant import SIZE_CONSTANT, size_constant

__all__ = ["FUNCTIONS"]

FUNCTIONS: Mapping[str, Callable[..., Array]] = MappingProxyType(
    {
        "cuda.filter_rows": pack_filter_rows,
        "cuda.filters": pack_filters,
        "cuda.flat_taps": pack_flat_taps,
        "cuda.groups": pack_groups,
        "cuda.lane_filters": pack_lane_filters,
        "cuda.lane_rows": pack_lane_rows,
        "cuda.lane_taps": pack_lane_taps,
        "cuda.matrix": pack_matrix,
        "cuda.row_taps": pack_row_taps,
        "cuda.subpixel": pack_subpixel,
        "cuda.taps": pack_taps,
        "cuda.transposed_taps": pack_transposed_taps,
        SIZE_CONSTANT: size_constant,
    }
)
