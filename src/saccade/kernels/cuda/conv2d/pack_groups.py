"""Weights of grouped convolutions whose groups are put together to fill products."""

from __future__ import annotations

import numpy as np

from saccade.ir import Array, DType

__all__ = ["pack_groups"]


def pack_groups(
    w: Array, dtype: str, groups: int, together: int, inputs: int, outputs: int
) -> Array:
    """[K, C, R, S] as [blocks·outputs, R·S·inputs], zeros between groups and beyond channels.

    Args:
        w: Weights; C counts the channels of a group.
        dtype: Element type to round them to.
        groups: Groups of channels.
        together: Groups of a block; the last one may have fewer.
        inputs: Room for the input channels of a block.
        outputs: Room for its filters.
    """
    k, c, r, s = w.shape
    each = k // groups
    packed = np.zeros((-(-groups // together), outputs, r * s, inputs), DType(dtype).numpy)
    taps = w.reshape(groups, each, c, r * s).transpose(0, 1, 3, 2).astype(packed.dtype)
    for group in range(groups):
        block, at = divmod(group, together)
        packed[block, at * each : (at + 1) * each, :, at * c : (at + 1) * c] = taps[group]
    return packed.reshape(-1, r * s * inputs)
