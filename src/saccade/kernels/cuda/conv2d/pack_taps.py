"""Weights of convolutions as their kernels read them: by tap, input channel, output channel."""

from __future__ import annotations

import numpy as np

from saccade.ir import Array, DType

__all__ = [
    "pack_filter_rows", "pack_flat_taps", "pack_row_taps", "pack_taps", "pack_transposed_taps",
]  # fmt: skip


def pack_taps(
    w: Array, dtype: str, inputs: int, outputs: int, groups: int = 1, block: int = 1
) -> Array:
    """[K, C, R, S] as [groups, R·S, inputs, outputs], zeros beyond the channels that there are.

    Args:
        w: Weights; C counts the channels of a group.
        dtype: Element type to round them to.
        inputs: At least C.
        outputs: At least K/groups.
        groups: Groups of channels.
        block: Edge of blocks of pixels that neighbouring filters give; those of a pixel are brought
            together.
    """
    w = _by_pixel(w, block)
    k, c, r, s = w.shape
    packed = np.zeros((groups, r * s, inputs, outputs), DType(dtype).numpy)
    grouped = w.reshape(groups, k // groups, c, r * s).transpose(0, 3, 2, 1)
    packed[:, :, :c, : k // groups] = grouped.astype(packed.dtype)
    return packed


def pack_transposed_taps(w: Array, dtype: str, inputs: int, outputs: int, groups: int) -> Array:
    """The same of a transposed convolution's weights [C, K/groups, R, S]; C counts all channels."""
    c, k, r, s = w.shape
    swapped = w.reshape(groups, c // groups, k, r, s).swapaxes(1, 2)
    return pack_taps(swapped.reshape(groups * k, c // groups, r, s), dtype, inputs, outputs, groups)


def pack_flat_taps(
    w: Array, dtype: str, depth: int, outputs: int, order: str, inputs: int, block: int = 1
) -> Array:
    """[K, C, R, S] as [depth, outputs], zeros beyond the terms and channels that there are.

    Args:
        w: Weights.
        dtype: Element type to round them to.
        depth: At least R·S·inputs.
        outputs: At least K.
        order: Of the terms: "taps" (then channels) or "channels" (then taps).
        inputs: Channels at each tap, at least C.
        block: As for `pack_taps`.
    """
    w = _by_pixel(w, block)
    k, c, r, s = w.shape
    axes = (2, 3, 1, 0) if order == "taps" else (1, 2, 3, 0)
    packed = np.zeros((depth, outputs), DType(dtype).numpy)
    wide = np.zeros((k, inputs, r, s), packed.dtype)
    wide[:, :c] = w.astype(packed.dtype)
    packed[: inputs * r * s, :k] = wide.transpose(axes).reshape(inputs * r * s, k)
    return packed


def pack_row_taps(w: Array, dtype: str, depth: int, outputs: int, block: int = 1) -> Array:
    """[K, C, R, S] as [R, depth, outputs]: four terms for each tap of a row, zeros beyond C.

    Args:
        w: Weights; C is at most 4.
        dtype: Element type to round them to.
        depth: At least 4·S.
        outputs: At least K.
        block: As for `pack_taps`.
    """
    w = _by_pixel(w, block)
    k, c, r, s = w.shape
    packed = np.zeros((r, depth // 4, 4, outputs), DType(dtype).numpy)
    packed[:, :s, :c, :k] = w.transpose(2, 3, 1, 0).astype(packed.dtype)
    return packed


def pack_filter_rows(w: Array, dtype: str, depth: int, block: int = 1) -> Array:
    """The same as [K, R·depth]: each filter's rows of taps side by side."""
    rows = pack_row_taps(w, dtype, depth, w.shape[0], block)
    return np.ascontiguousarray(rows.reshape(-1, w.shape[0]).T)


def _by_pixel(w: Array, block: int) -> Array:
    """[channels·block², …] as [block²·channels, …]."""
    area = block * block
    parted = w.reshape(w.shape[0] // area, area, *w.shape[1:])
    return parted.swapaxes(0, 1).reshape(w.shape)
