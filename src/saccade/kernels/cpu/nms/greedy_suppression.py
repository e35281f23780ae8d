"""Greedy suppression: each box in falling order of scores against those that stay so far.

A box is looked at once: compared with the boxes that stay, one vector of them at a time, until one
drops it; else it joins them. They are kept apart by the height of their centres, in strips, and a
box looks only into strips that can hold one that drops it (see `Strips`). Nothing is divided for
pairs that are far from the threshold (see `BoxPairs`). Boxes that can neither drop nor be dropped
(no area, an infinite one, or not a number) stay without a look.

Boxes of different groups are separate runs of a second order; which of them stay is noted by rank
and collected at the end.
"""

from __future__ import annotations

from collections.abc import Callable

from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr, Var
from saccade.backends.cpu.codegen.values import Bool, Int, Vec
from saccade.kernels.cpu import floats
from saccade.kernels.cpu.nms.box_iou import BoxPairs
from saccade.kernels.cpu.nms.box_strips import Strips
from saccade.kernels.cpu.nms.config import RECORD, NmsConfig

__all__ = ["GreedySuppression", "emit_greedy"]


class GreedySuppression:
    """One suppression: boxes in falling order of scores, each asked about in turn.

    Attributes:
        records: What is noted of each box, by its place in the order.
    """

    def __init__(self, k: KernelBuilder, records: Ptr, strips: Strips, pairs: BoxPairs) -> None:
        self.k, self.records, self.strips, self.pairs = k, records, strips, pairs

    def begin(self, start: Int, end: Int, corners: Callable[[Int], list[Vec]]) -> None:
        """Read all boxes; `corners` gives x1, y1, x2, y2 of the one at a place."""
        k, strips = self.k, self.strips
        # Three passes before the first box is asked about: how high the strips are needs all boxes,
        # and how long each one is needs that height.
        strips.begin()
        with k.range(start, end) as place:
            self._record(place, corners(place))
        strips.divide(end - start)
        with k.range(start, end) as place:
            strips.reserve(place, self._of(place))
        strips.clear()

    def stays(self, place: Int) -> Bool:
        """Whether a box stays; it then drops others."""
        k, strips, record = self.k, self.strips, self._of(place)
        strip, dropped = strips.places.load_int(place), k.var(0)
        with k.when(strip >= 0):
            strips.look(self.pairs, self.pairs.box(record), strip, dropped)
            with k.when(dropped.get().equals(0)):
                strips.join(strip, record)
        found: Bool = dropped.get().equals(0)
        return found

    def _of(self, place: Int) -> Ptr:
        return self.records + place * RECORD

    def _record(self, place: Int, corners: list[Vec]) -> None:
        area, bound = self.pairs.measure(corners)
        centre = corners[1] + corners[3]
        record = self._of(place)
        for i, value in enumerate((*corners, area, bound, centre)):
            record.store(value, i)
        self.strips.note(area, centre)


def emit_greedy(k: KernelBuilder, config: NmsConfig) -> None:
    """The phase that decides which boxes stay."""
    _Greedy(k, config).emit()


class _Greedy:
    def __init__(self, k: KernelBuilder, config: NmsConfig) -> None:
        self.k, self.grouped = k, config.grouped
        element = self.element = floats.wide(config.element)
        self.boxes: Ptr = k.pointer("boxes", config.element)
        self.order = k.pointer("order", "int64")
        if self.grouped:
            self.ranks, self.classes = (k.pointer(n, "int64") for n in ("ranks", "classes"))
            self.stays = k.pointer("stays", "int8")
        records = k.pointer("records", element)
        strips = Strips(k, element)
        self.kept = k.pointer("kept", "int64")
        self.size, self.row, self.column = k.integers("size row column")
        strips.declare_integers()
        self.run = GreedySuppression(k, records, strips, BoxPairs(k, element))
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
            # Both sides are evaluated: past the last box the first one's group is read.
            return inside & self.classes.load_int(inside.select(place, start)).equals(group)

        with k.repeat_while(same):
            end.set(end.get() + 1)
        found: Int = end.get()
        return found

    def _run(self, start: Int, end: Int) -> None:
        """The boxes of one group, in order."""
        self.run.begin(start, end, self._corners)
        with self.k.range(start, end) as place:
            stays = self.run.stays(place)
            if self.grouped:
                # By rank: the result is in the order of scores over all groups.
                self.stays.store_int(stays.select(1, 0), self._rank(place))
            else:
                with self.k.when(stays):
                    self._append(place)

    def _corners(self, place: Int) -> list[Vec]:
        at = self.order.load_int(self._rank(place)) * self.row
        return [
            floats.load_one(self.k, self.boxes, at + self.column * i, self.element)
            for i in range(4)
        ]

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
        # The result has one element more than there are boxes.
        self.kept.store_int(self.count.get(), self.size)
