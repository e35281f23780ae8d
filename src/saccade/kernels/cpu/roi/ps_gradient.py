"""The gradient of PsRoi with respect to the images, without atomics.

Each plane of the result belongs to one bin of every box of its image. Phases: boxes
(`ps_code`), then each plane by itself (`plane_sums`); of results whose channels are neighbours
row by row (`ps_gradient_scatter`). Where neither planes nor pixels are dense, planes are copied.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from saccade.backends.cpu.codegen.emitter import BYTES
from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr
from saccade.backends.cpu.codegen.values import Int, Vec
from saccade.kernels.base import In, Launch, Out, Scratch, image_strides
from saccade.kernels.cpu.base import CpuCall, CpuKernel, single_variant
from saccade.kernels.cpu.floats import FLOATS, lanes_of, load_one, wide
from saccade.kernels.cpu.roi.bin_ranges import Ranges, RangesPlan
from saccade.kernels.cpu.roi.box_operands import gradient_cost, refuse_boxes
from saccade.kernels.cpu.roi.channel_blocks import flat_planes
from saccade.kernels.cpu.roi.plane_blocks import Planar, image_blocks
from saccade.kernels.cpu.roi.plane_sums import Planes, plane_integers
from saccade.kernels.cpu.roi.ps_code import (
    PsCode,
    PsConfig,
    Regions,
    RegionsPlan,
    emit_regions,
    first_phases,
    own_bin,
    regions,
)
from saccade.kernels.cpu.roi.ps_gradient_scatter import emit_spread, spread_phases
from saccade.kernels.cpu.roi.ps_runs import Runs, RunsPlan
from saccade.opdefs.ps_roi import PsRoiGradient

__all__ = ["PS_ROI_GRADIENT"]

_IMAGES, _GRAD = 12, 13  # temporaries


def supports(call: CpuCall) -> str | None:
    """Why this kernel cannot take the call."""
    grad, out = call.inputs[0], call.outputs[0]
    if grad.dtype not in FLOATS or out.dtype is not grad.dtype:
        return f"{out.dtype.value} from {grad.dtype.value}"
    return refuse_boxes(call)


def launch(call: CpuCall) -> tuple[Launch, ...]:
    """The phases."""
    out = call.outputs[0]
    plan = regions(call, call.op.images)
    beside = out.channels_last and not flat_planes(out)
    bad = Out(1) if call.op.report else None
    phases = first_phases(plan, bad, blanks=False, packed=not beside)
    if not out.size:
        return phases
    if beside:
        boxes = plan if isinstance(plan, RangesPlan) else plan.tables
        return (*phases, *spread_phases(call, boxes, _GRAD))
    return (*phases, *_planes(call, plan))


def _planes(call: CpuCall, plan: RegionsPlan) -> Iterator[Launch]:
    """For some images and channels at a time, what sums planes and what brings them together."""
    grad, view = call.inputs[0], call.outputs[0]
    (_, _, h, w), element = view.shape, grad.dtype.value
    nbytes = BYTES[wide(element)]
    code = PsCode(align=False, element=element)
    if isinstance(plan, RunsPlan):
        code = PsCode(plan.tables.code, align=True, element=element)
    for images, channels in image_blocks(view, call.target.l3 * 3 // 4, prod(call.op.bins)):
        out = Planar(view, Out(0), _IMAGES, channels, images)
        n, count = images[1] - images[0], channels[1] - channels[0]
        integers = {
            **plan.integers,
            **plane_integers(n, count, h * w, out.steps),
            "image": images[0],
            "first": channels[0],
            "w": w,
            **image_strides("grad", grad.strides, "kchw"),
        }
        # Vectors of runs may reach past the last pixel.
        plane = Scratch((h * w + call.target.lanes) * nbytes)
        operands = {"grad": In(0), "out": out.place, **plan.operands, "plane": plane}
        yield Launch(PsConfig("planes", planes=code), operands, integers, n * count)
        copy = out.copied(call.target, call.threads, back=True)
        if copy is not None:
            yield PsConfig.copied(copy)


def emit(k: KernelBuilder, config: PsConfig) -> None:
    """The code of one configuration."""
    if config.phase == "planes":
        _emit_planes(k, config.planes)
    elif config.phase == "spread":
        emit_spread(k, config.planes)
    else:
        emit_regions(k, config)


def _emit_planes(k: KernelBuilder, code: PsCode) -> None:
    grad, out = k.pointer("grad", code.element), k.pointer("out", code.element)
    found: Regions = Runs(k, code.tables) if code.align else Ranges(k)
    plane = k.scratch("plane", wide(code.element))
    found.declare_integers()
    planes = k.sizes(Planes, "plane_")
    image, first, width = k.integers("image first w")
    grad_k, grad_c, grad_h, grad_w = k.integers("grad_k grad_c grad_h grad_w")

    def add(channel: Int, at: Int) -> None:
        box = found.order.box(at)
        c, p, q = own_bin(first + channel, found.rows, found.columns)
        own = box * grad_k + c * grad_c + p * grad_h + q * grad_w
        value = load_one(k, grad, own, plane.element)
        if isinstance(found, Runs):
            _samples(k, plane, found, at, (p, q), value, width)
        else:
            _pixels(k, plane, found, box, (p, q), value, width)

    planes.each(k, out, plane, found.order, add, image)


def _samples(
    k: KernelBuilder,
    plane: Ptr,
    found: Runs,
    at: Int,
    number: tuple[Int, Int],
    value: Vec,
    width: Int,
) -> None:
    """What a bin gives to the pixels under its samples; to those between them 0."""
    lanes = lanes_of(k, plane.element)
    rows = found.rows_of(at, number[0])
    with k.range(*found.runs_of(at, number[1])) as entry:
        run = found.run(entry)
        # A weight of 0 times an infinite gradient would be NaN between the entries.
        shares, to = run.only(run.weights * k.broadcast(value, lanes)), plane + run.first
        with k.range(*rows) as i:
            row, weight = found.row(i)
            place, factor = row * width, k.broadcast(weight, lanes)
            to.store(k.fma(shares, factor, to.vec(place, None, lanes)), place)


def _pixels(
    k: KernelBuilder,
    plane: Ptr,
    ranges: Ranges,
    box: Int,
    number: tuple[Int, Int],
    value: Vec,
    width: Int,
) -> None:
    """What a bin gives to each of its pixels."""
    lanes = lanes_of(k, plane.element)
    (top, bottom), (left, right) = ranges.bin(ranges.of(box), number)
    # Of no pixels the share is no number, but there is nothing to give it to.
    area = k.to_real((bottom - top) * (right - left), plane.element)
    share = k.broadcast(value / area, lanes)
    with k.range(top, bottom) as row:
        line = plane + row * width
        with k.range(left, right, lanes) as column:
            mask = k.first(right - column, lanes)
            line.store(line.vec(column, mask, lanes) + share, column, mask)


def cost(call: CpuCall) -> float:
    """Microseconds."""
    return gradient_cost(call, 0.1)


PS_ROI_GRADIENT = CpuKernel(
    "roi.ps_gradient", (PsRoiGradient,), PsConfig, supports, single_variant(launch, cost), emit
)
