"""Tiles of `conv2d.hopper`: which suit a call, what they hold, how long they take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil

from saccade.backends.cuda.gpus import gpu
from saccade.ir.expr import IDENTITY
from saccade.kernels.base import View, per_call
from saccade.kernels.cuda.base import CudaCall
from saccade.kernels.cuda.conv2d.fused_operands import moved, prologue_views, words_of
from saccade.kernels.cuda.conv2d.hopper_epilogue import tile_bytes
from saccade.kernels.cuda.conv2d.window_config import sums_of
from saccade.kernels.cuda.epilogue import BlockEpilogue, EpilogueCode
from saccade.kernels.cuda.machine import LAUNCH
from saccade.opdefs import Conv2d

__all__ = [
    "FROM_L2", "HopperTile", "fetches_early", "hopper_epilogue", "hopper_micros", "hopper_tiles",
    "persistent", "pixel_distance", "programs_of", "step_depth",
]  # fmt: skip

_SPARE = 2 << 10  # shared memory for barriers, alignment and the driver
_EXCHANGE = 4 << 10  # bytes by which a warp's results change places while stages are in use
_FILE, _BESIDE = 64 << 10, 56  # registers of a multiprocessor; of a thread, for all the rest
_MOST_WITH_OPERAND = 128  # registers of a thread for sums and a prologue's operand
_REGISTERS = {False: 224, True: 160}  # of a thread, for sums and operands; of persistent programs
# Fitted to the times of 84 layers of four networks in float16, about seven variants of each, on one
# H200: 17% off in the mean, and what they choose is 3.8% slower than the best.
_STEP, _BEGIN, _NEXT = 0.66, 0.06, 0.34
"""Microseconds on the H200 from asking for a step to having it, to a program's first, to a next
tile's first."""
FROM_L2 = 2.8
"""Over the memory's bandwidth, on the H200."""
_RATE, _COPY = 1.0, 1.46
"""Of what `Gpu` says, on the H200: products; x and y, beside which the rest goes on."""
_TILE, _ENDS, _ADDED, _UNEVEN = 0.23, 4.35e-5, 0.41, 1.9
"""Microseconds on the H200 of a tile's end; of each result's; as much again for each byte that it
reads; times so much where pixels are not evenly apart."""
_CHANGED = 1e-4
"""Microseconds of an element's prologue, by a multiprocessor of the H200."""
_BESIDE_EACH_OTHER = 1.5  # 1 where sums and bytes wait for each other, much more where they do not
_EACH_ALONE = 1 / _BESIDE_EACH_OTHER


@dataclass(frozen=True, slots=True)
class HopperTile:
    """How the work is cut.

    Attributes:
        rows: Output pixels of a tile.
        columns: Its output channels.
        depth: Input channels of a step.
        warps: Each four hold 64 rows, or so many times that one after the other.
        stages: Steps in shared memory.
        persistent: Whether a program takes several tiles, one after the other.
    """

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int
    persistent: bool = False

    @property
    def shared(self) -> int:
        """Bytes of shared memory, two of them an element."""
        ring = 2 * self.stages * self.depth * (self.rows + self.columns)
        return ring + _SPARE + (_EXCHANGE * self.warps if self.persistent else 0)

    @property
    def sums(self) -> int:
        """Registers of a thread."""
        return self.rows * self.columns // (32 * self.warps)


_TILES = (
    HopperTile(128, 128, 64, 4, 5), HopperTile(128, 128, 64, 4, 3), HopperTile(256, 128, 64, 8, 4),
    HopperTile(128, 256, 64, 8, 4), HopperTile(64, 256, 64, 4, 4), HopperTile(128, 128, 64, 8, 3),
    HopperTile(128, 64, 64, 4, 5), HopperTile(128, 64, 64, 4, 4), HopperTile(128, 64, 64, 4, 3),
    HopperTile(64, 128, 64, 4, 5), HopperTile(64, 128, 64, 4, 4), HopperTile(64, 64, 64, 4, 6),
    HopperTile(64, 64, 64, 4, 3), HopperTile(128, 32, 64, 4, 4), HopperTile(64, 32, 64, 4, 5),
    HopperTile(64, 16, 64, 4, 5),
)  # fmt: skip


def step_depth(channels: int) -> int:
    """Input channels of a step: no more than TMA swizzles, few where there are few."""
    return 64 if channels > 32 else 32 if channels > 16 else 16


def hopper_tiles(call: CudaCall, more: int = 0) -> tuple[HopperTile, ...]:
    """The tiles that suit a call, to whose sums so many channels of another image are added."""
    k, c, _, _ = call.inputs[1].shape
    depth = step_depth(c)
    steps = _steps(call, depth, more)
    found = dict[HopperTile, None]()
    prologue = call.op.prologue != IDENTITY
    widest = 256 if tile_bytes(hopper_epilogue(call)[0].code) else 512  # or registers spill
    for tile in _TILES:
        if tile.columns >= widest or (prologue and _with_operand(tile) > _MOST_WITH_OPERAND):
            continue
        # Blocks that are less than half empty, and no more stages than there are steps to ask for.
        if tile.columns < 2 * max(16, k) and tile.shared <= call.target.shared:
            stages = min(tile.stages, max(2, steps + 1))
            found[replace(tile, depth=depth, stages=stages)] = None
    return tuple(found)


def _steps(call: CudaCall, depth: int, more: int) -> int:
    """Steps of a tile: through the window, then through the channels of another image."""
    _, c, r, s = call.inputs[1].shape
    return r * s * ceil(c / depth) + ceil(more / depth)


def _with_operand(tile: HopperTile) -> int:
    """Registers of a thread for sums and for elements of x, in float32 while they are changed."""
    return tile.sums + tile.rows * tile.depth // (32 * tile.warps)


def persistent(call: CudaCall, tile: HopperTile, more: int = 0) -> HopperTile | None:
    """The tile for programs that take several, if they would, with stages that it has steps for."""
    if call.op.prologue != IDENTITY:
        return None
    # `convolve_tiles` counts on STAGES - 1 steps of a tile at least.
    stages = min(tile.stages, _steps(call, tile.depth, more) + 1)
    lasting = replace(tile, stages=stages, persistent=True)
    # Results change places beside the ring here, which takes room from it.
    while lasting.shared > call.target.shared:
        lasting = replace(lasting, stages=lasting.stages - 1)
    resident = _resident(call, lasting) * call.target.multiprocessors
    epilogue, even = hopper_epilogue(call)
    if tile.sums >= 128 and (tile_bytes(epilogue.code) or not even):
        return None  # or registers spill
    return lasting if lasting.stages > 1 and _tiles(call, tile) > resident else None


def _resident(call: CudaCall, tile: HopperTile) -> int:
    """Programs that a multiprocessor runs at once."""
    each = _operands(tile, hopper_epilogue(call)[0].code) + _BESIDE
    return max(1, min(call.target.shared // tile.shared, _FILE // (32 * tile.warps * each)))


def programs_of(call: CudaCall, tile: HopperTile) -> int:
    """Programs of a launch."""
    if not tile.persistent:
        return _tiles(call, tile)
    return min(_tiles(call, tile), call.target.multiprocessors * _resident(call, tile))


def _tiles(call: CudaCall, tile: HopperTile) -> int:
    n, k, p, q = sums_of(call)
    return ceil(n * p * q / tile.rows) * ceil(k / tile.columns)


def pixel_distance(strides: Sequence[int], sizes: Sequence[int]) -> int | None:
    """Elements between neighbours counted through all images, rows and columns, if it is one."""
    axes = [(n, step) for n, step in zip(sizes, strides, strict=True) if n > 1]
    if any(outer != n * inner for (_, outer), (n, inner) in pairwise(axes)):
        return None
    return axes[-1][1] if axes else 0


@per_call
def hopper_epilogue(call: CudaCall) -> tuple[BlockEpilogue, bool]:
    """The epilogue, and whether pixels are evenly apart: they count as q then."""
    op: Conv2d = call.op
    n, k, p, q = sums_of(call)
    y = call.outputs[0]
    before = prologue_views(call)
    views = [view.broadcast_to((n, k, p, q)) for view in call.inputs[2 + len(before) :]]
    strides = [(view.strides[0], *view.strides[2:]) for view in (*views, y)]
    steps = [pixel_distance(three, (n, p, q)) for three in strides]
    block = op.store is not None
    even = [step for step in steps[:-1] if step is not None]
    if block or None in steps:
        return _block_epilogue(call, (*before, *views)), False
    merged = [
        View(view.dtype, (1, k, 1, n * p * q), (0, view.strides[1], 0, step))
        for view, step in zip(views, even, strict=True)
    ]
    return _block_epilogue(call, (*before, *merged)), True


def _block_epilogue(call: CudaCall, views: tuple[View, ...]) -> BlockEpilogue:
    """The epilogue over all operands, the prologue's before its own."""
    words, operands, integers = words_of(call, 2, len(call.inputs), views)
    expression = moved(call.op.epilogue, call.op.n_prologue)
    return BlockEpilogue((expression, *words), operands, integers)


def hopper_micros(call: CudaCall, tile: HopperTile, second: View | None = None) -> float:
    """Tiles of the busiest multiprocessor, as many at a time as it holds; or the bytes.

    A tile alone takes its steps one after the other, as they arrive; several at a time share the
    matrix units and what comes from the L2. `second` is the image whose channels are added.
    """
    op, machine = call.op, gpu(call.target.machine)
    epilogue, even = hopper_epilogue(call)
    steps = _steps(call, tile.depth, second.shape[1] if second else 0)
    flops = 2.0 * tile.rows * tile.columns * tile.depth
    busy = flops * machine.multiprocessors / (_RATE * machine.matrix_flops)
    read = 2.0 * tile.depth * (tile.rows + tile.columns) * machine.multiprocessors
    ends = tile.rows * tile.columns * _ENDS * (1.0 if even else _UNEVEN)
    ends = _TILE + ends * (1 + _ADDED * sum(tile_bytes(epilogue.code)))
    changed = tile.rows * tile.depth * _CHANGED if op.prologue != IDENTITY else 0.0
    shared = steps * max(busy, changed, read / (FROM_L2 * machine.bandwidth)) + ends
    alone = steps * max(busy + changed, _STEP / (tile.stages - 1)) + 2 * ends
    resident = _resident(call, tile)
    busiest = ceil(_tiles(call, tile) / machine.multiprocessors)
    if tile.persistent:
        rounds = ceil(busiest / resident)
        total = _BEGIN + rounds * (max(alone, min(resident, busiest) * shared) + _NEXT)
    else:
        whole, rest = divmod(busiest, resident)
        total = whole * max(_BEGIN + alone, resident * shared)
        total += max(_BEGIN + alone, rest * shared) if rest else 0.0
    views = (*call.inputs, *call.outputs, *((second,) if second else ()))
    nbytes = sum(v.extent * v.dtype.itemsize for v in views)
    copied = nbytes / (_COPY * machine.bandwidth)
    together: float = (total**_BESIDE_EACH_OTHER + copied**_BESIDE_EACH_OTHER) ** _EACH_ALONE
    return LAUNCH + together


def fetches_early(tile: HopperTile, code: EpilogueCode) -> bool:
    """Whether registers hold what the epilogue reads for each element while products are made."""
    return _operands(tile, code) <= _REGISTERS[tile.persistent]


def _operands(tile: HopperTile, code: EpilogueCode) -> int:
    """Registers of a thread for sums and for what an epilogue adds to them, about."""
    return tile.sums + sum(tile.sums * size // 4 for size in tile_bytes(code)) + tile.columns // 4
