"""Tables of bilinear samples along one axis of a box, by vectors over its bins.

Every bin has as many samples, and each of them two pixels. Samples are taken upwards, for all bins
at once; pixels that a bin meets again are put behind the others, without a weight. So are those of
samples outside the image, which are taken to meet a pixel that the bin reads anyway: a NaN
elsewhere does not get in. Positions are computed as in `bilinear_axis`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from saccade.backends.cpu.codegen import llvm
from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr
from saccade.backends.cpu.codegen.values import Int, Mask, Vec, lanes_picked, literal, vector_of
from saccade.kernels.cpu.roi.bilinear_axis import SampleSpan
from saccade.kernels.cpu.roi.box_operands import truth

__all__ = ["GridCode", "GridTable", "entries", "padded", "table"]


@dataclass(frozen=True)
class GridCode:
    """What the code depends on.

    Attributes:
        samples: Of a bin.
        lanes: Bins of a vector.
        weight: Type of the weights.
    """

    samples: int = 2
    lanes: int = 4
    weight: str = "float32"


def entries(code: GridCode) -> int:
    """Entries of a bin."""
    return 2 * code.samples


def table(code: GridCode, bins: Any) -> Any:  # noqa: ANN401 - an `int` or an `Int`
    """Integers of a table; there are not as many weights."""
    return (entries(code) + 1) * padded(bins, code)


def padded(bins: Any, code: GridCode) -> Any:  # noqa: ANN401 - an `int` or an `Int`
    """Bins of a table: whole vectors."""
    return (bins + (code.lanes - 1)) // code.lanes * code.lanes


@dataclass(frozen=True, slots=True)
class _GridSample:
    """One sample of each of a vector's bins: pixels as integers and numbers, and weights."""

    within: Mask
    pixels: tuple[Vec, Vec]
    places: tuple[Vec, Vec]
    weights: tuple[Vec, Vec]


class GridTable:
    """The table of one axis of one box.

    Args:
        k: Builder.
        code: What the code depends on.
        index: int32, for each entry the bins' pixels, then how many entries count.
        weight: Their weights.
        bins, size: Bins, and pixels of the image.
    """

    def __init__(
        self, k: KernelBuilder, code: GridCode, index: Ptr, weight: Ptr, sizes: tuple[Int, Int]
    ) -> None:
        self.k, self.code, self._index, self._weight = k, code, index, weight
        self.bins, self.size = sizes
        self._pitch = padded(self.bins, code)

    def count(self, number: Int) -> Int:
        """How many entries of a bin count; none where all samples lie outside."""
        return self._index.load_int(number + self._pitch * entries(self.code))

    def pixel(self, entry: int, number: Int) -> Int:
        """The pixel of a bin's entry."""
        return self._index.load_int(number + self._pitch * entry)

    def weight(self, entry: int, number: Int, lanes: int) -> Vec:
        """Its weight, in every lane."""
        return self._weight.splat(number + self._pitch * entry, lanes)

    def pixels(self, entry: int, first: Int) -> Vec:
        """Pixels of a vector of bins."""
        return self._index.vec(first + self._pitch * entry, None, self.code.lanes)

    def weights(self, entry: int, first: Int) -> Vec:
        """Their weights."""
        return self._weight.vec(first + self._pitch * entry, None, self.code.lanes)

    def fill(self, span: SampleSpan, divisor: float) -> tuple[Int, Int]:
        """Write the table.

        Args:
            span: The samples, as many as the code has, or none at all.
            divisor: What weights are divided by.

        Returns:
            The lowest and the highest pixel; where there is none, the highest is -1.
        """
        k, lanes = self.k, self.code.lanes
        # No sample at NaN lies within the image.
        nothing = span.start.like(float("nan"))
        some = Mask(k.b, (span.count > 0).value)
        span = SampleSpan(some.select(span.start, nothing), span.bin_size, span.count)
        offsets = self._offsets(span)
        size = k.broadcast(k.to_real(self.size, _element(span.start)), lanes)
        lowest, highest = k.var(size), k.var(size.like(-1.0))
        with k.range(0, self.bins, lanes) as first:
            base = self._base(span, first)
            real = k.first(self.bins - first, lanes)
            samples = [self._sample(base + offset, size, real) for offset in offsets]
            for sample in samples:
                low, high = (
                    sample.within.select(p, end)
                    for p, end in zip(sample.places, (size, size.like(-1.0)), strict=True)
                )
                lowest.set(k.minimum(low, lowest.get()))
                highest.set(k.maximum(high, highest.get()))
            self._store(first, samples, divisor)
        ends = _fold(k, lowest.get(), k.minimum), _fold(k, highest.get(), k.maximum)
        low_end, high_end = (k.to_int(end) for end in ends)
        return low_end, high_end

    def _offsets(self, span: SampleSpan) -> list[Vec]:
        """Of the samples from the starts of their bins, upwards, in every lane."""
        k, count = self.k, self.code.samples
        element = _element(span.start)
        backwards = truth(k, span.bin_size, "<", 0.0)
        found = []
        for i in range(count):
            # Of a box whose corners are swapped the last sample is the lowest.
            number = k.to_real(backwards.select(count - 1 - i, i), element) + 0.5
            found.append(k.broadcast(number * span.bin_size / float(count), self.code.lanes))
        return found

    def _base(self, span: SampleSpan, first: Int) -> Vec:
        """Where bins start."""
        k, lanes = self.k, self.code.lanes
        element = _element(span.start)
        start, size, number = (
            k.broadcast(v, lanes) for v in (span.start, span.bin_size, k.to_real(first, element))
        )
        iota = k.b.sitofp(lanes_picked(tuple(range(lanes))), start.type)
        return start + (number + Vec(k.b, iota)) * size

    def _sample(self, place: Vec, size: Vec, real: Mask) -> _GridSample:
        k = self.k
        within = place.compare(">=", -1.0) & place.compare("<=", size) & real
        last = size - 1.0
        # Outside may be NaN, which has no integer.
        place = k.minimum(k.maximum(within.select(place, place.like(0.0)), 0.0), last)
        low = k.b.fptosi(place.value, vector_of(llvm.I32, self.code.lanes))
        below = Vec(k.b, k.b.sitofp(low, place.type))
        above = k.minimum(below + 1.0, last)
        high = k.b.fptosi(above.value, vector_of(llvm.I32, self.code.lanes))
        upper = place - below
        zero = place.like(0.0)
        weights = within.select(1.0 - upper, zero), within.select(upper, zero)
        return _GridSample(within, (Vec(k.b, low), Vec(k.b, high)), (below, above), weights)

    def _store(self, first: Int, samples: list[_GridSample], divisor: float) -> None:
        k = self.k
        kind = vector_of(llvm.I32, self.code.lanes)
        inside, nothing = (Vec(k.b, literal(kind, n)) for n in (-1, 0))
        for sample in samples:
            # Any pixel that the bin reads will do for samples outside; -1 says that there is none.
            inside = sample.within.select(sample.pixels[0], inside)
        pixels = [s.within.select(p, inside) for s in samples for p in s.pixels]
        found = _Entries(k, pixels, [w for s in samples for w in s.weights])
        found.merge()
        for entry, (pixel, weight) in enumerate(zip(found.pixels, found.weights, strict=True)):
            at = first + self._pitch * entry
            self._index.store(pixel, at)
            part = weight if divisor == 1.0 else weight / divisor
            self._weight.store(k.convert(part, self.code.weight), at)
        some = Mask(k.b, k.b.icmp_signed(">=", inside.value, nothing.value))
        count = some.select(found.count(), nothing)
        self._index.store(count, first + self._pitch * entries(self.code))


class _Entries:
    """Entries of a vector of bins, in the order of their pixels."""

    def __init__(self, k: KernelBuilder, pixels: list[Vec], weights: list[Vec]) -> None:
        self.k, self.pixels, self.weights = k, pixels, weights
        self._again: list[Any] = []

    def merge(self) -> None:
        """Give the first entry of each pixel the weight of all, and put the others behind."""
        b, again = self.k.b, self._again
        for entry, pixel in enumerate(self.pixels):
            again.append(literal(vector_of(llvm.I1, pixel.lanes), 0))
            for before in range(entry):
                same = b.icmp_signed("==", pixel.value, self.pixels[before].value)
                # Only the first of equal pixels gets the weight: once it is found, others do not
                # count.
                self._move(entry, before, b.and_(same, b.not_(again[entry])))
                again[entry] = b.or_(again[entry], same)
        # The first entry repeats nothing, and stays where it is.
        for end in range(len(again) - 1, 1, -1):
            for entry in range(1, end):
                self._swap(entry, entry + 1)

    def count(self) -> Vec:
        """How many pixels are different ones, as integers."""
        b, kind = self.k.b, self.pixels[0].type
        total = literal(kind, len(self.pixels))
        for again in self._again:
            total = b.add(total, b.sext(again, kind))
        return Vec(b, total)

    def _move(self, source: int, to: int, where: Any) -> None:  # noqa: ANN401
        weights, mask = self.weights, Mask(self.k.b, where)
        weights[to] = mask.select(weights[to] + weights[source], weights[to])
        weights[source] = mask.select(weights[source].like(0.0), weights[source])

    def _swap(self, entry: int, after: int) -> None:
        """Change two entries' places where the first of them is met again."""
        b, again = self.k.b, self._again
        mask = Mask(b, again[entry])
        for row in (self.pixels, self.weights):
            row[entry], row[after] = (
                mask.select(row[after], row[entry]), mask.select(row[entry], row[after])
            )  # fmt: skip
        both = b.and_(again[entry], again[after]), b.or_(again[entry], again[after])
        again[entry], again[after] = both


def _element(vector: Vec) -> str:
    return "float64" if "double" in str(vector.type) else "float32"


def _fold(k: KernelBuilder, vector: Vec, of_two: Callable[[Vec, Vec], Vec]) -> Vec:
    """All lanes to one, by halves."""
    while vector.lanes > 1:
        half = vector.lanes // 2
        sides = (range(half), range(half, 2 * half))
        low, high = (k.shuffle(vector, vector, side) for side in sides)
        if half == 1:
            low, high = k.extract(low, 0), k.extract(high, 0)
        vector = of_two(low, high)
    return vector
