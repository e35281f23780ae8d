"""Packed constants of GPU kernels, by the names that plans have for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from saccade.ir import Array
from saccade.kernels.cuda.conv2d.pack_filters import pack_filters
from saccade.kernels.cuda.conv2d.pack_taps import pack_taps

__all__ = ["FUNCTIONS"]

FUNCTIONS: Mapping[str, Callable[..., Array]] = MappingProxyType(
    {"cuda.taps": pack_taps, "cuda.filters": pack_filters}
)
