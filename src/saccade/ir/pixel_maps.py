"""Blocks of pixels to channels and back, as index maps."""

from __future__ import annotations

from collections.abc import Sequence

from saccade.ir.dim import Dim
from saccade.ir.index_map import Factor, IndexMap

__all__ = ["depth_to_space", "space_to_depth"]


def depth_to_space(shape: Sequence[Dim], block: int, depth: Dim, mode: str) -> IndexMap:
    """[N, depth·block², H, W] -> [N, depth, H·block, W·block], ordered as in ONNX."""
    n, _, h, w = shape
    channels: tuple[Dim, ...]
    # DCR has the depth innermost in the channels, CRD outermost; rows come before columns in both.
    if mode == "DCR":
        channels, order = (block, block, depth), (3, 4, 1, 5, 2)
    else:
        channels, order = (depth, block, block), (1, 4, 2, 5, 3)
    in_factors = ((n,), channels, (h,), (w,))
    flat = (n, *channels, h, w)
    factors = tuple(Factor(flat[source], source) for source in (0, *order))
    return IndexMap(in_factors, factors, (1, 1, 2, 2))


def space_to_depth(
    shape: Sequence[Dim], block: int, rows: Dim, columns: Dim, mode: str
) -> IndexMap:
    """[N, C, rows·block, columns·block] -> [N, block²·C, rows, columns], ordered as in ONNX."""
    n, c, _, _ = shape
    flat: tuple[Dim, ...] = (n, c, rows, block, columns, block)
    # The inverse of the above: with DCR a block's place is the outer part of the channel.
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    factors = tuple(Factor(flat[source], source) for source in order)
    return IndexMap(((n,), (c,), (rows, block), (columns, block)), factors, (1, 3, 1, 1))
