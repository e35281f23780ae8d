"""Tables of bilinear samples along one axis of a box: pixels and their weights, bin by bin.

A bin's mean over a grid of samples is a product of two such rows of weights:

    y[p, q] = Σ_i Σ_j rows[p, i] · columns[q, j] · x[h(p, i), w(q, j)]

so that samples that meet the same pixel are one entry. A table holds what lies on the image only,
whatever the size of the box: at most two entries for each sample, and with merged entries at most
one for each pixel and two more for each bin.

Positions are computed operation by operation as torchvision does, so that roundings up of grids and
tests at borders agree; comparisons are such that NaN lies outside.
"""

from __future__ import annotations

from dataclasses import dataclass

from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr, Var
from saccade.backends.cpu.codegen.values import Bool, Int, Mask, Vec
from saccade.kernels.cpu.roi.box_operands import put, truth

__all__ = ["MOST_SAMPLES", "BilinearAxis", "SampleSpan", "Sampling", "capacity", "marks"]

MOST_SAMPLES = 1 << 20
"""Samples along an axis of a bin; more are cut to that."""

_FEW = 8  # samples of a bin that are all looked at, wherever they lie
_SLACK = 4  # samples by which rounding may move the first and the last one on the image


def capacity(bins: int, ratio: int, size: int, *, merged: bool) -> int:
    """Most entries of a table.

    Args:
        bins: Bins along the axis.
        ratio: Samples of a bin, or 0 for as many as it takes for them to be at most a pixel apart.
        size: Pixels along the axis.
        merged: Whether samples that meet the same pixel share an entry.
    """
    pixels = size + 2 * bins + 2
    if not ratio:
        return pixels if merged else 4 * (pixels + bins)  # samples are half a pixel apart or more
    every = 2 * bins * min(ratio, MOST_SAMPLES)
    return min(every, pixels) if merged else every


def marks(bins: int) -> int:
    """Integers that go with the table of so many bins."""
    return 2 * bins + 3


@dataclass(frozen=True, slots=True)
class Sampling:
    """How boxes are sampled; scalars of the geometry's type.

    Attributes:
        scale: Pixels of the image to a unit of the boxes.
        offset: Subtracted from what was scaled.
        least: The smallest size of a box.
        ratio: Samples of a bin along each axis, or 0.
    """

    scale: Vec
    offset: Vec
    least: Vec
    ratio: Int

    def span(self, k: KernelBuilder, low: Vec, high: Vec, bins: Int) -> SampleSpan:
        """The samples of a box from `low` to `high`."""
        start = low * self.scale - self.offset
        extent = k.maximum(high * self.scale - self.offset - start, self.least)
        bin_size = extent / k.to_real(bins, _element(extent))
        # Cut and tested before it becomes an integer, which NaN and infinity are not.
        whole = k.call("ceil", bin_size)
        most = k.minimum(whole, float(MOST_SAMPLES))
        wanted = truth(k, whole, ">", 0.0)
        adaptive = k.to_int(_choose(k, wanted & _finite(k, extent), most, most.like(0.0)))
        fixed = _finite(k, extent).select(self.ratio, 0)
        count = (self.ratio > 0).select(k.minimum_int(fixed, MOST_SAMPLES), adaptive)
        return SampleSpan(start, bin_size, count)


@dataclass(frozen=True, slots=True)
class SampleSpan:
    """Samples along an axis: where they start, size of a bin, and how many there are in it."""

    start: Vec
    bin_size: Vec
    count: Int


class BilinearAxis:
    """The table of one axis of one box.

    Args:
        k: Builder.
        index: int32, pixels of the entries.
        weight: Their weights.
        mark: int32: first entry of each bin and one past the last; lowest and highest pixel; for
            each bin whether some of its samples lie outside.
        bins, size, capacity: Bins, pixels, entries that there is space for.
    """

    def __init__(
        self, k: KernelBuilder, index: Ptr, weight: Ptr, mark: Ptr, sizes: tuple[Int, Int, Int]
    ) -> None:
        self.k, self._index, self._weight, self._mark = k, index, weight, mark
        self.bins, self.size, self.capacity = sizes

    def first(self, number: Int) -> Int:
        """The first entry of a bin; for the number of bins, one past the last."""
        return self._mark.load_int(number)

    def reach(self) -> tuple[Int, Int]:
        """The lowest and the highest pixel of all entries; nothing has a highest one of -1."""
        return self._mark.load_int(self.bins + 1), self._mark.load_int(self.bins + 2)

    def clipped(self, number: Int) -> Bool:
        """Whether samples of a bin lie outside, or there are none."""
        return self._mark.load_int(self.bins + 3 + number) > 0

    def pixel(self, entry: Int) -> Int:
        """The pixel of an entry."""
        return self._index.load_int(entry)

    def weight(self, entry: Int) -> Vec:
        """The weight of an entry, a scalar."""
        return self._weight.load(entry)

    def fill(self, span: SampleSpan, divisor: Vec | None, *, merged: bool) -> None:
        """Write the table.

        Args:
            span: The samples.
            divisor: What weights are divided by, a scalar of the geometry's type.
            merged: Whether samples that meet the same pixel share an entry.
        """
        k = self.k
        writer = _Writer(self, divisor, merged)
        with k.range(0, self.bins) as number:
            put(self._mark, writer.count.get(), number)
            writer.begin()
            inside = k.var(0)
            base = span.start + k.to_real(number, _element(span.start)) * span.bin_size
            first, last = k.var(0), k.var(span.count)
            # A large box may have far more samples than the image has pixels: only those near it
            # are looked at.
            with k.when(span.count > _FEW):
                for end, found in zip((first, last), self._window(span, base), strict=True):
                    end.set(found)
            # Upwards in any case, so that neighbouring samples are found to share pixels.
            backwards = truth(k, span.bin_size, "<", 0.0)
            with k.range(first.get(), last.get()) as i:
                at = backwards.select(first.get() + last.get() - 1 - i, i)
                self._sample(span, base, at, writer, inside)
            some = inside.get().equals(span.count) & (span.count > 0)
            put(self._mark, some.select(0, 1), self.bins + 3 + number)
        put(self._mark, writer.count.get(), self.bins)
        put(self._mark, writer.lowest.get(), self.bins + 1)
        put(self._mark, writer.highest.get(), self.bins + 2)

    def empty(self) -> None:
        """A table without entries."""
        k = self.k
        with k.range(0, self.bins + 1) as number:
            put(self._mark, 0, number)
        put(self._mark, self.size, self.bins + 1)
        put(self._mark, -1, self.bins + 2)
        with k.range(0, self.bins) as number:
            put(self._mark, 1, self.bins + 3 + number)

    def _window(self, span: SampleSpan, base: Vec) -> tuple[Int, Int]:
        """Samples of a bin that may lie on the image, of however many."""
        k = self.k
        grid = k.to_real(span.count, _element(base))

        def sample_at(pixel: Vec | float) -> Vec:
            return (pixel - base) * grid / span.bin_size - 0.5

        ends = sample_at(base.like(-1.0)), sample_at(k.to_real(self.size, _element(base)))
        backwards = truth(k, span.bin_size, "<", 0.0)
        low, high = (_choose(k, backwards, *pair) for pair in (ends[::-1], ends))
        low, high = low - float(_SLACK), high + float(_SLACK)
        # NaN, of bins without a size, leaves all samples in.
        low = _choose(k, truth(k, low, ">", 0.0), k.minimum(low, grid), low.like(0.0))
        high = _choose(k, truth(k, high, "<", grid), k.maximum(high, 0.0), grid)
        return k.to_int(low), k.to_int(high)

    def _sample(self, span: SampleSpan, base: Vec, i: Int, writer: _Writer, inside: Var) -> None:
        k, element = self.k, _element(base)
        grid = k.to_real(span.count, element)
        place = base + (k.to_real(i, element) + 0.5) * span.bin_size / grid
        within = truth(k, place, ">=", -1.0) & (self.size > 0)
        within = within & truth(k, place, "<=", k.to_real(self.size, element))
        with k.when(within):
            inside.set(inside.get() + 1)
            place = k.maximum(place, 0.0)
            low, last = k.to_int(place), self.size - 1
            # At the last pixel both neighbours are that one, with all of the weight.
            edge = low >= last
            upper = place - k.to_real(low, element)
            upper = _choose(k, edge, upper.like(0.0), upper)
            writer.add(edge.select(last, low), 1.0 - upper)
            writer.add(edge.select(last, low + 1), upper)


class _Writer:
    """Appends entries to a table."""

    def __init__(self, axis: BilinearAxis, divisor: Vec | None, merged: bool) -> None:
        k = axis.k
        self.k, self.axis, self.divisor, self.merged = k, axis, divisor, merged
        self.count, self.before, self.last = k.var(0), k.var(-1), k.var(-1)
        self.lowest, self.highest = k.var(axis.size), k.var(-1)

    def begin(self) -> None:
        """Another bin, which shares no entries with the one before it."""
        self.before.set(-1)
        self.last.set(-1)

    def add(self, pixel: Int, weight: Vec) -> None:
        """One more entry, or more weight for one of the last two."""
        k, axis = self.k, self.axis
        if self.divisor is not None:
            weight = weight / self.divisor
        weight = k.convert(weight, axis._weight.element)
        count = self.count.get()
        if not self.merged:
            at = k.minimum_int(count, axis.capacity - 1)
            self.count.set(at + 1)
        else:
            # Samples ascend, and meet two pixels each: no earlier entry can have the same one.
            again, once = pixel.equals(self.last.get()), pixel.equals(self.before.get())
            met = again | once
            place = again.select(count - 1, once.select(count - 2, count))
            # Whatever a box says, nothing is written past its table.
            at = k.minimum_int(place, axis.capacity - 1)
            sum_ = axis.weight(at) + weight
            weight = _choose(k, met, sum_, weight)
            self.before.set(met.select(self.before.get(), self.last.get()))
            self.last.set(met.select(self.last.get(), pixel))
            self.count.set(met.select(count, at + 1))
        put(axis._index, pixel, at)
        axis._weight.store(weight, at)
        self.lowest.set(k.minimum_int(self.lowest.get(), pixel))
        self.highest.set(k.maximum_int(self.highest.get(), pixel))


def _element(scalar: Vec) -> str:
    return "float64" if str(scalar.type) == "double" else "float32"


def _choose(k: KernelBuilder, condition: Bool, then: Vec, other: Vec) -> Vec:
    return Mask(k.b, condition.value).select(then, other)


def _finite(k: KernelBuilder, scalar: Vec) -> Bool:
    return truth(k, scalar - scalar, "==", 0.0)
