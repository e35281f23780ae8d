"""Weights of depthwise convolutions and of convolutions with few filters."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from saccade.ir import Array, DType
from saccade.kernels.cpu.pack.panels_config import Panels, row_panels

__all__ = ["depthwise_panels", "pack_depthwise", "pack_few_outputs"]


def pack_depthwise(weights: Array, width: int) -> Array:
    """Taps of a few channels side by side: what a vector of channels reads is one run of memory.

    Args:
        weights: [C, 1, R, S].
        width: Channels side by side, the last ones filled up with zeros.

    Returns:
        float32, flat: [⌈C / width⌉, R, S, width].
    """
    channels, _, rows, columns = weights.shape
    blocks = -(-channels // width)
    taps = np.zeros((blocks * width, rows * columns), np.float32)
    taps[:channels] = weights.reshape(channels, -1)
    return taps.reshape(blocks, width, -1).transpose(0, 2, 1).reshape(-1)


def depthwise_panels(shape: Sequence[int], width: int) -> tuple[Panels, ...]:
    """`pack_depthwise` of weights of this shape, for native packers."""
    channels, _, rows, columns = shape
    return row_panels(np.arange(channels) * (rows * columns), width, 1, rows * columns)


def pack_few_outputs(weights: Array, group: int, lanes: int, pairs: bool = False) -> Array:
    """Vectors of channels, in the order in which they are read.

    Args:
        weights: [K, C, R, S], float32.
        group: Filters computed together.
        lanes: Channels in a vector, the last ones zero.
        pairs: Whether vectors hold bfloat16.

    Returns:
        flat: [⌈K / group⌉, R, ⌈C / lanes⌉, S, group, lanes], then a vector of zeros.
    """
    filters, channels, rows, columns = weights.shape
    groups, vectors = -(-filters // group), -(-channels // lanes)
    padded = np.zeros((groups * group, vectors * lanes, rows, columns), np.float32)
    padded[:filters, :channels] = weights
    split = padded.reshape(groups, group, vectors, lanes, rows, columns)
    packed = split.transpose(0, 4, 2, 5, 1, 3)
    flat = np.concatenate([packed.reshape(-1), np.zeros(lanes, np.float32)])
    return flat.astype(DType.BF16.numpy) if pairs else flat
