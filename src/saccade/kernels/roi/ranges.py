"""The phase that rounds boxes to pixels: their order by picture, and rows and columns of each bin.

    start, end = round(coordinate · scale), halves away from zero;  size = max(end - start (+ 1), 1)
    bin p = [start + ⌊p · size / bins⌋, start + ⌈(p + 1) · size / bins⌉), cut at the picture

Operation by operation as torchvision does it, so that roundings agree; but what does not fit an
integer is cut to ±2³⁰, and a box that is not finite has empty bins.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from saccade.codegen.calling import real_word
from saccade.codegen.language import Kernel, Ptr
from saccade.codegen.values import Bool, Int, Vec
from saccade.kernels.base import Call, Operand, Temp, View
from saccade.kernels.roi.boxes import Boxes, BoxesCode, BoxesPlan, Order, plan_boxes, put, truth

__all__ = ["Ranges", "RangesCode", "RangesPlan", "emit_ranges"]

_BOXES = 32  # of a chunk
_MOST = float(1 << 30)


@dataclass(frozen=True)
class RangesCode:
    """What the code depends on.

    Attributes:
        boxes: How boxes are read.
        inclusive: Whether a box's last pixel belongs to it. (RoIPool's does; PSRoIPool's does not,
            and neither do its bins reach a picture's last row and column.)
    """

    boxes: BoxesCode = field(default_factory=BoxesCode)
    inclusive: bool = True


@dataclass(frozen=True, slots=True)
class RangesPlan:
    """The ranges of a call; they take two temporaries from number 0 on."""

    boxes: BoxesPlan
    code: RangesCode
    bins: tuple[int, int]
    sizes: tuple[int, int]
    scale: float

    @classmethod
    def of(cls, call: Call, data: View, pictures: tuple[int, int, int], at: int = 1) -> RangesPlan:
        """Of an operator with `bins`, `scale` and `inclusive`, whose boxes are operand `at`."""
        op = call.op
        boxes = plan_boxes(call, data, pictures[0], at)
        return cls(boxes, RangesCode(boxes.code, op.inclusive), op.bins, pictures[1:], op.scale)

    @property
    def operands(self) -> tuple[Operand, ...]:
        """Pointer parameters of `Ranges`."""
        return (self.boxes.order(0), Temp(1, 8 * sum(self.bins) * self.boxes.count))

    @property
    def integers(self) -> tuple[int, ...]:
        """Integer parameters of `Ranges`."""
        return (self.boxes.count, self.boxes.pictures, *self.bins)

    def launch(self, bad: Operand) -> tuple[tuple[Operand, ...], tuple[int, ...], int]:
        """Operands, integers and chunks of `emit_ranges`; `bad` counts boxes without a picture."""
        chunks = max(1, -(-self.boxes.count // _BOXES))
        integers = (
            *self.integers, *self.boxes.integers, *self.sizes, real_word(self.scale), chunks,
        )  # fmt: skip
        return (*self.operands, *self.boxes.operands, bad), integers, chunks


class Ranges:
    """The emitted access to what `emit_ranges` left."""

    def __init__(self, k: Kernel) -> None:
        self.k, self.order = k, Order(k)
        self._table = k.pointer("ranges", "int32")

    def declare_integers(self) -> None:
        """After all pointers."""
        self.boxes, self.pictures, self.rows, self.columns = self.k.integers("boxes n ph pw")
        self.order.sized(self.boxes, self.pictures)

    def of(self, box: Int) -> tuple[Ptr, Ptr]:
        """Where the rows and the columns of a box's bins lie, each a pair of first and last + 1."""
        at = self._table + box * ((self.rows + self.columns) * 2)
        return at, at + self.rows * 2

    def reach(self, box: Int) -> tuple[tuple[Int, Int], tuple[Int, Int]]:
        """The first and the last row that a box meets, and columns; none end before they start."""
        down, along = (
            (table.load_int(0), table.load_int(bins * 2 - 1) - 1)
            for table, bins in zip(self.of(box), (self.rows, self.columns), strict=True)
        )
        return down, along

    @staticmethod
    def pair(table: Ptr, number: Int) -> tuple[Int, Int]:
        """The range of one bin."""
        return table.load_int(number * 2), table.load_int(number * 2 + 1)


def emit_ranges(k: Kernel, code: RangesCode) -> None:
    """The first chunk also puts the boxes in order."""
    ranges = Ranges(k)
    boxes = Boxes(k, code.boxes)
    bad = k.pointer("bad", "int32")
    ranges.declare_integers()
    boxes.declare_integers()
    sizes = k.integers("h w")
    scale = k.convert(k.real("scale"), code.boxes.geometry)
    chunks = k.integer("chunks")
    with k.chunks(chunks) as chunk:
        with k.when(chunk.equals(0)):
            ranges.order.build(boxes, bad)
        first, last = boxes.count * chunk // chunks, boxes.count * (chunk + 1) // chunks
        with k.range(first, last) as box:
            _, valid = boxes.picture(box)
            corners = [boxes.corner(box, which) * scale for which in range(4)]
            for corner in corners:
                valid &= truth(k, k.call("fabs", corner), "<", float("inf"))
            down, along = ranges.of(box)
            counts = (ranges.rows, ranges.columns)
            for axis, (to, bins, size) in enumerate(zip((down, along), counts, sizes, strict=True)):
                span = corners[1 - axis], corners[3 - axis]
                _fill(k, to, span, (bins, size), valid, code)


def _fill(
    k: Kernel,
    to: Ptr,
    span: tuple[Vec, Vec],
    sizes: tuple[Int, Int],
    valid: Bool,
    code: RangesCode,
) -> None:
    """The ranges along one axis of a box."""
    bins, size = sizes
    geometry = code.boxes.geometry
    start, end = (_rounded(k, value, valid) for value in span)
    extent = k.maximum_int(end - start + int(code.inclusive), 1)
    step = k.to_real(extent, geometry) / k.to_real(bins, geometry)
    limit = size if code.inclusive else k.maximum_int(size - 1, 0)
    with k.range(0, bins) as p:
        low = k.to_int(k.call("floor", k.to_real(p, geometry) * step)) + start
        high = k.to_int(k.call("ceil", k.to_real(p + 1, geometry) * step)) + start
        for place, at in ((low, 0), (high, 1)):
            cut = k.minimum_int(k.maximum_int(place, 0), limit)
            put(to, valid.select(cut, 0), p * 2 + at)


def _rounded(k: Kernel, value: Vec, valid: Bool) -> Int:
    """To the nearest integer, halves away from zero; 0 where it is not valid."""
    cut = k.minimum(k.maximum(value, -_MOST), _MOST)
    safe = Vec(k.b, k.b.select(valid.value, cut.value, cut.like(0.0).value))
    return k.to_int(k.call("round", safe))
