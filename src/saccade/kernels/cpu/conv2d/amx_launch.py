"""The parameters of the code of convolutions in tiles of matrices: where windows are read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from saccade.ir import DType
from saccade.ir.expr import IDENTITY
from saccade.kernels.base import In, Launch, Operand, Packed, Packing, Scratch, image_strides
from saccade.kernels.cpu.base import CpuCall
from saccade.kernels.cpu.conv2d.amx_config import AmxConfig
from saccade.kernels.cpu.conv2d.epilogue_spec import EpilogueSpec, conv_epilogue, even_step
from saccade.kernels.cpu.conv2d.tile_products import BLOCKS, DEPTH, PAIRS, TileBlock, deepened
from saccade.kernels.cpu.conv2d.tile_prologue import prologue_images
from saccade.kernels.cpu.conv2d.tile_schedules import BlockSchedule, BlockWork

__all__ = ["AmxWindows", "from_planes"]

# Cycles of two cores of an Emerald Rapids: of 64 bytes that are copied, of a tap of a window, of a
# vector that a prologue is applied to, of a row of taps of a channel from planes.
_COPY, _TAP, _PROLOGUE, _PLANES = 2.5, 12, 4, 3

_DENSE = 0.7  # share of products on the image from which on nothing is left out (by eye)
_TILED = 1.2  # that of whole tiles over that of pixels (by eye)
_FEW = 16  # channels that are gathered from planes, and rows of taps, which are written out


def from_planes(call: CpuCall) -> bool:
    """Whether the image lies plane by plane, with few channels."""
    op, (x, w) = call.op, call.inputs[:2]
    few = w.shape[1] <= _FEW and w.shape[3] <= DEPTH and w.shape[2] <= _FEW
    near = x.strides[3] == 1 and not (x.channels_last and x.shape[1] > 1)
    return few and near and op.groups == 1 and op.dilation[1] == 1 and op.prologue == IDENTITY


@dataclass(frozen=True, slots=True)
class AmxWindows:
    """The windows of a call, read in one of the ways of `AmxConfig.source`.

    Attributes:
        call: The call.
        spec: Its epilogue.
        source: Where they are read.
    """

    call: CpuCall
    spec: EpilogueSpec
    source: str

    @classmethod
    def ways(cls, call: CpuCall) -> tuple[AmxWindows, ...]:
        """All that there are for a call."""
        op, x, spec = call.op, call.inputs[0], conv_epilogue(call)
        depth, *taps = call.inputs[1].shape[1:]
        if from_planes(call):
            return (cls(call, spec, "planes"),)
        whole, plain = depth % DEPTH == 0, op.prologue == IDENTITY
        moved = (taps, list(op.stride)) != ([1, 1], [1, 1]) or any(op.padding)
        if whole and plain and not moved and even_step(x) is not None:
            return (cls(call, spec, "there"),)
        gathered = cls(call, spec, "gathered")
        if not whole or not plain:
            return (gathered,)
        far = (cls(call, spec, "sparse"),) if gathered.share() < _DENSE else ()
        return (cls(call, spec, "shifted"), *far, gathered)

    def share(self) -> float:
        """How much of all products is of taps that lie on the image."""
        op, x = self.call.op, self.call.inputs[0]
        found = 1.0
        for axis in range(2):
            count, size, step = self.spec.shape[2 + axis], x.shape[2 + axis], op.stride[axis]
            inside = 0
            for tap in range(self.taps[axis]):
                start = tap * op.dilation[axis] - op.padding[axis]
                low, high = -(-max(0, -start) // step), -(-max(0, size - start) // step)
                inside += max(0, min(count, high) - low)
            found *= inside / max(1, count * self.taps[axis])
        return found

    @property
    def depth(self) -> int:
        """Channels of a group."""
        return self.call.inputs[1].shape[1]

    @property
    def taps(self) -> tuple[int, int]:
        """Rows and columns of a window."""
        rows, columns = self.call.inputs[1].shape[2:]
        return rows, columns

    @property
    def pairs(self) -> int:
        """Of the sum of a window."""
        rows, columns = self.taps
        if self.source == "planes":
            return self.depth * rows * -(-columns // 2)
        return -(-self.depth // 2) * rows * columns

    @property
    def to_line(self) -> int:
        """Vectors of results that fill a line of cache."""
        return 2 if self.spec.out.dtype is DType.BF16 else 1

    @property
    def pitch(self) -> int:
        """Elements from window to window of a copy: whole tiles, an odd number of lines of cache.

        Rows of a tile that are a multiple of 4096 bytes apart would compete for one set.
        """
        return (deepened(2 * self.pairs) // DEPTH | 1) * DEPTH

    @property
    def line(self) -> int:
        """Pixels of a row of the image in a copy, zeros beside it included."""
        op, (_, _, _, columns) = self.call.op, self.spec.shape
        reach = (columns - 1) * op.stride[1] + (self.taps[1] - 1) * op.dilation[1] + 1
        line: int = max(op.padding[1] + self.call.inputs[0].shape[3], reach)
        # From planes as many taps are read as fill a vector.
        return line + self.taps[1] if self.source == "planes" else line

    def across(self, block: TileBlock) -> int:
        """Rows of sums for a row of the result."""
        if self.source != "shifted":
            return self.spec.shape[3]
        if self.call.op.stride == (1, 1):
            return self.line
        return max(1, -(-self.spec.shape[3] // block.height)) * block.height

    def work(self, block: TileBlock) -> BlockWork:
        """What there is to do in blocks of so many tiles."""
        op, (n, _, rows, columns) = self.call.op, self.spec.shape
        if self.source == "shifted":
            across = self.across(block)
            # Of the image's rows that belong to one of the result, and of those that chunks share.
            copied = _COPY * self.depth / DEPTH * self.line * op.stride[0] / across
            halo = ((self.taps[0] - 1) * op.dilation[0] + 1) * across // op.stride[0]
            return BlockWork(
                rows * across, self.spec.channels, self.pairs, n * op.groups, copied, halo,
                self.to_line, max(1.0, self.taps[1] / op.stride[1]) if op.dilation[1] == 1 else 1.0,
            )  # fmt: skip
        if self.source == "planes":
            cycles = float(_PLANES * self.depth * self.taps[0] + _TAP)
            halo = (self.taps[0] - 1) * op.dilation[0] * columns // op.stride[0]
            return BlockWork(
                rows * columns, self.spec.channels, self.pairs, n, cycles, halo, self.to_line
            )
        cycles, share = 0.0, 1.0
        if self.source == "sparse":
            share = min(1.0, _TILED * self.share())
        if self.source in ("gathered", "sparse"):
            cycles = share * _COPY * -(-self.pairs // PAIRS) + _TAP * prod(self.taps)
            if op.prologue != IDENTITY:
                cycles += _PROLOGUE * -(-self.depth // self.call.target.lanes)
        return BlockWork(
            n * rows * columns, self.spec.channels, self.pairs, op.groups, cycles, 0, self.to_line,
            share=share,
        )  # fmt: skip

    def schedules(self) -> Iterator[BlockSchedule]:
        """Blocks and their cuts."""
        for block in BLOCKS:
            yield from self.work(block).schedules(block, self.call.target, self.call.threads)

    def config(self, block: TileBlock) -> AmxConfig:
        """What the code depends on."""
        op = self.call.op
        operands = tuple(v.dtype.value for v in self.call.inputs[2 : 2 + op.n_prologue])
        return AmxConfig(
            block.rows, block.vectors, self.source, self.call.inputs[0].dtype.value,
            self.taps if self.source == "planes" else (0, 0), self.pairs % PAIRS != 0,
            self.depth % 2 == 1, self.depth % DEPTH != 0, self.spec.flat, str(op.prologue),
            operands, self.spec.code(block.vectors),
        )  # fmt: skip

    def launches(self, schedule: BlockSchedule) -> tuple[Launch, ...]:
        """The phase."""
        op, cut, block = self.call.op, schedule.cut, schedule.block
        config, work = self.config(block), self.work(block)
        _, across = work.tiles(block)
        panels = 4 * self.pairs * block.width * across * op.groups
        weights = Packing(
            "pack_conv_weights", (op.groups, self.spec.order, block.width, True), (1,), panels
        )
        if self.source == "planes":
            weights = Packing("pack_rows_of_taps", (self.spec.order, block.width), (1,), panels)
        operands: dict[str, Operand] = {"x": In(0), "w": Packed(weights)}
        operands |= {f"prologue{i}": In(2 + i) for i in range(op.n_prologue)}
        operands["windows"] = Scratch(2 * self._copied(schedule))
        if self.source == "planes":
            operands["image"] = Scratch(
                2 * (self._lines(schedule) * self.line * self.depth + DEPTH)
            )
        operands |= block.operands(self.pairs % PAIRS) | self.spec.pointers()
        integers = {
            **self._sizes(schedule),
            **cut.integers(work.groups, across),
            "prologue_n": prologue_images(self.call),
            **self.spec.integers(config.flat),
        }
        chunks = work.groups * cut.tile_chunks * cut.block_chunks
        return (Launch(config, operands, integers, chunks),)

    def _copied(self, schedule: BlockSchedule) -> int:
        """Elements of the copy of a chunk."""
        block = schedule.block
        if self.source == "shifted":
            return self._lines(schedule) * self.line * self.depth
        rows = (1 if self.source == "there" else schedule.cut.tiles) * block.height
        # What is written behind a window's end lies behind the last one, too.
        return rows * self.pitch + DEPTH

    def _lines(self, schedule: BlockSchedule) -> int:
        """The image's rows that a chunk reads; a tile past the last pixel is read, too."""
        op, block = self.call.op, schedule.block
        rows = -(-schedule.cut.tiles * block.height // self.across(block)) + 1
        lines: int = rows * op.stride[0] + (self.taps[0] - 1) * op.dilation[0] + 2
        return lines

    def _sizes(self, schedule: BlockSchedule) -> dict[str, int]:
        """The values of `AmxSizes`."""
        op, x, shape = self.call.op, self.call.inputs[0], self.spec.shape
        dense = x.strides[3] == self.depth
        return {
            **image_strides("x", x.strides, "nch"),
            "x_w": even_step(x) or 0 if self.source == "there" else x.strides[3],
            "height": x.shape[2],
            "width": x.shape[3],
            "out_height": shape[2],
            "out_width": shape[3],
            "depth": self.depth,
            "taps_r": self.taps[0],
            "taps_s": self.taps[1],
            "stride_h": op.stride[0],
            "stride_w": op.stride[1],
            "pad_top": op.padding[0],
            "pad_left": op.padding[1],
            "dilation_h": op.dilation[0],
            "dilation_w": op.dilation[1],
            "pixels": shape[0] * shape[2] * shape[3],
            "channel_groups": op.groups,
            "pairs": self.pairs,
            "pitch": self.pitch,
            "line": self.line,
            "across": self.across(schedule.block),
            "pieces": 1 if dense else x.shape[3],
            "piece": x.shape[3] * self.depth if dense else self.depth,
            "runs": 1 if op.dilation[1] == 1 else self.taps[1],
            "tiles_outer": int(schedule.tiles_outer),
        }
