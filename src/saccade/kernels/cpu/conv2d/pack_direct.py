"""How constants are laid out for the direct convolution and for matrix products.

Beside the functions of arrays stand those that describe the same to native packers, from the
source's shape: `conv_panels` for `pack_conv_weights`, and so on.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from saccade.ir import Array, DType
from saccade.kernels.cpu.conv2d.channel_order import channel_order
from saccade.kernels.cpu.pack.panels_config import Panels, column_panels, element_panels, row_panels

__all__ = [
    "conv_panels",
    "matrix_panels",
    "pack_channels",
    "pack_conv_weights",
    "pack_matrix",
    "pack_pairs_of_taps",
    "pack_parts_of_channels",
    "pack_rows_of_taps",
    "pack_transposed",
    "parts_of_channels_panels",
    "transposed_panels",
    "zeros",
]


def zeros(count: int) -> Array:
    """`count` float32 zeros: what taps outside the image read."""
    return np.zeros(count, np.float32)


def pack_channels(array: Array, order: str) -> Array:
    """A channel operand (broadcasts to [1, K, 1, 1]) in a kernel's channel order, 0 at padding."""
    return _reorder(array.reshape(-1).astype(np.float32), order)


def _reorder(array: Array, order: str) -> Array:
    """Rows of `array` in the wanted order, zeros at padding."""
    positions = channel_order(order, array.shape[0])
    result = array[positions]
    result[positions < 0] = 0
    return result


def pack_conv_weights(weights: Array, groups: int, order: str, width: int, pairs: bool) -> Array:
    """Weights [K, C/groups, R, S] as [groups, blocks, R, S, C/groups, width], zero-padded.

    In pairs, bfloat16 and [groups, blocks, R, S, ⌈C/groups/2⌉, width, 2].
    """
    k, c, r, s = weights.shape
    panels = []
    for group in weights.reshape(groups, k // groups, c, r, s):
        wanted = _reorder(group, order)
        blocks = -(-wanted.shape[0] // width)
        padded = np.zeros((blocks * width, c, r, s), np.float32)
        padded[: wanted.shape[0]] = wanted
        panels.append(padded.reshape(blocks, width, c, r, s).transpose(0, 3, 4, 2, 1))
    packed = np.stack(panels)
    return pair_up(packed) if pairs else np.ascontiguousarray(packed)


def pack_parts_of_channels(
    weights: Array, groups: int, parts: int, order: str, width: int, pairs: bool = False
) -> Array:
    """Weights [K, C/groups, R, S] whose input channels are summed in parts: a group for each."""
    k, c, r, s = weights.shape
    apart = weights.reshape(groups, k // groups, parts, c // parts, r, s).swapaxes(1, 2)
    rows = apart.reshape(parts * k, c // parts, r, s)
    return pack_conv_weights(rows, groups * parts, order, width, pairs)


def conv_panels(
    shape: Sequence[int], groups: int, order: str, width: int, pairs: bool
) -> tuple[Panels, ...]:
    """`pack_conv_weights` of weights of this shape."""
    return parts_of_channels_panels(shape, groups, 1, order, width, pairs)


def parts_of_channels_panels(
    shape: Sequence[int], groups: int, parts: int, order: str, width: int, pairs: bool = False
) -> tuple[Panels, ...]:
    """`pack_parts_of_channels` of weights of this shape."""
    k, c, *kernel = shape
    taps, length = prod(kernel), c // parts * prod(kernel)
    filters = k // groups
    firsts = np.arange(groups)[:, None] * filters * c * taps + np.arange(parts) * length
    return row_panels(
        _starts(firsts, order, filters, c * taps), width, c // parts, taps, pairs=pairs
    )


def _starts(firsts: Array, order: str, filters: int, apart: int) -> Array:
    """Where the filters of each group begin, in the wanted order: int64 [..., filters]."""
    positions = channel_order(order, filters)
    return np.where(positions < 0, -1, firsts[..., None] + positions * apart)


def pack_pairs_of_taps(weights: Array, groups: int, order: str, width: int) -> Array:
    """Weights [K, C/groups, R, S] as [groups, blocks, R, ⌈S/2⌉, C/groups, width, 2] in bfloat16."""
    taps = pack_conv_weights(weights, groups, order, width, False).swapaxes(-2, -3)
    return np.ascontiguousarray(pair_up(taps).swapaxes(-3, -4))


def pack_rows_of_taps(weights: Array, order: str, width: int) -> Array:
    """Weights [K, C, R, S] as [blocks, C, R, ⌈S/2⌉, width, 2] in bfloat16."""
    k, c, r, s = weights.shape
    even = np.zeros((k, c, r, s + s % 2), np.float32)
    even[..., :s] = weights
    return pack_conv_weights(even.reshape(k, -1, 1, 1), 1, order, width, True)


def pair_up(panels: Array) -> Array:
    """Panels [..., C, width] in bfloat16 as [..., ⌈C/2⌉, width, 2], zero-padded."""
    *before, c, width = panels.shape
    result = np.zeros((*before, -(-c // 2), width, 2), DType.BF16.numpy)
    for side in range(2):
        half = panels[..., side::2, :]
        result[..., : half.shape[-2], :, side] = half
    return result


def pack_matrix(matrix: Array, transposed: bool, width: int, pairs: bool = False) -> Array:
    """Matrices [..., K, N] (or [..., N, K]) as [..., blocks, K, width], zero-padded.

    In pairs, bfloat16 and [..., blocks, ⌈K/2⌉, width, 2].
    """
    b = matrix.swapaxes(-1, -2) if transposed else matrix
    *batch, k, n = b.shape
    blocks = -(-n // width)
    padded = np.zeros((*batch, k, blocks * width), np.float32)
    padded[..., :n] = b
    panels = padded.reshape(*batch, k, blocks, width).swapaxes(-2, -3)
    return pair_up(panels) if pairs else np.ascontiguousarray(panels)


def matrix_panels(
    shape: Sequence[int], transposed: bool, width: int, pairs: bool = False
) -> tuple[Panels, ...]:
    """`pack_matrix` of matrices of this shape."""
    *batch, rows, columns = shape
    k, n = (columns, rows) if transposed else (rows, columns)
    firsts = np.arange(prod(batch))[:, None] * (k * n)
    if transposed:
        return row_panels(firsts + np.arange(n) * k, width, k, 1, pairs=pairs)
    return column_panels(firsts + np.arange(n), width, k, n, pairs=pairs)


def pack_transposed(
    weights: Array,
    groups: int,
    first: tuple[int, int],
    step: tuple[int, int],
    order: str,
    width: int,
    pairs: bool = False,
) -> Array:
    """One phase of the weights [C, K/groups, R, S] of a transposed convolution, for a convolution.

    Taps `first, first + step, …` along each axis, last one first; packed as by
    `pack_conv_weights`.
    """
    c, k = weights.shape[:2]
    taps = weights[:, :, first[0] :: step[0], first[1] :: step[1]][:, :, ::-1, ::-1]
    by_group = taps.reshape(groups, c // groups, k, *taps.shape[2:]).swapaxes(1, 2)
    return pack_conv_weights(
        by_group.reshape(groups * k, c // groups, *taps.shape[2:]), groups, order, width, pairs
    )


def transposed_panels(
    shape: Sequence[int],
    groups: int,
    first: tuple[int, int],
    step: tuple[int, int],
    order: str,
    width: int,
    pairs: bool = False,
) -> tuple[Panels, ...]:
    """`pack_transposed` of weights of this shape."""
    c, k, rows, columns = shape
    taps = np.arange(rows * columns).reshape(rows, columns)
    places = taps[first[0] :: step[0], first[1] :: step[1]][::-1, ::-1].reshape(-1)
    firsts = np.arange(groups) * (c // groups * k * taps.size)
    starts = _starts(firsts, order, k, taps.size)
    return element_panels(starts, width, c // groups, k * taps.size, places.tolist(), pairs=pairs)
