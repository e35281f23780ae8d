"""Greedy suppression: each box in falling order of scores against those that stay so far.

A box is looked at once: compared with the boxes that stay, one vector of them at a time, until one
drops it; else it joins them. They are kept apart by the height of their centres, in strips, and a
box looks only into strips that can hold one that drops it (see `Strips`). Nothing is divided for
pairs that are far from the threshold (see `Pairs`). Boxes that can neither drop nor be dropped
(no area, an infinite one, or not a number) stay without a look.

Boxes of different groups are separate runs of a second order; which of them stay is noted by rank
and collected at the end.
"""

from __future__ import annotations

from saccade.codegen.language import Kernel, Ptr, Var
from saccade.codegen.values import Bool, Int
from saccade.kernels import floats
from saccade.kernels.nms.config import RECORD, NmsConfig
from saccade.kernels.nms.pairs import Pairs
from saccade.kernels.nms.strips import Strips

__all__ = ["emit_greedy"]


def emit_greedy(k: Kernel, config: NmsConfig) -> None:
    """The phase that decides which boxes stay."""
    _Greedy(k, config).emit()


class _Greedy:
    def __init__(self, k: Kernel, config: NmsConfig) -> None:
        self.k, self.grouped = k, config.grouped
        element = self.element = floats.wide(config.element)
        self.boxes: Ptr = k.pointer("boxes", config.element)
        self.order = k.pointer("order", "int64")
        if self.grouped:
            self.ranks, self.classes = (k.pointer(n, "int64") for n in ("ranks", "classes"))
            self.stays = k.pointer("stays", "int8")
        self.records = k.pointer("records", element)
        self.strips = Strips(k, element)
        self.kept = k.pointer("kept", "int64")
        self.size, self.row, self.column = k.integers("size row column")
        self.strips.declare_integers()
        self.pairs = Pairs(k, element)
        self.count: Var

    def emit(self) -> None:
        """Every run of boxes, then what stays."""
        k = self.k
        with k.chunks(k.int(1)):
            self.count = k.var(0)
            if self.grouped:
                start = k.var(0)
                with k.repeat_while(lambda: start.get() < self.size):
                    end = self._end(start.get())
                    self._run(start.get(), end)
                    start.set(end)
                self._collect()
            else:
                self._run(k.int(0), self.size)
            self._finish()

    def _end(self, start: Int) -> Int:
        """Where the next group begins."""
        k = self.k
        group, end = self.classes.load_int(start), k.var(start + 1)

        def same() -> Bool:
            place: Int = end.get()
            inside = place < self.size
            return inside & self.classes.load_int(inside.select(place, start)).equals(group)

        with k.repeat_while(same):
            end.set(end.get() + 1)
        found: Int = end.get()
        return found

    def _run(self, start: Int, end: Int) -> None:
        """The boxes of one group, in order."""
        k, strips = self.k, self.strips
        strips.begin()
        with k.range(start, end) as place:
            self._record(place)
        strips.divide(end - start)
        with k.range(start, end) as place:
            strips.reserve(place, self.records + place * RECORD)
        strips.clear()
        with k.range(start, end) as place:
            self._decide(place)

    def _record(self, place: Int) -> None:
        """Read a box and note what will be asked of it."""
        k, record = self.k, self.records + place * RECORD
        at = self.order.load_int(self._rank(place)) * self.row
        corners = [
            floats.load_one(k, self.boxes, at + self.column * i, self.element) for i in range(4)
        ]
        area, bound = self.pairs.measure(corners)
        centre = corners[1] + corners[3]
        for i, value in enumerate((*corners, area, bound, centre)):
            record.store(value, i)
        self.strips.note(area, centre)

    def _decide(self, place: Int) -> None:
        """Whether a box stays."""
        k, strips, record = self.k, self.strips, self.records + place * RECORD
        strip, dropped = strips.places.load_int(place), k.var(0)
        with k.when(strip >= 0):
            strips.look(self.pairs, self.pairs.box(record), strip, dropped)
            with k.when(dropped.get().equals(0)):
                strips.join(strip, record)
        stays = dropped.get().equals(0)
        if self.grouped:
            self.stays.store_int(stays.select(1, 0), self._rank(place))
        else:
            with k.when(stays):
                self._append(place)

    def _rank(self, place: Int) -> Int:
        """Of a box in the order by scores."""
        return self.ranks.load_int(place) if self.grouped else place

    def _append(self, rank: Int) -> None:
        count = self.count.get()
        self.kept.store_int(self.order.load_int(rank), count)
        self.count.set(count + 1)

    def _collect(self) -> None:
        """What stays of all groups, by falling score."""
        with self.k.range(0, self.size) as rank, self.k.when(self.stays.load_int(rank).equals(1)):
            self._append(rank)

    def _finish(self) -> None:
        """-1 behind the last one, and how many they are."""
        k = self.k
        with k.range(self.count.get(), self.size) as i:
            self.kept.store_int(-1, i)
        self.kept.store_int(self.count.get(), self.size)
