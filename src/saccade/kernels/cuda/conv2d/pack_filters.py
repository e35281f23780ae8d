"""Weights of convolutions with each filter's terms side by side."""

from __future__ import annotations

import numpy as np

from saccade.ir import Array, DType

__all__ = ["pack_filters"]


def pack_filters(w: Array, dtype: str, inputs: int, pixels: int) -> Array:
    """[K, C, R, S] as [K, R·S·inputs], zeros beyond the channels that there are.

    Args:
        w: Weights.
        dtype: Element type to round them to.
        inputs: At least C.
        pixels: How many pixels DepthToSpace makes of one in the order CRD (b², else 1): filters of
            the same pixel come together, as they do in the order DCR.
    """
    k, c, r, s = w.shape
    packed = np.zeros((k, r * s, inputs), DType(dtype).numpy)
    ordered = w.reshape(k // pixels, pixels, c, r, s).swapaxes(0, 1).reshape(k, c, r * s)
    packed[:, :, :c] = ordered.swapaxes(1, 2).astype(packed.dtype)
    return packed.reshape(k, r * s * inputs)
