"""The gradient of RoiAlign with respect to the pictures, without atomics.

    dx[n, c, h, w] = Σ over the boxes of n, in order, Σ over bins: rows[p, h] · columns[q, w] · dy

Phases: tables of samples, as forward; then for as many channels as stay in the last-level cache
with all bins: a copy of dy with its channels innermost, where they are not, and sums (`spread`).
Every element of dx is written once, zeros included. Sums are kept in float32 or float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from saccade.codegen.language import Kernel
from saccade.kernels.base import Call, CpuKernel, In, Launch, Operand, Out, Scratch, Temp, one_way
from saccade.kernels.floats import FLOATS, wide
from saccade.kernels.machine import machine
from saccade.kernels.movement.copy import CopyConfig, emit_copy
from saccade.kernels.roi.boxes import refuse_boxes
from saccade.kernels.roi.planes import NO_COPY, flat_planes, gather_block
from saccade.kernels.roi.spread import SpreadCode, emit_spread
from saccade.kernels.roi.tables import TablesCode, TablesPlan, emit_tables
from saccade.opdefs.roi_align import RoiAlignGradient

__all__ = ["ROI_ALIGN_GRADIENT", "RoiAlignGradientConfig"]

_BLOCK = 256  # bytes of sums of a pixel
_SMALL = 64 << 10  # bytes of sums that one thread does
_CHUNKS = 8  # at least, of a larger result
_GRAD_TEMP = 5


@dataclass(frozen=True)
class RoiAlignGradientConfig:
    """What the code of one phase depends on.

    Attributes:
        phase: `tables`, `copy` or `spread`.
        tables, copy, spread: Of the phase.
    """

    phase: str
    tables: TablesCode = field(default_factory=TablesCode)
    copy: CopyConfig = NO_COPY
    spread: SpreadCode = field(default_factory=SpreadCode)


def supports(call: Call) -> str | None:
    """Why this kernel cannot take the call."""
    grad, out = call.inputs[0], call.outputs[0]
    for view in (grad, out):
        if view.dtype not in FLOATS:
            return f"elements of type {view.dtype.value}"
    if wide(out.dtype.value) != wide(grad.dtype.value):
        return f"{out.dtype.value} from {grad.dtype.value}"
    if not (out.channels_last or flat_planes(out)):
        return "neither channels nor pixels of the result are neighbours in memory"
    return refuse_boxes(call)


def launch(call: Call) -> tuple[Launch, ...]:
    """The phases."""
    tables = TablesPlan.of(call, call.op.pictures)
    bad: Operand = Out(1) if call.op.report else Temp(4, 64)
    operands, integers, chunks = tables.launch(bad)
    first = Launch(RoiAlignGradientConfig("tables", tables.code), operands, integers, chunks)
    if 0 in call.outputs[0].shape:
        return (first,)
    return (first, *_parts(call, tables))


def _parts(call: Call, tables: TablesPlan) -> Iterator[Launch]:
    """All channels at once, or as many as may be copied."""
    grad = call.inputs[0]
    count, channels, p, q = grad.shape
    if grad.channels_last or not grad.size:
        yield _spread(call, tables, In(0), (0, channels))
        return
    block = _BLOCK // tables.weight_bytes
    bytes_of_channel = count * p * q * grad.dtype.itemsize
    room = min(channels, max(1, call.target.l3 // 2 // bytes_of_channel // block) * block)
    for c in range(0, channels, room):
        part = (c, min(c + room, channels))
        temp = Temp(_GRAD_TEMP, bytes_of_channel * room)
        copy = gather_block(grad, In(0), temp, (0, count), part, call.target, call.threads)
        config = RoiAlignGradientConfig("copy", copy=copy.config)
        yield Launch(config, copy.operands, copy.integers, copy.chunks)
        yield _spread(call, tables, temp, part)


def _spread(call: Call, tables: TablesPlan, source: Operand, part: tuple[int, int]) -> Launch:
    grad, out = call.inputs[0], call.outputs[0]
    (c0, c1), (n, _, h, w) = part, out.shape
    count, (p, q) = c1 - c0, tables.bins
    steps, start = (p * q * count, q * count, count), 0
    if isinstance(source, In):
        steps, start = (grad.strides[0], grad.strides[2], grad.strides[3]), c0 * grad.strides[1]
    lanes = call.target.lanes * 4 // tables.weight_bytes
    block = min(count, _BLOCK // tables.weight_bytes)
    blocks, pitch = -(-count // block), -(-block // lanes) * lanes
    row = w * pitch * tables.weight_bytes
    band = max(1, min(h, call.target.l2 // 2 // row))
    if n * h * row * blocks > _SMALL:
        wanted = -(-_CHUNKS // (n * blocks))
        band = min(band, -(-h // wanted))
    bands = -(-h // band)
    planar = not out.channels_last
    code = SpreadCode(
        tables.code, grad.dtype.value, out.dtype.value, max(1, block // lanes), planar
    )
    integers = (
        *tables.integers,
        *(n, h, w, count),
        *(bands, band, blocks, block),
        *(pitch, *steps),
        *(start, c0 * out.strides[1], out.strides[0], out.strides[2], out.strides[3]),
        out.strides[1],
    )
    # Squares of positions are read past the last one.
    rows = band * w + lanes
    operands = (source, Out(0), *tables.operands, Scratch(rows * pitch * tables.weight_bytes))
    chunks = blocks * n * bands
    return Launch(RoiAlignGradientConfig("spread", spread=code), operands, integers, chunks)


def emit(k: Kernel, config: RoiAlignGradientConfig) -> None:
    """The code of one configuration."""
    if config.phase == "tables":
        emit_tables(k, config.tables)
    elif config.phase == "copy":
        emit_copy(k, config.copy)
    else:
        emit_spread(k, config.spread)


def cost(call: Call) -> float:
    """Microseconds: four multiply-adds a sample."""
    op, grad = call.op, call.inputs[0]
    samples = max(1, op.ratio if op.ratio > 0 else 2) ** 2
    nbytes = call.outputs[0].nbytes + grad.nbytes
    return machine(call.target).roofline(8.0 * samples * grad.size, nbytes, call.threads, 0.2)


ROI_ALIGN_GRADIENT = CpuKernel(
    "roi.align_gradient",
    (RoiAlignGradient,),
    RoiAlignGradientConfig,
    supports,
    one_way(launch, cost),
    emit,
)
