"""The code of a row of a depthwise convolution: one vector of channels, groups of pixels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from saccade.codegen.language import Kernel, Ptr, Var
from saccade.codegen.target import Target
from saccade.codegen.values import Int, IntLike, Mask, Vec
from saccade.ir import Expr
from saccade.kernels.conv2d.epilogue import Epilogue, Place
from saccade.kernels.conv2d.row_groups import Group, RowGroups, cut_row
from saccade.kernels.machine import machine
from saccade.opdefs import Conv2d
from saccade.opdefs._taps import expr_flops

__all__ = ["FinishRow", "RowCode", "Rows", "groups_of", "row_micros"]

_CYCLES = 3.7e3  # per microsecond


@dataclass(frozen=True, slots=True)
class Rows:
    """What a row of output pixels is computed from.

    Attributes:
        x: Where the first tap of the first row of the window falls for the row's first pixel; may
            lie outside the picture.
        down: Elements from one row of the window to the next.
        across: Elements from column to column of the picture.
        weights: Taps of the vector, the first row's first.
        pitch: Elements from tap to tap.
        taps: Range of rows of the window inside the picture.
        mask: Which lanes are channels.
    """

    x: Ptr
    down: Int
    across: Int
    weights: Ptr
    pitch: Int
    taps: tuple[Int, Int]
    mask: Mask | None


def groups_of(
    conv: Conv2d, columns: int, width: int, taps: int, target: Target
) -> RowGroups | None:
    """How rows of `columns` pixels are cut, for `taps` columns over pictures of `width` columns."""
    # Sums, the weights of a row of taps and two columns stay in registers.
    largest = max(4, min(8, target.registers - taps - 3))
    return cut_row(
        columns, width, taps=taps, stride=conv.stride[1], left=conv.padding[1],
        dilation=conv.dilation[1], largest=largest,
    )  # fmt: skip


def row_micros(
    cut: RowGroups, columns: int, taps: tuple[int, ...], epilogue: Expr, target: Target
) -> float:
    """Estimated microseconds of one row of one vector, `taps` being [rows, columns] of a window."""
    fmas = columns * taps[1] * target.lanes * 2 / machine(target).flops
    loads = cut.count * taps[1] * 1.5 / _CYCLES
    return taps[0] * (fmas + loads) + columns * (2 + expr_flops(epilogue)) / _CYCLES


@dataclass(frozen=True, slots=True)
class FinishRow:
    """Stores the sums of a row's pixels, and adds the results to `total`."""

    epilogue: Epilogue
    place: Place
    image: Int
    row: Int
    total: Var | None = None

    def __call__(self, column: IntLike, total: Vec) -> None:
        pixel = self.epilogue.pixel(self.image, self.row, column)
        result = self.epilogue.finish(total, pixel, self.place)
        if self.total is not None:
            self.total.set(self.total.get() + result)


@dataclass(frozen=True, slots=True)
class RowCode:
    """Emits rows.

    Attributes:
        k: Builder.
        groups: How the row is cut; `repeats` says only whether there is a loop.
        taps, stride, dilation: Of the convolution, along the row.
    """

    k: Kernel
    groups: RowGroups
    taps: int
    stride: int
    dilation: int

    def emit(self, rows: Rows, repeats: Int, finish: Callable[[IntLike, Vec], None]) -> None:
        """Compute a row and hand each pixel's sums to `finish(column, sums)`."""
        cut, at = self.groups, 0
        for group in cut.first:
            self._group(rows, group, at, finish)
            at += group.pixels
        if not cut.repeats:
            return
        end = repeats * cut.body + at
        with self.k.range(at, end, cut.body) as column:
            self._group(rows, Group(cut.body), column, finish)
        for group in cut.last:
            self._group(rows, group, end, finish)
            end = end + group.pixels

    def _group(
        self, rows: Rows, group: Group, column: IntLike, finish: Callable[[IntLike, Vec], None]
    ) -> None:
        k = self.k
        sums = [k.var(k.zero()) for _ in range(group.pixels)]
        products = group.products(self.taps, self.stride, self.dilation)
        start = rows.x + rows.across * (column * self.stride)
        needed = sorted({tap for pairs in products.values() for _, tap in pairs})
        with k.range(*rows.taps) as r:
            line, panel = start + rows.down * r, rows.weights + rows.pitch * (r * self.taps)
            weights = {t: panel.vec(rows.pitch * t) for t in needed}
            for j, pairs in products.items():
                value = line.vec(rows.across * j, rows.mask)
                for pixel, tap in pairs:
                    total = sums[pixel]
                    total.set(k.fma(value, weights[tap], total.get()))
        for pixel, total in enumerate(sums):
            finish(column + pixel, total.get())
