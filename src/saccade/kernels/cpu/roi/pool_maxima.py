"""The phase that looks for the largest pixels: a block of channels, the boxes of some images.

Vectors go over channels; a bin's pixels are walked row by row with the largest value so far and its
place in registers, and replaced by what is larger only: the first of equal ones wins, NaN never.
Where the result is planar, a few rows of bins are kept in scratch, channels innermost, and
transposed in registers as they are stored.
"""

from __future__ import annotations

from dataclasses import dataclass

from saccade.backends.cpu.codegen import llvm
from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr
from saccade.backends.cpu.codegen.values import Int, Mask, Vec, literal
from saccade.kernels.cpu.floats import lanes_of, load, store, wide
from saccade.kernels.cpu.roi.bin_ranges import Ranges
from saccade.kernels.cpu.roi.channel_blocks import channel_vectors, scatter_block

__all__ = ["MaximaCode", "emit_maxima"]

_LEAST = -3.4028234663852886e38  # torchvision's, in float64 too
_NOWHERE = -1  # the place of an empty bin, torchvision's


@dataclass(frozen=True)
class MaximaCode:
    """What the code depends on.

    Attributes:
        element: Type of the images' elements and of the result's.
        vectors: Vectors of channels side by side.
        planar: Whether the bins of a channel are neighbours in the results, not the channels.
        places: Whether the places of the largest pixels are wanted.
    """

    element: str = "float32"
    vectors: int = 1
    planar: bool = False
    places: bool = True

    @property
    def lane(self) -> str:
        """Type of lanes and of scratch."""
        return wide(self.element)


def emit_maxima(k: KernelBuilder, code: MaximaCode) -> None:
    """The code of one configuration."""
    _Maxima(k, code).emit()


class _Maxima:
    def __init__(self, k: KernelBuilder, code: MaximaCode) -> None:
        self.k, self.code = k, code
        self.lanes = lanes_of(k, code.lane)
        self.x = k.pointer("x", code.element)
        self.results = [k.pointer("out", code.element)]
        if code.places:
            self.results.append(k.pointer("places", "int32"))
        self.ranges = Ranges(k)
        scratch = k.scratch("bins", code.lane) if code.planar else None
        self.ranges.declare_integers()
        self.parts, self.first, self.last, self.channels = k.integers("parts first last channels")
        self.x_n, self.x_h, self.x_w, self.x_start = k.integers("x_n x_h x_w x_start")
        self.width, self.pitch, self.tall, kept = k.integers("width pitch tall kept")
        self.scratch: list[Ptr] = []
        if scratch is not None:  # values, then places
            self.scratch = [scratch, (scratch + kept).viewed("int32")]
        parts = ("box", "row", "step", "start")
        self.steps = [tuple(k.integer(f"{p.name}_{part}") for part in parts) for p in self.results]

    def emit(self) -> None:
        """A chunk is some of the boxes, in their order by image."""
        with self.ranges.order.walk(self.first, self.last, self.parts) as (box, image):
            source = self.x + (self.x_start + image * self.x_n)
            targets = [
                p + (start + box * step)
                for p, (step, _, _, start) in zip(self.results, self.steps, strict=True)
            ]
            self._box(source, targets, self.ranges.of(box))

    def _box(self, source: Ptr, targets: list[Ptr], tables: tuple[Ptr, Ptr]) -> None:
        k, ranges = self.k, self.ranges
        if not self.code.planar:
            with k.range(0, ranges.rows) as p, k.range(0, ranges.columns) as q:
                places = [
                    to + (p * row + q * step)
                    for to, (_, row, step, _) in zip(targets, self.steps, strict=True)
                ]
                self._bin(source, places, tables, (p, q))
            return
        with k.range(0, ranges.rows, self.tall) as first:
            last = k.minimum_int(first + self.tall, ranges.rows)
            with k.range(first, last) as p, k.range(0, ranges.columns) as q:
                place = ((p - first) * ranges.columns + q) * self.pitch
                self._bin(source, [s + place for s in self.scratch], tables, (p, q))
            count = (last - first) * ranges.columns
            transposed = zip(targets, self.scratch, self.steps, strict=False)
            for to, block, (_, _, step, _) in transposed:
                if block.element == "int32":  # bits move, whatever they mean
                    block, to = block.viewed("float32"), to.viewed("float32")  # noqa: PLW2901
                scatter_block(
                    k, block, self.pitch, (count, self.channels), to + first * ranges.columns, step,
                    block.element,
                )  # fmt: skip

    def _bin(
        self, source: Ptr, to: list[Ptr], tables: tuple[Ptr, Ptr], number: tuple[Int, Int]
    ) -> None:
        """All channels of one bin."""
        spans = self.ranges.bin(tables, number)
        for c, vectors, mask in channel_vectors(
            self.k, self.channels, self.code.vectors, self.lanes
        ):
            self._group(source + c, [p + c for p in to], spans, vectors, mask)

    def _group(
        self,
        source: Ptr,
        to: list[Ptr],
        spans: tuple[tuple[Int, Int], tuple[Int, Int]],
        vectors: int,
        mask: Mask | None,
    ) -> None:
        """Neighbouring vectors of channels of one bin."""
        k, lanes, lane = self.k, self.lanes, self.code.lane
        (top, bottom), (left, right) = spans
        some = (top < bottom) & (left < right)
        zero, least = k.zero(lanes, lane), k.number(_LEAST, lanes, lane)
        # Empty bins are 0; in others what is not above `_LEAST` has no place, as in torchvision.
        empty = Vec(k.b, k.b.select(some.value, least.value, zero.value))
        nowhere = Vec(k.b, literal(k.vector_type(lanes, "int32"), _NOWHERE))
        largest = [k.var(empty) for _ in range(vectors)]
        places = [k.var(nowhere) for _ in range(vectors if self.code.places else 0)]
        with k.range(top, bottom) as row:
            line, number = source + row * self.x_h, row * self.width + left
            # Counted in a vector: a number in every lane is dear, and would be wanted each time.
            here = k.var(k.broadcast(Vec(k.b, k.b.trunc(number.value, llvm.I32)), lanes))
            with k.range(left, right) as column:
                pixel, place = line + column * self.x_w, here.get()
                here.set(Vec(k.b, k.b.add(place.value, literal(place.type, 1))))
                for v in range(vectors):
                    value = load(k, pixel, v * lanes, lanes, lane, mask)
                    found = largest[v].get()
                    larger = value.compare(">", found)
                    largest[v].set(larger.select(value, found))
                    if places:
                        places[v].set(larger.select(place, places[v].get()))
        kept = None if self.code.planar else mask
        for v in range(vectors):
            store(k, to[0], largest[v].get(), v * lanes, kept)
            if places:
                to[1].store(places[v].get(), v * lanes, kept)
