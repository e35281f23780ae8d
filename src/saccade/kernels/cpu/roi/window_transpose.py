"""The phase that turns what boxes read of images the other way: planes to channels, or back.

    x [N, C, H, W], rows with neighbouring columns      -> [n][h][w][c] dense, a block of channels
    x [N, C, H, W], pixels with neighbouring channels   -> [n][c][h][w] dense, the same

Of a band of rows only the columns are copied that some box of the image meets there, in squares
that are transposed in registers, or in rectangles as long as a line of cache where that is written
past the caches; the rest of the temporary holds anything and is not read.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.backends.cpu.codegen.streams import LINE
from saccade.backends.cpu.codegen.values import Int
from saccade.kernels.base import In, Launch, Temp, View, image_strides
from saccade.kernels.cpu.movement.copy_code import ELEMENT
from saccade.kernels.cpu.movement.register_shuffles import turn
from saccade.kernels.cpu.roi.bilinear_tables import BilinearTables, TablesCode, TablesPlan
from saccade.kernels.cpu.roi.bin_ranges import Ranges, RangesPlan

__all__ = ["WindowCode", "emit_window", "window_phase"]

_BAND = 8  # rows


@dataclass(frozen=True)
class WindowCode:
    """What the code depends on.

    Attributes:
        tables: How the boxes' tables were made; None where they have ranges of pixels.
        itemsize: Bytes of an element.
        planes: Whether channels are taken apart, not brought together.
        streamed: Whether planes, whose rows begin lines, are written past the caches.
    """

    tables: TablesCode | None = None
    itemsize: int = 4
    planes: bool = False
    streamed: bool = False


def window_phase(
    x: View,
    temp: Temp,
    boxes: TablesPlan | RangesPlan,
    images: tuple[int, int],
    channels: tuple[int, int],
    pitches: tuple[int, int] = (0, 0),
    *,
    streamed: bool = False,
) -> Launch:
    """The phase for some images and channels of input 0; its config is a `WindowCode`.

    Planes are made of images whose channels are neighbours in memory, pixels of others.

    Args:
        x: The images.
        temp: Where the block is put.
        boxes: What reads it.
        images: First and last + 1.
        channels: The same.
        pitches: Of planes: elements from one to the next, and from row to row.
        streamed: Whether planes are written past the caches; then both are whole lines.
    """
    (n0, n1), (c0, c1) = images, channels
    _, _, h, w = x.shape
    planes = x.channels_last
    bands = -(-h // _BAND)
    integers = {
        **boxes.integers,
        "first_image": n0,
        "window_images": n1 - n0,
        **{"bands": bands, "height": h, "width": w, "channels": c1 - c0},
        **image_strides("x", x.strides, "nh"),
        "x_step": x.strides[3 if planes else 1],
        "x_start": n0 * x.strides[0] + c0 * x.strides[1],
        "pitch": pitches[0],
        "row": pitches[1],
    }
    tables = boxes.code if isinstance(boxes, TablesPlan) else None
    code = WindowCode(tables, x.dtype.itemsize, planes, streamed)
    operands = {"x": In(0), "to": temp, **boxes.operands}
    return Launch(code, operands, integers, (n1 - n0) * bands)


def emit_window(k: KernelBuilder, code: WindowCode) -> None:
    """The code of one configuration."""
    _WindowTranspose(k, code).emit()


class _WindowTranspose:
    def __init__(self, k: KernelBuilder, code: WindowCode) -> None:
        self.k, self.planes, self.streamed = k, code.planes, code.streamed
        element = ELEMENT[code.itemsize]
        self.side = min(16, 4 * k.lanes // code.itemsize)
        self.along = max(self.side, LINE // code.itemsize) if code.streamed else self.side
        self.x, self.to = k.pointer("x", element), k.pointer("to", element)
        self.boxes = Ranges(k) if code.tables is None else BilinearTables(k, code.tables)
        self.boxes.declare_integers()
        self.first, self.images = k.integers("first_image window_images")
        self.bands = k.integer("bands")
        self.height, self.width, self.channels = k.integers("height width channels")
        self.x_n, self.x_h, self.x_step, self.x_start = k.integers("x_n x_h x_step x_start")
        self.pitch, self.row = k.integers("pitch row")

    def emit(self) -> None:
        """All chunks."""
        if not self.streamed:
            self._chunks()
            return
        with self.k.streams(self.to, []) as ways:
            for self.to in ways:
                self._chunks()

    def _chunks(self) -> None:
        """A chunk is a band of rows."""
        k = self.k
        with k.chunks(self.images * self.bands) as chunk:
            image, top = chunk // self.bands, chunk % self.bands * _BAND
            last = k.minimum_int(top + _BAND, self.height)
            low, high = self._columns(image + self.first, top, last)
            loops = ((0, self.channels, self.side), (top, last, 1), (low, high, self.along))
            # What a pixel or a row has side by side is read at once.
            order = (1, 2, 0) if self.planes else (0, 1, 2)
            with ExitStack() as stack:
                found = {n: stack.enter_context(k.range(*loops[n])) for n in order}
                self._place(image, found[1], found[2], found[0])

    def _columns(self, image: Int, top: Int, last: Int) -> tuple[Int, Int]:
        """The first column that boxes meet on these rows, and one past the last."""
        k, boxes = self.k, self.boxes
        low, high = k.var(self.width), k.var(0)
        with k.range(boxes.order.start(image), boxes.order.start(image + 1)) as at:
            (above, below), (left, right) = boxes.reach(boxes.order.box(at))
            # A box that meets nothing ends above every band, or begins below.
            with k.when((above < last) & (below >= top)):
                low.set(k.minimum_int(low.get(), left))
                high.set(k.maximum_int(high.get(), right + 1))
        return low.get() // self.along * self.along, high.get()  # whole lines

    def _place(self, image: Int, row: Int, column: Int, channel: Int) -> None:
        """Squares side by side, or what is left of them."""
        k = self.k
        start = self.x_start + image * self.x_n + row * self.x_h
        left, above = self.width - column, self.channels - channel
        if self.planes:
            source = start + column * self.x_step + channel
            plane = (image * self.channels + channel) * self.pitch
            to, step = plane + row * self.row + column, self.pitch
        else:
            source = start + column + channel * self.x_step
            to = ((image * self.height + row) * self.width + column) * self.channels + channel
            step = self.channels
        with k.when_else((left >= self.along) & (above >= self.side)) as (then, other):
            with then:
                self._square(source, to, step, None)
            with other:
                for at in range(0, self.along, self.side):
                    rest = left - at
                    with k.when(rest > 0):
                        sizes = (above, rest) if self.planes else (rest, above)
                        self._square(source + self.x_step * at, to + at, step, sizes)

    def _square(self, source: Int, to: Int, step: Int, sizes: tuple[Int, Int] | None) -> None:
        """Rows of `side` neighbours in x become neighbours in the temporary.

        Args:
            source: Where the first row lies.
            to: Where the first neighbours go.
            step: From there to the second ones.
            sizes: Neighbours in x, and rows, of one square that may be cut off; without it there
                are `along` rows.
        """
        k, side = self.k, self.side
        mask = None if sizes is None else k.first(sizes[0], side)
        rows = []
        for i in range(self.along if sizes is None else side):
            # Rows past the last repeat it, and are not stored.
            row = i if sizes is None else k.minimum_int(k.int(i), sizes[1] - 1)
            rows.append(self.x.vec(source + self.x_step * row, mask, side))
        for i, transposed in enumerate(turn(k, rows)):
            kept = None
            if sizes is not None:
                kept = k.first((sizes[0] > i).select(sizes[1], 0), side)
            self.to.store(transposed, to + step * i, kept)
