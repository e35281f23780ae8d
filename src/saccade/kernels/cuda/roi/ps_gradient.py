"""PsRoiGradient: programs own pixels of one bin's channels and add box after box, no atomic.

    axes   the weights of rows and of columns in bins, and which of them each bin reaches
    ps     for each box whose bin reaches a tile: its channels times the weights

Deterministic: each pixel has its boxes in their order. Any strides; where channels are neighbours
in the result, those of a bin are not, and each is a sector of 32 bytes that goes to the L2 cache.
Floor: the bytes of the result, next to which grad is little.
"""

from __future__ import annotations

from collections.abc import Iterator

from saccade.ir import DType
from saccade.kernels.base import In, Launch, Operand, Out, Variant
from saccade.kernels.cuda.base import CudaCall, CudaKernel, element_of
from saccade.kernels.cuda.machine import LAUNCH, cached_micros, stream_micros
from saccade.kernels.cuda.roi.box_operands import channels_strides, power_of_two
from saccade.kernels.cuda.roi.box_phases import RoiPhaseConfig, Scratchpad, phase_entry
from saccade.kernels.cuda.roi.gradient_steps import (
    PART,
    Tile,
    axes_launch,
    issue_micros,
    pitch_of,
    ranked,
    refuse_rooms,
    wide,
)
from saccade.opdefs import PsRoiGradient

__all__ = ["PS_ROI_GRADIENT"]

_MOST_SAMPLES = 128  # along an axis of a bin
_BOXES = 128  # looked at together
_SECTOR = 32  # bytes that the L2 cache writes at least
_TILES = (
    (16, 16, 8, 1), (16, 16, 4, 1), (8, 16, 8, 1), (8, 16, 16, 1), (16, 16, 2, 1), (16, 16, 1, 1),
    (8, 16, 2, 1), (8, 16, 1, 1),
)  # fmt: skip
"""Rows, columns and channels of a program, warps."""
# Instructions for `_BOXES` boxes, and for one that reaches the tile (estimates).
_PER_LOOK, _PER_BOX = 80, 100


def _supports(call: CudaCall) -> str | None:
    op: PsRoiGradient = call.op
    if op.ratio > _MOST_SAMPLES:
        return f"{op.ratio} samples of a bin along an axis"
    count, (_, h, w) = call.inputs[0].shape[0], op.images
    rows, columns = count * op.bins[0] * pitch_of(h), count * op.bins[1] * pitch_of(w)
    return refuse_rooms(call, rows, columns, count * max(h, w))


def _variants(call: CudaCall) -> Iterator[Variant]:
    channels = max(1, min(16, power_of_two(call.inputs[0].shape[1])))
    tiles = [tile for tile in _TILES if channels // 2 <= tile[2] <= channels]
    yield from ranked(call, tiles, _micros, _launches)


def _micros(call: CudaCall, tile: Tile) -> float:
    """As bound by writing, and by instructions."""
    high, across, block, _ = tile
    (k, c, p, q), (n, h, w) = call.inputs[0].shape, call.op.images
    blocks = -(-c // block) * p * q
    programs = n * blocks * -(-h // high) * -(-w // across)
    reached = k * blocks * (h / (PART * p * high) + 1) * (w / (PART * q * across) + 1)
    each = high * across * block / 32 + _PER_BOX
    looks = programs * -(-k // _BOXES) * _PER_LOOK
    y = call.outputs[0]
    scattered = 0.0 if wide(y) else cached_micros(call, y.size * _SECTOR, programs)
    busy = issue_micros(call, looks + reached * each, 0.5)
    return LAUNCH + stream_micros(call, y.nbytes) + scattered + busy


def _launches(call: CudaCall, tile: Tile) -> tuple[Launch, ...]:
    grad, y, temps = call.inputs[0], call.outputs[0], Scratchpad()
    first = axes_launch(call, temps, (4, 4))
    (k, c, p, q), (n, _, h, w) = grad.shape, y.shape
    double = grad.dtype is DType.F64
    kind = "fp64" if double else "fp32"
    elements = (
        ("grad", element_of(grad)), ("rows", kind), ("columns", kind), ("y", element_of(y))
    )  # fmt: skip
    constants = (
        ("P", p), ("Q", q), ("WIDE", wide(y)), ("DOUBLE", double), ("TH", tile[0]),
        ("TW", tile[1]), ("BC", tile[2]), ("BLOCK", min(_BOXES, max(32, power_of_two(k)))),
    )  # fmt: skip
    names = ("rows", "columns", "row_spans", "column_spans", "owners")
    operands: dict[str, Operand] = {"grad": In(0), "y": Out(0)}
    operands |= {name: temps[name] for name in names}
    integers = {
        "count": k, "c": c, "h": h, "w": w, "row_pitch": pitch_of(h), "column_pitch": pitch_of(w),
        **channels_strides(grad, "g", "kcpq"), **channels_strides(y, "y", "nchw"),
    }  # fmt: skip
    programs = n * -(-h // tile[0]) * -(-w // tile[1]) * -(-c // tile[2]) * p * q
    config = RoiPhaseConfig("ps", elements, constants, tile[3])
    return (first, Launch(config, operands, integers, programs))


PS_ROI_GRADIENT = CudaKernel(
    "roi.ps_gradient",
    (PsRoiGradient,),
    RoiPhaseConfig,
    _supports,
    _variants,
    phase_entry,
)
