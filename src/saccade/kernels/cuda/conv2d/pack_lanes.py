"""Weights of convolutions as lanes of the matrix units multiply them."""

from __future__ import annotations

import numpy as np

from saccade.ir import Array, DType

__all__ = ["lane_columns", "lane_terms", "pack_lane_filters", "pack_lane_rows", "pack_lane_taps"]


def lane_terms(depth: int) -> Array:
    """Which channel each of `depth` terms is.

    Of sixteen terms a lane takes 2q, 2q+1, 2q+8 and 2q+9; its channels are neighbours.
    """
    terms = np.arange(depth)
    return terms % 8 // 2 * (depth // 4) + terms // 16 * 4 + terms % 16 // 8 * 2 + terms % 2


def pack_lane_rows(w: Array, dtype: str, depth: int, room: int) -> Array:
    """[K, C, R, S] as [R, S, 16, depth]: for a row of x, sums of all rows of results it adds to.

    Row `y` of x is tap `(y - p) % R` of the row of results whose sums are in place `p % R`, so that
    rows of x need R different arrangements. Zeros beyond the channels that there are.

    Args:
        w: Weights.
        dtype: Element type to round them to.
        depth: At least C, a multiple of 16.
        room: Sums of each place; at least K, at most 16/R.
    """
    k, c, r, s = w.shape
    wide = np.zeros((k, depth, r, s), DType(dtype).numpy)
    wide[:, :c] = w.astype(wide.dtype)
    packed = np.zeros((r, s, 16, depth), wide.dtype)
    for phase in range(r):
        for place in range(r):
            own = wide[:, lane_terms(depth), (phase - place) % r]
            packed[phase, :, place * room : place * room + k] = own.transpose(2, 0, 1)
    return packed


def pack_lane_filters(w: Array, dtype: str, depth: int, filters: int) -> Array:
    """[K, C, R, S] as [filters, depth], zeros beyond the filters and terms that there are.

    Args:
        w: Weights.
        dtype: Element type to round them to.
        depth: At least C·R·S.
        filters: At least K.
    """
    packed = np.zeros((filters, depth), DType(dtype).numpy)
    packed[: w.shape[0], : w[0].size] = w.reshape(w.shape[0], -1).astype(packed.dtype)
    return packed


def lane_columns(columns: int) -> Array:
    """Which channel each of so many columns is: a lane has 2q and 2q+1 of eight.

    Its channels are neighbours, eight of four such pairs.
    """
    column, run = np.arange(columns), min(columns // 8, 4)
    inner = column % 8 // 2 * (2 * run) + column // 8 % run * 2 + column % 2
    return column // 8 // run * (8 * run) + inner


def pack_lane_taps(
    w: Array, dtype: str, depth: int, filters: int, columns: int, shift: int
) -> Array:
    """[K, C, R, S] as [filters, depth]: eight terms for each row of taps, rows by `lane_columns`.

    Args:
        w: Weights; S + shift is at most 8.
        dtype: Element type to round them to.
        depth: At least 8·C·R.
        filters: At least K, a multiple of `columns`.
        columns: Of a block, which has its channels in an order of its own.
        shift: Terms before the first tap of a row.
    """
    k, c, r, s = w.shape
    wide = np.zeros((filters, depth // 8, 8), DType(dtype).numpy)
    wide[:k, : c * r, shift : shift + s] = w.reshape(k, c * r, s).astype(wide.dtype)
    blocks = wide.reshape(filters // columns, columns, depth)
    return np.ascontiguousarray(blocks[:, lane_columns(columns)].reshape(filters, depth))
