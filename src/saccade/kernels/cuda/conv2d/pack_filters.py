"""Weights of convolutions with each filter's terms side by side."""

from __future__ import annotations

import numpy as np

from saccade.ir import Array, DType

__all__ = ["pack_filters"]


def pack_filters(w: Array, dtype: str, inputs: int, block: int = 1) -> Array:
    """[K, C, R, S] as [K, R·S·inputs], zeros beyond the channels that there are.

    Args:
        w: Weights.
        dtype: Element type to round them to.
        inputs: At least C.
        block: Edge of blocks of pixels that neighbouring filters give; those of a pixel are brought
            together.
    """
    k, c, r, s = w.shape
    area = block * block
    packed = np.zeros((k, r * s, inputs), DType(dtype).numpy)
    ordered = w.reshape(k // area, area, c, r, s).swapaxes(0, 1).reshape(k, c, r * s)
    packed[:, :, :c] = ordered.swapaxes(1, 2).astype(packed.dtype)
    return packed.reshape(k, r * s * inputs)
