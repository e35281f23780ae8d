"""The phase that copies what boxes read of planar pictures, channels innermost.

    x [N, C, H, W], rows with neighbouring columns -> [n][h][w][c] dense, a block of channels

Of a band of rows only the columns are copied that some box of the picture meets there, in squares
that are transposed in registers; the rest of the temporary holds anything and is not read.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from saccade.codegen.language import Kernel
from saccade.codegen.values import Int, Mask
from saccade.kernels.base import In, Launch, Temp, View
from saccade.kernels.movement.copy import ELEMENT
from saccade.kernels.movement.networks import transpose
from saccade.kernels.roi.tables import Tables, TablesCode, TablesPlan

__all__ = ["WindowCode", "emit_window", "window_phase"]

_BAND = 8  # rows


@dataclass(frozen=True)
class WindowCode:
    """What the code depends on: how the tables were made, and bytes of an element."""

    tables: TablesCode = field(default_factory=TablesCode)
    itemsize: int = 4


def window_phase(
    x: View, temp: Temp, tables: TablesPlan, pictures: tuple[int, int], channels: tuple[int, int]
) -> Launch:
    """The phase for some pictures and channels of input 0; its config is a `WindowCode`."""
    (n0, n1), (c0, c1) = pictures, channels
    _, _, h, w = x.shape
    bands = -(-h // _BAND)
    integers = (
        *tables.integers,
        *(n0, n1 - n0, bands, h, w, c1 - c0),
        *(x.strides[0], x.strides[1], x.strides[2]),
        n0 * x.strides[0] + c0 * x.strides[1],
    )
    code = WindowCode(tables.code, x.dtype.itemsize)
    return Launch(code, (In(0), temp, *tables.operands), integers, (n1 - n0) * bands)


def emit_window(k: Kernel, code: WindowCode) -> None:
    """The code of one configuration."""
    _Window(k, code).emit()


class _Window:
    def __init__(self, k: Kernel, code: WindowCode) -> None:
        self.k = k
        element = ELEMENT[code.itemsize]
        self.side = min(16, 4 * k.lanes // code.itemsize)
        self.x, self.to = k.pointer("x", element), k.pointer("to", element)
        self.tables = Tables(k, code.tables)
        self.tables.declare_integers()
        self.first, self.pictures, self.bands = k.integers("first pictures bands")
        self.height, self.width, self.channels = k.integers("height width channels")
        self.x_n, self.x_c, self.x_h, self.x_start = k.integers("x_n x_c x_h x_start")

    def emit(self) -> None:
        """A chunk is a band of rows."""
        k = self.k
        with k.chunks(self.pictures * self.bands) as chunk:
            picture, top = chunk // self.bands, chunk % self.bands * _BAND
            last = k.minimum_int(top + _BAND, self.height)
            low, high = self._columns(picture + self.first, top, last)
            with (
                k.range(0, self.channels, self.side) as c,
                k.range(top, last) as row,
                k.range(low, high, self.side) as column,
            ):
                source = self.x_start + picture * self.x_n + row * self.x_h + column
                to = ((picture * self.height + row) * self.width + column) * self.channels + c
                left, above = high - column, self.channels - c
                whole = (left >= self.side) & (above >= self.side)
                with k.when_else(whole) as (then, other):
                    with then:
                        self._square(source, to, c, None)
                    with other:
                        self._square(source, to, c, left)

    def _columns(self, picture: Int, top: Int, last: Int) -> tuple[Int, Int]:
        """The first column that boxes meet on these rows, and one past the last."""
        k, tables = self.k, self.tables
        low, high = k.var(self.width), k.var(0)
        with k.range(tables.order.start(picture), tables.order.start(picture + 1)) as at:
            down, along = tables.of(tables.order.box(at))
            above, below = down.reach()
            with k.when((above < last) & (below >= top)):
                left, right = along.reach()
                low.set(k.minimum_int(low.get(), left))
                high.set(k.maximum_int(high.get(), right + 1))
        return low.get(), high.get()

    def _square(self, source: Int, to: Int, channel: Int, left: Int | None) -> None:
        """Columns of `side` channels; where `left` is given, no more of either than there are."""
        k, side = self.k, self.side
        columns: Mask | None = None if left is None else k.first(left, side)
        rows = []
        for i in range(side):
            c = channel + i if left is None else k.minimum_int(channel + i, self.channels - 1)
            rows.append(self.x.vec(source + c * self.x_c, columns, side))
        above = None if left is None else self.channels - channel
        for i, pixel in enumerate(transpose(k, rows)):
            mask = None
            if left is not None and above is not None:
                mask = k.first((left > i).select(above, 0), side)
            self.to.store(pixel, to + self.channels * i, mask)
