"""What happens to a convolution's sums, emitted: load the operands, apply the expression, store.

A kernel declares its own pointers, then makes an `Epilogue` (which declares the pointers of
`EpilogueSpec.pointers`), then declares its own integers and calls `declare_integers` at the
matching place. For every vector of channels it asks for a `place` (channel operands are loaded
there), for every pixel for a `pixel`, and finishes each pair:

    place = ep.place(vector, group)  # or ep.place_at(channel, group, lanes)
    pixel = ep.pixel(n, h, w)
    ep.finish(sum, pixel, place)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from saccade.backends.cpu.codegen.expressions import emit_expr
from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr
from saccade.backends.cpu.codegen.values import Int, IntLike, Mask, Vec
from saccade.ir.expr import parse

__all__ = ["Epilogue", "Pixel", "VectorPlace"]


@dataclass(frozen=True, slots=True)
class VectorPlace:
    """Where one vector of channels goes.

    Attributes:
        channel: First channel, in the order of the channel operands.
        out: Offset of the first channel in the result, relative to a pixel.
        first: First element of the vector in its group's order of channels.
        lanes: Width of the vector.
        count: How many lanes are channels (may be more than there are lanes, or less than 1).
        mask: These lanes; None when all of them always are.
        loaded: Operands that are the same for every pixel.
    """

    channel: Int
    out: Int
    first: Int
    lanes: int
    count: Int
    mask: Mask | None
    loaded: tuple[Vec | None, ...]


@dataclass(frozen=True, slots=True)
class Pixel:
    """Offsets of one output pixel in the result and in each operand (an interleaved part last)."""

    out: Int
    operands: tuple[Int | None, ...]


class Epilogue:
    """Emits the epilogue that `code` (of `EpilogueSpec.code`) describes.

    Args:
        k: Builder.
        code: What to emit.
        out: Where the results go; declared as the last pointer unless given.
        prefix: Of the names of its parameters, where a kernel has several epilogues.
    """

    def __init__(
        self,
        k: KernelBuilder,
        code: tuple[str, ...],
        out: Ptr | None = None,
        prefix: str = "",
    ) -> None:
        self.k, self.lanes, self.prefix = k, k.lanes, prefix
        self.expr = parse(code[0])
        self.kind, self.tail, *self.extra = code[1].split(":")
        result, *part = code[2].split(":")
        words = [word.split(":") for word in code[3:]]
        self.operands = [(kind, along) for kind, along, _ in words]
        self.pointers = [k.pointer(f"{prefix}operand{i}", word[2]) for i, word in enumerate(words)]
        if self.kind == "interleave":
            self.operands.append(("part", "unit"))
            self.pointers.append(k.pointer(prefix + "part", part[0]))
        self.stage = k.scratch(prefix + "stage") if self.kind in ("strided", "rows") else None
        self.out = out or k.pointer("y", result)
        self.strides: list[tuple[Int, ...]] = []

    def declare_integers(self) -> None:
        """Declare the integer parameters of `EpilogueSpec.integers`."""
        declare, before = self.k.integer, self.prefix + "y_"
        self.out_n, self.out_c, self.out_h, self.out_w = (declare(before + axis) for axis in "nchw")
        self.sub_h, self.sub_w = declare(before + "sub_h"), declare(before + "sub_w")
        self.count, self.per_block = declare(before + "count"), declare(before + "per_block")
        self.channels = declare(before + "channels")
        steps = self.k.array(self.prefix + "operand_strides", 4 * len(self.operands))
        self.strides = [steps[i : i + 4] for i in range(0, len(steps), 4)]

    # Where

    def place(self, vector: Int, group: IntLike = 0) -> VectorPlace:
        """Where vector `vector` of a group goes; loads what depends on channels alone."""
        first = vector * self.lanes
        if self.kind == "subpixel":
            block = int(self.extra[0])
            pixel = vector // self.per_block
            within = (vector - pixel * self.per_block) * self.lanes
            row = pixel // block
            out = row * self.sub_h + (pixel - row * block) * self.sub_w + within
            count = (pixel < block * block).select(self.count - within, 0)
            return self._loaded(VectorPlace(first, out, first, self.lanes, count, None, ()))
        return self.place_at(first, group)

    def places(self, block: Int, lanes: Sequence[int], group: IntLike = 0) -> list[VectorPlace]:
        """Where the vectors of a tile go, in block number `block` of vectors of so many lanes."""
        if set(lanes) == {self.lanes}:
            return [self.place(block * len(lanes) + j, group) for j in range(len(lanes))]
        first = block * sum(lanes)
        return [
            self.place_at(first + sum(lanes[:j]), group, count) for j, count in enumerate(lanes)
        ]

    def place_at(self, first: Int, group: IntLike = 0, lanes: int | None = None) -> VectorPlace:
        """Where `lanes` channels of a group from `first` on go, unless to sub-pixels."""
        channel = first + self.count * group if not isinstance(group, int) else first
        factor = {"interleave": self.k.int(2), "plain": self.k.int(1)}.get(self.kind, self.out_c)
        count = self.count - first
        at = VectorPlace(channel, channel * factor, first, lanes or self.lanes, count, None, ())
        return self._loaded(at)

    def _loaded(self, place: VectorPlace) -> VectorPlace:
        if self.tail == "tail" and place.lanes > 1:
            place = replace(place, mask=self.k.first(place.count, place.lanes))
        return replace(place, loaded=self._load_constant(place))

    def _load_constant(self, place: VectorPlace) -> tuple[Vec | None, ...]:
        loaded: list[Vec | None] = []
        for (kind, along), pointer, strides in self._each():
            if kind == "scalar":
                loaded.append(pointer.splat(0, place.lanes))
            elif kind == "channel":
                loaded.append(self._channels(pointer, along, strides[1], place))
            else:
                loaded.append(None)
        return tuple(loaded)

    def _each(self) -> list[tuple[tuple[str, ...], Ptr, tuple[Int, ...]]]:
        return list(zip(self.operands, self.pointers, self.strides, strict=True))

    def pixel(self, n: IntLike, h: IntLike, w: IntLike) -> Pixel:
        """Offsets of output pixel (n, h, w), coordinates before the store map."""
        offsets: list[Int | None] = []
        for (kind, _), _, (sn, _, sh, sw) in self._each():
            if kind in ("full", "part"):
                offsets.append(sn * n + sh * h + sw * w)
            else:
                offsets.append(sn * n if kind == "image_channel" else None)
        return Pixel(self.out_n * n + self.out_h * h + self.out_w * w, tuple(offsets))

    def along(self, pixel: Pixel, count: IntLike) -> Pixel:
        """The pixel so many columns further."""
        moved = [
            None if offset is None or kind not in ("full", "part") else offset + steps[3] * count
            for offset, ((kind, _), _, steps) in zip(pixel.operands, self._each(), strict=True)
        ]
        kept = [
            after if after is not None else before
            for before, after in zip(pixel.operands, moved, strict=True)
        ]
        return Pixel(pixel.out + self.out_w * count, tuple(kept))

    # What

    def fetch(self, pixel: Pixel, place: VectorPlace) -> None:
        """Ask for the elements that `finish` will write, and for those that it reads with them."""
        if self.kind in ("plain", "subpixel"):
            self.k.prefetch(self.out, pixel.out + place.out, write=True)
        for index, ((kind, along), pointer, _) in enumerate(self._each()):
            offset = pixel.operands[index]
            if (kind, along) == ("full", "unit") and offset is not None:
                self.k.prefetch(pointer + offset, place.channel)

    def finish(self, value: Vec, pixel: Pixel, place: VectorPlace) -> Vec:
        """Apply the expression to the sums of a pixel and a vector of channels, and store them.

        Returns:
            What was stored, as it was before it was rounded to bfloat16.
        """
        loaded: list[Vec] = [value]
        for index, ((kind, along), pointer, strides) in enumerate(self._each()):
            ready, offset = place.loaded[index], pixel.operands[index]
            if ready is not None:
                loaded.append(ready)
            elif kind != "part":
                assert offset is not None
                loaded.append(self._channels(pointer + offset, along, strides[1], place))
        result = emit_expr(self.k, self.expr, loaded, stored=self.out.element)
        self._store(result, pixel, place)
        return result

    def _channels(self, pointer: Ptr, along: str, stride: Int, place: VectorPlace) -> Vec:
        """The operand's elements for one vector of channels."""
        if along == "repeat":
            return pointer.splat(0, place.lanes)
        if along == "unit":
            return pointer.vec(place.channel, self._readable(place), place.lanes)
        return self._gather(pointer, stride, place)

    def _readable(self, place: VectorPlace) -> Mask | None:
        """Which elements of a vector there are in an operand along the channels."""
        if self.kind not in ("subpixel", "rows"):
            return place.mask
        if self.kind == "rows":
            return self.k.first(self.channels - place.first, place.lanes)
        if self.tail != "tail":
            return None
        # The packed operand is padded at each sub-pixel, not to a whole number of a tile's vectors.
        padded = self.per_block * (int(self.extra[0]) ** 2 * self.lanes)
        return self.k.first(padded - place.channel, place.lanes)

    def _gather(self, pointer: Ptr, stride: Int, place: VectorPlace) -> Vec:
        k, last = self.k, self.channels - 1
        value = k.zero(place.lanes)
        for lane in range(place.lanes):
            # Lanes past the end read the last channel; nobody stores them.
            at = k.minimum_int(place.channel + lane, last) * stride
            value = k.insert(value, pointer.load(at), lane) if place.lanes > 1 else pointer.load(at)
        return value

    def _store(self, value: Vec, pixel: Pixel, place: VectorPlace) -> None:
        if self.kind in ("plain", "subpixel"):
            self.out.store(value, pixel.out + place.out, place.mask)
        elif self.kind == "interleave":
            self._interleave(value, pixel, place)
        else:
            self._store_runs(value, pixel, place)

    def _interleave(self, value: Vec, pixel: Pixel, place: VectorPlace) -> None:
        k, n = self.k, self.lanes
        offset = pixel.operands[-1]
        assert offset is not None
        other = self.pointers[-1].vec(offset + place.channel, place.mask, n)
        first, second = (value, other) if self.extra[0] == "0" else (other, value)
        at = pixel.out + place.out
        for half in range(2):
            order = [side * n + half * n // 2 + i for i in range(n // 2) for side in range(2)]
            mask = k.first(place.count * 2 - half * n, n) if place.mask is not None else None
            self.out.store(k.shuffle(first, second, order), at + half * n, mask)

    def _store_runs(self, value: Vec, pixel: Pixel, place: VectorPlace) -> None:
        """Store through scratch, run by run: a run is what lies together in the result."""
        k = self.k
        assert self.stage is not None
        self.stage.store(value)
        block = int(self.extra[0]) if self.kind == "rows" else 1
        run = block if self.kind == "rows" and self.extra[1] == "runs" else 1
        valid = k.maximum_int(k.minimum_int(place.count, self.lanes), 0)
        with k.range(0, valid, run) as lane:
            at = place.out + lane * self.out_c
            if self.kind == "rows":
                element = place.first + lane
                row = element // block
                channel = row // block
                at = channel * self.out_c + (row - channel * block) * self.sub_h
                at = at + (element - row * block) * self.sub_w
            self.out.store(self.stage.vec(lane, lanes=run), pixel.out + at)
