"""Packed constants of data movement."""

from __future__ import annotations

import numpy as np

from saccade.ir import Array, DType

__all__ = ["one_element"]


def one_element(value: float, dtype: str) -> Array:
    """An array of one element, which a copy then repeats."""
    return np.array([value]).astype(DType(dtype).numpy)
