"""A row of output pixels cut into groups that are computed together, borders known ahead.

Each column that a group reads is loaded once and serves every tap that falls on it. Which columns
lie outside the image is known for every group when its code is written: nothing is tested and
taps in the padding cost nothing. Groups near the borders are written out; those between them are
alike and share one loop.

Rows may also be cut into groups that are all alike (`any_cut`), whatever the width: code for these
tests at run time what groups at the ends of a row read, so that every row can use it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

__all__ = ["Group", "RowGroups", "Side", "any_cut", "cut_row"]

Side = tuple[tuple[int, int, int], ...]
"""Groups as plain numbers: pixels, columns before and after."""

_REACH = 64  # pixels with taps outside the image that are written out at most


@dataclass(frozen=True, slots=True)
class Group:
    """Neighbouring output pixels of one row.

    Attributes:
        pixels: How many.
        before, after: How many of the columns under their windows lie left and right of the
            image.
    """

    pixels: int
    before: int = 0
    after: int = 0

    def products(self, taps: int, stride: int, dilation: int) -> dict[int, list[tuple[int, int]]]:
        """For each column inside the image, counted from the first window's: (pixel, tap)."""
        span = (self.pixels - 1) * stride + (taps - 1) * dilation + 1
        found: dict[int, list[tuple[int, int]]] = {}
        for pixel in range(self.pixels):
            for tap in range(taps):
                column = pixel * stride + tap * dilation
                if self.before <= column < span - self.after:
                    found.setdefault(column, []).append((pixel, tap))
        return dict(sorted(found.items()))


@dataclass(frozen=True, slots=True)
class RowGroups:
    """The groups of a row, in order.

    Attributes:
        first: Groups at the left border.
        body: Pixels of each group between the borders.
        repeats: How many of these there are.
        last: Groups at the right border.
        any_width: Whether nothing is known of borders: all groups are the body's, and those at the
            ends of a row test which columns and pixels there are.
    """

    first: tuple[Group, ...]
    body: int
    repeats: int
    last: tuple[Group, ...]
    any_width: bool = False

    @property
    def count(self) -> int:
        """Groups of a row."""
        return len(self.first) + self.repeats + len(self.last)

    def code(self) -> tuple[Side, int, Side, bool]:
        """What emitted code depends on, as plain numbers."""
        first, last = (
            tuple((g.pixels, g.before, g.after) for g in side) for side in (self.first, self.last)
        )
        return first, self.body, last, self.any_width

    @classmethod
    def of(cls, first: Side, body: int, last: Side, any_width: bool) -> RowGroups:
        """From what `code` gave; `repeats` is 1 for any number of them."""
        ends = (tuple(Group(*g) for g in side) for side in (first, last))
        return cls(next(ends), body, int(body > 0), next(ends), any_width)


def any_cut(columns: int, largest: int) -> RowGroups:
    """Groups of `largest` pixels, alike for rows of any length."""
    return RowGroups((), largest, -(-columns // largest), (), any_width=True)


@lru_cache(maxsize=1024)
def cut_row(
    columns: int, width: int, *, taps: int, stride: int, left: int, dilation: int, largest: int
) -> RowGroups | None:
    """Groups of at most `largest` pixels, as few as can be.

    Args:
        columns: Output pixels of a row.
        width: Columns of the image.
        taps: Of the convolution, along the row.
        stride: Of the windows.
        left: Columns of padding.
        dilation: Of the taps.
        largest: Pixels that fit the registers.

    Returns:
        None where too many windows leave the image to write them out.
    """
    reach = (taps - 1) * dilation
    clipped_left = min(columns, -(-left // stride))
    clipped_right = min(columns, columns - max(0, (width - 1 - reach + left) // stride + 1))
    if clipped_left + clipped_right > _REACH:
        return None
    sizes = _sizes(columns, largest)
    head = _covering(sizes, clipped_left)
    tail = _covering(sizes[::-1], clipped_right)
    while tail < len(sizes) - head and sizes[-1 - tail] != sizes[0]:
        tail += 1
    if head + tail >= len(sizes):
        head, tail = len(sizes), 0

    def group(index: int) -> Group:
        start = sum(sizes[:index])
        end = start + sizes[index] - 1
        over = end * stride - left + reach - (width - 1)
        return Group(sizes[index], max(0, left - start * stride), max(0, over))

    return RowGroups(
        tuple(group(i) for i in range(head)),
        sizes[0] if sizes and head + tail < len(sizes) else 0,
        len(sizes) - head - tail,
        tuple(group(i) for i in range(len(sizes) - tail, len(sizes))),
    )


def _sizes(columns: int, largest: int) -> list[int]:
    """Sizes of groups: all alike but the last one, or the last two where one would be tiny."""
    if columns == 0:
        return []
    size = -(-columns // -(-columns // largest))
    full, rest = divmod(columns, size)
    if full and 0 < rest < size / 2:
        both = size + rest
        return [size] * (full - 1) + [both - both // 2, both // 2]
    return [size] * full + [rest] * (rest > 0)


def _covering(sizes: list[int], columns: int) -> int:
    """How many of the first groups it takes to cover `columns`."""
    count = 0
    while columns > 0:
        columns -= sizes[count]
        count += 1
    return count
