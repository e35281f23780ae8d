"""Recognises movements that a convolution can do while it stores, by building and comparing."""

from __future__ import annotations

from saccade.ir import Dim, Factor, IndexMap
from saccade.ir.compose_maps import same_map
from saccade.ir.reshape_maps import quotient
from saccade.opdefs import DepthToSpaceStore

__all__ = ["as_depth_to_space", "is_shuffle"]


def as_depth_to_space(index_map: IndexMap) -> DepthToSpaceStore | None:
    """The depth-to-space that the map is, whatever operators it came from."""
    ins, outs = index_map.in_shape, index_map.out_shape
    if len(ins) != 4 or len(outs) != 4:
        return None
    block, channels = quotient(outs[2], ins[2]), ins[1]
    if not isinstance(block, int) or not isinstance(channels, int) or block < 2:
        return None
    if quotient(outs[3], ins[3]) != block or channels % (block * block):
        return None
    for mode in ("DCR", "CRD"):
        if same_map(index_map, _depth_to_space(ins, block, channels, mode)):
            return DepthToSpaceStore(block, mode)
    return None


def _depth_to_space(shape: tuple[Dim, ...], block: int, channels: int, mode: str) -> IndexMap:
    n, _, h, w = shape
    depth = channels // (block * block)
    split = (block, block, depth) if mode == "DCR" else (depth, block, block)
    rows, columns, kept = (1, 2, 3) if mode == "DCR" else (2, 3, 1)
    factors = (
        Factor(n, 0),
        Factor(depth, kept),
        *(Factor(h, 4), Factor(block, rows)),
        *(Factor(w, 5), Factor(block, columns)),
    )
    return IndexMap(((n,), split, (h,), (w,)), factors, (1, 1, 2, 2))


def is_shuffle(index_map: IndexMap, parts: int) -> bool:
    """Whether the map interleaves equal runs: channel `c·parts + j` is channel c of run j."""
    ins = index_map.in_shape
    channels = ins[1] if len(ins) == 4 else None
    if not isinstance(channels, int) or parts < 2 or channels % parts:
        return False
    n, _, h, w = ins
    split = (parts, channels // parts)
    factors = (Factor(n, 0), Factor(split[1], 2), Factor(parts, 1), Factor(h, 3), Factor(w, 4))
    return same_map(index_map, IndexMap(((n,), split, (h,), (w,)), factors, (1, 2, 1, 1)))
