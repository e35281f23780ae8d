"""The gradient of RoiPool with respect to the images, without atomics.

    dx[n, c, place] = Σ over the boxes of n, in order, and their bins that point there: dy

Phases: boxes in order by image; then each plane of dx by itself (`plane_sums`). Operands whose
channels are neighbours are copied to planes, block by block, and so is such a result from planes.
A place beyond the image is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import cast

from saccade.backends.cpu.codegen.emitter import BYTES
from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.backends.cpu.codegen.values import Bool, Int
from saccade.kernels.base import In, Launch, Operand, Out, Scratch, Temp
from saccade.kernels.cpu.base import CpuCall, CpuKernel, single_variant
from saccade.kernels.cpu.floats import FLOATS, load_one, wide
from saccade.kernels.cpu.machine import machine
from saccade.kernels.cpu.movement.copy_code import CopyConfig, emit_copy
from saccade.kernels.cpu.roi.box_operands import (
    Boxes,
    BoxesCode,
    BoxesPlan,
    Order,
    plan_boxes,
    refuse_boxes,
)
from saccade.kernels.cpu.roi.channel_blocks import NO_COPY
from saccade.kernels.cpu.roi.plane_blocks import Planar, channel_blocks
from saccade.kernels.cpu.roi.plane_sums import Planes, plane_integers
from saccade.opdefs.roi_pool import RoiPoolGradient

__all__ = ["ROI_POOL_GRADIENT", "RoiPoolGradientConfig"]

_ORDER, _BAD, _GRAD, _PLACES, _OUT = range(5)  # temporaries
_STEPS = ("grad_k", "grad_c", "grad_start", "places_k", "places_c", "places_start")


@dataclass(frozen=True)
class RoiPoolGradientConfig:
    """What the code of one phase depends on.

    Attributes:
        phase: `order`, `copy` or `scatter`.
        boxes, copy: Of the first two.
        element: Type of the gradients, of the third.
    """

    phase: str
    boxes: BoxesCode = field(default_factory=BoxesCode)
    copy: CopyConfig = NO_COPY
    element: str = "float32"


def supports(call: CpuCall) -> str | None:
    """Why this kernel cannot take the call."""
    grad, out = call.inputs[0], call.outputs[0]
    if grad.dtype not in FLOATS or out.dtype is not grad.dtype:
        return f"{out.dtype.value} from {grad.dtype.value}"
    return refuse_boxes(call, 2)


def launch(call: CpuCall) -> tuple[Launch, ...]:
    """The phases."""
    grad, out = call.inputs[0], call.outputs[0]
    boxes = plan_boxes(call, grad, out.shape[0], 2)
    bad: Operand = Out(1) if call.op.report else Temp(_BAD, 64)
    first = Launch(
        RoiPoolGradientConfig("order", boxes.code),
        {"order": boxes.order(_ORDER), **boxes.operands, "bad": bad},
        {"boxes": boxes.count, "images": boxes.images, **boxes.integers},
        1,
    )
    # Boxes are checked, even if there is nothing to sum.
    if not out.size:
        return (first,)
    blocks = channel_blocks(call, (*call.inputs[:2], out), out.shape[1])
    return (first, *(phase for block in blocks for phase in _block(call, boxes, block)))


def _block(call: CpuCall, boxes: BoxesPlan, channels: tuple[int, int]) -> Iterator[Launch]:
    """The phases of a block of channels."""
    grad, places, out = (
        Planar(view, operand, temp, channels)
        for view, operand, temp in (
            (call.inputs[0], In(0), _GRAD),
            (call.inputs[1], In(1), _PLACES),
            (call.outputs[0], Out(0), _OUT),
        )
    )
    # None of what has dense planes already.
    copies = [part.copied(call.target, call.threads) for part in (grad, places)]
    yield from map(_copy, filter(None, copies))
    (n, _, h, w), (_, _, p, q) = call.outputs[0].shape, call.inputs[0].shape
    element = grad.view.dtype.value
    lanes, nbytes = call.target.lanes, BYTES[wide(element)]
    steps = (_STEPS, (*grad.steps, *places.steps))
    integers = {
        "boxes": boxes.count,
        "images": boxes.images,
        **plane_integers(n, channels[1] - channels[0], h * w, out.steps),
        "bins": p * q,
        **dict(zip(*steps, strict=True)),
    }
    operands = {
        "grad": grad.place,
        "places": places.place,
        "out": out.place,
        "order": boxes.order(_ORDER),
        "plane": Scratch((h * w + lanes) * nbytes),
    }
    config = RoiPoolGradientConfig("scatter", element=element)
    yield Launch(config, operands, integers, n * (channels[1] - channels[0]))
    yield from map(_copy, filter(None, [out.copied(call.target, call.threads, back=True)]))


def _copy(found: Launch) -> Launch:
    config = RoiPoolGradientConfig("copy", copy=cast("CopyConfig", found.config))
    return replace(found, config=config)


def emit(k: KernelBuilder, config: RoiPoolGradientConfig) -> None:
    """The code of one configuration."""
    if config.phase == "order":
        _emit_order(k, config.boxes)
    elif config.phase == "copy":
        emit_copy(k, config.copy)
    else:
        _emit_scatter(k, config.element)


def _emit_order(k: KernelBuilder, code: BoxesCode) -> None:
    order, boxes = Order(k), Boxes(k, code)
    bad = k.pointer("bad", "int32")
    order.sized(*k.integers("boxes images"))
    boxes.declare_integers()
    with k.chunks(k.int(1)):
        order.build(boxes, bad)


def _emit_scatter(k: KernelBuilder, element: str) -> None:
    grad, places = k.pointer("grad", element), k.pointer("places", "int32")
    out, order = k.pointer("out", element), Order(k)
    plane = k.scratch("plane", wide(element))
    order.sized(*k.integers("boxes images"))
    planes = k.sizes(Planes, "plane_")
    bins, *steps = k.integers(" ".join(("bins", *_STEPS)))

    def add(channel: Int, number: Int) -> None:
        box = order.box(number)
        values, at = (
            p + (start + box * step + channel * channel_step)
            for p, (step, channel_step, start) in ((grad, steps[:3]), (places, steps[3:]))
        )
        with k.range(0, bins) as i:
            place = at.load_int(i)
            # As unsigned numbers, so that -1 is beyond the image too.
            inside = Bool(k.b, k.b.icmp_unsigned("<", place.value, planes.pixels.value))
            with k.when(inside):
                plane.store(plane.load(place) + load_one(k, values, i, plane.element), place)

    planes.each(k, out, plane, order, add)


def cost(call: CpuCall) -> float:
    """Microseconds: an addition a bin, and what is read and written."""
    nbytes = sum(view.nbytes for view in (*call.inputs, *call.outputs))
    return machine(call.target).roofline(8.0 * call.inputs[0].size, nbytes, call.threads, 0.1)


ROI_POOL_GRADIENT = CpuKernel(
    "roi.pool_gradient",
    (RoiPoolGradient,),
    RoiPoolGradientConfig,
    supports,
    single_variant(launch, cost),
    emit,
)
