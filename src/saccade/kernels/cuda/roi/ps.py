"""PsRoi: position-sensitive pooling, a lane for each channel of x, which is one bin of a result.

Each channel has pixels of its own, so that neighbouring lanes read far from each other in any
storage. Any strides, any boxes. Floor: a sector of 32 bytes from the L2 cache for each pixel read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from saccade.kernels.base import In, Launch, Out, Variant
from saccade.kernels.cuda.base import CudaCall, CudaKernel, Entry, element_of
from saccade.kernels.cuda.machine import cached_micros, stream_micros
from saccade.kernels.cuda.roi.box_operands import (
    BOX_INTEGERS,
    boxes_of,
    channels_strides,
    common_refusal,
    exact_kind,
    unit,
)
from saccade.opdefs import PsRoi

__all__ = ["PS_ROI", "CudaPsRoiConfig"]

_INTEGERS = (
    *BOX_INTEGERS, "c", "h", "w", "programs", "x_n", "x_c", "x_h", "x_w",
    "y_k", "y_c", "y_p", "y_q", "at_k", "at_c", "at_p", "at_q",
)  # fmt: skip
_MOST_SAMPLES = 128  # along an axis of a bin
# Channels of a program, columns of a bin that are on their way at once, warps. One H100, float32
# and float16: samples take 58 and 43 µs, by two elements a thread 73 and 56; pixels of planes 90
# and 64, a column at a time 136 and 104; of neighbouring channels 419 and 235, before 465 and 275.
_SAMPLES, _PLANES, _NEIGHBOURS = (128, 1, 4), (64, 4, 4), (32, 8, 4)
_SECTOR = 32  # bytes that the L2 cache gives at least


@dataclass(frozen=True)
class CudaPsRoiConfig:
    """What the code depends on.

    Attributes:
        elements: Of x, y and the boxes.
        bins, scale, ratio, align, mapping, report: Of the operator.
        exact: Whether places are computed in float64.
        unit: Whether x's channels are neighbours.
        block: Channels of a program, columns of a bin that it reads at once, warps.
    """

    elements: tuple[str, str, str]
    bins: tuple[int, int]
    scale: float
    ratio: int
    align: bool
    mapping: bool
    report: bool
    exact: bool
    unit: bool
    block: tuple[int, int, int]


def _supports(call: CudaCall) -> str | None:
    if call.op.ratio > _MOST_SAMPLES:
        return f"{call.op.ratio} samples of a bin along an axis"
    return common_refusal(call)


def _variants(call: CudaCall) -> Iterator[Variant]:
    align, x = call.op.mode == "align", call.inputs[0]
    block = _SAMPLES if align else _NEIGHBOURS if unit(x) else _PLANES
    yield Variant(_micros(call, block[0]), partial(_launches, call, block))


def _micros(call: CudaCall, block: int) -> float:
    op: PsRoi = call.op
    c = call.inputs[0].shape[1]
    reads = 4.0 * (op.ratio if op.ratio > 0 else 2) ** 2 if op.mode == "align" else 9.0
    programs = call.outputs[0].shape[0] * -(-c // block)
    cached = cached_micros(call, programs * block * reads * _SECTOR, programs)
    return stream_micros(call, sum(view.nbytes for view in call.outputs)) + cached


def _launches(call: CudaCall, block: tuple[int, int, int]) -> tuple[Launch, ...]:
    op: PsRoi = call.op
    x, y, boxes = call.inputs[0], call.outputs[0], boxes_of(call)
    mapping = call.outputs[1 if op.mapping else 0]
    align = op.mode == "align"
    config = CudaPsRoiConfig(
        (element_of(x), element_of(y), boxes.elements[0]), op.bins, float(op.scale),
        max(0, op.ratio) if align else 0, align, op.mapping, op.report, exact_kind(call),
        unit(x), block,
    )  # fmt: skip
    programs = y.shape[0] * -(-x.shape[1] // block[0])
    integers = {
        **boxes.integers, "c": x.shape[1], "h": x.shape[2], "w": x.shape[3],
        "programs": programs,
        **channels_strides(x, "x", "nchw"), **channels_strides(y, "y", "kcpq"),
        **channels_strides(mapping, "at", "kcpq"),
    }  # fmt: skip
    # What is not asked for is not written, wherever its pointer goes.
    named = {"mapping": Out(1 if op.mapping else 0), "bad": Out(len(call.outputs) - 1)}
    operands = {"x": In(0), **boxes.operands, "y": Out(0), **named}
    return (Launch(config, operands, integers, programs + op.report),)


def _entry(config: CudaPsRoiConfig) -> Entry:
    x, y, boxes = config.elements
    constants: dict[str, int | float | bool | str] = {
        "P": config.bins[0], "Q": config.bins[1], "SCALE": config.scale, "RATIO": config.ratio,
        "ALIGN": config.align, "MAPPING": config.mapping, "REPORT": config.report,
        "DOUBLE": x == "fp64", "EXACT": config.exact, "UNIT": config.unit,
        "BLOCK": config.block[0], "WIDE": config.block[1],
    }  # fmt: skip
    pointers = (
        ("x", x), ("boxes", boxes), ("images", boxes), ("y", y), ("mapping", "i32"), ("bad", "i32"),
    )  # fmt: skip
    return Entry(
        "roi.ps_code:pooled", pointers, _INTEGERS, constants,
        warps=config.block[2], contract=False,
    )  # fmt: skip


PS_ROI = CudaKernel("roi.ps", (PsRoi,), CudaPsRoiConfig, _supports, _variants, _entry)
