"""In which order a kernel produces output channels; packed weights and operands follow it.

- `natural`: as the operator numbers them
- `subpixel:MODE:block:lanes`: DepthToSpace to channels-last, (i, j, c) with each (i, j) padded to
  whole vectors
- `rows:MODE:block`: DepthToSpace to row-major images, (c, i, j), so that j runs along a row
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from saccade.ir import Array

__all__ = ["channel_order"]


@lru_cache(maxsize=256)
def channel_order(order: str, channels: int) -> Array:
    """The operator's channel at each position of the kernel's order, -1 at padding.

    Raises:
        ValueError: If there is no such order.
    """
    kind, *words = order.split(":")
    numbers = np.arange(channels)
    if kind == "natural":
        return numbers
    mode, block = words[0], int(words[1])
    count = channels // block**2
    if mode == "DCR":
        by_pixel = numbers.reshape(block, block, count)
    else:
        by_pixel = numbers.reshape(count, block, block).transpose(1, 2, 0)
    if kind == "rows":
        return np.ascontiguousarray(by_pixel.transpose(2, 0, 1)).reshape(-1)
    if kind == "subpixel":
        lanes = int(words[2])
        padded = np.full((block, block, -(-count // lanes) * lanes), -1)
        padded[:, :, :count] = by_pixel
        return padded.reshape(-1)
    raise ValueError(f"channel order {order!r} is not known")
