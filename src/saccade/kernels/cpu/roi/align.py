"""RoiAlign: every bin of a box is the mean, or the largest, of bilinear samples of its image.

    y[k, c, p, q] = mean over the samples (i, j) of bin (p, q) of box k: x[n(k), c] at (y_i, x_j)

Phases: tables of samples of all boxes, which are put in order by image and rows; then, for some
images and a block of channels that stay in the last-level cache together, boxes in that order
(`align_samples`). Of images whose channels are not neighbours in memory, what boxes read is
copied block by block into a temporary where they are (`window_transpose`). Sums are kept in float32
or float64. Refuses results whose channels are not neighbours and whose bins are not either.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import prod
from typing import cast

from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.kernels.base import Launch, Operand, Out, Scratch, Temp, image_strides
from saccade.kernels.cpu.base import CpuCall, CpuKernel, single_variant
from saccade.kernels.cpu.floats import FLOATS, wide
from saccade.kernels.cpu.machine import machine
from saccade.kernels.cpu.movement.copy_code import CopyConfig, emit_copy
from saccade.kernels.cpu.refusals import refuse_types
from saccade.kernels.cpu.roi.align_samples import SampleCode, emit_sample
from saccade.kernels.cpu.roi.bilinear_tables import TablesCode, TablesPlan, emit_tables
from saccade.kernels.cpu.roi.box_operands import refuse_boxes
from saccade.kernels.cpu.roi.channel_blocks import (
    NO_COPY,
    PixelBlock,
    cached_blocks,
    flat_planes,
    kept_bins,
)
from saccade.kernels.cpu.roi.window_transpose import WindowCode, emit_window, window_phase
from saccade.opdefs.roi_align import RoiAlign

__all__ = ["ROI_ALIGN", "RoiAlignConfig", "estimate", "per_box"]

_BLOCK = 1024  # bytes of a pixel's channels in a block at least: few pages, long runs
_VECTORS = (8, 4, 2, 1)  # of channels side by side: 8 take 23 ms for 4's 32, 16 no less (Zen 4)
_PART = 512 << 10  # multiply-adds of a chunk at least (by eye)
_PARTS = 256  # chunks at most (by eye)
_BLOCK_TEMP = 5  # a temporary
# Microseconds of a sample in the tables, of a bin besides its sums: one Zen 4 core, small boxes.
_SAMPLE, _BIN = 0.018, 0.012


@dataclass(frozen=True)
class RoiAlignConfig:
    """What the code of one phase depends on.

    Attributes:
        phase: `tables`, `window`, `copy` or `sample`.
        tables, window, copy, sample: Of the phase.
    """

    phase: str
    tables: TablesCode = field(default_factory=TablesCode)
    window: WindowCode = field(default_factory=WindowCode)
    copy: CopyConfig = NO_COPY
    sample: SampleCode = field(default_factory=SampleCode)


def supports(call: CpuCall) -> str | None:
    """Why this kernel cannot take the call."""
    x, out = call.inputs[0], call.outputs[0]
    refused = refuse_types((x, out), FLOATS)
    if call.op.counted:
        return "a number of boxes that only a run finds"
    if refused is not None:
        return refused
    if out.dtype is not x.dtype and wide(out.dtype.value) != wide(x.dtype.value):
        return f"{out.dtype.value} from {x.dtype.value}"
    if not (out.channels_last or flat_planes(out)):
        return "neither channels nor bins of the result are neighbours in memory"
    return refuse_boxes(call)


def launch(call: CpuCall) -> tuple[Launch, ...]:
    """The phases."""
    n, _, h, w = call.inputs[0].shape
    tables = TablesPlan.of(call, (n, h, w))
    # Temporaries 0 to 3 are the tables'.
    bad: Operand = Out(1) if call.op.report else Temp(4, 64)
    first = replace(tables.launch(bad), config=RoiAlignConfig("tables", tables.code))
    # Boxes are checked, even if there is nothing to sample.
    if 0 in call.outputs[0].shape:
        return (first,)
    return (first, *_blocks(call, tables))


def _blocks(call: CpuCall, tables: TablesPlan) -> Iterator[Launch]:
    """For each group of images and block of channels, what copies it and what samples it."""
    for block in cached_blocks(call.inputs[0], call.target, _BLOCK, _BLOCK_TEMP):
        if isinstance(block.place, Temp):
            yield _copy(call, tables, block, block.place)
        yield _sample(call, tables, block)


def _copy(call: CpuCall, tables: TablesPlan, block: PixelBlock, temp: Temp) -> Launch:
    """What brings the channels together, as far as boxes read them where that is known."""
    x = call.inputs[0]
    if x.strides[3] == 1:
        phase = window_phase(x, temp, tables, block.images, block.channels)
        config = RoiAlignConfig("window", window=cast("WindowCode", phase.config))
    else:
        phase = block.gathered(call.target, call.threads)
        config = RoiAlignConfig("copy", copy=cast("CopyConfig", phase.config))
    return replace(phase, config=config)


def _sample(call: CpuCall, tables: TablesPlan, block: PixelBlock) -> Launch:
    x, out = call.inputs[0], call.outputs[0]
    c0, c1 = block.channels
    count, bins = c1 - c0, out.shape[2] * out.shape[3]
    planar = not out.channels_last
    lanes = call.target.lanes * 4 // tables.weight_bytes
    vectors = _vectors(count // lanes, pairs=x.dtype.value == "bfloat16")
    tall, pitch, kept = kept_bins(call.op.bins, count, lanes)
    scratch = {"bins": Scratch(kept * pitch * tables.weight_bytes)}
    work = 4 * (call.op.ratio if call.op.ratio > 0 else 2) ** 2 * bins * count
    per_part = max(1, _PART * lanes // 16 // max(1, work))
    parts = max(1, min(_PARTS, -(-out.shape[0] // per_part)))
    code = SampleCode(
        tables.code, x.dtype.value, out.dtype.value, vectors, planar, call.op.mode == "max"
    )
    step = out.strides[1] if planar else out.strides[3]
    integers = {
        **tables.integers,
        "parts": parts,
        "first": block.images[0],
        "last": block.images[1],
        "channels": count,
        **image_strides("x", block.strides),
        "x_start": block.start,
        "out_k": out.strides[0],
        "out_h": out.strides[2],
        "out_step": step,
        "out_start": c0 * out.strides[1],
        "pitch": pitch,
        "tall": tall,
    }
    operands = {"x": block.place, "out": Out(0), **tables.operands, **(scratch if planar else {})}
    return Launch(RoiAlignConfig("sample", sample=code), operands, integers, parts)


def _vectors(count: int, *, pairs: bool) -> int:
    """How many of so many vectors are summed side by side: what leaves the fewest passes."""
    # Pairs take two vectors; of equal numbers of passes the widest comes first.
    able = _VECTORS[:-1] if pairs else _VECTORS
    return min(able, key=lambda v: count // v + count % v)


def emit(k: KernelBuilder, config: RoiAlignConfig) -> None:
    """The code of one configuration."""
    if config.phase == "tables":
        emit_tables(k, config.tables)
    elif config.phase == "window":
        emit_window(k, config.window)
    elif config.phase == "copy":
        emit_copy(k, config.copy)
    else:
        emit_sample(k, config.sample)


def per_box(call: CpuCall) -> float:
    """Microseconds of a box on one thread: its tables, its bins, four multiply-adds a sample."""
    op, (ph, pw) = call.op, call.op.bins
    # Grids that adapt are not known before the boxes are: 2 is a guess.
    ratio: int = op.ratio if op.ratio > 0 else 2
    flops = float(8 * ratio**2 * ph * pw * call.inputs[0].shape[1])
    busy = flops / (0.3 * machine(call.target).flops)
    return float(_SAMPLE * ratio * (ph + pw) + _BIN * ph * pw) + busy


def estimate(call: CpuCall, phases: int, each: float) -> float:
    """Microseconds, where a box takes `each` on one thread: a line over the number of boxes.

    So the estimates of both ways and of other numbers are quickly compared.
    """
    speeds, (x, *_), out = machine(call.target), call.inputs, call.outputs[0]
    results = prod(out.shape[1:]) * out.dtype.itemsize
    fixed = phases * speeds.step + speeds.traffic(x.nbytes, call.threads)
    return fixed + out.shape[0] * ((each + results / speeds.cache_bandwidth) / call.threads)


def cost(call: CpuCall) -> float:
    """Microseconds."""
    return estimate(call, 3, per_box(call))


ROI_ALIGN = CpuKernel(
    "roi.align", (RoiAlign,), RoiAlignConfig, supports, single_variant(launch, cost), emit
)
