"""Convolution on Hopper down strips of an image: for few channels and large images.

A tile of `hopper` reads its pixels once for every tap; with 64 output channels and fewer that, not
the matrix units, is what takes the time. Here each pixel is read once for every column of the
window. For strides of one, input channels that are one block, and weights that stay in shared
memory. Its floor is the matrix units' rate, of which shared memory allows about six sevenths at 64
output channels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import ceil

from saccade.backends.cuda.gpus import gpu
from saccade.kernels.base import Launch, Variant
from saccade.kernels.cuda.base import CudaCall, CudaKernel, Entry
from saccade.kernels.cuda.conv2d.hopper import (
    CONV2D_HOPPER,
    HopperConfig,
    HopperTile,
    hopper_launches,
    hopper_room,
)
from saccade.kernels.cuda.conv2d.window_config import sums_of
from saccade.kernels.cuda.machine import LAUNCH
from saccade.opdefs import Conv2d

__all__ = ["CONV2D_HOPPER_ROWS"]

_INTEGERS = ("n", "k", "p", "q", "channels", "span", "y_n", "y_p", "y_q")
_UNUSED = ("STRIDE_H", "STRIDE_W", "DILATION_H", "CONSUMERS", "RESIDENT")
_WALKERS = 2  # of a program
_SHARED_RATE = 200e3  # bytes per microsecond of a multiprocessor's shared memory
_TILES = ((64, 64), (128, 64), (64, 32), (128, 32), (128, 16))
"""Pixels across a strip, output channels."""


@dataclass(frozen=True)
class _Strips:
    """How strips are divided among walkers.

    Attributes:
        tile: Pixels across and output channels.
        span: Rows that a walker takes of a strip before it goes to another.
        programs: Of the launch.
        rows: The most that one walker takes, and what its beginnings cost in rows.
    """

    tile: HopperTile
    span: int
    programs: int
    rows: float


def _supports(call: CudaCall) -> str | None:
    op: Conv2d = call.op
    reason = CONV2D_HOPPER.supports(call)
    if reason is not None:
        return reason
    if op.stride != (1, 1) or op.dilation[0] != 1:
        return f"strides {op.stride}, dilations {op.dilation}"
    if call.inputs[1].shape[2] == 1:
        return "windows of one row"
    if not _walks(call):
        return f"weights {call.inputs[1].shape} do not stay in shared memory"
    return None


def _walks(call: CudaCall) -> list[_Strips]:
    _, c, r, s = call.inputs[1].shape
    depth = 64 if c > 32 else 32
    found = []
    for rows, columns in _TILES:
        tile = HopperTile(rows, columns, depth, 4, _WALKERS, held=r * s)
        room = hopper_room(call, tile) // (_WALKERS * tile.block_bytes[0])
        if c <= depth and room > s * (r - 1) and columns <= max(16, call.inputs[1].shape[0]):
            found.append(_walk(call, replace(tile, stages=min(room, s * (r + 1)))))
    return found


def _walk(call: CudaCall, tile: HopperTile) -> _Strips:
    """The span that leaves the busiest walker the least."""
    n, k, p, q = sums_of(call)
    blocks, strips = -(-k // tile.columns), n * -(-q // tile.rows)
    programs = call.target.multiprocessors // blocks * blocks
    walkers = programs // blocks * _WALKERS
    best: tuple[float, int] | None = None
    for pieces in range(1, p + 1):
        span = -(-p // pieces)
        taken = ceil(strips * -(-p // span) / walkers) * (span + 1.0)  # a beginning loads more
        if best is None or taken < best[0]:
            best = taken, span
    assert best is not None
    units = strips * -(-p // best[1])
    return _Strips(tile, best[1], min(programs, -(-units // _WALKERS) * blocks), best[0])


def _micros(call: CudaCall, walk: _Strips) -> float:
    """Rows at the rate of the matrix units or of shared memory, which two walkers share."""
    machine, tile = gpu(call.target.machine), walk.tile
    _, _, r, s = call.inputs[1].shape
    pixels, weights = tile.block_bytes
    flops = 2.0 * r * s * tile.rows * tile.columns * tile.depth
    busy = flops / (0.85 * machine.matrix_flops / machine.multiprocessors)
    moved = r * s * (pixels + weights * tile.rows / 64) + s * pixels
    each = _WALKERS * max(busy, moved / _SHARED_RATE)
    nbytes = sum(view.nbytes for view in (*call.inputs, *call.outputs))
    return LAUNCH + max(walk.rows * each + 1.0, nbytes / (0.8 * machine.bandwidth))


def _variants(call: CudaCall) -> Iterator[Variant]:
    timed = [(_micros(call, walk), i, walk) for i, walk in enumerate(_walks(call))]
    for micros, _, walk in sorted(timed, key=lambda entry: entry[:2]):
        yield Variant(micros, partial(_launches, call, walk), rounding=walk.tile.depth)


def _launches(call: CudaCall, walk: _Strips) -> tuple[Launch, ...]:
    (like,) = hopper_launches(call, walk.tile)
    even = call.outputs[0].shape[3] % walk.tile.rows == 0  # or a box would reach into the next row
    config = replace(like.config, boxes=like.config.boxes and even)
    names = _entry(config).launch_integers
    given = {**like.integers, "span": walk.span}
    integers = {name: value for name, value in given.items() if name in names}
    return (Launch(config, like.operands, integers, walk.programs),)


def _entry(config: HopperConfig) -> Entry:
    like = CONV2D_HOPPER.entry(config)
    constants = {name: value for name, value in like.constants.items() if name not in _UNUSED}
    core = "conv2d.hopper_rows_code:convolve"
    return replace(like, core=core, integers=_INTEGERS, constants=constants)


CONV2D_HOPPER_ROWS = CudaKernel(
    "conv2d.hopper_rows", (Conv2d,), HopperConfig, _supports, _variants, _entry
)
