"""The parameters of the direct convolution's code, for windows of any operator that slides them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from saccade.ir import DType, Expr
from saccade.ir.expr import IDENTITY
from saccade.kernels.base import Call, In, Launch, Operand, Packed, Packing, Scratch, Variant, View
from saccade.kernels.conv2d.config import (
    Blocking,
    DirectConfig,
    Tile,
    Way,
    blockings,
    ranked_tiles,
    ways,
)
from saccade.kernels.conv2d.direct_code import GEOMETRY
from saccade.kernels.conv2d.epilogue_spec import EpilogueSpec, even_step, expand
from saccade.kernels.conv2d.microkernel import Reduction, steps_of
from saccade.kernels.machine import machine

__all__ = ["Window"]


@dataclass(frozen=True, slots=True)
class Window:
    """Windows that slide over input 0 of a call, each summed with packed weights.

    Attributes:
        depth: Input channels of a group.
        pairs: Whether they are summed in pairs of bfloat16.
        groups: Groups of channels.
        taps: Rows and columns of a window.
        stride: Distance of windows.
        before: Rows above and columns left of the picture where the first window starts; may be
            negative.
        dilation: Distance of taps.
        size: How many windows, [rows, columns].
        padded: Whether any window leaves the picture.
        pack: Packing function of the weights and its first parameters; order and width follow.
        step: Distance of the result's pixels.
        first: The result's pixel of the first window.
        prologue: Applied to every loaded element.
        n_prologue: How many operands it has, from input 2 on.
    """

    depth: int
    pairs: bool
    groups: int
    taps: tuple[int, int]
    stride: tuple[int, int]
    before: tuple[int, int]
    dilation: tuple[int, int]
    size: tuple[int, int]
    padded: bool
    pack: tuple[str, tuple[int | tuple[int, int], ...]]
    step: tuple[int, int] = (1, 1)
    first: tuple[int, int] = (0, 0)
    prologue: Expr = IDENTITY
    n_prologue: int = 0

    @property
    def length(self) -> int:
        """Steps of one sum: a product of float32 or two of bfloat16, 32 bits of weights a lane."""
        return steps_of(self.depth, self.pairs) * self.taps[0] * self.taps[1]

    def tiles(self, call: Call, spec: EpilogueSpec) -> tuple[Tile, ...]:
        """Tiles, the best one first."""
        x = call.inputs[0]
        scratch = self.prologue != IDENTITY
        return ranked_tiles(
            self._pixels(spec), spec.vectors, depth=self.length,
            pitch=self._itemsize(call) * (self.depth if scratch else x.strides[3] * self.stride[1]),
            unit=scratch or x.channels_last, target=call.target, threads=call.threads,
        )  # fmt: skip

    def _itemsize(self, call: Call) -> int:
        """Bytes of an element as the products read it, from the input or after the prologue."""
        read = call.inputs[0].dtype if self.prologue == IDENTITY else DType.F32
        return 2 if self.pairs else read.itemsize

    def _pixels(self, spec: EpilogueSpec) -> int:
        return spec.shape[0] * self.size[0] * self.size[1]

    def _flat(self, call: Call, spec: EpilogueSpec) -> bool:
        """Whether window number i reads pixel i and writes pixel i, evenly apart."""
        x = call.inputs[0]
        same = (self.taps, self.stride, self.before, self.step) == (*[(1, 1)] * 2, (0, 0), (1, 1))
        even = x.shape[2:] == self.size and even_step(x) is not None and spec.flat
        return same and even and not any(self._images(call))

    def _images(self, call: Call) -> list[int]:
        """Elements from image to image of each operand of the prologue."""
        shape = (call.inputs[0].shape[0], self.depth, 1, 1)
        return [expand(v, shape).strides[0] for v in self._prologue_views(call)]

    def _prologue_views(self, call: Call) -> tuple[View, ...]:
        return call.inputs[2 : 2 + self.n_prologue]

    def ways(self, call: Call, spec: EpilogueSpec) -> Iterator[Way]:
        """Tiles and their cuts into chunks, the best first."""
        return ways(self.tiles(call, spec), lambda tile: self._cuts(call, spec, tile))

    def _cuts(self, call: Call, spec: EpilogueSpec, tile: Tile) -> tuple[Blocking, ...]:
        blocks = -(-spec.vectors // tile.vectors)
        return blockings(
            -(-self._pixels(spec) // tile.rows), blocks,
            panel=4 * self.length * tile.vectors * call.target.lanes,
            row=self._itemsize(call) * self.depth * tile.rows * self.taps[0],
            cycles=100 + self.length * tile.vectors * tile.rows, target=call.target,
            threads=1 if self.groups >= 4 * call.threads else call.threads,
        )  # fmt: skip

    def variants(self, call: Call, spec: EpilogueSpec, traffic: float) -> Iterator[Variant]:
        """The ways as variants of a call that is this window alone; `traffic` adds microseconds."""
        micros = self.cost(call, spec)
        for way in self.ways(call, spec):
            yield Variant(traffic + micros * way[0], partial(self._alone, call, spec, way))

    def _alone(self, call: Call, spec: EpilogueSpec, way: Way) -> tuple[Launch, ...]:
        return (self.launch(call, spec, way),)

    def cost(self, call: Call, spec: EpilogueSpec) -> float:
        """Estimated microseconds of the best way, without the traffic of operands and results."""
        vectors, rows, _ = self.tiles(call, spec)[0]
        tiles, blocks = -(-self._pixels(spec) // rows), -(-spec.vectors // vectors)
        channels = blocks * vectors * call.target.lanes * self.groups
        flops = 2.0 * tiles * rows * channels * self.length * self._reached(call)
        threads = max(1, min(call.threads, tiles * blocks * self.groups))
        return machine(call.target).roofline(flops, 0.0, threads, 0.92)

    def _reached(self, call: Call) -> float:
        """Share of the rows of taps that lie in the picture; tiles skip the others."""
        height, count, taps = call.inputs[0].shape[2], self.size[0], self.taps[0]
        rows = 0
        for r in range(taps):
            start = self.before[0] - r * self.dilation[0]
            first = max(0, -(-start // self.stride[0]))
            last = min(count - 1, (height - 1 + start) // self.stride[0])
            rows += max(0, last - first + 1)
        return rows / max(1, taps * count)

    def _config(self, call: Call, spec: EpilogueSpec, tile: Tile) -> DirectConfig:
        vectors, rows, _ = tile
        reduction = Reduction.of(self.depth, self.pairs)
        return DirectConfig(
            rows, vectors, reduction.unroll, reduction.shape, self.pairs, reduction.odd,
            call.inputs[0].dtype.value, self.padded, call.inputs[0].channels_last,
            self.step != (1, 1), self._flat(call, spec), str(self.prologue),
            tuple(v.dtype.value for v in self._prologue_views(call)),
            spec.code(vectors),
        )  # fmt: skip

    def launch(self, call: Call, spec: EpilogueSpec, way: Way) -> Launch:
        """The phase that computes all windows, one of `ways`."""
        x, pixels = call.inputs[0], self._pixels(spec)
        _, tile, cut = way
        vectors, rows, _ = tile
        width = vectors * call.target.lanes
        blocks = -(-spec.vectors // vectors)
        panel = 4 * self.length * width
        flat = self._flat(call, spec)
        x_w = (even_step(x) or 0) if flat else x.strides[3]
        integers = (
            *x.strides[:3], x_w, *x.shape[2:], *self.size, self.depth, *self.taps, *self.stride,
            *self.before, *self.dilation, pixels, blocks, cut.tiles, cut.blocks, cut.tile_chunks,
            cut.block_chunks, int(cut.pixels_first), self.groups, *self.step, *self.first,
        )  # fmt: skip
        assert len(integers) == len(GEOMETRY)
        name, parameters = self.pack
        packing = Packing(
            name, (*parameters, spec.order, width, self.pairs), (1,), panel * blocks * self.groups
        )
        operands = self._operands(
            call, packing, self._itemsize(call) * cut.tiles * rows * self.depth
        )
        return Launch(
            self._config(call, spec, tile),
            (*operands, *spec.pointers()),
            (*integers, *self._images(call), *spec.integers(flat)),
            self.groups * cut.tile_chunks * cut.block_chunks,
        )

    def _operands(self, call: Call, weights: Packing, scratch: int) -> list[Operand]:
        operands: list[Operand] = [In(0), Packed(weights)]
        if self.padded:
            # Elements that step on their own stay on one zero.
            count = self.depth if call.inputs[0].channels_last else 1
            operands.append(Packed(Packing("zeros", (count,), (), 4 * count)))
        operands += [In(2 + i) for i in range(self.n_prologue)]
        if self.prologue != IDENTITY:
            operands.append(Scratch(scratch + 64))
        return operands
