"""The phase that makes vectors of the columns of bins: bilinear weights, pixel by pixel.

    y[p, q] = Σ_runs columns[q, run] · Σ_i rows[p, i] · x[h(p, i), first(run) … first(run) + lanes)

Channels that lie in planes have their pixels side by side along rows only, so that a row of a bin's
entries (`axis`) is taken as one vector where it is no longer than that: a run has its first pixel,
how many it spans, which of these are entries, and their weights, 0 between them.
"""

from __future__ import annotations

from dataclasses import dataclass

from saccade.codegen.language import Kernel, Ptr
from saccade.codegen.values import Int, Mask, Vec
from saccade.kernels.base import Launch, Operand, Temp
from saccade.kernels.floats import lanes_of
from saccade.kernels.roi.axis import Axis
from saccade.kernels.roi.boxes import put
from saccade.kernels.roi.tables import Tables, TablesCode, TablesPlan

__all__ = ["BoxRuns", "Run", "Runs", "RunsPlan", "emit_runs"]

_BOXES = 32  # of a chunk
_NUMBERS = 3  # of a run


@dataclass(frozen=True, slots=True)
class RunsPlan:
    """The runs of a call.

    Attributes:
        tables: Where their entries come from.
        lanes: Of a vector of weights.
        temp: Number of the first of two temporaries.
    """

    tables: TablesPlan
    lanes: int
    temp: int

    @property
    def room(self) -> int:
        """Most runs of a box: one for each bin, and one more wherever the entries of one go on."""
        bins, entries = self.tables.bins[1], self.tables.rooms[1]
        return min(entries, bins + (self.tables.sizes[1] + 2 * bins) // self.lanes)

    @property
    def operands(self) -> tuple[Operand, ...]:
        """Pointer parameters of `Runs`."""
        boxes, room = self.tables.boxes.count, self.room
        numbers = self.tables.bins[1] + 1 + _NUMBERS * room
        nbytes = self.tables.weight_bytes * self.lanes * room
        own = Temp(self.temp, 4 * numbers * boxes), Temp(self.temp + 1, nbytes * boxes)
        return (*self.tables.operands, *own)

    @property
    def integers(self) -> tuple[int, ...]:
        """Integer parameters of `Runs`."""
        return (*self.tables.integers, self.room)

    def launch(self) -> Launch:
        """The phase; its config is a `TablesCode`."""
        chunks = max(1, -(-self.tables.boxes.count // _BOXES))
        return Launch(self.tables.code, self.operands, (*self.integers, chunks), chunks)


@dataclass(frozen=True, slots=True)
class Run:
    """Entries of a bin that one vector holds.

    Attributes:
        first: Pixel of the first lane, which is an entry.
        span: The lanes up to the last entry.
        entries: Which lanes are entries.
        weights: Their weights; 0 in other lanes.
    """

    first: Int
    span: Mask
    entries: Mask
    weights: Vec

    def only(self, values: Vec) -> Vec:
        """Values with 0 where there is no entry, whatever stands there."""
        return self.entries.select(values, values.like(0.0))


class Runs:
    """The emitted access to what `emit_runs` left, and to the tables that it is made of."""

    def __init__(self, k: Kernel, code: TablesCode) -> None:
        self.k, self._lanes, self.tables = k, lanes_of(k, code.weight), Tables(k, code)
        self.order = self.tables.order
        self._numbers = k.pointer("runs", "int32")
        self._weights = k.pointer("run_weights", code.weight)

    def declare_integers(self) -> None:
        """After all pointers."""
        self.tables.declare_integers()
        self.rows, self.columns = self.tables.rows, self.tables.columns
        self._room = self.k.integer("run_room")

    def of(self, box: Int) -> tuple[Axis, BoxRuns]:
        """The rows of a box, and the runs of its columns."""
        down, _ = self.tables.of(box)
        return down, self.along(box)

    def along(self, box: Int) -> BoxRuns:
        """The runs of a box."""
        marks = self._numbers + box * (self.columns + 1 + self._room * _NUMBERS)
        weights = self._weights + box * (self._room * self._lanes)
        return BoxRuns(self.k, marks, marks + (self.columns + 1), weights, self._room)


class BoxRuns:
    """The runs of one box.

    Args:
        k: Builder.
        marks: int32: the first run of each bin, and one past the last.
        numbers: int32: first pixel, lanes up to the last entry, bits of the entries.
        weights: A vector for each run.
        room: How many runs there is room for.
    """

    def __init__(self, k: Kernel, marks: Ptr, numbers: Ptr, weights: Ptr, room: Int) -> None:
        self.k, self._lanes, self._room = k, lanes_of(k, weights.element), room
        self._marks, self._numbers, self._weights = marks, numbers, weights

    def of(self, number: Int) -> tuple[Int, Int]:
        """The first run of a bin, and one past its last."""
        return self._marks.load_int(number), self._marks.load_int(number + 1)

    def run(self, number: Int) -> Run:
        """One that `of` counted."""
        k, lanes, at = self.k, self._lanes, number * _NUMBERS
        first, span, entries = (self._numbers.load_int(at + i) for i in range(_NUMBERS))
        weights = self._weights.vec(number * lanes, None, lanes)
        return Run(first, k.first(span, lanes), k.lanes_set(entries, lanes), weights)

    def fill(self, along: Axis) -> None:
        """Write those of a table, whose pixels ascend within a bin."""
        k, lanes = self.k, self._lanes
        count, first, bits = k.var(0), k.var(0), k.var(0)
        with k.range(0, along.bins) as number:
            put(self._marks, count.get(), number)
            bits.set(0)
            with k.range(along.first(number), along.first(number + 1)) as entry:
                pixel = along.pixel(entry)
                lane = pixel - first.get()
                fits = bits.get().differs(0) & (lane >= 0) & (lane < lanes)
                with k.when(~fits):
                    count.set(k.minimum_int(count.get() + 1, self._room))
                    first.set(pixel)
                    bits.set(0)
                    zero = k.zero(lanes, self._weights.element)
                    self._weights.store(zero, (count.get() - 1) * lanes)
                run, lane = count.get() - 1, pixel - first.get()
                bits.set(bits.get() | (k.int(1) << lane))
                for i, value in enumerate((first.get(), lane + 1, bits.get())):
                    put(self._numbers, value, run * _NUMBERS + i)
                self._weights.store(along.weight(entry), run * lanes + lane)
        put(self._marks, count.get(), along.bins)


def emit_runs(k: Kernel, code: TablesCode) -> None:
    """The code of one configuration."""
    runs = Runs(k, code)
    runs.declare_integers()
    chunks, boxes = k.integer("chunks"), runs.tables.boxes
    with k.chunks(chunks) as n, k.range(boxes * n // chunks, boxes * (n + 1) // chunks) as box:
        _, along = runs.tables.of(box)
        runs.along(box).fill(along)
