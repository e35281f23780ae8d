"""The phase that lists, for each band of rows of each image, the rows of bins that give to it.

Channels are summed band by band, so that sums stay in the L2 cache. A band finds what
gives to it as a short stream, in the boxes' order and bin by bin: it looks at no other box, and
knows early what it will read next.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.backends.cpu.codegen.values import Int
from saccade.kernels.base import Launch, Operand, Temp
from saccade.kernels.cpu.roi.bilinear_tables import BilinearTables, TablesCode, TablesPlan
from saccade.kernels.cpu.roi.box_operands import put

__all__ = ["BandLists", "BandListsPlan", "BandPart", "emit_band_lists"]

_NUMBERS = 4  # integers of a part


@dataclass(frozen=True, slots=True)
class BandListsPlan:
    """The lists of a call.

    Attributes:
        tables: Whose rows they name.
        band: Rows of a band.
        temp: Number of the first of two temporaries.
    """

    tables: TablesPlan
    band: int
    temp: int

    @property
    def bands(self) -> int:
        """Bands of an image."""
        return -(-self.tables.sizes[0] // self.band)

    @property
    def operands(self) -> dict[str, Operand]:
        """Pointer parameters of `BandLists`."""
        tables = self.tables
        return {
            "marks": Temp(self.temp, 4 * (self.bands + 2) * tables.boxes.images),
            "parts": Temp(self.temp + 1, 4 * _NUMBERS * tables.capacities[0] * tables.boxes.count),
        }

    def launch(self) -> Launch:
        """The phase; its config is a `TablesCode`."""
        tables = self.tables
        operands, integers = tables.operands | self.operands, tables.integers | self.integers
        return Launch(tables.code, operands, integers, tables.boxes.images)

    @property
    def integers(self) -> dict[str, int]:
        """Integer parameters of `BandLists`."""
        return {"bands": self.bands, "band": self.band}


@dataclass(frozen=True, slots=True)
class BandPart:
    """A row of bins, as far as it gives to a band.

    Attributes:
        box: Its number.
        bins: Number of the row of bins.
        first, end: Entries of the box's table of rows, first and last + 1.
    """

    box: Int
    bins: Int
    first: Int
    end: Int


class BandLists:
    """The emitted access. Declares two pointers."""

    def __init__(self, k: KernelBuilder) -> None:
        self.k = k
        self._marks, self._numbers = k.pointer("marks", "int32"), k.pointer("parts", "int32")

    def declare_integers(self) -> None:
        """After all pointers."""
        self.bands, self.band = self.k.integers("bands band")

    def of(self, image: Int, band: Int) -> tuple[Int, Int]:
        """The first part of a band, and one past its last."""
        mark = image * (self.bands + 2) + band
        return self._marks.load_int(mark), self._marks.load_int(mark + 1)

    def part(self, at: Int) -> BandPart:
        """One of them."""
        return BandPart(*(self._numbers.load_int(at * _NUMBERS + i) for i in range(_NUMBERS)))

    def build(self, tables: BilinearTables, image: Int) -> None:
        """Sort an image's parts by counting."""
        k, marks = self.k, self._marks + image * (self.bands + 2)
        with k.range(0, self.bands + 2) as band:
            put(marks, 0, band)

        def count(part: BandPart, band: Int) -> None:
            del part
            put(marks, marks.load_int(band + 2) + 1, band + 2)

        def append(part: BandPart, band: Int) -> None:
            place = marks.load_int(band + 1)
            put(marks, place + 1, band + 1)
            for i, number in enumerate((part.box, part.bins, part.first, part.end)):
                put(self._numbers, number, place * _NUMBERS + i)

        self._walk(tables, image, count)
        # Behind the space for all entries of earlier boxes: no image waits for another one's lists.
        base = tables.order.start(image) * tables.capacity
        put(marks, base, 1)
        with k.range(2, self.bands + 2) as band:
            put(marks, marks.load_int(band) + marks.load_int(band - 1), band)
        # Place band + 1 is where a band's list goes on, and in the end where the next one starts.
        self._walk(tables, image, append)
        put(marks, base)

    def _walk(
        self, tables: BilinearTables, image: Int, found: Callable[[BandPart, Int], None]
    ) -> None:
        """All parts of an image in order, and their bands. Pixels ascend within a bin."""
        k, order = self.k, tables.order
        with (
            k.range(order.start(image), order.start(image + 1)) as at,
            k.range(0, tables.rows) as p,
        ):
            box = order.box(at)
            down, _ = tables.of(box)
            # A row of bins may give to several bands: a part for each run of entries within one.
            first, end = k.var(down.first(p)), down.first(p + 1)
            with k.repeat_while(lambda: first.get() < end):
                band = down.pixel(first.get()) // self.band
                below, last = (band + 1) * self.band, k.var(first.get() + 1)
                with k.repeat_while(
                    lambda: (
                        (last.get() < end)
                        & (down.pixel(k.minimum_int(last.get(), end - 1)) < below)
                    )
                ):
                    last.set(last.get() + 1)
                found(BandPart(box, p, first.get(), last.get()), band)
                first.set(last.get())


def emit_band_lists(k: KernelBuilder, code: TablesCode) -> None:
    """The code of one configuration. A chunk is an image."""
    tables, lists = BilinearTables(k, code), BandLists(k)
    tables.declare_integers()
    lists.declare_integers()
    with k.chunks(tables.images) as image:
        lists.build(tables, image)
