"""RoiPool: bins times channels of one box in a program, the largest pixels and where they are.

Any strides, any boxes. Floor: the bytes of the results and of the pixels under the boxes; what
binds is the L2 cache, which gives each pixel of a bin once, those at its border to its neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from saccade.kernels.base import In, Launch, Out, Variant
from saccade.kernels.cuda.base import CudaCall, CudaKernel, Entry, element_of
from saccade.kernels.cuda.roi.align import block_choices, sampling_micros
from saccade.kernels.cuda.roi.box_operands import (
    BOX_INTEGERS,
    boxes_of,
    channels_strides,
    common_refusal,
    exact_kind,
    joined,
    unit,
)
from saccade.opdefs import RoiPool

__all__ = ["ROI_POOL", "CudaRoiPoolConfig"]

_INTEGERS = (
    *BOX_INTEGERS, "c", "h", "w", "programs", "x_n", "x_c", "x_h", "x_w",
    "y_k", "y_c", "y_p", "y_q", "at_k", "at_c", "at_p", "at_q",
)  # fmt: skip
_MULTIPLES = (
    "c", "x_n", "x_h", "x_w", "y_k", "y_c", "y_p", "y_q", "at_k", "at_c", "at_p", "at_q",
)  # fmt: skip
# Of a bin; the boxes say how many, when it is too late. So many are those of 1000 boxes of up to
# 100x100 pixels, 7x7 bins: `pool_windows` finds out on the GPU where they are few.
_PIXELS = 62.0


@dataclass(frozen=True)
class CudaRoiPoolConfig:
    """What the code depends on.

    Attributes:
        elements: Of x, y and the boxes.
        bins, scale, places, report: Of the operator.
        exact: Whether bounds are computed in float64.
        last: Whether x's channels are neighbours.
        unit, joined: Whether the channels of y and of places are, and their bins.
        block: Bins and channels of a program, warps.
    """

    elements: tuple[str, str, str]
    bins: tuple[int, int]
    scale: float
    places: bool
    report: bool
    exact: bool
    last: bool
    unit: tuple[bool, bool]
    joined: tuple[bool, bool]
    block: tuple[int, int, int]


def _variants(call: CudaCall) -> Iterator[Variant]:
    timed = [(sampling_micros(call, _PIXELS, block), block) for block in block_choices(call)]
    for micros, block in sorted(timed):
        yield Variant(micros, partial(_launches, call, block))


def _launches(call: CudaCall, block: tuple[int, int, int]) -> tuple[Launch, ...]:
    op: RoiPool = call.op
    x, y, boxes = call.inputs[0], call.outputs[0], boxes_of(call)
    places = call.outputs[1 if op.places else 0]
    config = CudaRoiPoolConfig(
        (element_of(x), element_of(y), boxes.elements[0]), op.bins, float(op.scale),
        op.places, op.report, exact_kind(call), unit(x), (unit(y), unit(places)),
        (joined(y), joined(places)), block,
    )  # fmt: skip
    k, c, p, q = y.shape
    programs = k * -(-p * q // block[0]) * -(-c // block[1])
    integers = {
        **boxes.integers, "c": c, "h": x.shape[2], "w": x.shape[3], "programs": programs,
        **channels_strides(x, "x", "nchw"), **channels_strides(y, "y", "kcpq"),
        **channels_strides(places, "at", "kcpq"),
    }  # fmt: skip
    # What is not asked for is not written, wherever its pointer goes.
    named = {"places": Out(1 if op.places else 0), "bad": Out(len(call.outputs) - 1)}
    operands = {"x": In(0), **boxes.operands, "y": Out(0), **named}
    return (Launch(config, operands, integers, programs + op.report),)


def _entry(config: CudaRoiPoolConfig) -> Entry:
    x, y, boxes = config.elements
    constants: dict[str, int | float | bool | str] = {
        "P": config.bins[0], "Q": config.bins[1], "SCALE": config.scale,
        "PLACES": config.places, "REPORT": config.report, "DOUBLE": x == "fp64",
        "EXACT": config.exact, "LAST": config.last, "UNIT": config.unit[0],
        "JOINED": config.joined[0], "AT_UNIT": config.unit[1], "AT_JOINED": config.joined[1],
        "BB": config.block[0], "BC": config.block[1],
    }  # fmt: skip
    pointers = (
        ("x", x), ("boxes", boxes), ("images", boxes), ("y", y), ("places", "i32"), ("bad", "i32"),
    )  # fmt: skip
    return Entry(
        "roi.pool_code:pool", pointers, _INTEGERS, constants,
        multiples=_MULTIPLES, warps=config.block[2], contract=False,
    )  # fmt: skip


ROI_POOL = CudaKernel("roi.pool", (RoiPool,), CudaRoiPoolConfig, common_refusal, _variants, _entry)
