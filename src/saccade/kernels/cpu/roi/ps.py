"""PsRoi: every bin of a box is a mean over its image, in a channel that is the bin's own.

Phases: boxes (`ps_code`); then plane by plane, a chunk being one bin of some channels of one
image, for each box of that image: these planes share the tables, and wait for memory side by
side. Images whose planes are not dense are copied to planes first, those whose channels are
neighbours as far as boxes read them (`window_transpose`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import cast

from saccade.backends.cpu.codegen import llvm
from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr
from saccade.backends.cpu.codegen.values import Int, Vec, lanes_picked
from saccade.kernels.base import In, Launch, Out, Temp, image_strides
from saccade.kernels.cpu.base import CpuCall, CpuKernel, single_variant
from saccade.kernels.cpu.floats import FLOATS, lanes_of, load, store, wide
from saccade.kernels.cpu.machine import beyond_caches, machine
from saccade.kernels.cpu.roi.bin_ranges import Ranges, RangesPlan
from saccade.kernels.cpu.roi.box_operands import refuse_boxes
from saccade.kernels.cpu.roi.plane_blocks import Planar, image_blocks
from saccade.kernels.cpu.roi.ps_code import (
    PsCode,
    PsConfig,
    Regions,
    RegionsPlan,
    blanks_of,
    emit_regions,
    first_phases,
    regions,
)
from saccade.kernels.cpu.roi.ps_runs import Runs, RunsPlan
from saccade.kernels.cpu.roi.window_transpose import WindowCode, window_phase
from saccade.opdefs.ps_roi import PsRoi

__all__ = ["PS_ROI"]

_IMAGES = 12  # a temporary
_SIDE_BY_SIDE = (8, 4, 2, 1)  # planes
_FAR = 4  # last-level caches that planes may take which go past them (by eye)
_SHARED = 1.5  # what planes side by side share, in times of a plane (an estimate)
_MAPPED = 1 << 14  # channels that a chunk writes at least


def supports(call: CpuCall) -> str | None:
    """Why this kernel cannot take the call."""
    x, out = call.inputs[0], call.outputs[0]
    if x.dtype not in FLOATS or out.dtype is not x.dtype:
        return f"{out.dtype.value} from {x.dtype.value}"
    if call.op.mapping and call.outputs[1].extent != call.outputs[1].size:
        return "the mapping is not dense"
    return refuse_boxes(call)


def launch(call: CpuCall) -> tuple[Launch, ...]:
    """The phases."""
    x, op = call.inputs[0], call.op
    n, channels, h, w = x.shape
    plan = regions(call, (n, h, w))
    bad = Out(1 + op.mapping) if op.report else None
    phases = first_phases(plan, bad, blanks=True)
    # Boxes are checked, even if there is nothing to pool.
    if not call.outputs[0].size:
        return phases
    if op.mapping:
        phases += (_mapping(call.outputs[0].shape[0], channels),)
    return (*phases, *_planes(call, plan))


def _mapping(boxes: int, channels: int) -> Launch:
    chunks = max(1, min(boxes, boxes * channels // _MAPPED))
    integers = {"boxes": boxes, "channels": channels, "chunks": chunks}
    return Launch(PsConfig("mapping"), {"mapping": Out(1)}, integers, chunks)


def _planes(call: CpuCall, plan: RegionsPlan) -> Iterator[Launch]:
    """For some images and channels at a time, what makes planes of them and what pools them."""
    (x, out), bins = (call.inputs[0], call.outputs[0]), prod(call.op.bins)
    operands = plan.operands
    code = PsCode(align=False, element=x.dtype.value)
    if isinstance(plan, RunsPlan):
        operands |= {"blanks": blanks_of(plan)}
        code = replace(code, tables=plan.tables.code, align=True)
    # Planes then go through memory: all channels of a pixel are read while it is there.
    streamed = x.channels_last and beyond_caches(call.target, x.nbytes)
    budget = call.target.l3 * _FAR if streamed else call.target.l3 * 3 // 4
    for images, channels in image_blocks(x, budget, bins):
        planar = Planar(x, In(0), _IMAGES, channels, images, lines=streamed)
        yield from _copies(call, plan, planar, streamed=streamed)
        n, count = images[1] - images[0], (channels[1] - channels[0]) // bins
        side = min(_SIDE_BY_SIDE, key=lambda s: -(-count // s) * (s + _SHARED))
        groups, start = -(-count // side), channels[0] // bins * out.strides[1]
        integers = {
            **plan.integers,
            **{"first": images[0], "n": n, "channels": count, "groups": groups},
            "w": planar.row,
            **dict(zip(("x_n", "x_c", "x_start"), planar.steps, strict=True)),
            **image_strides("out", out.strides, "kchw"),
            "out_start": start,
        }
        config = PsConfig("planes", planes=replace(code, channels=side))
        ends = {"x": planar.place, "out": Out(0)}
        yield Launch(config, {**ends, **operands}, integers, n * groups * bins)


def _copies(
    call: CpuCall, plan: RegionsPlan, planar: Planar, *, streamed: bool
) -> Iterator[Launch]:
    """What makes planes of images, as far as boxes read them where that is known."""
    place = planar.place
    if not isinstance(place, Temp):
        return
    if planar.view.channels_last:
        boxes = plan if isinstance(plan, RangesPlan) else plan.tables
        found = window_phase(
            planar.view, place, boxes, *planar.block, (planar.pitch, planar.row), streamed=streamed
        )
        config = PsConfig("window", window=cast("WindowCode", found.config))
        yield replace(found, config=config)
        return
    copy = planar.copied(call.target, call.threads)
    if copy is not None:  # images without pixels
        yield PsConfig.copied(copy)


def emit(k: KernelBuilder, config: PsConfig) -> None:
    """The code of one configuration."""
    if config.phase == "planes":
        _emit_planes(k, config.planes)
    elif config.phase == "mapping":
        _emit_mapping(k)
    else:
        emit_regions(k, config)


def _emit_planes(k: KernelBuilder, code: PsCode) -> None:
    x, out = k.pointer("x", code.element), k.pointer("out", code.element)
    found: Regions = Runs(k, code.tables) if code.align else Ranges(k)
    blanks = k.pointer("blanks", code.tables.weight) if code.align else None
    found.declare_integers()
    first, images, channels, groups, width = k.integers("first n channels groups w")
    x_n, x_c, x_start = k.integers("x_n x_c x_start")
    out_k, out_c, out_h, out_w, out_start = k.integers("out_k out_c out_h out_w out_start")
    bins = found.rows * found.columns
    with k.chunks(images * groups * bins) as chunk:
        number, rest = chunk % bins, chunk // bins
        image, group = rest // groups, rest % groups * code.channels
        p, q = number // found.columns, number % found.columns
        # Past the last channel comes the last one again.
        own = [k.minimum_int(group + i, channels - 1) for i in range(code.channels)]
        start = x + (x_start + image * x_n)
        planes = [start + (c * bins + number) * x_c for c in own]
        to = [out + (out_start + c * out_c + p * out_h + q * out_w) for c in own]
        boxes = (found.order.start(first + image + i) for i in range(2))
        with k.range(*boxes) as at:
            box = found.order.box(at)
            if isinstance(found, Runs):
                assert blanks is not None
                # NaN where torchvision divides 0 by 0, else 0.
                blank = blanks.load(box)
                sums = _samples(k, planes, found, at, (p, q), width)
                values = [sum_ + blank for sum_ in sums]
            else:
                values = _pixels(k, planes, found, box, (p, q), width)
            for place, value in zip(to, values, strict=True):
                store(k, place, value, box * out_k)


def _samples(
    k: KernelBuilder,
    planes: list[Ptr],
    found: Runs,
    at: Int,
    number: tuple[Int, Int],
    width: Int,
) -> list[Vec]:
    """The means of the bilinear samples of a bin, in some planes."""
    element = wide(planes[0].element)
    lanes = lanes_of(k, element)
    totals = [k.var(k.zero(lanes, element)) for _ in planes]
    rows = found.rows_of(at, number[0])
    with k.range(*found.runs_of(at, number[1])) as entry:
        run = found.run(entry)
        columns = [k.var(k.zero(lanes, element)) for _ in planes]
        with k.range(*rows) as i:
            row, weight = found.row(i)
            place, factor = row * width + run.first, k.broadcast(weight, lanes)
            for plane, column in zip(planes, columns, strict=True):
                pixels = load(k, plane, place, lanes, element, run.span)
                column.set(k.fma(pixels, factor, column.get()))
        for total, column in zip(totals, columns, strict=True):
            total.set(k.fma(run.only(column.get()), run.weights, total.get()))
    return [k.sum_lanes(total.get()) for total in totals]


def _pixels(
    k: KernelBuilder,
    planes: list[Ptr],
    ranges: Ranges,
    box: Int,
    number: tuple[Int, Int],
    width: Int,
) -> list[Vec]:
    """The means of the pixels of a bin, in some planes; 0 of none."""
    element = wide(planes[0].element)
    lanes = lanes_of(k, element)
    (top, bottom), (left, right) = ranges.bin(ranges.of(box), number)
    totals = [k.var(k.zero(lanes, element)) for _ in planes]
    with k.range(left, right, lanes) as column:
        mask = k.first(right - column, lanes)
        with k.range(top, bottom) as row:
            place = row * width + column
            for plane, total in zip(planes, totals, strict=True):
                total.set(total.get() + load(k, plane, place, lanes, element, mask))
    # The sum of no pixels is divided by 1: empty bins are 0.
    some = (top < bottom) & (left < right)
    area = k.to_real(some.select((bottom - top) * (right - left), 1), element)
    return [k.sum_lanes(total.get()) / area for total in totals]


def _emit_mapping(k: KernelBuilder) -> None:
    mapping = k.pointer("mapping", "int32")
    boxes, channels, chunks = k.integers("boxes channels chunks")
    lanes = k.lanes
    with k.chunks(chunks) as chunk:
        first, last = boxes * chunk // chunks, boxes * (chunk + 1) // chunks
        with k.range(first, last) as box, k.range(0, channels, lanes) as c:
            base = k.broadcast(Vec(k.b, k.b.trunc(c.value, llvm.I32)), lanes)
            numbers = k.b.add(base.value, lanes_picked(tuple(range(lanes))))
            mask = k.first(channels - c, lanes)
            mapping.store(Vec(k.b, numbers), box * channels + c, mask)


def cost(call: CpuCall) -> float:
    """Microseconds: four multiply-adds a sample, and what is read and written."""
    op, out = call.op, call.outputs[0]
    samples = max(1, op.ratio if op.ratio > 0 else 2) ** 2
    nbytes = call.inputs[0].nbytes + out.nbytes
    return machine(call.target).roofline(8.0 * samples * out.size, nbytes, call.threads, 0.1)


PS_ROI = CpuKernel("roi.ps", (PsRoi,), PsConfig, supports, single_variant(launch, cost), emit)
