"""A row of output pixels, walked group by group, whatever is summed for each."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.backends.cpu.codegen.values import Bool, Int, IntLike
from saccade.kernels.cpu.conv2d.row_bands import WindowSizes
from saccade.kernels.cpu.conv2d.row_groups import Group, RowGroups

__all__ = ["EmitGroup", "Inside", "RowWalk"]

Inside = dict[int, Bool] | None
"""Which columns under a group there are, where that is tested; None where all are."""
EmitGroup = Callable[[Group, IntLike, Inside], None]
"""Emits a group of pixels whose first one is in this column of the result."""


@dataclass(frozen=True, slots=True)
class RowWalk:
    """Emits rows.

    Attributes:
        k: Builder.
        groups: How the row is cut; `repeats` says only whether there is a loop.
        taps, stride, dilation: Of the convolution, along the row.
        sizes: Of the images.
    """

    k: KernelBuilder
    groups: RowGroups
    taps: int
    stride: int
    dilation: int
    sizes: WindowSizes

    def walk(self, repeats: Int, emit: EmitGroup) -> None:
        """Emit the groups of a row, of which `repeats` lie between the borders."""
        cut, at = self.groups, 0
        if cut.any_width:
            self._walk_any(emit)
            return
        for group in cut.first:
            emit(group, at, None)
            at += group.pixels
        if not cut.repeats:
            return
        end = repeats * cut.body + at
        with self.k.range(at, end, cut.body) as column:
            emit(Group(cut.body), column, None)
        for group in cut.last:
            emit(group, end, None)
            end = end + group.pixels

    def _walk_any(self, emit: EmitGroup) -> None:
        """A row of any length: groups at its ends skip the columns and pixels that do not exist.

        A tap outside the image is no product at all, as where borders are known ahead: a product
        with zero would be another sum where its weight is not finite.
        """
        k, s, group = self.k, self.sizes, Group(self.groups.body)
        columns = group.products(self.taps, self.stride, self.dilation)
        with k.range(0, s.columns, group.pixels) as column:
            first = column * self.stride - s.left
            within = (first >= 0) & (first + max(columns) < s.width)
            within = within & (column + group.pixels <= s.columns)
            with k.when_else(within) as (inner, outer):
                with inner:
                    emit(group, column, None)
                with outer:
                    inside = {j: (first + j >= 0) & (first + j < s.width) for j in columns}
                    emit(group, column, inside)

    def there(self, pixel: IntLike, inside: Inside) -> AbstractContextManager[None]:
        """What is done for a pixel only if there is one in this column."""
        return self.k.when(pixel < self.sizes.columns) if inside else nullcontext()
