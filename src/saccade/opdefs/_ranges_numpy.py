"""Boxes rounded to pixels, with NumPy: which rows and columns the bins of a box cover."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = ["bin_ranges"]

_MOST = 1 << 30
Ranges = list[tuple[int, int]]


def bin_ranges(
    corners: Sequence[np.floating],
    scale: float,
    bins: tuple[int, int],
    sizes: tuple[int, int],
    dtype: np.dtype[np.floating],
    *,
    inclusive: bool,
) -> tuple[Ranges, Ranges]:
    """First and last + 1 of the rows and of the columns of each bin, cut at the image.

    Args:
        corners: x1, y1, x2, y2.
        scale: Pixels to a unit of them.
        bins: Down and along.
        sizes: Rows and columns of the image.
        dtype: What positions are computed in.
        inclusive: Whether the last pixel belongs to the box; else bins do not reach the last row
            and column of the image either.
    """
    kind = dtype.type
    with np.errstate(all="ignore"):
        x1, y1, x2, y2 = (kind(v) * kind(scale) for v in corners)
    if not np.isfinite([x1, y1, x2, y2]).all():
        return [(0, 0)] * bins[0], [(0, 0)] * bins[1]
    down = _axis(kind, (y1, y2), bins[0], sizes[0], inclusive)
    return down, _axis(kind, (x1, x2), bins[1], sizes[1], inclusive)


def _axis(
    kind: type[np.floating],
    span: tuple[np.floating, np.floating],
    bins: int,
    size: int,
    inclusive: bool,
) -> Ranges:
    start, end = (_rounded(kind, v) for v in span)
    step = kind(max(end - start + inclusive, 1)) / kind(max(1, bins))
    limit = size if inclusive else max(0, size - 1)

    def cut(place: np.floating) -> int:
        return min(max(int(place) + start, 0), limit)

    return [(cut(np.floor(kind(p) * step)), cut(np.ceil(kind(p + 1) * step))) for p in range(bins)]


def _rounded(kind: type[np.floating], value: np.floating) -> int:
    """Halves away from zero; what is below a half stays below it."""
    below = np.nextafter(kind(0.5), kind(0))
    return int(np.trunc(np.clip(value, -_MOST, _MOST) + np.copysign(below, value)))
