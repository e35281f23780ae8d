"""RoiAlignGradient: programs own pixels times channels and add box after box, without an atomic.

    axes     the weights of rows and of columns in bins: what a bin gives is their product
    listed   the boxes that reach each square of pixels, in order
    last     (where channels are no neighbours) bins with channels as neighbours
    align    for each box and row of bins in reach of a tile: its bins summed along each column,
             then that sum times each row's weight

Deterministic: each pixel has its boxes in their order. What is not finite in a bin reaches all
pixels of the tiles that the bin does. Floor: the bytes of grad and of the result; what binds is
arithmetic, for each pixel and row of bins that reaches its tile one product and sum, and for each
column two or more.
"""

from __future__ import annotations

from collections.abc import Iterator

from saccade.ir import DType
from saccade.kernels.base import In, Launch, Out, Variant
from saccade.kernels.cuda.base import CudaCall, CudaKernel, element_of
from saccade.kernels.cuda.machine import LAUNCH, stream_micros
from saccade.kernels.cuda.roi.box_operands import channels_strides, power_of_two, unit
from saccade.kernels.cuda.roi.box_phases import RoiPhaseConfig, Scratchpad, phase_entry
from saccade.kernels.cuda.roi.gradient_steps import (
    PART,
    Square,
    Tile,
    axes_launch,
    copied,
    issue_micros,
    last_launch,
    listed_launch,
    pitch_of,
    ranked,
    refuse_rooms,
    wide,
)
from saccade.opdefs import RoiAlignGradient

__all__ = ["ROI_ALIGN_GRADIENT"]

_MOST_SAMPLES = 128  # along an axis of a bin
_TILES = (
    (4, 4, 128, 1), (4, 8, 128, 1), (8, 4, 128, 1), (4, 4, 256, 1), (4, 4, 256, 2), (4, 4, 64, 1),
    (4, 8, 64, 1), (8, 8, 64, 1), (8, 8, 32, 1), (8, 16, 16, 1), (16, 16, 8, 1),
)  # fmt: skip
"""Rows, columns and channels of a program, warps."""
_REGISTERS = 128  # of a thread, for sums
_OVERHEAD = 140  # instructions of a step beside the sums (an estimate)


def _supports(call: CudaCall) -> str | None:
    op: RoiAlignGradient = call.op
    if op.ratio > _MOST_SAMPLES:
        return f"{op.ratio} samples of a bin along an axis"
    count, (_, h, w) = call.inputs[0].shape[0], op.images
    square = Square.of(call, (2, 4))
    return refuse_rooms(
        call, count * op.bins[0] * pitch_of(h), count * op.bins[1] * pitch_of(w),
        count * square.down * square.along, count * max(h, w),
    )  # fmt: skip


def _tiles(call: CudaCall) -> Iterator[Tile]:
    double = call.inputs[0].dtype is DType.F64
    largest = max(8, min(power_of_two(call.inputs[0].shape[1]), 128 if double else 256))
    for tile in _TILES:
        high, across, block, warps = tile
        registers = high * across * block // (32 * warps) * (2 if double else 1)
        if largest // 4 <= block <= largest and registers <= _REGISTERS:
            yield tile


def _variants(call: CudaCall) -> Iterator[Variant]:
    yield from ranked(call, _tiles(call), _micros, _launches)


def _micros(call: CudaCall, tile: Tile) -> float:
    """As bound by instructions: a step for each row of bins of a box that reaches a tile."""
    high, across, block, warps = tile
    (k, c, p, _), (_, h, w) = call.inputs[0].shape, call.op.images
    rows, columns = max(1.0, h / PART), max(1.0, w / PART)
    steps = k * (rows / high + p) * (columns / across + 1) * -(-c // block)
    lanes = block / (32 * warps)
    instructions = steps * warps * ((high + 2) * across * lanes + _OVERHEAD)
    copies = 2 * call.inputs[0].nbytes if copied(call.inputs[0]) else 0
    launches = LAUNCH * (3 if copies else 2)
    moved = copies + call.inputs[0].nbytes + call.outputs[0].nbytes
    busy = issue_micros(call, instructions, 0.7)
    return launches + stream_micros(call, moved) + busy


def _launches(call: CudaCall, tile: Tile) -> tuple[Launch, ...]:
    grad, y, temps = call.inputs[0], call.outputs[0], Scratchpad()
    square = Square.of(call, tile[:2])
    first = axes_launch(call, temps, tile[:2])
    lists = listed_launch(call, temps, square)
    room = temps.room("last", grad.size, grad.dtype.itemsize) if copied(grad) else None
    copy, source, strides = last_launch(grad, In(0), room, "g")
    n, c, h, w = y.shape
    double = grad.dtype is DType.F64
    config = RoiPhaseConfig(
        "align",
        (
            ("grad", element_of(grad)), ("rows", "fp64" if double else "fp32"),
            ("columns", "fp64" if double else "fp32"), ("y", element_of(y)),
        ),
        (
            ("P", grad.shape[2]), ("Q", grad.shape[3]), ("UNIT", unit(y)),
            ("WIDE", wide(y)), ("EVEN", c % tile[2] == 0), ("DOUBLE", double),
            ("SIDE_H", square.sides[0]), ("SIDE_W", square.sides[1]),
            ("TH", tile[0]), ("TW", tile[1]), ("BC", tile[2]),
        ),
        tile[3],
    )  # fmt: skip
    names = ("rows", "columns", "row_bands", "column_bands", "lists", "begins", "numbers")
    operands = {"grad": source, **{name: temps[name] for name in names}, "y": Out(0)}
    integers = {
        "count": grad.shape[0], "c": c, "h": h, "w": w, "down": square.down,
        "along": square.along, "row_pitch": pitch_of(h), "column_pitch": pitch_of(w),
        **strides, **channels_strides(y, "y", "nchw"),
    }  # fmt: skip
    programs = n * -(-h // tile[0]) * -(-w // tile[1]) * -(-c // tile[2])
    return (first, lists, *copy, Launch(config, operands, integers, programs))


ROI_ALIGN_GRADIENT = CudaKernel(
    "roi.align_gradient",
    (RoiAlignGradient,),
    RoiPhaseConfig,
    _supports,
    _variants,
    phase_entry,
)
