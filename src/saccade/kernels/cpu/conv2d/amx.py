"""Convolution in tiles of matrices (Intel's AMX): sixteen times the products of vectors' pairs.

`y[n,k,p,q] = Σ_r,s,c x[n, c, p·stride + r·dilation - pad, …] · w[k,c,r,s]`

Layouts: x channels-last in bfloat16, w float32 or bfloat16, packed as pairs like those of
`conv2d.direct`; y as the epilogue stores it. Pixels are flattened over (n, p, q). Windows of a
chunk's pixels are copied side by side into scratch, zeros for taps outside the image, and read from
there by all channels; pixels of a 1x1 convolution are read where they lie. Sums are float32; their
order is that of `codegen.matrix_tiles`, 32 products at a time, and no size or team changes it.
Refuses: targets without tiles, weights that are not constant or not finite, float32 images, a
prologue unless 1x1 without padding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import prod

from saccade.ir import DType
from saccade.ir.expr import IDENTITY
from saccade.kernels.base import (
    In,
    Launch,
    Operand,
    Packed,
    Packing,
    Scratch,
    Variant,
    image_strides,
)
from saccade.kernels.cpu.base import CpuCall, CpuKernel
from saccade.kernels.cpu.conv2d.amx_code import emit_amx
from saccade.kernels.cpu.conv2d.amx_config import AmxConfig
from saccade.kernels.cpu.conv2d.direct_launch import beside
from saccade.kernels.cpu.conv2d.epilogue_spec import (
    FLOATS,
    EpilogueSpec,
    conv_epilogue,
    even_step,
)
from saccade.kernels.cpu.conv2d.tile_products import DEPTH, PAIRS, deepened
from saccade.kernels.cpu.conv2d.tile_schedules import BlockSchedule, TileWork
from saccade.kernels.cpu.machine import machine
from saccade.opdefs import Conv2d

__all__ = ["CONV2D_AMX"]


def _supports(call: CpuCall) -> str | None:
    op, (x, w) = call.op, call.inputs[:2]
    if not call.target.tiles:
        return "the machine has no tiles of matrices"
    if not call.constant[1]:
        return "the weights are not constant"
    if x.dtype is not DType.BF16 or w.dtype not in FLOATS:
        return f"elements are {x.dtype.value} and {w.dtype.value}"
    if not x.channels_last:
        return "neighbouring channels are apart"
    if not op.finite and any(op.padding):
        return "weights that are not finite would meet padding"
    if op.prologue != IDENTITY and not _prologue_fits(call):
        return "a prologue needs one tap, no padding, one group and neighbouring channels"
    return conv_epilogue(call).refuse()


def _prologue_fits(call: CpuCall) -> bool:
    op = call.op
    if call.inputs[1].shape[2:] != (1, 1) or any(op.padding) or op.groups != 1:
        return False
    return all(
        view.dtype in FLOATS and (view.strides[1] == 1 or view.shape[1] == 1)
        for view in call.inputs[2 : 2 + op.n_prologue]
    )


@dataclass(frozen=True, slots=True)
class _Windows:
    """The windows of a call.

    Attributes:
        call: The call.
        spec: Its epilogue.
    """

    call: CpuCall
    spec: EpilogueSpec

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
        return -(-self.depth // 2) * prod(self.taps)

    @property
    def pitch(self) -> int:
        """Elements from window to window of a copy: whole tiles, an odd number of lines of cache.

        Rows of a tile that are a multiple of 4096 bytes apart would compete for one set.
        """
        return (deepened(2 * self.pairs) // DEPTH | 1) * DEPTH

    @property
    def gathered(self) -> bool:
        """Whether windows are copied side by side, and not read where they lie."""
        op, x = self.call.op, self.call.inputs[0]
        moved = (self.taps, op.stride) != ((1, 1), (1, 1)) or any(op.padding)
        apart = even_step(x) is None or self.depth % DEPTH != 0
        return moved or apart or op.prologue != IDENTITY

    def work(self) -> TileWork:
        """What there is to do."""
        n, _, rows, columns = self.spec.shape
        taps = prod(self.taps) if self.gathered else 0
        lanes = self.call.target.lanes
        vectors = -(-self.depth // lanes) if self.call.op.prologue != IDENTITY else 0
        groups = self.call.op.groups
        return TileWork(n * rows * columns, self.spec.channels, self.pairs, groups, taps, vectors)

    def config(self, schedule: BlockSchedule) -> AmxConfig:
        """What the code depends on."""
        op, block = self.call.op, schedule.block
        operands = tuple(v.dtype.value for v in self.call.inputs[2 : 2 + op.n_prologue])
        return AmxConfig(
            block.rows, block.vectors, self.pairs % PAIRS != 0, self.gathered,
            self.depth % 2 == 1, self.depth % DEPTH != 0, self.spec.flat, str(op.prologue),
            operands, self.spec.code(block.vectors),
        )  # fmt: skip

    def launches(self, schedule: BlockSchedule) -> tuple[Launch, ...]:
        """The phase."""
        config, cut, block = self.config(schedule), schedule.cut, schedule.block
        groups, (_, across) = self.call.op.groups, self.work().tiles(block)
        panels = 4 * self.pairs * block.width * across * groups
        weights = Packing(
            "pack_conv_weights", (groups, self.spec.order, block.width, True), (1,), panels
        )
        rows = (cut.tiles if self.gathered else 1) * block.height
        operands: dict[str, Operand] = {"x": In(0), "w": Packed(weights)}
        operands |= {f"prologue{i}": In(2 + i) for i in range(self.call.op.n_prologue)}
        # What is written behind a window's end lies behind the last one, too.
        operands["windows"] = Scratch(2 * (rows * self.pitch + DEPTH))
        operands |= block.operands(self.pairs % PAIRS) | self.spec.pointers()
        integers = {
            **self._sizes(),
            **cut.integers(groups, across),
            "prologue_n": self._images(),
            **self.spec.integers(config.flat),
        }
        chunks = groups * cut.tile_chunks * cut.block_chunks
        return (Launch(config, operands, integers, chunks),)

    def _sizes(self) -> dict[str, int]:
        """The values of `amx_code._Sizes`."""
        op, x, shape = self.call.op, self.call.inputs[0], self.spec.shape
        return {
            **image_strides("x", x.strides, "nh"),
            "x_w": x.strides[3] if self.gathered else even_step(x) or 0,
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
            "pitch": self.pitch,
            "pairs": self.pairs,
        }

    def _images(self) -> tuple[int, ...]:
        """Elements from image to image of each operand of the prologue."""
        shape = (self.call.inputs[0].shape[0], self.depth, 1, 1)
        operands = self.call.inputs[2 : 2 + self.call.op.n_prologue]
        return tuple(view.broadcast_to(shape).strides[0] for view in operands)


def _variants(call: CpuCall) -> Iterator[Variant]:
    spec, speed = conv_epilogue(call), machine(call.target)
    windows = _Windows(call, spec)
    # Weights wait in memory for most of a run; images were written by the step before.
    traffic = speed.traffic(call.inputs[0].nbytes + call.outputs[0].nbytes, call.threads)
    stream = call.inputs[1].size * 2 / speed.bandwidth
    for schedule in windows.work().schedules(call.target, call.threads):
        time = traffic + beside(schedule.micros, stream, call.target)
        yield Variant(time, partial(windows.launches, schedule), code=schedule.block)


def _aliases(call: CpuCall) -> tuple[tuple[int, int], ...]:
    """A residual may give its memory to the result: every element is read before it is written."""
    spec = conv_epilogue(call)
    if spec.kind not in ("plain", "strided"):
        return ()
    return tuple((i, 0) for i, _, _ in spec.operands if call.inputs[i] == call.outputs[0])


CONV2D_AMX = CpuKernel(
    name="conv2d.amx",
    ops=(Conv2d,),
    config=AmxConfig,
    supports=_supports,
    variants=_variants,
    emit=emit_amx,
    aliases=_aliases,
)
