"""Direct convolution (implicit matrix product) with any strides, padding, dilation and groups.

`y[n,k,p,q] = Σ_r,s,c x[n, c, p·stride + r·dilation - pad, …] · w[k,c,r,s]`

Layouts: x with any strides (neighbouring channels together is the fast case), y as the epilogue
stores it. Pixels are flattened over (n, p, q), so that small images fill whole tiles. A tile of
`rows` pixels times `vectors` vectors of channels stays in registers over all taps and channels;
taps outside the image read zeros.
Operands and result are float32 or bfloat16 in any mix; two bfloat16 operands are summed in pairs
where the target can.
Refuses: weights that are not constant, other types, a prologue unless 1x1 without padding.
"""

from __future__ import annotations

from collections.abc import Iterator

from saccade.ir.expr import IDENTITY
from saccade.kernels.base import Variant
from saccade.kernels.cpu.base import CpuCall, CpuKernel
from saccade.kernels.cpu.conv2d.direct_ahead import (
    is_widened_ahead,
    read_wide,
    widened_ahead,
)
from saccade.kernels.cpu.conv2d.direct_code import emit_direct
from saccade.kernels.cpu.conv2d.direct_config import DirectConfig
from saccade.kernels.cpu.conv2d.direct_launch import SlidingWindows
from saccade.kernels.cpu.conv2d.direct_split import with_splits
from saccade.kernels.cpu.conv2d.epilogue_spec import (
    FLOATS,
    EpilogueSpec,
    conv_epilogue,
    residual_aliases,
)
from saccade.kernels.cpu.conv2d.microkernel import in_pairs, widens
from saccade.kernels.cpu.machine import machine
from saccade.opdefs import Conv2d

__all__ = ["CONV2D_DIRECT", "window_of"]


def _supports(call: CpuCall) -> str | None:
    op: Conv2d = call.op
    if not call.constant[1]:
        return "the weights are not constant"
    for view in call.inputs[:2]:
        if view.dtype not in FLOATS:
            return f"elements are {view.dtype.value}"
    if op.prologue != IDENTITY:
        if call.inputs[1].shape[2:] != (1, 1) or any(op.padding) or op.groups != 1:
            return "a prologue needs one tap, no padding and one group"
        for view in call.inputs[2 : 2 + op.n_prologue]:
            if view.dtype not in FLOATS or (view.strides[1] != 1 and view.shape[1] != 1):
                return "a prologue operand is not a float32 or bfloat16 with neighbouring channels"
    return conv_epilogue(call).refuse()


def window_of(call: CpuCall, spec: EpilogueSpec) -> SlidingWindows:
    """The windows of a call that `supports` gave None for."""
    op: Conv2d = call.op
    _, depth, taps_r, taps_s = call.inputs[1].shape
    pairs = in_pairs(call, spec.shape[0] * spec.shape[2] * spec.shape[3])
    alone = (taps_r, taps_s, op.groups) == (1, 1, 1) and not any(op.padding)
    return SlidingWindows(
        depth, pairs, op.groups, (taps_r, taps_s), op.stride, op.padding[:2], op.dilation,
        (spec.shape[2], spec.shape[3]), ("pack_conv_weights", (op.groups, spec.order)),
        prologue=op.prologue, n_prologue=op.n_prologue, finite=op.finite,
        widened=alone and widens(call, pairs, spec.channels),
    )  # fmt: skip


def _variants(call: CpuCall) -> Iterator[Variant]:
    spec = conv_epilogue(call)
    window = window_of(call, spec)
    if is_widened_ahead(call, window):
        return widened_ahead(call, _variants(read_wide(call)))
    speed, (x, w) = machine(call.target), call.inputs[:2]
    # Weights wait in memory for most of a run; images were written by the step before.
    traffic = speed.traffic(x.nbytes + call.outputs[0].nbytes, call.threads)
    return with_splits(call, spec, window, traffic, w.nbytes / speed.bandwidth)


CONV2D_DIRECT = CpuKernel(
    name="conv2d.direct",
    ops=(Conv2d,),
    config=DirectConfig,
    supports=_supports,
    variants=_variants,
    emit=emit_direct,
    aliases=residual_aliases,
)
