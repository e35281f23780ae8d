"""PsRoi: every bin of a box is a mean over its picture, in a channel that is the bin's own.

Phases: boxes (`ps_regions`); then plane by plane, a chunk being one channel of one picture, the
bin of each box of that picture that the channel belongs to. A plane stays in the second-level cache
meanwhile. Pictures whose planes are not dense are copied to planes, block by block.
"""

from __future__ import annotations

from collections.abc import Iterator

from saccade.codegen.language import Kernel, Ptr
from saccade.codegen.values import I32, Int, Vec, lanes_picked
from saccade.kernels.base import Call, CpuKernel, In, Launch, Operand, Out, one_way
from saccade.kernels.floats import FLOATS, lanes_of, load, load_one, store, wide
from saccade.kernels.machine import machine
from saccade.kernels.roi.axis import Axis
from saccade.kernels.roi.boxes import refuse_boxes
from saccade.kernels.roi.planar import Planar, channel_blocks
from saccade.kernels.roi.ps_regions import (
    PsCode,
    PsConfig,
    Regions,
    blanks_of,
    emit_regions,
    first_phases,
    own_bin,
    regions,
)
from saccade.kernels.roi.ranges import Ranges, RangesPlan
from saccade.kernels.roi.tables import Tables, TablesPlan
from saccade.opdefs.ps_roi import PsRoi

__all__ = ["PS_ROI"]

_PICTURES = 6  # a temporary
_MAPPED = 1 << 14  # channels that a chunk writes at least


def supports(call: Call) -> str | None:
    """Why this kernel cannot take the call."""
    x, out = call.inputs[0], call.outputs[0]
    if x.dtype not in FLOATS or out.dtype is not x.dtype:
        return f"{out.dtype.value} from {x.dtype.value}"
    if call.op.mapping and call.outputs[1].extent != call.outputs[1].size:
        return "the mapping is not dense"
    return refuse_boxes(call)


def launch(call: Call) -> tuple[Launch, ...]:
    """The phases."""
    x, op = call.inputs[0], call.op
    n, channels, h, w = x.shape
    plan = regions(call, (n, h, w))
    bad = Out(1 + op.mapping) if op.report else None
    phases = first_phases(plan, bad, blanks=True)
    if not call.outputs[0].size:
        return phases
    if op.mapping:
        phases += (_mapping(call.outputs[0].shape[0], channels),)
    blocks = channel_blocks(call, (x,), channels)
    return (*phases, *(phase for block in blocks for phase in _block(call, plan, block)))


def _mapping(boxes: int, channels: int) -> Launch:
    chunks = max(1, min(boxes, boxes * channels // _MAPPED))
    return Launch(PsConfig("mapping"), (Out(1),), (boxes, channels, chunks), chunks)


def _block(
    call: Call, plan: TablesPlan | RangesPlan, channels: tuple[int, int]
) -> Iterator[Launch]:
    """The phases of a block of channels."""
    x, out = Planar(call.inputs[0], In(0), _PICTURES, channels), call.outputs[0]
    copy = x.copied(call.target, call.threads)
    if copy is not None:
        yield PsConfig.copied(copy)
    n, _, _, w = x.view.shape
    count = channels[1] - channels[0]
    integers = (*plan.integers, n, count, channels[0], w, *x.steps, *out.strides)
    operands: tuple[Operand, ...] = (x.place, Out(0), *plan.operands)
    element = x.view.dtype.value
    if isinstance(plan, TablesPlan):
        operands += (blanks_of(plan),)
        code = PsCode(plan.code, align=True, element=element)
    else:
        code = PsCode(align=False, element=element)
    yield Launch(PsConfig("planes", planes=code), operands, integers, n * count)


def emit(k: Kernel, config: PsConfig) -> None:
    """The code of one configuration."""
    if config.phase == "planes":
        _emit_planes(k, config.planes)
    elif config.phase == "mapping":
        _emit_mapping(k)
    else:
        emit_regions(k, config)


def _emit_planes(k: Kernel, code: PsCode) -> None:
    x, out = k.pointer("x", code.element), k.pointer("out", code.element)
    found: Regions = Tables(k, code.tables) if code.align else Ranges(k)
    blanks = k.pointer("blanks", code.tables.weight) if code.align else None
    found.declare_integers()
    pictures, channels, first, width = k.integers("n channels first w")
    x_n, x_c, x_start = k.integers("x_n x_c x_start")
    out_k, out_c, out_h, out_w = k.integers("out_k out_c out_h out_w")
    with k.chunks(pictures * channels) as chunk:
        picture, channel = chunk // channels, chunk % channels
        plane = x + (x_start + picture * x_n + channel * x_c)
        c, p, q = own_bin(first + channel, found.rows, found.columns)
        to = out + (c * out_c + p * out_h + q * out_w)
        with k.range(found.order.start(picture), found.order.start(picture + 1)) as at:
            box = found.order.box(at)
            if isinstance(found, Tables):
                assert blanks is not None
                value = _samples(k, plane, found.of(box), (p, q), width) + blanks.load(box)
            else:
                value = _pixels(k, plane, found, box, (p, q), width)
            store(k, to, value, box * out_k)


def _samples(
    k: Kernel, plane: Ptr, axes: tuple[Axis, Axis], number: tuple[Int, Int], width: Int
) -> Vec:
    """The mean of the bilinear samples of a bin."""
    (down, along), (p, q) = axes, number
    total = k.var(k.zero(1, wide(plane.element)))
    columns = along.first(q), along.first(q + 1)
    with k.range(down.first(p), down.first(p + 1)) as i:
        row, weight = plane + down.pixel(i) * width, down.weight(i)
        with k.range(*columns) as j:
            pixel = load_one(k, row, along.pixel(j), wide(plane.element))
            total.set(k.fma(pixel, weight * along.weight(j), total.get()))
    result: Vec = total.get()
    return result


def _pixels(
    k: Kernel, plane: Ptr, ranges: Ranges, box: Int, number: tuple[Int, Int], width: Int
) -> Vec:
    """The mean of the pixels of a bin; 0 of none."""
    element = wide(plane.element)
    lanes = lanes_of(k, element)
    (top, bottom), (left, right) = (
        ranges.pair(table, i) for table, i in zip(ranges.of(box), number, strict=True)
    )
    total = k.var(k.zero(lanes, element))
    with k.range(top, bottom) as row:
        line = plane + row * width
        with k.range(left, right, lanes) as column:
            part = load(k, line, column, lanes, element, k.first(right - column, lanes))
            total.set(total.get() + part)
    some = (top < bottom) & (left < right)
    area = some.select((bottom - top) * (right - left), 1)
    sum_: Vec = k.sum_lanes(total.get())
    return sum_ / k.to_real(area, element)


def _emit_mapping(k: Kernel) -> None:
    mapping = k.pointer("mapping", "int32")
    boxes, channels, chunks = k.integers("boxes channels chunks")
    lanes = k.lanes
    with k.chunks(chunks) as chunk:
        first, last = boxes * chunk // chunks, boxes * (chunk + 1) // chunks
        with k.range(first, last) as box, k.range(0, channels, lanes) as c:
            base = k.broadcast(Vec(k.b, k.b.trunc(c.value, I32)), lanes)
            numbers = k.b.add(base.value, lanes_picked(tuple(range(lanes))))
            mask = k.first(channels - c, lanes)
            mapping.store(Vec(k.b, numbers), box * channels + c, mask)


def cost(call: Call) -> float:
    """Microseconds: four multiply-adds a sample, and what is read and written."""
    op, out = call.op, call.outputs[0]
    samples = max(1, op.ratio if op.ratio > 0 else 2) ** 2
    nbytes = call.inputs[0].nbytes + out.nbytes
    return machine(call.target).roofline(8.0 * samples * out.size, nbytes, call.threads, 0.1)


PS_ROI = CpuKernel("roi.ps", (PsRoi,), PsConfig, supports, one_way(launch, cost), emit)
