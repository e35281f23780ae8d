"""RoiPool: every bin of a box is the largest pixel of its image there, with its place.

Phases: boxes rounded to pixels and put in order by image and rows (`bin_ranges`); then, for some
images and a block of channels that stay in the last-level cache together, boxes in that order
(`pool_maxima`).
Images whose channels are not neighbours in memory are copied block by block into a temporary
where they are. Refuses results whose channels are not neighbours and whose bins are not either.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import cast

from saccade.backends.cpu.codegen.emitter import BYTES
from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.kernels.base import Launch, Operand, Out, Scratch, Temp, image_strides
from saccade.kernels.cpu.base import CpuCall, CpuKernel, single_variant
from saccade.kernels.cpu.floats import FLOATS, wide
from saccade.kernels.cpu.machine import machine
from saccade.kernels.cpu.movement.copy_code import CopyConfig, emit_copy
from saccade.kernels.cpu.roi.bin_ranges import RangesCode, RangesPlan, emit_ranges
from saccade.kernels.cpu.roi.box_operands import refuse_boxes
from saccade.kernels.cpu.roi.channel_blocks import (
    NO_COPY,
    PixelBlock,
    cached_blocks,
    flat_planes,
    kept_bins,
)
from saccade.kernels.cpu.roi.pool_maxima import MaximaCode, emit_maxima
from saccade.opdefs.roi_pool import RoiPool

__all__ = ["ROI_POOL", "RoiPoolConfig"]

_BLOCK = 256  # bytes of a pixel's channels in a block: what makes a run of a few cache lines
_VECTORS = 4  # of channels side by side, so that none waits for itself
_PART = 1 << 20  # comparisons of a chunk at least (by eye)
_PIXELS = 64  # of a bin, guessed where there is enough to do for several chunks
_SIDE, _SHARE = 32.0, 0.3  # of a box, guessed: pixels at most, and part of the image
# Cycles of a bin (an estimate), and of a vector of a pixel: on a Zen 4 core 2.8 in the caches, and
# more where pixels come from the last-level cache.
_BIN, _VECTOR = 30.0, 4.0
_PARTS = 256  # chunks at most (by eye)
_BAD, _IMAGES = 2, 3  # temporaries after those of the ranges


@dataclass(frozen=True)
class RoiPoolConfig:
    """What the code of one phase depends on.

    Attributes:
        phase: `ranges`, `copy` or `maxima`.
        ranges, copy, maxima: Of the phase.
    """

    phase: str
    ranges: RangesCode = field(default_factory=RangesCode)
    copy: CopyConfig = NO_COPY
    maxima: MaximaCode = field(default_factory=MaximaCode)


def supports(call: CpuCall) -> str | None:
    """Why this kernel cannot take the call."""
    x, *results = call.inputs[0], *call.outputs[: 1 + call.op.places]
    if x.dtype not in FLOATS or results[0].dtype is not x.dtype:
        return f"{results[0].dtype.value} from {x.dtype.value}"
    planar = _planar(call)
    if not all(flat_planes(view) if planar else view.channels_last for view in results):
        return "neither channels nor bins of the results are neighbours in memory"
    return refuse_boxes(call)


def _planar(call: CpuCall) -> bool:
    return not all(view.channels_last for view in call.outputs[: 1 + call.op.places])


def launch(call: CpuCall) -> tuple[Launch, ...]:
    """The phases."""
    x = call.inputs[0]
    n, _, h, w = x.shape
    ranges = RangesPlan.of(call, x, (n, h, w), strips=True)
    bad: Operand = Out(1 + call.op.places) if call.op.report else Temp(_BAD, 64)
    first = replace(ranges.launch(bad), config=RoiPoolConfig("ranges", ranges.code))
    if 0 in call.outputs[0].shape:
        return (first,)
    return (first, *_blocks(call, ranges))


def _blocks(call: CpuCall, ranges: RangesPlan) -> Iterator[Launch]:
    """For each group of images and block of channels, what copies it and what searches it."""
    for block in cached_blocks(call.inputs[0], call.target, _BLOCK, _IMAGES):
        if isinstance(block.place, Temp):
            copy = block.gathered(call.target, call.threads)
            yield replace(copy, config=RoiPoolConfig("copy", copy=cast("CopyConfig", copy.config)))
        yield _maxima(call, ranges, block)


def _maxima(call: CpuCall, ranges: RangesPlan, block: PixelBlock) -> Launch:
    x, results = call.inputs[0], call.outputs[: 1 + call.op.places]
    c0, c1 = block.channels
    count, (boxes, _, rows, columns) = c1 - c0, results[0].shape
    planar, lanes = _planar(call), call.target.lanes
    wide_bytes = BYTES[wide(x.dtype.value)]
    vectors = max(1, min(_VECTORS, count // (lanes * 4 // wide_bytes)))
    tall, pitch, bins = kept_bins((rows, columns), count, lanes)
    kept = bins * pitch
    scratch = {"bins": Scratch(kept * (wide_bytes + 4 * call.op.places))} if planar else {}
    work = _PIXELS * rows * columns * count
    parts = max(1, min(_PARTS, -(-boxes * work // _PART), boxes))
    integers = {
        **ranges.integers,
        "parts": parts,
        "first": block.images[0],
        "last": block.images[1],
        "channels": count,
        **image_strides("x", block.strides),
        "x_start": block.start,
        **{"width": x.shape[3], "pitch": pitch, "tall": tall, "kept": kept},
    }
    operands: dict[str, Operand] = {"x": block.place}
    # Places need not be wanted: then there is one result.
    for name, index, view in zip(("out", "places"), range(2), results, strict=False):
        operands[name] = Out(index)
        integers[f"{name}_box"] = view.strides[0]
        integers[f"{name}_row"] = view.strides[2]
        integers[f"{name}_step"] = view.strides[1] if planar else view.strides[3]
        integers[f"{name}_start"] = c0 * view.strides[1]
    operands |= {**ranges.operands, **scratch}
    code = MaximaCode(x.dtype.value, vectors, planar, call.op.places)
    return Launch(RoiPoolConfig("maxima", maxima=code), operands, integers, parts)


def emit(k: KernelBuilder, config: RoiPoolConfig) -> None:
    """The code of one configuration."""
    if config.phase == "ranges":
        emit_ranges(k, config.ranges)
    elif config.phase == "copy":
        emit_copy(k, config.copy)
    else:
        emit_maxima(k, config.maxima)


def guessed_pixels(call: CpuCall) -> tuple[float, float]:
    """The side of a box, and the pixels of its bins: boxes are no part of what is known here."""
    _, _, h, w = call.inputs[0].shape
    side = min(_SIDE, _SHARE * max(h, w))
    _, _, rows, columns = call.outputs[0].shape
    return side, (side / max(1, rows) + 1) * (side / max(1, columns) + 1)


def cost(call: CpuCall) -> float:
    """Microseconds: so many cycles a bin and a vector of each of its pixels, and what is copied."""
    x, out, speeds = call.inputs[0], call.outputs[0], machine(call.target)
    lanes = call.target.lanes * 4 // max(4, x.dtype.itemsize)
    _, pixels = guessed_pixels(call)
    cycles = _BIN + pixels * _VECTOR * -(-x.shape[1] // lanes)
    # In operations, of which a cycle has two a lane, so that `flops` makes them microseconds.
    busy = out.shape[0] * (out.shape[2] * out.shape[3] * cycles * 2 * call.target.lanes)
    moved = 0 if x.channels_last else 2 * x.nbytes
    nothing = speeds.step + speeds.traffic(moved, call.threads)
    return nothing + busy * (1.0 / speeds.flops / call.threads)


ROI_POOL = CpuKernel(
    "roi.pool", (RoiPool,), RoiPoolConfig, supports, single_variant(launch, cost), emit
)
