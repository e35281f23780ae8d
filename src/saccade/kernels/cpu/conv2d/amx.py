"""Convolution in tiles of matrices (Intel's AMX): sixteen times the products of vectors in a cycle.

`y[n,k,p,q] = Σ_r,s,c x[n, c, p·stride + r·dilation - pad, …] · w[k,c,r,s]`

Layouts: x channels-last in bfloat16, w float32 or bfloat16, packed as pairs like those of
`conv2d.direct`; y as the epilogue stores it. Pixels are flattened over (n, p, q). A chunk's
part of the image is copied into scratch, as rows between zeros or window by window, and read from
there by all channels; pixels of a 1x1 convolution are read where they lie. Sums are float32; their
order is that of `codegen.matrix_tiles`, 32 products at a time, and no size or team changes it.
An image of few channels that lies plane by plane may be float32 where the result is rounded.
Refuses: targets without tiles, weights that are not constant, or not finite beside padding, other
float32 images, a prologue unless 1x1 without padding.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from saccade.ir import DType
from saccade.ir.expr import IDENTITY
from saccade.kernels.base import Variant
from saccade.kernels.cpu.base import CpuCall, CpuKernel
from saccade.kernels.cpu.conv2d.amx_code import emit_amx
from saccade.kernels.cpu.conv2d.amx_config import AmxConfig
from saccade.kernels.cpu.conv2d.amx_launch import AmxWindows, from_planes
from saccade.kernels.cpu.conv2d.direct_launch import beside
from saccade.kernels.cpu.conv2d.epilogue_spec import FLOATS, conv_epilogue, residual_aliases
from saccade.kernels.cpu.conv2d.tile_prologue import prologue_fits
from saccade.kernels.cpu.machine import machine
from saccade.opdefs import Conv2d

__all__ = ["CONV2D_AMX"]


def _supports(call: CpuCall) -> str | None:
    op, (x, w) = call.op, call.inputs[:2]
    if not call.target.tiles:
        return "the machine has no tiles of matrices"
    if not call.constant[1]:
        return "the weights are not constant"
    planes = from_planes(call)
    if not (x.dtype is DType.BF16 or (planes and _rounds(call))) or w.dtype not in FLOATS:
        return f"elements are {x.dtype.value} and {w.dtype.value}"
    if not planes and not x.channels_last:
        return "neighbouring channels are apart, and not few"
    if not op.finite and any(op.padding):
        return "weights that are not finite would meet padding"
    if op.prologue != IDENTITY and not prologue_fits(call):
        return "a prologue needs one tap, no padding, one group and neighbouring channels"
    return conv_epilogue(call).refuse()


def _rounds(call: CpuCall) -> bool:
    """Whether an image of float32 may be rounded: where the result is."""
    first, result = call.inputs[0].dtype, call.outputs[0].dtype
    return first is DType.F32 and result is DType.BF16 and not call.exact


def _variants(call: CpuCall) -> Iterator[Variant]:
    speed = machine(call.target)
    # Weights wait in memory for most of a run; images were written by the step before.
    traffic = speed.traffic(call.inputs[0].nbytes + call.outputs[0].nbytes, call.threads)
    stream = call.inputs[1].size * DType.BF16.itemsize / speed.bandwidth
    found = [(one, windows) for windows in AmxWindows.ways(call) for one in windows.schedules()]
    found.sort(key=lambda pair: pair[0].micros)
    for schedule, windows in found:
        time = traffic + beside(schedule.micros, stream, call.target)
        build = partial(windows.launches, schedule)
        yield Variant(time, build, code=(windows.source, schedule.block))


CONV2D_AMX = CpuKernel(
    name="conv2d.amx",
    ops=(Conv2d,),
    config=AmxConfig,
    supports=_supports,
    variants=_variants,
    emit=emit_amx,
    aliases=residual_aliases,
)
