"""The phase that adds up gradients of position-sensitive pooling for channels that are neighbours.

    dx[n, h, w, c · bins + bin] = Σ over the boxes of n, in order: rows · columns · dy[box, c, bin]

A chunk owns a row of an image, and so many of the bins' channels that its sums, kept in scratch,
stay in the L2 cache: it walks the image's boxes in order, adds what their bins give to
pixels of the row, and stores the row once. Sums lie bin by bin, [pixel][bin][channel], so that a
bin adds a vector of channels; they are transposed as they are stored.
"""

from __future__ import annotations

from collections.abc import Iterator

from saccade.backends.cpu.codegen.emitter import BYTES
from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr
from saccade.backends.cpu.codegen.values import Int, Vec
from saccade.kernels.base import In, Launch, Out, Scratch, Temp, image_strides
from saccade.kernels.cpu.base import CpuCall
from saccade.kernels.cpu.floats import lanes_of, load, wide
from saccade.kernels.cpu.roi.bilinear_axis import BilinearAxis
from saccade.kernels.cpu.roi.bilinear_tables import BilinearTables, TablesPlan
from saccade.kernels.cpu.roi.bin_ranges import Ranges, RangesPlan
from saccade.kernels.cpu.roi.channel_blocks import PixelBlock, scatter_block
from saccade.kernels.cpu.roi.ps_code import PsCode, PsConfig

__all__ = ["emit_spread", "spread_phases"]


def spread_phases(call: CpuCall, boxes: TablesPlan | RangesPlan, temp: int) -> Iterator[Launch]:
    """The phases of a result whose channels are neighbours: a copy of dy if need be, and sums.

    Args:
        call: The call.
        boxes: Where bins lie.
        temp: Number of a temporary for the copy.
    """
    grad, out = call.inputs[0], call.outputs[0]
    (count, channels, p, q), (n, _, h, w) = grad.shape, out.shape
    place = In(0) if grad.channels_last else Temp(temp, grad.nbytes)
    source = PixelBlock(grad, place, (0, count), (0, channels))
    if isinstance(place, Temp):
        yield PsConfig.copied(source.gathered(call.target, call.threads))
    element = out.dtype.value
    nbytes = BYTES[wide(element)]
    lanes = call.target.lanes * 4 // nbytes
    capacity = max(1, call.target.l2 // 2 // (w * p * q * nbytes))
    blocks = -(-channels // capacity)
    # Blocks of about equal width: none is a small rest.
    block = -(-channels // blocks)
    integers = {
        **boxes.integers,
        **{"n": n, "h": h, "w": w, "channels": channels, "blocks": blocks, "block": block},
        **image_strides("grad", source.strides, "khw"),
        **image_strides("out", out.strides),
    }
    # Vectors and squares reach past the last channel.
    kept = w * p * q * block + lanes * max(block, lanes)
    ends = {"grad": place, "out": Out(0)}
    operands = {**ends, **boxes.operands, "sums": Scratch(kept * nbytes)}
    code = PsCode(align=False, element=element)
    if isinstance(boxes, TablesPlan):
        code = PsCode(boxes.code, align=True, element=element)
    yield Launch(PsConfig("spread", planes=code), operands, integers, blocks * n * h)


def emit_spread(k: KernelBuilder, code: PsCode) -> None:
    """The code of one configuration."""
    _PsScatter(k, code).emit()


class _PsScatter:
    def __init__(self, k: KernelBuilder, code: PsCode) -> None:
        self.k, self.element = k, wide(code.element)
        self.lanes = lanes_of(k, self.element)
        self.grad, self.out = k.pointer("grad", code.element), k.pointer("out", code.element)
        self.boxes: BilinearTables | Ranges = (
            BilinearTables(k, code.tables) if code.align else Ranges(k)
        )
        self.sums = k.scratch("sums", self.element)
        self.boxes.declare_integers()
        self.bins = self.boxes.rows * self.boxes.columns
        self.images, self.height, self.width = k.integers("n h w")
        self.channels, self.blocks, self.block = k.integers("channels blocks block")
        self.grad_k, self.grad_h, self.grad_w = k.integers("grad_k grad_h grad_w")
        self.out_n, self.out_h, self.out_w = k.integers("out_n out_h out_w")

    def emit(self) -> None:
        """Chunks are numbered by block of channels, image, row."""
        k, order = self.k, self.boxes.order
        with k.chunks(self.blocks * self.images * self.height) as chunk:
            row, rest = chunk % self.height, chunk // self.height
            image, first = rest % self.images, rest // self.images * self.block
            self.count = k.minimum_int(self.channels - first, self.block)
            self.pitch = self.bins * self.count
            zero = k.zero(self.lanes, self.element)
            with k.range(0, self.width * self.pitch, self.lanes) as at:
                self.sums.store(zero, at)
            with k.range(order.start(image), order.start(image + 1)) as at:
                box = order.box(at)
                (top, bottom), _ = self.boxes.reach(box)
                with k.when((top <= row) & (bottom >= row)):
                    self._box(row, box, self.grad + (box * self.grad_k + first))
            # In the result all bins of a channel lie side by side, and so does a block of channels.
            to = self.out + (image * self.out_n + row * self.out_h + first * self.bins)
            with k.range(0, self.width) as column:
                scatter_block(
                    k, self.sums + column * self.pitch, self.count, (self.bins, self.count),
                    to + column * self.out_w, self.bins, self.element,
                )  # fmt: skip

    def _box(self, row: Int, box: Int, grad: Ptr) -> None:
        """What the bins of a box give to a row."""
        k, boxes = self.k, self.boxes
        with k.range(0, boxes.rows) as p:
            source = grad + p * self.grad_h
            if isinstance(boxes, BilinearTables):
                self._samples(row, source, p, boxes.of(box))
            else:
                self._pixels(row, source, p, boxes, boxes.of(box))

    def _samples(
        self, row: Int, source: Ptr, p: Int, axes: tuple[BilinearAxis, BilinearAxis]
    ) -> None:
        k, lanes, (down, along) = self.k, self.lanes, axes
        with (
            k.range(down.first(p), down.first(p + 1)) as i,
            k.when(down.pixel(i).equals(row)),
            k.range(0, self.boxes.columns) as q,
        ):
            factor = k.broadcast(down.weight(i), lanes)
            columns = along.first(q), along.first(q + 1)
            for value, to in self._values(source, (p, q)):
                with k.range(*columns) as j:
                    share = value * k.broadcast(along.weight(j), lanes)
                    pixel = to + along.pixel(j) * self.pitch
                    pixel.store(k.fma(share, factor, pixel.vec(0, None, lanes)))

    def _pixels(self, row: Int, source: Ptr, p: Int, ranges: Ranges, at: tuple[Ptr, Ptr]) -> None:
        k, lanes, (down, along) = self.k, self.lanes, at
        top, bottom = ranges.pair(down, p)
        with k.when((top <= row) & (bottom > row)), k.range(0, ranges.columns) as q:
            left, right = ranges.pair(along, q)
            area = k.to_real((bottom - top) * (right - left), self.element)
            with k.when(left < right):
                for value, to in self._values(source, (p, q)):
                    share = value / k.broadcast(area, lanes)
                    with k.range(left, right) as j:
                        pixel = to + j * self.pitch
                        pixel.store(pixel.vec(0, None, lanes) + share)

    def _values(self, source: Ptr, number: tuple[Int, Int]) -> Iterator[tuple[Vec, Ptr]]:
        """Vectors of channels of a bin, 0 past the last, and where they go in the first pixel."""
        k, (p, q) = self.k, number
        to = self.sums + (p * self.boxes.columns + q) * self.count
        with k.range(0, self.count, self.lanes) as c:
            # Lanes past the last channel add 0 to the next bin's sums.
            mask = k.first(self.count - c, self.lanes)
            yield load(k, source, q * self.grad_w + c, self.lanes, self.element, mask), to + c
