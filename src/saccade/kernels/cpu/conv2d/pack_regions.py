"""The table of regions that the code of the direct convolution walks."""

from __future__ import annotations

import numpy as np

from saccade.ir import Array
from saccade.kernels.cpu.conv2d.direct_regions import REGION_WORDS, Span

__all__ = ["pack_regions"]


def pack_regions(
    rows: tuple[Span, ...], columns: tuple[Span, ...], images: int, tile: int
) -> Array:
    """The table that the code walks: [regions, REGION_WORDS] of int64.

    Args:
        rows: Spans of rows.
        columns: Spans of columns.
        images: How many images share a region.
        tile: Pixels of a tile; no tile holds pixels of two regions.
    """
    table, first = [], 0
    for top, height, *taps_r in rows:
        for left, width, *taps_s in columns:
            pixels = images * height * width
            count = -(-pixels // tile)
            table.append([first, count, pixels, top, height, left, width, *taps_r, *taps_s])
            first += count
    return np.array(table, np.int64).reshape(-1, REGION_WORDS)
