"""The table of packing functions: how constants are laid out for the kernels that read them.

Each is a pure function of arrays and plain parameters, so that a plan can name it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from saccade.ir import Array

__all__ = ["FUNCTIONS"]

FUNCTIONS: Mapping[str, Callable[..., Array]] = MappingProxyType({})
