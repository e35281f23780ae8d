"""Transposed convolution as plain convolutions: one for each phase of the stride.

`y[n,k,i,j] = Σ x[n,c,p,q] · w[c,k,r,s]` over all p·stride + r·dilation - pad = i, likewise in j.
Along one axis, at i + pad = stride·t + ρ, only taps with r·dilation ≡ ρ (mod stride) matter, and
they read x at t - (r·dilation - ρ)/stride: a convolution of stride 1 with the taps reversed, whose
results stand `stride` apart. No product with an inserted zero is computed.

Layouts: as `conv2d.direct`. Refuses: weights that are not constant, types other than float32 and
bfloat16.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import gcd

from saccade.kernels.base import Launch, Variant
from saccade.kernels.cpu.base import CpuCall, CpuKernel
from saccade.kernels.cpu.conv2d.direct_code import emit_direct
from saccade.kernels.cpu.conv2d.direct_config import DirectConfig, TileSchedule
from saccade.kernels.cpu.conv2d.direct_launch import SlidingWindows
from saccade.kernels.cpu.conv2d.epilogue_spec import FLOATS, EpilogueSpec
from saccade.kernels.cpu.conv2d.microkernel import in_pairs
from saccade.kernels.cpu.machine import machine
from saccade.opdefs import ConvTranspose2d

__all__ = ["CONV_TRANSPOSE2D_DIRECT"]


@dataclass(frozen=True, slots=True)
class _Phase:
    """One residue along one axis: a one-dimensional convolution.

    Attributes:
        first: First tap.
        step: Distance of taps within the weights.
        taps: How many.
        before: Elements before the input where the first window starts.
        dilation: Distance of taps within the input.
        size: How many results.
        start: First result.
    """

    first: int
    step: int
    taps: int
    before: int
    dilation: int
    size: int
    start: int


def _phases(op: ConvTranspose2d, axis: int, taps: int, size: int, results: int) -> list[_Phase]:
    stride, dilation, pad = op.stride[axis], op.dilation[axis], op.padding[axis]
    step = stride // gcd(stride, dilation)
    found = []
    for start in range(min(stride, results)):
        t, residue = divmod(start + pad, stride)
        first = next((r for r in range(step) if (r * dilation - residue) % stride == 0), taps)
        count = max(0, -(-(taps - first) // step))
        apart = dilation // gcd(stride, dilation)
        nearest = (first * dilation - residue) // stride if count else 0
        farthest = nearest + (count - 1) * apart
        rows = -(-(results - start) // stride)
        found.append(_Phase(first, step, count, farthest - t, apart, rows, start))
    return found


def _epilogue(call: CpuCall) -> EpilogueSpec:
    op: ConvTranspose2d = call.op
    out = call.outputs[0]
    shape = (out.shape[0], out.shape[1], out.shape[2], out.shape[3])
    operands = tuple(
        (i, call.inputs[i].broadcast_to(shape), call.constant[i])
        for i in range(2, len(call.inputs))
    )
    return EpilogueSpec(op.epilogue, None, shape, operands, None, out, op.groups, call.target.lanes)


def _windows(call: CpuCall) -> list[SlidingWindows]:
    op: ConvTranspose2d = call.op
    x, w, y = call.inputs[0], call.inputs[1], call.outputs[0]
    rows = _phases(op, 0, w.shape[2], x.shape[2], y.shape[2])
    columns = _phases(op, 1, w.shape[3], x.shape[3], y.shape[3])
    return [
        SlidingWindows(
            w.shape[0] // op.groups, in_pairs(call), op.groups, (r.taps, s.taps), (1, 1),
            (r.before, s.before), (r.dilation, s.dilation), (r.size, s.size),
            ("pack_transposed", (op.groups, (r.first, s.first), (r.step, s.step), "natural")),
            step=op.stride, first=(r.start, s.start), finite=op.finite,
        )
        for r in rows
        for s in columns
    ]  # fmt: skip


def _supports(call: CpuCall) -> str | None:
    if not call.constant[1]:
        return "the weights are not constant"
    for view in call.inputs[:2]:
        if view.dtype not in FLOATS:
            return f"elements are {view.dtype.value}"
    return _epilogue(call).refuse()


def _variants(call: CpuCall) -> Iterator[Variant]:
    """The n-th variant takes the n-th schedule of every window: windows differ by a tap at most."""
    spec = _epilogue(call)
    nbytes = float(sum(view.nbytes for view in (*call.inputs[:2], call.outputs[0])))
    traffic = machine(call.target).traffic(nbytes, call.threads)
    windows = _windows(call)
    micros = [window.cost(call, spec) for window in windows]
    together = zip(*(window.schedules(call, spec) for window in windows), strict=False)
    for schedules in together if windows else [()]:
        time = sum(
            schedule.slowdown * alone for schedule, alone in zip(schedules, micros, strict=True)
        )
        yield Variant(traffic + time, partial(_launch, call, spec, windows, schedules))


def _launch(
    call: CpuCall,
    spec: EpilogueSpec,
    windows: Sequence[SlidingWindows],
    schedules: Sequence[TileSchedule],
) -> tuple[Launch, ...]:
    return tuple(
        w.launch(call, spec, schedule) for w, schedule in zip(windows, schedules, strict=True)
    )


CONV_TRANSPOSE2D_DIRECT = CpuKernel(
    name="conv_transpose2d.direct",
    ops=(ConvTranspose2d,),
    config=DirectConfig,
    supports=_supports,
    variants=_variants,
    emit=emit_direct,
)
