"""Tiles of `conv2d.depthwise_rows`, and how long they are estimated to take.

What follows from window, channels and GPU, whatever the size of the image, is computed once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from typing import NamedTuple

from saccade.backends.cuda.gpus import gpu
from saccade.kernels.cuda.base import CudaCall
from saccade.kernels.cuda.conv2d.window_config import sums_of
from saccade.kernels.cuda.machine import LAUNCH, moved_bytes
from saccade.opdefs import Conv2d

__all__ = [
    "OWN", "WIDE_WINDOW", "DepthwiseRowsTile", "depthwise_rows_times", "fits_registers",
    "programs_of",
]  # fmt: skip

OWN = 2  # channels of a thread: with four, weights and sums leave room for too few warps
_COLUMNS = (64, 32, 16, 8)  # channels of a program: fewer leave fewer threads without one
_ACROSS = (7, 4, 2)  # results of a strip side by side; feature maps are often multiples of seven
WIDE_WINDOW = 10  # taps: then seven side by side pay, and writing out the turns of sums does not
_PARTS = (1, 2, 4, 8)  # that the rows of an image are cut into
_LEAST_ROWS = 7  # of a part of an image
_MOST_REGISTERS = 150  # of weights, sums and a row of x
_BESIDE = 38  # registers for all the rest, as compiled
_FILE, _THREAD = 64 << 10, 255  # registers of a multiprocessor; the most of a thread
_WARP_FLOPS = 64  # of a warp's instruction, as the machine's rate counts
_CLOCK = 0.885  # of that rate: what a busy H200's clock is of the data sheet's
_WAIT = 1.55
"""Warps of a scheduler at which every second instruction that could be is issued. This and what
follows: 45 layers of EfficientNet-B0, MobileNetV3 and ShuffleNetV2 in float16, batches 1 and 64,
319 tiles on one H200, within 24% for two thirds of them."""
_LOAD, _STORE, _ONCE = 6.6, 1.0, 423.0  # instructions of an element, of a result, of a warp
_FETCHED = {64: 1.0, 32: 1.16, 16: 1.57, 8: 2.62}  # times the bytes' time, by channels of a program
_STEP, _STEP_ROW = 0.017, 0.11  # microseconds of a step of an empty H200, and of each row of it
_HINDERED = 0.235  # of the shorter one of products and bytes, beside the longer one


@dataclass(frozen=True, slots=True)
class DepthwiseRowsTile:
    """How the work is cut.

    Attributes:
        strips: Of a program.
        columns: Channels of a program.
        across: Results of a strip side by side.
        parts: Strips that the rows of an image are cut into.
    """

    strips: int
    columns: int
    across: int
    parts: int

    @property
    def warps(self) -> int:
        """Of a program."""
        return self.strips * self.columns // (32 * OWN)


class _Shape(NamedTuple):
    """Of programs of so many channels and results side by side, whatever the image.

    Attributes:
        columns, across: See `DepthwiseRowsTile`.
        blocks: Of channels.
        strips: Of a program of four warps.
        resident: Programs of four warps that a multiprocessor has, and of one.
        instructions: Of a step of a warp.
    """

    columns: int
    across: int
    blocks: int
    strips: int
    resident: tuple[int, int]
    instructions: float


def depthwise_rows_times(call: CudaCall) -> list[tuple[float, int, int, int, int]]:
    """Estimated microseconds of each tile, and its fields.

    The bytes, or the instructions of the busiest multiprocessor: few warps issue few of them. Or
    one step after the other, each waiting for its rows of x: few images are all that is there.
    Programs have four warps, whose strips share what they read; one where these are too few.
    """
    op: Conv2d = call.op
    machine = gpu(call.target.machine)
    n, _, p, q = sums_of(call)
    multiprocessors, down = machine.multiprocessors, op.stride[0]
    full_rate = _CLOCK * machine.flops / multiprocessors / _WARP_FLOPS
    bytes_time = moved_bytes(call) / machine.bandwidth
    last = -(-call.inputs[1].shape[2] // down) - 1
    each_step = _STEP + _STEP_ROW * down
    found = []
    for shape in _shapes_of(call):
        columns, across, blocks, strips, resident, instructions = shape
        if across > q:
            continue
        moved = bytes_time * _FETCHED[columns]
        rows = -(-q // across) * n
        for parts in _PARTS:
            if parts > 1 and p < _LEAST_ROWS * parts:
                break
            steps = -(-p // parts) + last
            work = _ONCE + steps * instructions
            programs = -(-rows * parts // strips) * blocks
            one_warp = -(-rows * parts // (strips // 4)) * blocks
            ways = ((strips, programs, 4, resident[0]), (strips // 4, one_warp, 1, resident[1]))
            for some, count, warps, most in ways[: 1 + (programs < call.target.multiprocessors)]:
                waves = max(1, -(-count // (multiprocessors * most)))  # none for an empty batch
                beside = most if waves > 1 else max(1, -(-count // multiprocessors))
                busy = beside * warps / 4  # warps of a scheduler
                rate = full_rate * (busy / (busy + _WAIT))
                issued = waves * beside * warps * work / rate
                longest, shortest = (issued, moved) if issued > moved else (moved, issued)
                chained = waves * steps * each_step
                longest = chained if chained > longest else longest
                micros = LAUNCH + longest + _HINDERED * shortest
                found.append((micros, some, columns, across, parts))
    return found


def fits_registers(call: CudaCall) -> bool:
    """Whether there is a tile."""
    q = sums_of(call)[3]
    return any(shape.across <= q for shape in _shapes_of(call))


def programs_of(call: CudaCall, tile: DepthwiseRowsTile) -> int:
    """Programs of a launch."""
    n, k, _, q = sums_of(call)
    return ceil(n * tile.parts * ceil(q / tile.across) / tile.strips) * ceil(k / tile.columns)


def _shapes_of(call: CudaCall) -> tuple[_Shape, ...]:
    op: Conv2d = call.op
    return _shapes(sums_of(call)[1], call.inputs[1].shape[2:], op.stride)


@lru_cache(maxsize=1024)
def _shapes(k: int, window: tuple[int, int], stride: tuple[int, int]) -> tuple[_Shape, ...]:
    """Those that registers have room for."""
    (r, s), (down, aside) = window, stride
    least = min(_COLUMNS[0], 1 << max(3, (k - 1).bit_length()))
    found = []
    for columns in (one for one in _COLUMNS if one <= least):
        for across in _ACROSS[r * s < WIDE_WINDOW :]:
            loads = down * ((across - 1) * aside + s)
            # Of a thread's weights, sums and elements of x.
            registers = OWN * (r * s + ceil(r / down) * across) + loads
            if registers > _MOST_REGISTERS:
                continue
            each = min(_THREAD, ceil((registers + _BESIDE) / 8) * 8)
            # Products, loads with their conversions, the stores.
            products, stores = OWN * across * r * s, OWN * across
            instructions = products + loads * (_LOAD + OWN) + across * 4 + stores * _STORE
            resident = tuple(max(1, _FILE // (32 * each * warps)) for warps in (4, 1))
            found.append(
                _Shape(
                    columns, across, ceil(k / columns), 32 * OWN * 4 // columns,
                    (resident[0], resident[1]), instructions,
                )
            )  # fmt: skip
    return tuple(found)
