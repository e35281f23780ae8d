"""The phase that looks for the largest pixels of few channels: a vector's lanes are a row's bins.

Where a row of bins takes half of the lanes, two channels share a vector. Of a box no wider than a
vector, each row of pixels is a register, out of which the first column of every bin is picked, then
the second ones: rows of bins remain, kept in scratch, of which each bin takes its own. Of other
boxes a vector's width of columns is searched downwards first, as many bins high as there are, and
then bins pick their columns; so of equal pixels the first place has to be looked for.

What is the largest is as in `pool_maxima`: what is larger replaces, the first of equal ones stays,
NaN never wins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from saccade.backends.cpu.codegen.control import Var
from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr
from saccade.backends.cpu.codegen.values import Int, Mask, Vec, lanes_picked, literal
from saccade.kernels.cpu.floats import lanes_of, load, store, wide
from saccade.kernels.cpu.roi.bin_ranges import spans
from saccade.kernels.cpu.roi.box_operands import Boxes, BoxesCode, put
from saccade.kernels.cpu.roi.pool_few_lanes import BinLanes, spread

__all__ = ["ROWS", "RowMaximaCode", "emit_row_maxima"]

ROWS = 64
"""Of a box whose rows are kept in scratch."""

_LEAST = -3.4028234663852886e38  # torchvision's, in float64 too
_NOWHERE = -(1 << 30)  # negative whatever column is added


@dataclass(frozen=True)
class RowMaximaCode:
    """What the code depends on.

    Attributes:
        element: Type of the images' elements and of the result's.
        boxes: How boxes are read.
        sides: Channels side by side in a vector, 1 or 2.
        vectors: Vectors side by side.
        places: Whether the places of the largest pixels are wanted.
    """

    element: str = "float32"
    boxes: BoxesCode = field(default_factory=BoxesCode)
    sides: int = 1
    vectors: int = 1
    places: bool = True


def emit_row_maxima(k: KernelBuilder, code: RowMaximaCode) -> None:
    """The code of one configuration."""
    _RowMaxima(k, code).emit()


class _RowMaxima:
    def __init__(self, k: KernelBuilder, code: RowMaximaCode) -> None:
        self.k, self.code = k, code
        self.lane = wide(code.element)
        self.lanes = lanes_of(k, self.lane)
        self.x = k.pointer("x", code.element)
        self.results = [k.pointer("out", code.element)]
        if code.places:
            self.results.append(k.pointer("places", "int32"))
        self.boxes = Boxes(k, code.boxes)
        self.bad = k.pointer("bad", "int32")
        self.values, self.numbers = k.scratch("values", self.lane), k.scratch("numbers", "int32")
        self.table = k.scratch("rows", "int32")
        self.boxes.declare_integers()
        self.scale = k.convert(k.real("scale"), code.boxes.geometry)
        self.rows, self.columns, self.channels = k.integers("ph pw channels")
        self.height, self.width = k.integers("h w")
        self.x_n, self.x_c, self.x_h, self.parts = k.integers("x_n x_c x_h parts")
        parts = ("box", "channel")
        self.steps = [tuple(k.integer(f"{p.name}_{part}") for part in parts) for p in self.results]
        self.each = self.lanes // code.sides
        self.kept = k.first(self.columns, self.each)

    def emit(self) -> None:
        """A chunk is some of the boxes; the first one also counts those without an image."""
        k, count = self.k, self.boxes.count
        with k.chunks(self.parts) as part:
            with k.when(part.equals(0)):
                missing = k.var(0)
                with k.range(0, count) as box:
                    _, valid = self.boxes.image(box)
                    missing.set(missing.get() + valid.select(0, 1))
                put(self.bad, missing.get())
            with k.range(count * part // self.parts, count * (part + 1) // self.parts) as box:
                self._box(box)

    def _box(self, number: Int) -> None:
        k, code = self.k, self.code
        image, _ = self.boxes.image(number)
        counts, sizes = (self.rows, self.columns), (self.height, self.width)
        down, along = spans(self.boxes, number, self.scale, counts, sizes, inclusive=True)
        box = BinLanes.of(down, along, self.each, self.lanes, self.table)
        source = self.x + (image * self.x_n + box.top * self.x_h + box.left)
        targets = [
            to + number * step for to, (step, _) in zip(self.results, self.steps, strict=True)
        ]
        # So many columns are two vectors of a channel, or one of each of two.
        slim = (box.right - box.left <= 2 * self.each) & (box.bottom - box.top <= ROWS)
        with k.when_else(slim) as sides:
            for side, search in zip(sides, (self._slim, self._wide), strict=True):
                with side, k.range(0, self.channels, code.sides * code.vectors) as c:
                    # What is beyond the last channel stands for it once more.
                    channels = [
                        [
                            k.minimum_int(c + v * code.sides + i, self.channels - 1)
                            for i in range(code.sides)
                        ]
                        for v in range(code.vectors)
                    ]
                    search(source, targets, box, channels)

    def _slim(
        self, source: Ptr, targets: list[Ptr], box: BinLanes, channels: list[list[Int]]
    ) -> None:
        k, size = self.k, self.lanes * self.code.vectors
        wide = box.right - box.left
        # Two vectors of pixels: of each channel one, or of the only one both.
        starts = [0, 0] if self.code.sides == 2 else [0, self.lanes]
        masks = [k.first(wide - start, self.lanes) for start in starts]
        with k.range(0, box.bottom - box.top) as row:
            pixels = [
                [
                    load(k, source, row * self.x_h + c * self.x_c + at, self.lanes, self.lane, mask)
                    for c, at, mask in zip(beside * 2, starts, masks, strict=False)
                ]
                for beside in channels
            ]
            first = (box.top + row) * self.width + box.left
            for v, (value, place) in enumerate(self._picked(pixels, box, first)):
                self.values.store(value, row * size + v * self.lanes)
                self.numbers.store(place, row * size + v * self.lanes)
        with k.range(0, self.rows) as p:
            top, count = box.rows(p)
            last = k.maximum_int(top + count - 1, 0)
            found = self._nothing()
            with k.range(0, box.tallest) as i:  # as often for each bin: what repeats is not larger
                at = k.minimum_int(top + i, last) * size
                for v, best in enumerate(found):
                    value = self.values.vec(at + v * self.lanes, None, self.lanes)
                    place = self.numbers.vec(at + v * self.lanes, None, self.lanes)
                    _replace(best, value.compare(">", best[0].get()), (value, place))
            self._put(targets, found, box, p, channels)

    def _picked(self, pixels: list[list[Vec]], box: BinLanes, first: Int) -> list[tuple[Vec, Vec]]:
        """The largest pixel of each bin in a row, and its place; `first` is the place of lane 0."""
        k, b = self.k, self.k.b
        start = self._spread(box.left)
        begin, end = (b.add(b.sub(v.value, start), self._beside()) for v in (box.low, box.high))
        last = b.sub(end, self._all(1))
        index, found = k.var(Vec(b, begin)), self._nothing()
        with k.range(0, box.widest):
            at = index.get().value
            index.set(Vec(b, b.add(at, self._all(1))))
            # A bin of fewer columns repeats its last one, which is not larger than itself.
            number = Vec(b, b.select(b.icmp_signed("<", at, last), at, last))
            for vectors, best in zip(pixels, found, strict=True):
                value = k.permuted(number, *vectors)
                _replace(best, value.compare(">", best[0].get()), (value, number))
        base = b.sub(self._spread(first), self._beside())
        return [(value.get(), Vec(b, b.add(place.get().value, base))) for value, place in found]

    def _wide(
        self, source: Ptr, targets: list[Ptr], box: BinLanes, channels: list[list[Int]]
    ) -> None:
        k = self.k
        with k.range(0, self.rows) as p:
            found = self._nothing()
            rows = box.rows(p)
            with k.range(0, box.right - box.left, self.lanes) as at:
                for beside, best in zip(channels, found, strict=True):
                    lines = [source + (c * self.x_c + at) for c in beside]
                    columns = self._downwards(lines, rows, box, at)
                    self._along(columns, box, at, best)
            self._put(targets, found, box, p, channels)

    def _downwards(
        self, sources: list[Ptr], rows: tuple[Int, Int], box: BinLanes, at: Int
    ) -> list[tuple[Vec, Vec]]:
        """For each channel, the largest pixel of each of a vector's columns, and its place."""
        k, b = self.k, self.k.b
        mask = k.first(box.right - box.left - at, self.lanes)
        found = self._nothing(len(sources))
        top, count = rows
        number = k.var(Vec(b, self._spread((box.top + top) * self.width)))
        with k.range(top, top + count) as row:
            for source, best in zip(sources, found, strict=True):
                pixels = load(k, source, row * self.x_h, self.lanes, self.lane, mask)
                _replace(best, pixels.compare(">", best[0].get()), (pixels, number.get()))
            number.set(Vec(b, b.add(number.get().value, self._spread(self.width))))
        columns = b.add(self._spread(box.left + at), lanes_picked(tuple(range(self.lanes))))
        return [(value.get(), Vec(b, b.add(place.get().value, columns))) for value, place in found]

    def _along(
        self, found: list[tuple[Vec, Vec]], box: BinLanes, at: Int, best: tuple[Var, Var]
    ) -> None:
        """Every bin's columns in their order; among equal pixels the first place wins."""
        k, b = self.k, self.k.b
        start, none, all_ = self._spread(box.left + at), self._all(0), self._all(self.lanes)
        low, high = (b.sub(v.value, start) for v in (box.low, box.high))
        # Bins as far as they lie in these columns: of some there may be nothing left.
        low = b.select(b.icmp_signed(">", low, none), low, none)
        high = b.select(b.icmp_signed("<", high, all_), high, all_)
        count, low = b.sub(high, low), b.add(low, self._beside())
        values, places = ([vectors[i] for vectors in found] for i in (0, 1))
        with k.range(0, k.minimum_int(box.widest, self.lanes)) as j:
            step = self._spread(j)
            index = Vec(b, b.add(low, step))
            value, place = k.permuted(index, *values), k.permuted(index, *places)
            earlier = Mask(b, b.icmp_signed("<", place.value, best[1].get().value))
            equal = value.compare("==", best[0].get()) & earlier
            within = Mask(b, b.icmp_signed(">", count, step))
            _replace(best, within & (value.compare(">", best[0].get()) | equal), (value, place))

    def _put(
        self, targets: list[Ptr], found: list[tuple[Var, Var]], box: BinLanes, p: Int,
        channels: list[list[Int]],
    ) -> None:  # fmt: skip
        """Store a row of bins, each channel's lanes to its own plane; empty bins are 0."""
        k, b = self.k, self.k.b
        _, count = box.rows(p)
        there = (count > 0).value
        zero, nowhere = k.zero(self.lanes, self.lane), self._all(-1)
        for (value, place), beside in zip(found, channels, strict=True):
            # Where nothing was above `_LEAST` (of NaN alone, say) there is no place: -1, as of
            # empty bins.
            known = b.icmp_signed(">", place.get().value, nowhere)
            number = Vec(b, b.select(known, place.get().value, nowhere))
            vectors = [
                Vec(b, b.select(there, box.some.select(vector, none).value, none.value))
                for vector, none in ((value.get(), zero), (number, Vec(b, nowhere)))
            ]
            for to, (_, step), vector in zip(targets, self.steps, vectors, strict=False):
                for c, part in zip(beside, k.split(vector, self.each), strict=True):
                    at = c * step + p * self.columns
                    if to.element == "int32":
                        to.store(part, at, self.kept)
                    else:
                        store(k, to, part, at, self.kept)

    def _nothing(self, count: int = 0) -> list[tuple[Var, Var]]:
        """Nothing found yet, in so many vectors."""
        k = self.k
        least, nowhere = k.number(_LEAST, self.lanes, self.lane), Vec(k.b, self._all(_NOWHERE))
        return [(k.var(least), k.var(nowhere)) for _ in range(count or self.code.vectors)]

    def _beside(self) -> Any:  # noqa: ANN401
        """Of each lane, where the vector of its channel starts among those that are picked from."""
        return lanes_picked(tuple(lane // self.each * self.lanes for lane in range(self.lanes)))

    def _spread(self, value: Int) -> Any:  # noqa: ANN401
        return spread(self.k, value, self.lanes)

    def _all(self, number: int) -> Any:  # noqa: ANN401
        return literal(self.k.vector_type(self.lanes, "int32"), number)


def _replace(best: tuple[Var, Var], where: Mask, by: Sequence[Vec]) -> None:
    for variable, vector in zip(best, by, strict=True):
        variable.set(where.select(vector, variable.get()))
