"""Boxes of regions: read in any floating type, checked, ordered by image and by rows.

A box is a row (image, x1, y1, x2, y2) of one operand [K, 5], or (x1, y1, x2, y2) of [K, 4] beside
integers [K] that name the images. What a box says is never trusted: an image that does not exist
is counted, and its box stands with those of the first image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from saccade.backends.cpu.codegen import llvm
from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr
from saccade.backends.cpu.codegen.values import Bool, Int, IntLike, Mask, Vec
from saccade.ir import DType
from saccade.kernels.base import In, Operand, Temp, View
from saccade.kernels.cpu.base import CpuCall
from saccade.kernels.cpu.floats import FLOATS, load_one, wide
from saccade.kernels.cpu.machine import machine

__all__ = [
    "Boxes",
    "BoxesCode",
    "BoxesPlan",
    "Order",
    "gradient_cost",
    "plan_boxes",
    "put",
    "refuse_boxes",
    "truth",
]

_STRIPS = 16
"""Of an image, which boxes may be ordered by."""


def put(p: Ptr, value: IntLike, at: IntLike = 0) -> None:
    """Store an integer that fits 32 bits."""
    k = p.k
    whole = k.int(value) if isinstance(value, int) else value
    p.store(Vec(k.b, k.b.trunc(whole.value, llvm.I32)), at)


def truth(k: KernelBuilder, scalar: Vec, sign: str, other: Vec | float) -> Bool:
    """A comparison of scalars as a condition; false for NaN but for `!=`."""
    return Bool(k.b, scalar.compare(sign, other).value)


@dataclass(frozen=True)
class BoxesCode:
    """What the code depends on.

    Attributes:
        element: Type of the boxes' numbers.
        geometry: Type that positions are computed in.
        index: Type of the images' numbers where they are an operand of their own, else "".
    """

    element: str = "float32"
    geometry: str = "float32"
    index: str = ""


@dataclass(frozen=True, slots=True)
class BoxesPlan:
    """A call's boxes: code, pointer and integer parameters of `Boxes`, and how many there are."""

    code: BoxesCode
    operands: dict[str, Operand]
    integers: dict[str, int]
    count: int
    images: int

    def order(self, index: int) -> Temp:
        """The temporary of `Order`."""
        return Temp(index, 4 * (Order.extra(self.images) + 2 * self.count))


def gradient_cost(call: CpuCall, share: float) -> float:
    """Microseconds: four multiply-adds a sample, and what is read and written.

    Args:
        call: A gradient's.
        share: Of the machine's peak that the kernel's arithmetic comes to.
    """
    op, grad = call.op, call.inputs[0]
    samples = max(1, op.ratio if op.ratio > 0 else 2) ** 2
    nbytes = call.outputs[0].nbytes + grad.nbytes
    return machine(call.target).roofline(8.0 * samples * grad.size, nbytes, call.threads, share)


def refuse_boxes(call: CpuCall, at: int = 1) -> str | None:
    """Why boxes cannot be read, which are operand `at` and perhaps the one after it."""
    boxes = call.inputs[at]
    if boxes.dtype not in FLOATS:
        return f"boxes of type {boxes.dtype.value}"
    if len(call.inputs) > at + 1 and call.inputs[at + 1].dtype not in (DType.I64, DType.I32):
        return f"images of type {call.inputs[at + 1].dtype.value}"
    return None


def plan_boxes(call: CpuCall, data: View, images: int, at: int = 1) -> BoxesPlan:
    """Read operand `at`, and the one after it where it is there.

    Args:
        call: The call.
        data: What is sampled: positions are float64 if it or the boxes are, else float32.
        images: How many there are.
        at: Number of the operand.
    """
    boxes = call.inputs[at]
    named = len(call.inputs) > at + 1
    index = call.inputs[at + 1] if named else None
    geometry = wide(boxes.dtype.value, data.dtype.value)
    code = BoxesCode(boxes.dtype.value, geometry, index.dtype.value if index else "")
    operands: dict[str, Operand] = {"boxes": In(at), "images": In(at + 1 if named else at)}
    integers = {
        "box_count": boxes.shape[0],
        "image_count": images,
        "box_step": boxes.strides[0],
        "box_column": boxes.strides[1],
        "image_step": index.strides[0] if index else boxes.strides[0],
    }
    # The order has space for one image at least: boxes without one go there.
    return BoxesPlan(code, operands, integers, boxes.shape[0], max(1, images))


class Boxes:
    """The emitted reading. Declares two pointers, then `declare_integers` five integers."""

    def __init__(self, k: KernelBuilder, code: BoxesCode) -> None:
        self.k, self.code = k, code
        self.boxes = k.pointer("boxes", code.element)
        self.index = k.pointer("images", code.index or code.element)

    def declare_integers(self) -> None:
        """After all pointers."""
        self.count, self.images, self.step, self.column, self.index_step = self.k.integers(
            "box_count image_count box_step box_column image_step"
        )

    def corner(self, box: Int, which: int) -> Vec:
        """x1, y1, x2 or y2 of a box, a scalar of the geometry's type."""
        at = box * self.step + self.column * (which if self.code.index else which + 1)
        return load_one(self.k, self.boxes, at, self.code.geometry)

    def image(self, box: Int) -> tuple[Int, Bool]:
        """The number of a box's image, 0 where it is not one of them, and whether it is."""
        k = self.k
        if self.code.index:
            found = self.index.load_int(box * self.index_step)
            valid = (found >= 0) & (found < self.images)
            return valid.select(found, 0), valid
        number = load_one(k, self.index, box * self.index_step, "float64")
        # Compared before it is converted: NaN and what does not fit have no integer.
        valid = truth(k, number, ">=", 0.0) & truth(
            k, number, "<", k.to_real(self.images, "float64")
        )
        safe = Vec(k.b, k.b.select(valid.value, number.value, number.like(0.0).value))
        return k.to_int(safe), valid

    def strip(self, height: Int, scale: Vec, box: Int) -> Int:
        """Which strip of an image the middle of a box lies in, or the nearest.

        Args:
            height: Rows of an image.
            scale: Pixels to a unit of the boxes, of the geometry's type.
            box: Its number.
        """
        k = self.k
        middle = (self.corner(box, 1) + self.corner(box, 3)) * 0.5 * scale
        strip = middle * float(_STRIPS) / k.to_real(height, self.code.geometry)
        strip = k.minimum(k.maximum(strip, 0.0), float(_STRIPS - 1))
        # NaN is left, which is no integer.
        finite = Mask(k.b, truth(k, strip, ">=", 0.0).value)
        return k.to_int(finite.select(strip, strip.like(0.0)))


class Order:
    """Boxes by image and strip, in their own order within a strip; a shared temporary of int32.

    It holds where each strip's boxes start (one more than there are strips), each box's image,
    and the numbers of the boxes in order.
    """

    def __init__(self, k: KernelBuilder) -> None:
        self.k, self.memory = k, k.pointer("order", "int32")

    @staticmethod
    def extra(images: int) -> int:
        """Elements before the two for each box."""
        return max(1, images) * _STRIPS + 2

    def sized(self, boxes: Int, images: Int) -> Order:
        """After the integers are known, on which the places of the parts depend."""
        self.strips = self.k.maximum_int(images, 1) * _STRIPS
        self._image = self.memory + (self.strips + 2)
        self._box = self._image + boxes
        return self

    def start(self, image: Int) -> Int:
        """Where the boxes of an image start; for the number of images, where all end."""
        return self.memory.load_int(image * _STRIPS)

    def part(self, first: Int, last: Int, number: Int, parts: Int) -> tuple[Int, Int]:
        """The places of one of several equal parts of the boxes of images `first … last-1`."""
        start = self.start(first)
        total = self.start(last) - start
        return start + total * number // parts, start + total * (number + 1) // parts

    @contextmanager
    def walk(self, first: Int, last: Int, parts: Int) -> Iterator[tuple[Int, Int]]:
        """Chunks: equal parts of the boxes of images `first … last-1`, in order.

        Yields:
            The number of a box, and its image, counted from the first.
        """
        k = self.k
        with k.chunks(parts) as part, k.range(*self.part(first, last, part, parts)) as at:
            box = self.box(at)
            yield box, self.image(box) - first

    def image(self, box: Int) -> Int:
        """The image of a box."""
        return self._image.load_int(box)

    def box(self, at: Int) -> Int:
        """The number of a box, by its place in the order."""
        return self._box.load_int(at)

    def build(self, boxes: Boxes, bad: Ptr, strip: Callable[[Int], Int] | None = None) -> None:
        """Sort by counting. One thread does all of it.

        Args:
            boxes: What is sorted.
            bad: int32; gets how many boxes name an image that is not there.
            strip: The strip of a box, below `_STRIPS`: neighbours in the order then read the same
                rows, which caches still have.
        """
        k, starts = self.k, self.memory

        def bucket(box: Int, image: Int) -> Int:
            return image * _STRIPS + (strip(box) if strip else 0)

        with k.range(0, self.strips + 2) as n:
            put(starts, 0, n)
        missing = k.var(0)
        with k.range(0, boxes.count) as box:
            n, valid = boxes.image(box)
            missing.set(missing.get() + valid.select(0, 1))
            put(self._image, n, box)
            after = bucket(box, n) + 2
            # Counted two places on, so that the sums up to place n + 1 are where strip n begins.
            put(starts, starts.load_int(after) + 1, after)
        put(bad, missing.get())
        with k.range(2, self.strips + 2) as n:
            put(starts, starts.load_int(n) + starts.load_int(n - 1), n)
        # Place n + 1 is where strip n goes on, and in the end where the next one starts.
        with k.range(0, boxes.count) as box:
            n = bucket(box, self._image.load_int(box))
            place = starts.load_int(n + 1)
            put(self._box, box, place)
            put(starts, place + 1, n + 1)
