"""Weights of convolutions as their kernels read them: by tap, input channel, output channel."""

from __future__ import annotations

import numpy as np

from saccade.ir import Array, DType

__all__ = ["pack_taps"]


def pack_taps(w: Array, dtype: str, inputs: int, outputs: int) -> Array:
    """[K, C, R, S] as [R·S, inputs, outputs], zeros beyond the channels that there are.

    Args:
        w: Weights.
        dtype: Element type to round them to.
        inputs: At least C.
        outputs: At least K.
    """
    k, c, r, s = w.shape
    packed = np.zeros((r * s, inputs, outputs), DType(dtype).numpy)
    packed[:, :c, :k] = w.transpose(2, 3, 1, 0).reshape(r * s, c, k).astype(packed.dtype)
    return packed
