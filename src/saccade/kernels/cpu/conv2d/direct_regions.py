"""Rectangles of output pixels whose windows miss the image with the same taps.

Along one axis the taps that fall on the image are a range, which only changes near the borders:
`size` pixels, 3 taps 12 apart and 12 pixels of padding give outputs without the first tap, with all
of them, and without the last. The products of these ranges along both axes are rectangles that need
no check of any tap, and compute none in vain.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

__all__ = ["REGION_WORDS", "ConvAxis", "Span", "spans", "tile_count"]

REGION_WORDS = 11
"""First tile, tiles, pixels; first row, rows; first column, columns; taps, two ranges."""


@dataclass(frozen=True, slots=True)
class ConvAxis:
    """One axis of a convolution.

    Attributes:
        size: Elements of the input.
        count: Outputs.
        taps: Taps of a window.
        stride: Distance of windows.
        before: Elements before the input where the first window starts.
        dilation: Distance of taps.
    """

    size: int
    count: int
    taps: int
    stride: int
    before: int
    dilation: int

    def valid(self, output: int) -> tuple[int, int]:
        """The taps of an output that fall on the input, as a range."""
        start = output * self.stride - self.before
        low = max(0, -(start // self.dilation)) if start < 0 else 0
        high = max(0, -(-(self.size - start) // self.dilation))
        return (low, min(high, self.taps)) if low < min(high, self.taps) else (0, 0)

    @property
    def inner(self) -> range:
        """The outputs of which all taps fall on the input."""
        first = min(self.count, max(0, -(-self.before // self.stride)))
        last = (self.size - 1 - (self.taps - 1) * self.dilation + self.before) // self.stride
        return range(first, max(first, min(last + 1, self.count)))


Span = tuple[int, int, int, int]
"""Outputs with the same taps: first output, how many, first tap, one past the last tap."""


@lru_cache(maxsize=1024)
def spans(axis: ConvAxis) -> tuple[Span, ...]:
    """The outputs of an axis, by the taps that they need."""
    inner, found = axis.inner, list[Span]()
    runs = [(output, 1) for output in range(inner.start)]
    if inner:
        runs.append((inner.start, len(inner)))
    runs += [(output, 1) for output in range(inner.stop, axis.count)]
    for output, many in runs:
        taps = axis.valid(output)
        if found and found[-1][2:] == taps:
            first, count, *_ = found[-1]
            found[-1] = (first, count + many, *taps)
        else:
            found.append((output, many, *taps))
    return tuple(found)


def tile_count(rows: tuple[Span, ...], columns: tuple[Span, ...], images: int, tile: int) -> int:
    """How many tiles the regions have, see `pack_regions.pack_regions`."""
    return sum(-(-images * row[1] * column[1] // tile) for row in rows for column in columns)
