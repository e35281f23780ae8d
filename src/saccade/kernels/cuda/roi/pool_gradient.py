"""RoiPoolGradient: programs own pixels times channels and add box after box, without an atomic.

    last      (where channels are no neighbours) bins and places with channels as neighbours
    pointed   the rows and columns that the channels of each bin point to
    listed    the boxes that point into each square of pixels, in order
    pool      for each bin that points into a tile: each pixel takes what points to it

Deterministic: each pixel has its boxes in their order. Places may be anything. Floor: the bytes of
grad, places (twice) and result; what binds is arithmetic, a comparison and a sum for each pixel of
a tile and bin that points into it.
"""

from __future__ import annotations

from collections.abc import Iterator

from saccade.ir import DType
from saccade.kernels.base import In, Launch, Operand, Out, Variant
from saccade.kernels.cuda.base import CudaCall, CudaKernel, element_of
from saccade.kernels.cuda.machine import LAUNCH, stream_micros
from saccade.kernels.cuda.roi.box_operands import channels_strides, power_of_two, unit
from saccade.kernels.cuda.roi.box_phases import Constant, RoiPhaseConfig, Scratchpad, phase_entry
from saccade.kernels.cuda.roi.gradient_steps import (
    PART,
    Square,
    Tile,
    box_operands,
    copied,
    issue_micros,
    last_launch,
    listed_launch,
    ranked,
    refuse_rooms,
    wide,
)
from saccade.opdefs import RoiPoolGradient

__all__ = ["ROI_POOL_GRADIENT"]

_TILES = (
    (4, 4, 128, 1), (4, 8, 64, 1), (4, 4, 64, 1), (4, 4, 256, 2), (2, 4, 256, 1), (8, 8, 32, 1),
    (8, 16, 16, 1), (16, 16, 8, 1),
)  # fmt: skip
"""Rows, columns and channels of a program, warps."""
# Instructions for a box that reaches a tile, and for a bin (estimates).
_PER_BOX, _PER_BIN = 110, 50


def _supports(call: CudaCall) -> str | None:
    square, bins = Square.of(call, (2, 4)), call.inputs[0].shape[2] * call.inputs[0].shape[3]
    count = call.inputs[0].shape[0]
    return refuse_rooms(call, count * bins, count * square.down * square.along)


def _tiles(call: CudaCall) -> Iterator[Tile]:
    largest = max(8, min(power_of_two(call.inputs[0].shape[1]), 256))
    for tile in _TILES:
        if largest // 4 <= tile[2] <= largest:
            yield tile


def _variants(call: CudaCall) -> Iterator[Variant]:
    yield from ranked(call, _tiles(call), _micros, _launches)


def _micros(call: CudaCall, tile: Tile) -> float:
    """As bound by instructions, if places are spread evenly over boxes."""
    high, across, block, warps = tile
    (k, c, p, q), (_, h, w) = call.inputs[0].shape, call.op.images
    rows, columns = max(1.0, h / PART), max(1.0, w / PART)
    blocks = k * -(-c // block) * warps
    tiles = blocks * (rows / high + 1) * (columns / across + 1)
    bins = blocks * (rows / high + p) * (columns / across + q)
    each = 2 * high * across * block / (32 * warps) + _PER_BIN
    grad, places = call.inputs[0].nbytes, call.inputs[1].nbytes
    copies = 2 * (grad * copied(call.inputs[0]) + places * copied(call.inputs[1]))
    moved = copies + grad + 2 * places + call.outputs[0].nbytes
    launches = LAUNCH * (2 + copied(call.inputs[0]) + copied(call.inputs[1]))
    busy = issue_micros(call, tiles * _PER_BOX + bins * each, 0.7)
    return launches + stream_micros(call, moved) + busy


def _launches(call: CudaCall, tile: Tile) -> tuple[Launch, ...]:
    grad, places, temps = call.inputs[0], call.inputs[1], Scratchpad()
    rooms = [
        temps.room(name, view.size, view.dtype.itemsize) if copied(view) else None
        for name, view in (("last", grad), ("last_places", places))
    ]
    first, source, of_grad = last_launch(grad, In(0), rooms[0], "g")
    second, pointing, of_places = last_launch(places, In(1), rooms[1], "a")
    found = _pointed(call, temps, pointing, of_places)
    square = Square.of(call, tile[:2])
    lists = listed_launch(call, temps, square)
    last = _pool(call, temps, square, tile)
    operands = {"grad": source, "places": pointing, **last.operands}
    integers = {**last.integers, **of_grad, **of_places}
    return (*first, *second, found, lists, Launch(last.config, operands, integers, last.chunks))


def _pointed(call: CudaCall, temps: Scratchpad, places: Operand, strides: dict[str, int]) -> Launch:
    op: RoiPoolGradient = call.op
    count, c, p, q = call.inputs[0].shape
    operands, integers, elements, _ = box_operands(call)
    rooms = {"bin_rows": count * p * q, "bin_columns": count * p * q}
    rooms |= {"extents": 2 * count, "owners": count}
    operands = {"places": places, **operands}
    operands |= {name: temps.room(name, size) for name, size in rooms.items()}
    constants: tuple[tuple[str, Constant], ...] = (
        ("P", p), ("Q", q), ("REPORT", op.report), ("EXACT", call.inputs[2].dtype is DType.F64),
        ("BB", min(16, power_of_two(p * q))), ("BC", min(64, power_of_two(c))),
    )  # fmt: skip
    config = RoiPhaseConfig("pointed", tuple(elements.items()), constants, 4)
    integers |= {"c": c, "h": op.images[1], "w": op.images[2], **strides}
    return Launch(config, operands, integers, count + op.report)


def _pool(call: CudaCall, temps: Scratchpad, square: Square, tile: Tile) -> Launch:
    """The last phase without its gradient and places, which may be copies."""
    grad, y = call.inputs[0], call.outputs[0]
    p, q = grad.shape[2:]
    constants: tuple[tuple[str, Constant], ...] = (
        ("P", p), ("Q", q), ("UNIT", unit(y)), ("WIDE", wide(y)),
        ("DOUBLE", grad.dtype is DType.F64),
        ("SIDE_H", square.sides[0]), ("SIDE_W", square.sides[1]), ("TH", tile[0]),
        ("TW", tile[1]), ("BC", tile[2]), ("BB", max(1, min(64, power_of_two(p * q)))),
    )  # fmt: skip
    elements = (("grad", element_of(grad)), ("y", element_of(y)))
    names = ("bin_rows", "bin_columns", "lists", "begins", "numbers")
    operands: dict[str, Operand] = {**{name: temps[name] for name in names}, "y": Out(0)}
    n, c, h, w = y.shape
    integers = {
        "c": c, "h": h, "w": w, "down": square.down, "along": square.along,
        **channels_strides(y, "y", "nchw"),
    }  # fmt: skip
    programs = n * -(-h // tile[0]) * -(-w // tile[1]) * -(-c // tile[2])
    return Launch(
        RoiPhaseConfig("pool", elements, constants, tile[3]), operands, integers, programs
    )


ROI_POOL_GRADIENT = CudaKernel(
    "roi.pool_gradient",
    (RoiPoolGradient,),
    RoiPhaseConfig,
    _supports,
    _variants,
    phase_entry,
)
