"""Blocks of rows times elements, and into how many parts long rows are cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil

from saccade.backends.cuda.gpus import gpu
from saccade.kernels.cuda.base import CudaCall
from saccade.kernels.cuda.machine import LAUNCH, PROGRAM
from saccade.kernels.cuda.reduce.axis_loops import power_above

__all__ = ["AxisTile", "TileWork", "axis_tiles"]

# Microseconds from a load to its value's use, and where loads run ahead: estimates, not measured
# here (`matmul.tile_times.LATENCY` is one H200's memory).
_LATENCY, _PIPELINED = 0.7, 0.25
_WARPS = 0.05
"""What each warp beyond two adds along rows: norms of 250 took 29 to 57 µs by 2 to 8 (one H200)."""
_INSTRUCTIONS = 6  # for each element (an estimate)
_RUN = 16  # bytes whose time it takes to begin a run of neighbours
_UNEVEN = 0.3
"""How much of a multiprocessor's idle last turn counts: 2.2 blocks of 256 rows for each took 7%
more than 8.9 of 64 (norms over dim 1, one H200)."""
_MOST_PARTS = 1024  # of a row, which a second launch joins


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
    "kept": (
        (16, 64), (32, 32), (32, 64), (32, 128), (64, 32), (64, 64), (128, 32), (256, 8),
        (256, 16),
    ),
    "reduced": (
        (1, 1024), (1, 4096), (2, 512), (2, 2048), (4, 256), (4, 1024), (8, 128), (8, 512),
        (16, 64), (16, 256), (32, 32), (64, 64), (128, 32),
    ),
    "": ((8, 128), (32, 32), (64, 32), (128, 8)),
}  # fmt: skip

_USUAL = {"kept": (32, 64), "reduced": (4, 256), "": (32, 32)}
"""A block for every size, so that one that nobody planned for needs no code of its own."""


def axis_tiles(
    call: CudaCall,
    work: TileWork,
    *,
    cut: bool = True,
    apart: bool = False,
    most: int = 8,
    also: Sequence[tuple[int, int]] = (),
) -> Iterator[tuple[float, AxisTile, int]]:
    """Estimated microseconds, a block and a number of parts, best first.

    Args:
        call: The call.
        work: What is swept.
        cut: Whether rows may be cut into parts, for another launch.
        apart: Whether each block is a program of its own, with nothing to join.
        most: How many are worth measuring.
        also: Rows and elements of further blocks.
    """
    found: dict[tuple[AxisTile, int], float] = {}
    for shape in (*_SHAPES[work.unit], *also):
        rows = min(shape[0], power_above(work.rows))
        elements = min(shape[1], max(8, power_above(work.elements)))
        steps = -(-work.elements // elements)
        for parts in sorted({1, *_cuts(call, work, rows, steps)} if cut else {1}):
            tile = _tile(rows, elements, 1 if apart else -(-steps // parts), work.unit)
            found[tile, parts] = _micros(call, work, tile, parts, apart=apart)
    best = sorted(found, key=found.__getitem__)[:most]
    usual = _tile(*_USUAL[work.unit], 1, work.unit), 1
    if usual not in found:
        found[usual] = _micros(call, work, *usual, apart=apart)
    for tile, parts in sorted(dict.fromkeys((*best, usual)), key=lambda way: found[way]):
        yield found[tile, parts], tile, parts


def _tile(rows: int, elements: int, steps: int, unit: str) -> AxisTile:
    """A block of a program that sweeps so many of them."""
    warps = max(1, min(8, rows * elements // 512))
    # Across rows more stages cost more than they hide: norms of 64x32 took 31, 32 and 39 µs
    # with 2, 3 and 4 (one H200).
    return AxisTile(rows, elements, warps, 1 if steps <= 3 else 2 if unit == "kept" else 4)


def _cuts(call: CudaCall, work: TileWork, rows: int, steps: int) -> Iterator[int]:
    """Numbers of parts that fill the machine once and four times."""
    blocks = -(-work.rows // rows)
    if blocks == 0:
        return
    for times in (1, 4):
        parts = min(_MOST_PARTS, steps // 2, times * call.target.multiprocessors // blocks)
        if parts > 1:
            yield parts


def _micros(call: CudaCall, work: TileWork, tile: AxisTile, parts: int, *, apart: bool) -> float:
    machine, multiprocessors = gpu(call.target.machine), call.target.multiprocessors
    blocks = -(-work.rows // tile.rows)
    steps = -(-work.elements // tile.elements)
    each = 1 if apart else -(-steps // parts)
    programs = blocks * (steps if apart else parts)
    resident = max(1, min(32, 48 // tile.warps))
    waves = ceil(programs / (multiprocessors * resident))
    waiting = waves * (_LATENCY + (each - 1) * (_LATENCY if tile.stages == 1 else _PIPELINED))
    run = {"kept": tile.rows, "reduced": tile.elements}.get(work.unit, 1) * work.itemsize
    moved = work.nbytes * (1 + _RUN / run) / (0.8 * machine.bandwidth)
    done = blocks * tile.rows * steps * tile.elements * _INSTRUCTIONS / (machine.flops / 2)
    second = LAUNCH + _LATENCY * (1 + parts // 32) if parts > 1 else 0.0
    if work.unit == "reduced":
        moved *= 1 + _WARPS * max(0, tile.warps - 2)
    elif programs:
        # A last turn that few take: 4.4 blocks of 128 rows for each multiprocessor took 28 µs where
        # 8.9 of 64 took 24 (norms over dim 1 in halves, one H200).
        moved *= ceil(programs / multiprocessors) * multiprocessors / programs
    return LAUNCH + max(waiting, moved, done, PROGRAM * programs) + second
