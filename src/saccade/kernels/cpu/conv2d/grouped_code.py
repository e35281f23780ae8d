"""The code of a row of a narrow grouped convolution: one vector of channels, groups of pixels."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from saccade.backends.cpu.codegen.language import Ptr, Var
from saccade.backends.cpu.codegen.values import Bool, Int, IntLike, Mask, Vec
from saccade.kernels.cpu.conv2d.grouped_forms import GroupForm
from saccade.kernels.cpu.conv2d.microkernel import Sums, fence
from saccade.kernels.cpu.conv2d.row_groups import Group
from saccade.kernels.cpu.conv2d.row_walk import Inside, RowWalk

__all__ = ["GroupedCode", "GroupedRows"]


@dataclass(frozen=True, slots=True)
class GroupedRows:
    """What a row of output pixels is computed from.

    Attributes:
        x: Where the first tap of the first row of the window falls for the row's first pixel, for
            each piece of a vector; may lie outside the image.
        down: Elements from one row of the window to the next.
        across: Elements from column to column of the image.
        weights: Of the vector, as `pack_grouped` lays them out.
        steps: Blocks of channels of a group.
        taps: Range of rows of the window inside the image.
        mask: Which channels of the vector there are.
    """

    x: tuple[Ptr, ...]
    down: Int
    across: Int
    weights: Ptr
    steps: Int
    taps: tuple[Int, Int]
    mask: Mask | None


@dataclass(frozen=True, slots=True)
class GroupedCode(RowWalk):
    """Emits rows.

    Attributes:
        form: How a vector of elements meets the filters of its groups.
        lanes: Of a vector, the first ones of what is packed.
    """

    form: GroupForm
    lanes: int

    def emit(self, rows: GroupedRows, repeats: Int, finish: Callable[[IntLike, Vec], None]) -> None:
        """Compute a row and hand each pixel's sums to `finish(column, sums)`."""
        self.walk(
            repeats,
            lambda group, column, inside: self._group(rows, group, column, finish, inside),
        )

    def _group(
        self,
        rows: GroupedRows,
        group: Group,
        column: IntLike,
        finish: Callable[[IntLike, Vec], None],
        inside: Inside = None,
    ) -> None:
        """The pixels of a group; `inside`: which columns there are, where that is tested."""
        k, block = self.k, self.form.block
        sums = [[k.var(k.zero(self.lanes)) for _ in range(block)] for _ in range(group.pixels)]
        start = rows.across * (column * self.stride)
        products = group.products(self.taps, self.stride, self.dilation)
        with k.range(*rows.taps) as r, self._steps(rows) as step:
            at = start + rows.down * r + step * block
            lines = [x + at for x in rows.x]
            size = self.taps * block * k.lanes
            panel = rows.weights + (r * rows.steps + step) * size

            def read(j: int) -> Vec:
                return self._element([line + rows.across * j for line in lines], rows.mask)

            if inside:
                self._by_columns(sums, products, panel, read, inside)
            else:
                self._by_taps(sums, products, panel, read)
        for pixel, several in enumerate(sums):
            with self.there(column + pixel, inside):
                finish(column + pixel, self._folded(several))

    def _steps(self, rows: GroupedRows) -> AbstractContextManager[Int]:
        """The blocks of channels of a group, one after the other."""
        k = self.k
        return k.range(0, rows.steps) if self.form.several else nullcontext(k.int(0))

    def _element(self, places: list[Ptr], mask: Mask | None) -> Vec:
        """A vector of one column's elements."""
        k, form = self.k, self.form
        parts = [place.vec(0, mask, form.loaded) for place in places]
        if form.loaded == 1:
            return k.broadcast(parts[0], self.lanes)
        loaded = k.concat(parts)
        same = loaded.lanes == self.lanes
        return loaded if same else k.shuffle(loaded, loaded, form.places(self.lanes))

    def _by_taps(
        self,
        sums: Sums,
        products: dict[int, list[tuple[int, int]]],
        panel: Ptr,
        read: Callable[[int], Vec],
    ) -> None:
        """Every vector of weights is loaded once, and meets all pixels."""
        by_tap: dict[int, list[tuple[int, int]]] = {}
        for column, pairs in products.items():
            for pixel, tap in pairs:
                by_tap.setdefault(tap, []).append((pixel, column))
        held: dict[int, Vec] = {}
        for tap, pairs in sorted(by_tap.items()):
            # What the next tap does not read leaves its register.
            held = {j: held[j] if j in held else read(j) for _, j in pairs}
            for index in range(self.form.block):
                weights = self._weights(panel, tap, index)
                for pixel, j in pairs:
                    self._add(sums[pixel][index], held[j], weights)
                fence(self.k)  # or the weights of later sums would push elements out

    def _by_columns(
        self,
        sums: Sums,
        products: dict[int, list[tuple[int, int]]],
        panel: Ptr,
        read: Callable[[int], Vec],
        inside: dict[int, Bool],
    ) -> None:
        """Every column is tested once."""
        for j, pairs in products.items():
            with self.k.when(inside[j]):
                value = read(j)
                for pixel, tap in pairs:
                    for index, total in enumerate(sums[pixel]):
                        self._add(total, value, self._weights(panel, tap, index))

    def _weights(self, panel: Ptr, tap: int, index: int) -> Vec:
        return panel.vec((tap * self.form.block + index) * self.k.lanes, lanes=self.lanes)

    def _add(self, total: Var, value: Vec, weights: Vec) -> None:
        total.set(self.k.fma(value, weights, total.get()))

    def _folded(self, sums: list[Var]) -> Vec:
        """The sums of a pixel's filters: lanes change places within their blocks, and are added."""
        k = self.k
        values: list[Vec] = [total.get() for total in sums]
        while len(values) > 1:
            apart = len(values) // 2
            order = [lane ^ apart for lane in range(self.lanes)]
            pairs = zip(values[:apart], values[apart:], strict=True)
            values = [near + k.shuffle(far, far, order) for near, far in pairs]
        return values[0]
