"""float32 convolution in tiles of matrices (Intel's AMX), each element as three bfloat16.

`y[n,k,p,q] = Σ_r,s,c x[n, c, p·stride + r·dilation - pad, …] · w[k,c,r,s]`

Layouts: x channels-last in float32, w float32 or bfloat16, packed as for `conv2d.direct`, sixteen
filters side by side; y as the epilogue stores it. Pixels are flattened over (n, p, q); windows of a
tile of them are copied side by side, limb by limb, and multiplied by all panels of a chunk. Sums
are float32, 32 products at a time (`limb_products`), and no size or team changes their order. They
are nearer to the exact ones than the vectors' own, but that an infinity becomes NaN, and what is
below 2^-110 loses digits.
Refuses: `exact`, targets without tiles, other images, weights that are not constant, not finite or
none, a prologue unless 1x1 without padding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import prod

from saccade.backends.cpu.codegen.matrix_tiles import DEPTH, ROWS
from saccade.ir import DType
from saccade.ir.expr import IDENTITY
from saccade.kernels.base import In, Launch, Operand, Packed, Packing, Variant, image_strides
from saccade.kernels.cpu.base import CpuCall, CpuKernel
from saccade.kernels.cpu.conv2d.epilogue_spec import (
    FLOATS,
    EpilogueSpec,
    conv_epilogue,
    even_step,
    residual_aliases,
)
from saccade.kernels.cpu.conv2d.limb_schedules import LimbSchedule, LimbWork
from saccade.kernels.cpu.conv2d.limbs_code import LimbConvConfig, emit_limbs
from saccade.kernels.cpu.conv2d.tile_prologue import prologue_fits, prologue_images
from saccade.kernels.cpu.machine import machine
from saccade.opdefs import Conv2d

__all__ = ["CONV2D_LIMBS"]

# Cycles of two cores of an Emerald Rapids, fitted with those of `limb_schedules`: of a tap of a
# window; of a vector that a prologue is applied to and that is split by itself.
_TAP, _PROLOGUE = 13, 3


def _supports(call: CpuCall) -> str | None:
    op, (x, w) = call.op, call.inputs[:2]
    if not call.target.tiles:
        return "the machine has no tiles of matrices"
    if call.exact:
        return "limbs leave out the smallest products"
    if not call.constant[1]:
        return "the weights are not constant"
    if x.dtype is not DType.F32 or w.dtype not in FLOATS:
        return f"elements are {x.dtype.value} and {w.dtype.value}"
    if not x.channels_last:
        return "neighbouring channels are apart"
    if not w.size:
        return "there are no weights"
    if not op.finite:
        return "weights that are not finite have no limbs"
    if op.prologue != IDENTITY and not prologue_fits(call):
        return "a prologue needs one tap, no padding, one group and neighbouring channels"
    return conv_epilogue(call).refuse()


@dataclass(frozen=True, slots=True)
class _LimbWindows:
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
    def inner(self) -> int:
        """Products of a sum."""
        return self.depth * prod(self.taps)

    @property
    def _dense(self) -> bool:
        """Whether windows are pixels that lie together."""
        op, x = self.call.op, self.call.inputs[0]
        moved = (*self.taps, *op.stride) != (1, 1, 1, 1) or any(op.padding)
        return not moved and even_step(x) == self.depth

    @property
    def work(self) -> LimbWork:
        """What there is to do."""
        op, (n, _, rows, columns) = self.call.op, self.spec.shape
        taps = prod(self.taps)
        cycles = float(_TAP * taps)
        if op.prologue != IDENTITY:
            cycles += _PROLOGUE * -(-self.depth // ROWS)
        # Parts are of whole taps, or of channels where there is one.
        whole = 1 if taps == 1 else self.depth // DEPTH if self.depth % DEPTH == 0 else 0
        return LimbWork(
            n * rows * columns, self.spec.channels, self.inner, op.groups, cycles, whole
        )

    def config(self, rows: int) -> LimbConvConfig:
        """What the code depends on."""
        op = self.call.op
        operands = tuple(v.dtype.value for v in self.call.inputs[2 : 2 + op.n_prologue])
        return LimbConvConfig(
            rows, prod(self.taps) == 1, self.depth % DEPTH != 0, self.spec.flat, str(op.prologue),
            operands, self.spec.code(1),
        )  # fmt: skip

    def launches(self, schedule: LimbSchedule) -> tuple[Launch, ...]:
        """The phase."""
        op, work, cut = self.call.op, self.work, schedule.cut
        config = self.config(schedule.rows)
        _, across = work.tiles(schedule.rows)
        nbytes = 4 * self.inner * ROWS * across * op.groups
        parameters = (op.groups, self.spec.order, ROWS, False)
        weights = Packing("pack_conv_weights", parameters, (1,), nbytes)
        operands: dict[str, Operand] = {"x": In(0), "w": Packed(weights)}
        operands |= {f"prologue{i}": In(2 + i) for i in range(op.n_prologue)}
        operands |= schedule.scratch(work) | self.spec.pointers()
        integers = {
            **self._sizes(),
            **cut.integers(work.groups, across),
            **schedule.integers(work, flat=config.flat, dense=self._dense),
            "prologue_n": prologue_images(self.call),
            **self.spec.integers(config.flat),
        }
        chunks = work.groups * cut.tile_chunks * cut.block_chunks
        return (Launch(config, operands, integers, chunks),)

    def _sizes(self) -> dict[str, int]:
        """The sizes of the code's windows."""
        op, x, shape = self.call.op, self.call.inputs[0], self.spec.shape
        return {
            **image_strides("x", x.strides, "nhw"),
            "height": x.shape[2],
            "width": x.shape[3],
            "out_height": shape[2],
            "out_width": shape[3],
            "depth": self.depth,
            "taps": prod(self.taps),
            "taps_s": self.taps[1],
            "stride_h": op.stride[0],
            "stride_w": op.stride[1],
            "pad_top": op.padding[0],
            "pad_left": op.padding[1],
            "dilation_h": op.dilation[0],
            "dilation_w": op.dilation[1],
            "pixels": shape[0] * shape[2] * shape[3],
        }


def _variants(call: CpuCall) -> Iterator[Variant]:
    windows, speed = _LimbWindows(call, conv_epilogue(call)), machine(call.target)
    # Weights wait in memory for most of a run, and are split before they are multiplied; images
    # were written by the step before.
    traffic = speed.traffic(call.inputs[0].nbytes + call.outputs[0].nbytes, call.threads)
    stream = call.inputs[1].size * DType.F32.itemsize / speed.bandwidth
    for schedule in windows.work.schedules(call.target, call.threads):
        time = traffic + stream + schedule.micros
        yield Variant(time, partial(windows.launches, schedule), code=schedule.rows)


CONV2D_LIMBS = CpuKernel(
    name="conv2d.limbs",
    ops=(Conv2d,),
    config=LimbConvConfig,
    supports=_supports,
    variants=_variants,
    emit=emit_limbs,
    aliases=residual_aliases,
)
