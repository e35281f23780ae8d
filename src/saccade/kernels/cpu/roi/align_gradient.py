"""The gradient of RoiAlign with respect to the images, without atomics.

    dx[n, c, h, w] = Σ over the boxes of n, in order, Σ over bins: rows[p, h] · columns[q, w] · dy

Phases: tables of samples, as forward; what gives to each band of rows (`align_gradient_bands`);
then for as many channels as stay in the last-level cache with all bins: a copy of dy with its
channels innermost, where they are not, and sums (`align_gradient_scatter`). Every element of dx is
written once, zeros included, past the caches where they do not hold it. Sums are kept in float32 or
float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import gcd
from typing import cast

from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.backends.cpu.codegen.streams import LINE
from saccade.kernels.base import In, Launch, Operand, Out, Scratch, Temp, image_strides
from saccade.kernels.cpu.base import CpuCall, CpuKernel, single_variant
from saccade.kernels.cpu.floats import FLOATS, wide
from saccade.kernels.cpu.machine import beyond_caches
from saccade.kernels.cpu.movement.copy_code import CopyConfig, emit_copy
from saccade.kernels.cpu.refusals import refuse_types
from saccade.kernels.cpu.roi.align_gradient_bands import BandListsPlan, emit_band_lists
from saccade.kernels.cpu.roi.align_gradient_scatter import SpreadCode, emit_spread
from saccade.kernels.cpu.roi.bilinear_tables import TablesCode, TablesPlan, emit_tables
from saccade.kernels.cpu.roi.box_operands import gradient_cost, refuse_boxes
from saccade.kernels.cpu.roi.channel_blocks import NO_COPY, PixelBlock, flat_planes
from saccade.opdefs.roi_align import RoiAlignGradient

__all__ = ["ROI_ALIGN_GRADIENT", "RoiAlignGradientConfig"]

_BLOCK = 256  # bytes of sums of a pixel
_SMALL = 64 << 10  # bytes of sums that one thread does
_CHUNKS = 8  # at least, of a larger result
_GRAD_TEMP, _LISTS = 5, 6  # temporaries


@dataclass(frozen=True)
class RoiAlignGradientConfig:
    """What the code of one phase depends on.

    Attributes:
        phase: `tables`, `bands`, `copy` or `spread`.
        tables, copy, spread: Of the phase; `bands` has the first.
    """

    phase: str
    tables: TablesCode = field(default_factory=TablesCode)
    copy: CopyConfig = NO_COPY
    spread: SpreadCode = field(default_factory=SpreadCode)


def supports(call: CpuCall) -> str | None:
    """Why this kernel cannot take the call."""
    grad, out = call.inputs[0], call.outputs[0]
    refused = refuse_types((grad, out), FLOATS)
    if refused is not None:
        return refused
    if wide(out.dtype.value) != wide(grad.dtype.value):
        return f"{out.dtype.value} from {grad.dtype.value}"
    if not (out.channels_last or flat_planes(out)):
        return "neither channels nor pixels of the result are neighbours in memory"
    return refuse_boxes(call)


def launch(call: CpuCall) -> tuple[Launch, ...]:
    """The phases."""
    tables = TablesPlan.of(call, call.op.images)
    bad: Operand = Out(1) if call.op.report else Temp(4, 64)
    first = replace(tables.launch(bad), config=RoiAlignGradientConfig("tables", tables.code))
    if 0 in call.outputs[0].shape:
        return (first,)
    lists = BandListsPlan(tables, _band(call, tables), _LISTS)
    bands = replace(lists.launch(), config=RoiAlignGradientConfig("bands", tables.code))
    return (first, bands, *_parts(call, lists))


def _pitch(call: CpuCall, tables: TablesPlan) -> int:
    """Elements of a pixel's sums: a block of channels in whole vectors."""
    lanes = call.target.lanes * 4 // tables.weight_bytes
    block = min(call.outputs[0].shape[1], _BLOCK // tables.weight_bytes)
    return -(-block // lanes) * lanes


def _band(call: CpuCall, tables: TablesPlan) -> int:
    """Rows of a band: the L2 cache holds their sums, and the next one begins a line."""
    out, pitch = call.outputs[0], _pitch(call, tables)
    n, channels, h, w = out.shape
    row, blocks = w * pitch * tables.weight_bytes, -(-channels // pitch)
    band = max(1, min(h, call.target.l2 // 2 // row))
    # Bands that fill the L2 cache may be too few to share.
    if n * h * row * blocks > _SMALL:
        wanted = -(-_CHUNKS // (n * blocks))
        band = min(band, -(-h // wanted))
    # So many rows are whole lines; a band of fewer stays as it is, and is not streamed.
    lines = LINE // gcd(LINE, out.strides[2] * out.dtype.itemsize)
    return max(band // lines * lines, min(band, lines - 1))


def _parts(call: CpuCall, lists: BandListsPlan) -> Iterator[Launch]:
    """All channels at once, or as many as may be copied."""
    grad = call.inputs[0]
    count, channels, p, q = grad.shape
    if grad.channels_last or not grad.size:
        yield _spread(call, lists, PixelBlock(grad, In(0), (0, count), (0, channels)))
        return
    block = _BLOCK // lists.tables.weight_bytes
    bytes_of_channel = count * p * q * grad.dtype.itemsize
    capacity = min(channels, max(1, call.target.l3 // 2 // bytes_of_channel // block) * block)
    for c in range(0, channels, capacity):
        temp = Temp(_GRAD_TEMP, bytes_of_channel * capacity)
        part = PixelBlock(grad, temp, (0, count), (c, min(c + capacity, channels)))
        copy = part.gathered(call.target, call.threads)
        config = RoiAlignGradientConfig("copy", copy=cast("CopyConfig", copy.config))
        yield replace(copy, config=config)
        yield _spread(call, lists, part)


def _spread(call: CpuCall, lists: BandListsPlan, part: PixelBlock) -> Launch:
    tables, grad, out = lists.tables, call.inputs[0], call.outputs[0]
    (c0, c1), (n, _, h, w) = part.channels, out.shape
    count = c1 - c0
    lanes = call.target.lanes * 4 // tables.weight_bytes
    block = min(count, _BLOCK // tables.weight_bytes)
    blocks, pitch = -(-count // block), _pitch(call, tables)
    planar, vectors = not out.channels_last, max(1, block // lanes)
    code = SpreadCode(
        tables.code, grad.dtype.value, out.dtype.value, vectors, planar, _streamed(call, lists.band)
    )
    integers = {
        **tables.integers,
        **lists.integers,
        **{"n": n, "h": h, "w": w, "channels": count},
        **{"blocks": blocks, "block": block, "pitch": pitch},
        **image_strides("grad", part.strides, "khw"),
        "grad_start": part.start,
        "out_start": c0 * out.strides[1],
        **image_strides("out", out.strides, "nhwc"),
    }
    # Squares of positions are read past the last one.
    sums = Scratch((lists.band * w + lanes) * pitch * tables.weight_bytes)
    ends = {"grad": part.place, "out": Out(0)}
    operands = {**ends, **tables.operands, **lists.operands, "sums": sums}
    config = RoiAlignGradientConfig("spread", spread=code)
    return Launch(config, operands, integers, blocks * n * lists.bands)


def _streamed(call: CpuCall, band: int) -> bool:
    """Whether whole lines of a result are written that the caches do not hold."""
    out = call.outputs[0]
    n, c, h, w = out.strides
    # What is written in one run has to begin a line: of pixels each row, of planes each band.
    steps = (n, h, w) if out.channels_last else (n, band * h, c)
    lines = all(step * out.dtype.itemsize % LINE == 0 for step in steps)
    return lines and beyond_caches(call.target, out.nbytes)


def emit(k: KernelBuilder, config: RoiAlignGradientConfig) -> None:
    """The code of one configuration."""
    if config.phase == "tables":
        emit_tables(k, config.tables)
    elif config.phase == "bands":
        emit_band_lists(k, config.tables)
    elif config.phase == "copy":
        emit_copy(k, config.copy)
    else:
        emit_spread(k, config.spread)


def cost(call: CpuCall) -> float:
    """Microseconds."""
    return gradient_cost(call, 0.2)


ROI_ALIGN_GRADIENT = CpuKernel(
    "roi.align_gradient",
    (RoiAlignGradient,),
    RoiAlignGradientConfig,
    supports,
    single_variant(launch, cost),
    emit,
)
