"""The code of a row of a depthwise convolution: one vector of channels, groups of pixels."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass

from saccade.backends.cpu.codegen.language import Ptr, Var
from saccade.backends.cpu.codegen.values import Int, IntLike, Mask, Vec
from saccade.backends.cpu.target import Target
from saccade.ir import Expr
from saccade.kernels.cpu.conv2d.epilogue import Epilogue, VectorPlace
from saccade.kernels.cpu.conv2d.row_groups import Group, RowGroups, any_cut, cut_row
from saccade.kernels.cpu.conv2d.row_walk import Inside, RowWalk
from saccade.kernels.cpu.machine import clock, machine
from saccade.opdefs import Conv2d
from saccade.opdefs._taps import expr_flops

__all__ = [
    "DepthwiseRows",
    "FinishRow",
    "RowCode",
    "any_groups",
    "groups_of",
    "row_micros",
    "testing_micros",
]

_TEST = 0.8  # cycles to find out whether there is a column (an estimate)


@dataclass(frozen=True, slots=True)
class DepthwiseRows:
    """What a row of output pixels is computed from.

    Attributes:
        x: Where the first tap of the first row of the window falls for the row's first pixel; may
            lie outside the image.
        down: Elements from one row of the window to the next.
        across: Elements from column to column of the image.
        weights: Taps of the vector, the first row's first.
        pitch: Elements from tap to tap.
        taps: Range of rows of the window inside the image.
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
    """How rows of `columns` pixels are cut, for `taps` columns over images of `width` columns."""
    return cut_row(
        columns, width, taps=taps, stride=conv.stride[1], left=conv.padding[1],
        dilation=conv.dilation[1], largest=_most_pixels(taps, target),
    )  # fmt: skip


def any_groups(columns: int, taps: int, target: Target) -> RowGroups:
    """The same by code that serves every width."""
    return any_cut(columns, _most_pixels(taps, target))


def _most_pixels(taps: int, target: Target) -> int:
    """Sums, the weights of a row of taps and two columns stay in registers."""
    return max(4, min(8, target.registers - taps - 3))


def row_micros(
    cut: RowGroups, columns: int, taps: tuple[int, ...], epilogue: Expr, target: Target
) -> float:
    """Estimated microseconds of one row of one vector, `taps` being [rows, columns] of a window."""
    fmas = columns * taps[1] * target.lanes * 2 / machine(target).flops
    loads = cut.count * taps[1] * 1.5 / clock(target)
    found = taps[0] * (fmas + loads) + columns * (2 + expr_flops(epilogue)) / clock(target)
    return found + testing_micros(cut, taps, target)


def testing_micros(cut: RowGroups, taps: tuple[int, ...], target: Target) -> float:
    """What of it is spent on finding out which columns there are: both ends of a row do."""
    if not cut.any_width:
        return 0.0
    return min(cut.count, 2) * taps[0] * _TEST * (cut.body + taps[1]) / clock(target)


@dataclass(frozen=True, slots=True)
class FinishRow:
    """Stores the sums of a row's pixels, and adds the results to `total`."""

    epilogue: Epilogue
    place: VectorPlace
    image: Int
    row: Int
    total: Var | None = None

    def __call__(self, column: IntLike, total: Vec) -> None:
        pixel = self.epilogue.pixel(self.image, self.row, column)
        result = self.epilogue.finish(total, pixel, self.place)
        if self.total is not None:
            self.total.set(self.total.get() + result)


class RowCode(RowWalk):
    """Emits rows of a depthwise convolution."""

    __slots__ = ()

    def emit(
        self, rows: DepthwiseRows, repeats: Int, finish: Callable[[IntLike, Vec], None]
    ) -> None:
        """Compute a row and hand each pixel's sums to `finish(column, sums)`."""
        self.walk(
            repeats,
            lambda group, column, inside: self._group(rows, group, column, finish, inside),
        )

    def _group(
        self,
        rows: DepthwiseRows,
        group: Group,
        column: IntLike,
        finish: Callable[[IntLike, Vec], None],
        inside: Inside = None,
    ) -> None:
        """The pixels of a group; `inside`: which columns there are, where that is tested."""
        k = self.k
        sums = [k.var(k.zero()) for _ in range(group.pixels)]
        products = group.products(self.taps, self.stride, self.dilation)
        start = rows.x + rows.across * (column * self.stride)
        needed = sorted({tap for pairs in products.values() for _, tap in pairs})
        with k.range(*rows.taps) as r:
            line, panel = start + rows.down * r, rows.weights + rows.pitch * (r * self.taps)
            weights = {t: panel.vec(rows.pitch * t) for t in needed}
            there, reached = line, 0
            for j, pairs in products.items():
                there, reached = k.registered(there + rows.across * (j - reached)), j
                with k.when(inside[j]) if inside else nullcontext():
                    value = there.vec(0, rows.mask)
                    for pixel, tap in pairs:
                        total = sums[pixel]
                        total.set(k.fma(value, weights[tap], total.get()))
        for pixel, total in enumerate(sums):
            with self.there(column + pixel, inside):
                finish(column + pixel, total.get())
