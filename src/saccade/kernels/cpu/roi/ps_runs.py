"""The phase that packs what bins are sampled at, for channels in planes.

    y[p, q] = Σ_runs columns[q, run] · Σ_i rows[p, i] · x[h(p, i), first(run) … first(run) + lanes)

Of channels that lie in planes only a row's pixels are neighbours, so the entries of a bin's columns
(`bilinear_axis`) are taken as vectors: a run has its first pixel, how many it spans, which of these
are entries, and their weights, 0 between them.

A plane asks for one bin of every box, in their order. So entries of neighbouring boxes are packed
bin by bin: what a plane reads is a short stream, where tables box by box would have it fetch some
lines of each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from saccade.backends.cpu.codegen.language import KernelBuilder, Var
from saccade.backends.cpu.codegen.values import Int, Mask, Vec
from saccade.kernels.base import Launch, Operand, Temp
from saccade.kernels.cpu.floats import lanes_of
from saccade.kernels.cpu.roi.bilinear_axis import BilinearAxis
from saccade.kernels.cpu.roi.bilinear_tables import BilinearTables, TablesCode, TablesPlan
from saccade.kernels.cpu.roi.box_operands import Order, put

__all__ = ["EntryRun", "Runs", "RunsPlan", "emit_runs"]

_GROUP = 32  # boxes that are packed together
_OF_ROW, _OF_RUN = 1, 3  # integers of an entry

_Append = Callable[[Int, Int, Var], None]


@dataclass(frozen=True, slots=True)
class RunsPlan:
    """The runs of a call.

    Attributes:
        tables: Where their entries come from.
        lanes: Of a vector of weights.
        temp: Number of the first of six temporaries.
    """

    tables: TablesPlan
    lanes: int
    temp: int

    @property
    def capacities(self) -> tuple[int, int]:
        """Most rows of a box, and most runs: one a bin, and one wherever its entries go on."""
        (down, along), bins = self.tables.capacities, self.tables.bins[1]
        return down, min(along, bins + (self.tables.sizes[1] + 2 * bins) // self.lanes)

    @property
    def operands(self) -> dict[str, Operand]:
        """Pointer parameters of `Runs`."""
        return {"order": self.tables.operands["order"], **self._packed}

    @property
    def _packed(self) -> dict[str, Operand]:
        temps: dict[str, Operand] = {}
        # How many integers, and how many weights an entry has.
        of_entries = (("rows", _OF_ROW, 1), ("runs", _OF_RUN, self.lanes))
        for bins, capacity, (name, numbers, weights) in zip(
            self.tables.bins, self.capacities, of_entries, strict=True
        ):
            entries = capacity * _GROUP * self._groups
            for part, nbytes in (
                ("marks", 4 * (bins * _GROUP + 1) * self._groups),
                ("numbers", 4 * numbers * entries),
                ("weights", self.tables.weight_bytes * weights * entries),
            ):
                temps[f"{name}_{part}"] = Temp(self.temp + len(temps), nbytes)
        return temps

    @property
    def _groups(self) -> int:
        return max(1, -(-self.tables.boxes.count // _GROUP))

    @property
    def integers(self) -> dict[str, int]:
        """Integer parameters of `Runs`."""
        boxes, (ph, pw) = self.tables.boxes, self.tables.bins
        known = {"boxes": boxes.count, "images": boxes.images, "ph": ph, "pw": pw}
        return known | self._room_integers

    @property
    def _room_integers(self) -> dict[str, int]:
        rows, runs = self.capacities
        return {"row_room": rows, "run_room": runs}

    def launch(self) -> Launch:
        """The phase; its config is a `TablesCode`."""
        operands = self.tables.operands | self._packed
        integers = {**self.tables.integers, **self._room_integers, "groups": self._groups}
        return Launch(self.tables.code, operands, integers, self._groups)


@dataclass(frozen=True, slots=True)
class EntryRun:
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
    """The emitted access to what `emit_runs` left, by the boxes' places in their order."""

    def __init__(self, k: KernelBuilder, code: TablesCode) -> None:
        self.k, self._lanes, self.order = k, lanes_of(k, code.weight), Order(k)
        self._down, self._along = _packed_pair(k, code)

    def declare_integers(self) -> None:
        """After all pointers."""
        boxes, images, self.rows, self.columns = self.k.integers("boxes images ph pw")
        self.order.sized(boxes, images)
        self._down.sized(self.rows, self.k.integer("row_room"))
        self._along.sized(self.columns, self.k.integer("run_room"))

    def rows_of(self, at: Int, number: Int) -> tuple[Int, Int]:
        """The first row of a bin, and one past its last."""
        return self._down.of(at, number)

    def row(self, entry: Int) -> tuple[Int, Vec]:
        """Its pixel, and its weight, a scalar."""
        return self._down.numbers.load_int(entry), self._down.weights.load(entry)

    def runs_of(self, at: Int, number: Int) -> tuple[Int, Int]:
        """The first run of a bin, and one past its last."""
        return self._along.of(at, number)

    def run(self, entry: Int) -> EntryRun:
        """One of them."""
        k, lanes, along = self.k, self._lanes, self._along
        first, span, entries = (along.numbers.load_int(entry * _OF_RUN + i) for i in range(_OF_RUN))
        weights = along.weights.vec(entry * lanes, None, lanes)
        return EntryRun(first, k.first(span, lanes), k.lanes_set(entries, lanes), weights)


class _Packed:
    """Entries of groups of boxes, bin by bin, within a bin box by box in their order."""

    def __init__(self, k: KernelBuilder, name: str, weight: str) -> None:
        self.k = k
        self._marks = k.pointer(f"{name}_marks", "int32")
        self.numbers = k.pointer(f"{name}_numbers", "int32")
        self.weights = k.pointer(f"{name}_weights", weight)

    def sized(self, bins: Int, capacity: Int) -> None:
        """Bins, and the most entries of a box."""
        self._bins, self._capacity = bins, capacity * _GROUP

    def mark(self, at: Int, number: Int) -> Int:
        """Where the first entry of a bin is noted; the next mark is one past its last."""
        group, place = at // _GROUP, at % _GROUP
        return group * (self._bins * _GROUP + 1) + number * _GROUP + place

    def of(self, at: Int, number: Int) -> tuple[Int, Int]:
        """The first entry of a bin, and one past its last."""
        mark = self.mark(at, number)
        return self._marks.load_int(mark), self._marks.load_int(mark + 1)

    def fill(self, group: Int, boxes: tuple[Int, Int], append: _Append) -> None:
        """Pack a group: `append(at, bin, count)` adds what a box has there, and counts it."""
        k, (first, last) = self.k, boxes
        count = k.var(group * self._capacity)
        with k.range(0, self._bins) as number:
            with k.range(first, last) as at:
                put(self._marks, count.get(), self.mark(at, number))
                append(at, number, count)
            # In a full group this is the next bin's first mark, which gets the same number.
            put(self._marks, count.get(), self.mark(last - 1, number) + 1)

    def next(self, group: Int, count: Var) -> Int:
        """A place for one more entry, which is counted; the last one if there were too many."""
        at = self.k.minimum_int(count.get(), (group + 1) * self._capacity - 1)
        count.set(at + 1)
        return at


def _packed_pair(k: KernelBuilder, code: TablesCode) -> tuple[_Packed, _Packed]:
    return _Packed(k, "rows", code.weight), _Packed(k, "runs", code.weight)


def emit_runs(k: KernelBuilder, code: TablesCode) -> None:
    """The code of one configuration. A chunk is a group of boxes."""
    tables = BilinearTables(k, code)
    down, along = _packed_pair(k, code)
    tables.declare_integers()
    down.sized(tables.rows, k.integer("row_room"))
    along.sized(tables.columns, k.integer("run_room"))
    groups = k.integer("groups")
    with k.chunks(groups) as group:
        first = group * _GROUP
        last = k.minimum_int(first + _GROUP, tables.boxes)

        def rows(at: Int, number: Int, count: Var) -> None:
            table, _ = tables.of(tables.order.box(at))
            with k.range(table.first(number), table.first(number + 1)) as entry:
                to = down.next(group, count)
                put(down.numbers, table.pixel(entry), to)
                down.weights.store(table.weight(entry), to)

        def runs(at: Int, number: Int, count: Var) -> None:
            _, table = tables.of(tables.order.box(at))
            _fill_runs(k, table, number, along, lambda: along.next(group, count))

        with k.when(first < last):
            down.fill(group, (first, last), rows)
            along.fill(group, (first, last), runs)


def _fill_runs(
    k: KernelBuilder, table: BilinearAxis, number: Int, along: _Packed, place: Callable[[], Int]
) -> None:
    """The runs of one bin of a table, whose pixels ascend there."""
    lanes = lanes_of(k, along.weights.element)
    run, first, bits = k.var(0), k.var(0), k.var(0)
    with k.range(table.first(number), table.first(number + 1)) as entry:
        pixel = table.pixel(entry)
        lane = pixel - first.get()
        fits = bits.get().differs(0) & (lane >= 0) & (lane < lanes)
        with k.when(~fits):
            run.set(place())
            first.set(pixel)
            bits.set(0)
            along.weights.store(k.zero(lanes, along.weights.element), run.get() * lanes)
        lane = pixel - first.get()
        bits.set(bits.get() | (k.int(1) << lane))
        # Written with every entry: which one is a run's last is only known at the next.
        for i, value in enumerate((first.get(), lane + 1, bits.get())):
            put(along.numbers, value, run.get() * _OF_RUN + i)
        along.weights.store(table.weight(entry), run.get() * lanes + lane)
