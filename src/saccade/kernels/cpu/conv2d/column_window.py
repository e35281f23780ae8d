"""A few neighbouring output pixels of one row and the input columns that their taps read.

Each distinct column is loaded once and serves every tap that falls on it. At the border, columns
outside the image are read from a vector of zeros instead, so that no input needs a halo.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr
    from saccade.backends.cpu.codegen.values import Bool, Int, Vec

__all__ = ["ColumnWindow", "valid_taps"]


@dataclass(frozen=True, slots=True)
class ColumnWindow:
    """`pixels` outputs of one row, `taps` taps each.

    Attributes:
        pixels: Output pixels.
        taps, stride, dilation: Of the convolution, along the row.
    """

    pixels: int
    taps: int
    stride: int
    dilation: int

    @property
    def columns(self) -> tuple[int, ...]:
        """Input columns that are read, relative to the first."""
        found = {self.column(i, t) for i in range(self.pixels) for t in range(self.taps)}
        return tuple(sorted(found))

    @property
    def span(self) -> int:
        """One past the last column."""
        return self.column(self.pixels - 1, self.taps - 1) + 1

    def column(self, pixel: int, tap: int) -> int:
        """The column that a tap of a pixel reads."""
        return pixel * self.stride + tap * self.dilation

    def inside(self, first: Int, width: Int) -> dict[int, Bool]:
        """For each column, whether it lies in an image of `width` columns."""
        return {j: (first + j >= 0) & (first + j < width) for j in self.columns}

    def load(self, row: Ptr, step: Int, read: Callable[[Ptr], Vec]) -> dict[int, Vec]:
        """All columns of a row of an image, `step` elements apart; `row` is the first."""
        return {j: read(row + step * j) for j in self.columns}

    def load_guarded(
        self, row: Ptr, step: Int, read: Callable[[Ptr], Vec], inside: dict[int, Bool], zeros: Ptr
    ) -> dict[int, Vec]:
        """The same where some columns lie outside: these read `zeros`, one vector."""
        k = row.k
        return {j: read(k.pick(inside[j], row + step * j, zeros)) for j in self.columns}


def valid_taps(
    k: KernelBuilder, first: Int, size: Int, taps: Int, dilation: Int
) -> tuple[Int, Int]:
    """Range of the taps `first + tap · dilation` that fall on one of `size` elements."""
    before = k.maximum_int(0 - first, 0)
    low = (before + dilation - 1) // dilation
    span = k.maximum_int(size - first, 0)
    return low, k.minimum_int((span + dilation - 1) // dilation, taps)
