"""How long tiles of `conv2d.hopper` are estimated to take.

A new size of an image changes how many tiles there are and nothing else: what follows from layer,
tile and GPU is computed once and stands in a table.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from saccade.backends.cuda.gpus import gpu
from saccade.kernels.base import View
from saccade.kernels.cuda.base import CudaCall
from saccade.kernels.cuda.conv2d.hopper_epilogue import tile_bytes
from saccade.kernels.cuda.conv2d.hopper_tiles import (
    HopperLayer,
    HopperTile,
    hopper_tiles,
    layer_of,
    persistent,
    resident,
    steps_of,
)
from saccade.kernels.cuda.conv2d.window_config import sums_of
from saccade.kernels.cuda.machine import LAUNCH

__all__ = ["hopper_times"]

# Fitted together with `hopper_stationary`'s and `hopper_teams`'s to 2 120 times of 98 layers of
# seven networks in float16 on one H200: 12% off in the mean, and what all choose is 3.1% slower
# than the best.
_STEP, _TURN, _BEGIN, _NEXT = 0.2, 0.12, 0.2, 0.3
"""Microseconds on an H200 from asking for a step to having it; of a step's turn of the loop,
however little it multiplies; to a program's first step, to a next tile's first."""
_RATE, _COPY, _CACHED = 1.6, 1.25, 0.85
"""Of what `Gpu` says: products of a program that waits for steps, too; x and y, beside which the
rest goes on; the L2 cache, of which steps come."""
_TILE, _ENDS, _ADDED, _UNEVEN = 0.3, 4.2e-5, 0.32, 1.9
"""Microseconds on an H200 of a tile's end; of each result's; as much again for each byte that it
reads; times so much where pixels are not evenly apart."""
_PIXEL = 2.2e-3
"""Microseconds on an H200 in which TMA brings a pixel of a window, however few its channels: seen
where a step has 16."""
_CHANGED = 1e-4
"""Microseconds of an element's prologue, by a multiprocessor of the H200."""
_HELD_UP = 1.8  # 1 where products wait for each step in full, much more where for none
_BESIDE_EACH_OTHER = 1.76  # 1 where sums and bytes wait for each other, much more where they do not
_EACH_ALONE = 1 / _BESIDE_EACH_OTHER


class _HopperWork(NamedTuple):
    """Of a tile, whatever the size of the image.

    Attributes:
        tile: The tile.
        rows: Its pixels.
        blocks: Of output channels.
        resident: Tiles that a multiprocessor has at a time.
        made: Microseconds of a tile among several, which share the matrix units.
        read: Of what it reads of the L2 cache. Taps of a window read pixels again, which it serves
            at the rate of all; of one tap a multiprocessor waits for what its own tiles read.
        alone: Of a tile by itself, whose steps come one after the other.
    """

    tile: HopperTile
    rows: int
    blocks: int
    resident: int
    made: float
    read: float
    alone: float


def hopper_times(call: CudaCall, second: View | None = None) -> list[tuple[float, int, HopperTile]]:
    """Estimated microseconds of each tile that suits a call, a number, the tile; fastest first.

    The tiles of the busiest multiprocessor, as many at a time as it holds; or the bytes. Programs
    that take several tiles are looked at where there are more tiles than the GPU holds. `second` is
    the image whose channels are added.
    """
    layer = layer_of(call)
    views = (*call.inputs, *call.outputs)
    if second is not None:
        layer, views = layer._replace(more=second.shape[1]), (*views, second)
    machine = gpu(call.target.machine)
    n, _, p, q = sums_of(call)
    pixels, multiprocessors = n * p * q, machine.multiprocessors
    nbytes = sum(view.nbytes for view in views)
    copied = (nbytes / (_COPY * machine.bandwidth)) ** _BESIDE_EACH_OTHER
    found = []
    for i, (tile, rows, blocks, most, made, read, alone) in enumerate(_works(layer)):
        tiles = -(-pixels // rows) * blocks
        if tile.persistent:
            if tiles <= most * call.target.multiprocessors:
                continue
            busiest = -(-tiles // multiprocessors)
            each = (most if most < busiest else busiest) * (made if made > read else read)
            rounds = -(-busiest // most)
            total = _BEGIN + rounds * ((alone if alone > each else each) + _NEXT)
        else:
            whole, rest = divmod(tiles, most * multiprocessors)
            first, total = _BEGIN + alone, 0.0
            if whole:
                total = whole * max(first, most * made, most * read)
            if rest:
                busiest = -(-rest // multiprocessors)
                served = rest / multiprocessors if layer.taps > 1 else busiest
                total += max(first, busiest * made, served * read)
        together: float = (total**_BESIDE_EACH_OTHER + copied) ** _EACH_ALONE
        found.append((LAUNCH + together, i, tile))
    return sorted(found)


@lru_cache(maxsize=1024)
def _works(layer: HopperLayer) -> tuple[_HopperWork, ...]:
    """Of each tile, those of programs that take several last."""
    single = hopper_tiles(layer)
    lasting = (persistent(layer, tile) for tile in single)
    tiles = (*single, *(tile for tile in lasting if tile is not None))
    return tuple(_work(layer, tile) for tile in tiles)


def _work(layer: HopperLayer, tile: HopperTile) -> _HopperWork:
    machine, steps = gpu(layer.machine), steps_of(layer)
    flops = 2.0 * tile.rows * tile.columns * tile.depth
    busy = flops * machine.multiprocessors / machine.matrix_flops
    read = 2.0 * tile.depth * (tile.rows + tile.columns) * machine.multiprocessors
    ends = tile.rows * tile.columns * _ENDS * (1.0 if layer.even else _UNEVEN)
    ends = _TILE + ends * (1 + _ADDED * sum(tile_bytes(layer.code)))
    changed = tile.rows * tile.depth * _CHANGED if layer.prologue else 0.0
    made = steps * max(busy, changed) + ends
    waits = busy / _RATE + changed, _STEP / (tile.stages - 1), _TURN
    alone = steps * sum(wait**_HELD_UP for wait in waits) ** (1 / _HELD_UP) + 2 * ends
    blocks = -(-layer.filters // tile.columns)
    read = steps * max(read / (_CACHED * machine.cached), tile.rows * _PIXEL)
    return _HopperWork(tile, tile.rows, blocks, resident(layer, tile), made, read, alone)
