"""The phase that rounds boxes to pixels: their order by image, and rows and columns of each bin.

    start, end = round(coordinate · scale), halves away from zero;  size = max(end - start (+ 1), 1)
    bin p = [start + ⌊p · size / bins⌋, start + ⌈(p + 1) · size / bins⌉), cut at the image

Operation by operation as torchvision does it, so that roundings agree; but what does not fit an
integer is cut to ±2³⁰, and a box that is not finite has empty bins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from saccade.backends.cpu.codegen import llvm
from saccade.backends.cpu.codegen.calling import real_word
from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr
from saccade.backends.cpu.codegen.values import Bool, Int, Vec, lanes_picked, literal
from saccade.backends.cpu.codegen.vectors import type_suffix
from saccade.kernels.base import Launch, Operand, Temp, View
from saccade.kernels.cpu.base import CpuCall
from saccade.kernels.cpu.roi.box_operands import (
    Boxes,
    BoxesCode,
    BoxesPlan,
    Order,
    plan_boxes,
    put,
    truth,
)

__all__ = ["BoxSpan", "Ranges", "RangesCode", "RangesPlan", "emit_ranges", "spans"]

_BOXES = 32  # of a chunk
_MOST = float(1 << 30)


@dataclass(frozen=True)
class RangesCode:
    """What the code depends on.

    Attributes:
        boxes: How boxes are read.
        inclusive: Whether a box's last pixel belongs to it. (RoIPool's does; PSRoIPool's does not,
            and neither do its bins reach an image's last row and column.)
        strips: Whether boxes of an image are in the order of its strips.
    """

    boxes: BoxesCode = field(default_factory=BoxesCode)
    inclusive: bool = True
    strips: bool = False


@dataclass(frozen=True, slots=True)
class RangesPlan:
    """The ranges of a call; they take two temporaries from number 0 on."""

    boxes: BoxesPlan
    code: RangesCode
    bins: tuple[int, int]
    sizes: tuple[int, int]
    scale: float

    @classmethod
    def of(
        cls,
        call: CpuCall,
        data: View,
        images: tuple[int, int, int],
        at: int = 1,
        *,
        strips: bool = False,
    ) -> RangesPlan:
        """Of an operator with `bins`, `scale` and `inclusive`, whose boxes are operand `at`."""
        op = call.op
        boxes = plan_boxes(call, data, images[0], at)
        return cls(
            boxes, RangesCode(boxes.code, op.inclusive, strips), op.bins, images[1:], op.scale
        )

    @property
    def operands(self) -> dict[str, Operand]:
        """Pointer parameters of `Ranges`."""
        # Two int32 for each row and each column of bins.
        ranges = Temp(1, 8 * sum(self.bins) * self.boxes.count)
        return {"order": self.boxes.order(0), "ranges": ranges}

    @property
    def integers(self) -> dict[str, int]:
        """Integer parameters of `Ranges`."""
        return {
            "boxes": self.boxes.count,
            "images": self.boxes.images,
            "ph": self.bins[0],
            "pw": self.bins[1],
        }

    def launch(self, bad: Operand) -> Launch:
        """The phase of `emit_ranges`; `bad` counts boxes without an image."""
        chunks = max(1, -(-self.boxes.count // _BOXES))
        integers = {
            **self.integers,
            **self.boxes.integers,
            "h": self.sizes[0],
            "w": self.sizes[1],
            "scale": real_word(self.scale),
            "chunks": chunks,
        }
        operands = {**self.operands, **self.boxes.operands, "bad": bad}
        return Launch(self.code, operands, integers, chunks)


class Ranges:
    """The emitted access to what `emit_ranges` left."""

    def __init__(self, k: KernelBuilder) -> None:
        self.k, self.order = k, Order(k)
        self._table = k.pointer("ranges", "int32")

    def declare_integers(self) -> None:
        """After all pointers."""
        self.boxes, self.images, self.rows, self.columns = self.k.integers("boxes images ph pw")
        self.order.sized(self.boxes, self.images)

    def of(self, box: Int) -> tuple[Ptr, Ptr]:
        """Where the rows and the columns of a box's bins lie, each a pair of first and last + 1."""
        at = self._table + box * ((self.rows + self.columns) * 2)
        return at, at + self.rows * 2

    def reach(self, box: Int) -> tuple[tuple[Int, Int], tuple[Int, Int]]:
        """The first and the last row that a box meets, and columns; none end before they start."""
        down, along = (
            # Bins ascend: the first one's first pixel, the last one's last.
            (table.load_int(0), table.load_int(bins * 2 - 1) - 1)
            for table, bins in zip(self.of(box), (self.rows, self.columns), strict=True)
        )
        return down, along

    def bin(
        self, tables: tuple[Ptr, Ptr], number: tuple[Int, Int]
    ) -> tuple[tuple[Int, Int], tuple[Int, Int]]:
        """The rows and the columns of one bin, first and last + 1; `tables` are a box's."""
        (down, along), (p, q) = tables, number
        return self.pair(down, p), self.pair(along, q)

    @staticmethod
    def pair(table: Ptr, number: Int) -> tuple[Int, Int]:
        """The range of one bin."""
        return table.load_int(number * 2), table.load_int(number * 2 + 1)


@dataclass(frozen=True, slots=True)
class BoxSpan:
    """One axis of a box.

    Attributes:
        k: Builder.
        start: Its first pixel.
        step: Pixels to a bin, a scalar of the geometry's type.
        bins: How many there are.
        limit: Where bins are cut; 0 where all are empty.
    """

    k: KernelBuilder
    start: Int
    step: Vec
    bins: Int
    limit: Int

    def pair(self, p: Int) -> tuple[Int, Int]:
        """The range of bin `p`."""
        k, element = self.k, type_suffix(self.step.type)
        geometry = {"f32": "float32", "f64": "float64"}[element]
        low = k.to_int(k.call("floor", k.to_real(p, geometry) * self.step))
        high = k.to_int(k.call("ceil", k.to_real(p + 1, geometry) * self.step))
        return self._cut(low + self.start), self._cut(high + self.start)

    def _cut(self, place: Int) -> Int:
        return self.k.minimum_int(self.k.maximum_int(place, 0), self.limit)

    def pairs(self, numbers: Sequence[int]) -> tuple[Vec, Vec]:
        """The ranges of bins as int32 lanes; numbers beyond the last bin stand for that."""
        k, b, count = self.k, self.k.b, len(numbers)
        named, last = lanes_picked(tuple(numbers)), self._spread(self.bins - 1, count)
        p = b.select(b.icmp_signed("<", named, last), named, last)
        step = k.broadcast(self.step, count)
        low = k.call("floor", Vec(b, b.sitofp(p, step.type)) * step)
        after = b.add(p, literal(p.type, 1))
        high = k.call("ceil", Vec(b, b.sitofp(after, step.type)) * step)
        return self._cut_lanes(low), self._cut_lanes(high)

    def _cut_lanes(self, offset: Vec) -> Vec:
        """Offsets are below 2³², and what they are added to wraps to the true sum."""
        b, kind = self.k.b, self.k.vector_type(offset.lanes, "int32")
        place = b.add(b.fptoui(offset.value, kind), self._spread(self.start, offset.lanes))
        zero, limit = literal(kind, 0), self._spread(self.limit, offset.lanes)
        place = b.select(b.icmp_signed(">", place, zero), place, zero)
        return Vec(b, b.select(b.icmp_signed("<", place, limit), place, limit))

    def _spread(self, value: Int, lanes: int) -> Any:  # noqa: ANN401
        narrow = Vec(self.k.b, self.k.b.trunc(value.value, llvm.I32))
        return self.k.broadcast(narrow, lanes).value


def spans(
    boxes: Boxes,
    box: Int,
    scale: Vec,
    counts: tuple[Int, Int],
    sizes: tuple[Int, Int],
    *,
    inclusive: bool,
) -> tuple[BoxSpan, BoxSpan]:
    """A box down and along.

    Args:
        boxes: Where it is read.
        box: Its number.
        scale: Pixels to a unit of the boxes, of the geometry's type.
        counts: Bins.
        sizes: Rows and columns of an image.
        inclusive: As `RangesCode` has it.
    """
    k, geometry = boxes.k, boxes.code.geometry
    _, valid = boxes.image(box)
    corners = [boxes.corner(box, which) * scale for which in range(4)]
    for corner in corners:
        # False for NaN as well.
        valid &= truth(k, k.call("fabs", corner), "<", float("inf"))

    def axis(number: int) -> BoxSpan:
        # Corners are x1, y1, x2, y2: y for rows, x for columns.
        start, end = (_rounded(k, corners[i - number], valid) for i in (1, 3))
        extent = k.maximum_int(end - start + int(inclusive), 1)
        step = k.to_real(extent, geometry) / k.to_real(counts[number], geometry)
        limit = sizes[number] if inclusive else k.maximum_int(sizes[number] - 1, 0)
        return BoxSpan(k, start, step, counts[number], valid.select(limit, 0))

    return axis(0), axis(1)


def emit_ranges(k: KernelBuilder, code: RangesCode) -> None:
    """The first chunk also puts the boxes in order."""
    ranges = Ranges(k)
    boxes = Boxes(k, code.boxes)
    bad = k.pointer("bad", "int32")
    ranges.declare_integers()
    boxes.declare_integers()
    height, width = k.integers("h w")
    scale = k.convert(k.real("scale"), code.boxes.geometry)
    chunks = k.integer("chunks")
    counts = (ranges.rows, ranges.columns)
    with k.chunks(chunks) as chunk:
        with k.when(chunk.equals(0)):
            strip = partial(boxes.strip, height, scale) if code.strips else None
            ranges.order.build(boxes, bad, strip)
        first, last = boxes.count * chunk // chunks, boxes.count * (chunk + 1) // chunks
        with k.range(first, last) as box:
            found = spans(boxes, box, scale, counts, (height, width), inclusive=code.inclusive)
            for to, span in zip(ranges.of(box), found, strict=True):
                with k.range(0, span.bins) as p:
                    for at, place in enumerate(span.pair(p)):
                        put(to, place, p * 2 + at)


def _rounded(k: KernelBuilder, value: Vec, valid: Bool) -> Int:
    """To the nearest integer, halves away from zero; 0 where it is not valid."""
    cut = k.minimum(k.maximum(value, -_MOST), _MOST)
    safe = Vec(k.b, k.b.select(valid.value, cut.value, cut.like(0.0).value))
    return k.to_int(k.call("round", safe))
