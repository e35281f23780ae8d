"""The phase that reads boxes: their order by image, and the tables of samples of all of them.

Tables are kept in shared temporaries, so that the phases that sample, block of channels by block of
channels, find them ready.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from saccade.backends.cpu.codegen.calling import real_word
from saccade.backends.cpu.codegen.emitter import BYTES
from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.backends.cpu.codegen.values import Int, Vec
from saccade.kernels.base import Launch, Operand, Temp
from saccade.kernels.cpu.base import CpuCall
from saccade.kernels.cpu.floats import wide
from saccade.kernels.cpu.roi.bilinear_axis import BilinearAxis, Sampling, capacity, marks
from saccade.kernels.cpu.roi.box_operands import Boxes, BoxesCode, BoxesPlan, Order, plan_boxes

__all__ = ["BilinearTables", "TablesCode", "TablesPlan", "emit_tables"]

_BOXES = 32  # of a chunk


@dataclass(frozen=True)
class TablesCode:
    """What the code depends on.

    Attributes:
        boxes: How boxes are read.
        weight: Type of the weights.
        merged: Whether samples that meet the same pixel share an entry, and weights are divided by
            the number of samples.
    """

    boxes: BoxesCode = field(default_factory=BoxesCode)
    weight: str = "float32"
    merged: bool = True


@dataclass(frozen=True, slots=True)
class TablesPlan:
    """The tables of a call.

    Attributes:
        boxes: The boxes.
        code: What the code depends on.
        bins: Bins of a box, down and along.
        sizes: Rows and columns of an image.
        ratio: Samples of a bin along each axis, 0 for as many as the box's size asks for.
        scale: Pixels to a unit of the boxes.
        aligned: Whether pixels' centres lie half a pixel off their numbers, and boxes may be
            smaller than a pixel.
        temp: Number of the first of four temporaries.
    """

    boxes: BoxesPlan
    code: TablesCode
    bins: tuple[int, int]
    sizes: tuple[int, int]
    ratio: int
    scale: float
    aligned: bool
    temp: int = 0

    @classmethod
    def of(cls, call: CpuCall, images: tuple[int, int, int]) -> TablesPlan:
        """Those of `RoiAlign` or its gradient over so many images of so many rows and columns."""
        op, data = call.op, call.inputs[0]
        boxes = plan_boxes(call, data, images[0])
        # The largest is that of single weighted pixels, whose weights must not be added up.
        code = TablesCode(boxes.code, wide(data.dtype.value), op.mode == "average")
        return cls(boxes, code, op.bins, images[1:], max(0, op.ratio), op.scale, op.aligned)

    @property
    def capacities(self) -> tuple[int, int]:
        """Most entries of a box, down and along."""
        merged = self.code.merged
        pairs = zip(self.bins, self.sizes, strict=True)
        down, along = (capacity(b, self.ratio, s, merged=merged) for b, s in pairs)
        return down, along

    @property
    def operands(self) -> dict[str, Operand]:
        """Pointer parameters of `BilinearTables`."""
        entries = sum(self.capacities) * self.boxes.count
        return {
            "order": self.boxes.order(self.temp),
            "index": Temp(self.temp + 1, 4 * entries),
            "weight": Temp(self.temp + 2, self.weight_bytes * entries),
            "mark": Temp(self.temp + 3, 4 * sum(map(marks, self.bins)) * self.boxes.count),
        }

    @property
    def integers(self) -> dict[str, int]:
        """Integer parameters of `BilinearTables`."""
        down, along = self.capacities
        return {
            "boxes": self.boxes.count,
            "images": self.boxes.images,
            "ph": self.bins[0],
            "pw": self.bins[1],
            "sampled_h": self.sizes[0],
            "sampled_w": self.sizes[1],
            "down": down,
            "along": along,
        }

    def launch(self, bad: Operand) -> Launch:
        """The phase of `emit_tables`; `bad` counts boxes without an image."""
        chunks = max(1, -(-self.boxes.count // _BOXES))
        integers = {
            **self.integers,
            **self.boxes.integers,
            **sampling_reals(self.scale, aligned=self.aligned),
            "ratio": self.ratio,
            "chunks": chunks,
        }
        operands = {**self.operands, **self.boxes.operands, "bad": bad}
        return Launch(self.code, operands, integers, chunks)

    @property
    def weight_bytes(self) -> int:
        """Bytes of a weight, and of the sums of what is weighted."""
        return BYTES[self.code.weight]


def sampling_reals(scale: float, *, aligned: bool) -> dict[str, int]:
    """What `Sampling` asks for beside the ratio, as parameters."""
    offset, least = (0.5, float("-inf")) if aligned else (0.0, 1.0)
    return {"scale": real_word(scale), "offset": real_word(offset), "least": real_word(least)}


class BilinearTables:
    """The emitted access to what `emit_tables` left."""

    def __init__(self, k: KernelBuilder, code: TablesCode) -> None:
        self.k, self.order = k, Order(k)
        self._index = k.pointer("index", "int32")
        self._weight = k.pointer("weight", code.weight)
        self._mark = k.pointer("mark", "int32")

    def declare_integers(self) -> None:
        """After all pointers."""
        k = self.k
        self.boxes, self.images, self.rows, self.columns = k.integers("boxes images ph pw")
        self.height, self._width, self.capacity, self._along = k.integers(
            "sampled_h sampled_w down along"
        )
        self.order.sized(self.boxes, self.images)

    def of(self, box: Int) -> tuple[BilinearAxis, BilinearAxis]:
        """The tables of one box, down and along."""
        at = box * (self.capacity + self._along)
        mark = box * (marks_of(self.rows) + marks_of(self.columns))
        down = self._axis(at, mark, (self.rows, self.height, self.capacity))
        right, beside = at + self.capacity, mark + marks_of(self.rows)
        return down, self._axis(right, beside, (self.columns, self._width, self._along))

    def reach(self, box: Int) -> tuple[tuple[Int, Int], tuple[Int, Int]]:
        """The first and the last row that a box meets, and columns; none end before they start."""
        down, along = self.of(box)
        return down.reach(), along.reach()

    def _axis(self, at: Int, mark: Int, sizes: tuple[Int, Int, Int]) -> BilinearAxis:
        return BilinearAxis(self.k, self._index + at, self._weight + at, self._mark + mark, sizes)


def marks_of(bins: Int) -> Int:
    """`bilinear_axis.marks` of a parameter."""
    return bins * 2 + 3


def emit_tables(k: KernelBuilder, code: TablesCode) -> None:
    """The first chunk also puts the boxes in order."""
    tables = BilinearTables(k, code)
    boxes = Boxes(k, code.boxes)
    bad = k.pointer("bad", "int32")
    tables.declare_integers()
    boxes.declare_integers()
    geometry = code.boxes.geometry
    scale, offset, least = (k.convert(k.real(n), geometry) for n in ("scale", "offset", "least"))
    ratio, chunks = k.integers("ratio chunks")
    sampling = Sampling(scale, offset, least, ratio)
    with k.chunks(chunks) as chunk:
        # By one thread, while the others fill tables, which go by number and not by order.
        with k.when(chunk.equals(0)):
            tables.order.build(boxes, bad, partial(boxes.strip, tables.height, scale))
        first, last = boxes.count * chunk // chunks, boxes.count * (chunk + 1) // chunks
        with k.range(first, last) as box:
            down, along = tables.of(box)
            _, valid = boxes.image(box)
            with k.when_else(valid) as (then, other):
                with then:
                    _fill(k, boxes, box, sampling, (down, along), code)
                with other:
                    down.empty()
                    along.empty()


def _fill(
    k: KernelBuilder,
    boxes: Boxes,
    box: Int,
    sampling: Sampling,
    axes: tuple[BilinearAxis, BilinearAxis],
    code: TablesCode,
) -> None:
    spans = [
        sampling.span(k, boxes.corner(box, 1 - i), boxes.corner(box, 3 - i), axis.bins)
        for i, axis in enumerate(axes)
    ]
    # Rows carry the division for both axes; boxes without samples have no entries to divide.
    divisor: Vec | None = None
    if code.merged:
        count = k.maximum_int(spans[0].count * spans[1].count, 1)
        divisor = k.to_real(count, code.boxes.geometry)
    axes[0].fill(spans[0], divisor, merged=code.merged)
    axes[1].fill(spans[1], None, merged=code.merged)
