"""Blocks of rows times elements, and into how many parts long rows are cut."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from saccade.backends.cuda.gpus import gpu
from saccade.kernels.cuda.base import CudaCall
from saccade.kernels.cuda.machine import LAUNCH
from saccade.kernels.cuda.reduce.axis_loops import power_above

__all__ = ["AxisTile", "TileWork", "axis_tiles"]

_LATENCY = 0.7  # microseconds from a load to its value's use
_PIPELINED = 0.25  # the same where loads run ahead
_INSTRUCTIONS = 6  # for each element
_SECTOR = 32  # bytes that memory is read by
_MOST_PARTS = 1024


@dataclass(frozen=True, slots=True)
class AxisTile:
    """A block.

    Attributes:
        rows: Results, or rows that are normalised.
        elements: Behind each of them.
        warps: Of a program.
        stages: How many blocks are on their way at a time; 1 without software pipelining.
    """

    rows: int
    elements: int
    warps: int
    stages: int


@dataclass(frozen=True, slots=True)
class TileWork:
    """What is swept.

    Attributes:
        rows: Results.
        elements: Behind each of them.
        itemsize: Bytes of one.
        nbytes: That move altogether.
        unit: Whose neighbours lie side by side: "kept", "reduced" or "".
    """

    rows: int
    elements: int
    itemsize: int
    nbytes: int
    unit: str


_SHAPES = {
    "kept": ((16, 64), (32, 32), (32, 64), (32, 128), (64, 32), (64, 64), (128, 32), (256, 16)),
    "reduced": (
        (1, 1024), (1, 4096), (2, 512), (2, 2048), (4, 256), (4, 1024), (8, 128), (8, 512),
        (16, 64), (16, 256), (32, 32), (64, 64), (128, 32),
    ),
    "": ((8, 128), (32, 32), (64, 32), (128, 8)),
}  # fmt: skip


def axis_tiles(
    call: CudaCall, work: TileWork, *, cut: bool = True, most: int = 8
) -> Iterator[tuple[float, AxisTile, int]]:
    """Estimated microseconds, a block and a number of parts, best first.

    Args:
        call: The call.
        work: What is swept.
        cut: Whether rows may be cut into parts, for another launch.
        most: How many are worth measuring.
    """
    found: dict[tuple[AxisTile, int], float] = {}
    for shape in _SHAPES[work.unit]:
        rows = min(shape[0], power_above(work.rows))
        elements = min(shape[1], max(8, power_above(work.elements)))
        steps = -(-work.elements // elements)
        for parts in sorted({1, *_cuts(call, work, rows, steps)} if cut else {1}):
            stages = 4 if -(-steps // parts) > 3 else 1
            warps = max(1, min(8, rows * elements // 512))
            tile = AxisTile(rows, elements, warps, stages)
            found[tile, parts] = _micros(call, work, tile, parts)
    best = sorted(found.items(), key=lambda pair: pair[1])[:most]
    yield from ((micros, tile, parts) for (tile, parts), micros in best)


def _cuts(call: CudaCall, work: TileWork, rows: int, steps: int) -> Iterator[int]:
    """Numbers of parts that fill the machine once and four times."""
    blocks = max(1, -(-work.rows // rows))
    for times in (1, 4):
        parts = min(_MOST_PARTS, steps // 2, times * call.target.multiprocessors // blocks)
        if parts > 1:
            yield parts


def _micros(call: CudaCall, work: TileWork, tile: AxisTile, parts: int) -> float:
    machine = gpu(call.target.machine)
    blocks = -(-work.rows // tile.rows)
    steps = -(-work.elements // tile.elements)
    each = -(-steps // parts)
    resident = max(1, min(16, 32 // tile.warps))
    waves = ceil(blocks * parts / (call.target.multiprocessors * resident))
    waiting = waves * (_LATENCY + (each - 1) * (_LATENCY if tile.stages == 1 else _PIPELINED))
    run = {"kept": tile.rows, "reduced": tile.elements}.get(work.unit, 1) * work.itemsize
    moved = work.nbytes * max(1.0, _SECTOR / run) / (0.8 * machine.bandwidth)
    done = blocks * tile.rows * steps * tile.elements * _INSTRUCTIONS / (machine.flops / 2)
    second = LAUNCH + _LATENCY * (1 + parts // 32) if parts > 1 else 0.0
    return LAUNCH + max(waiting, moved, done) + second
