"""Tiles of `conv2d.hopper`: which suit a call, and what they hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import NamedTuple

from saccade.ir.expr import IDENTITY
from saccade.kernels.base import View, per_call
from saccade.kernels.cuda.base import CudaCall
from saccade.kernels.cuda.conv2d.fused_operands import moved, prologue_views, words_of
from saccade.kernels.cuda.conv2d.hopper_epilogue import tile_bytes
from saccade.kernels.cuda.conv2d.window_config import sums_of
from saccade.kernels.cuda.epilogue import BlockEpilogue, EpilogueCode
from saccade.opdefs import Conv2d

__all__ = [
    "HopperLayer", "HopperTile", "adds", "by_pixel", "fetches_early", "hopper_epilogue",
    "hopper_tiles", "layer_of", "matrix_step", "persistent", "pixel_distance", "programs_of",
    "resident", "step_depth", "steps_of",
]  # fmt: skip

_SPARE = 2 << 10  # shared memory for barriers, alignment and the driver
_EXCHANGE = 4 << 10  # bytes by which a warp's results change places while stages are in use
_FILE, _BESIDE = 64 << 10, 56  # registers of a multiprocessor; of a thread, for all the rest
_MOST_WITH_OPERAND = 128  # registers of a thread for sums and a prologue's operand
_REGISTERS = {False: 224, True: 160}  # of a thread, for sums and operands; of persistent programs


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


class HopperLayer(NamedTuple):
    """What tiles depend on, whatever the size of the image.

    Attributes:
        machine, shared: See `GpuTarget`.
        filters, channels, taps: Of the weights.
        more: Channels of another image, with weights of one tap, that sums go on with.
        code: Of the epilogue.
        even: Whether pixels are evenly apart.
        prologue: Whether there is one.
    """

    machine: str
    shared: int
    filters: int
    channels: int
    taps: int
    more: int
    code: EpilogueCode
    even: bool
    prologue: bool


@per_call
def layer_of(call: CudaCall) -> HopperLayer:
    """The layer of a call, to whose sums nothing is added."""
    k, c, r, s = call.inputs[1].shape
    epilogue, even = hopper_epilogue(call)
    target, prologue = call.target, call.op.prologue != IDENTITY
    code = epilogue.code
    return HopperLayer(target.machine, target.shared, k, c, r * s, 0, code, even, prologue)


def hopper_tiles(layer: HopperLayer) -> tuple[HopperTile, ...]:
    """The tiles that suit a layer."""
    depth, steps = step_depth(layer.channels), steps_of(layer)
    found = dict[HopperTile, None]()
    widest = 256 if tile_bytes(layer.code) else 512  # or registers spill
    for tile in _TILES:
        if tile.columns >= widest or (layer.prologue and _with_operand(tile) > _MOST_WITH_OPERAND):
            continue
        # Blocks that are less than half empty, and no more stages than there are steps to ask for.
        if tile.columns < 2 * max(16, layer.filters) and tile.shared <= layer.shared:
            stages = min(tile.stages, max(2, steps + 1))
            found[replace(tile, depth=depth, stages=stages)] = None
    return tuple(found)


def steps_of(layer: HopperLayer) -> int:
    """Steps of a tile: through the window, then through the channels of another image."""
    depth = step_depth(layer.channels)
    return layer.taps * ceil(layer.channels / depth) + ceil(layer.more / depth)


def _with_operand(tile: HopperTile) -> int:
    """Registers of a thread for sums and for elements of x, in float32 while they are changed."""
    return tile.sums + tile.rows * tile.depth // (32 * tile.warps)


def persistent(layer: HopperLayer, tile: HopperTile) -> HopperTile | None:
    """The tile for programs that take several, if they may, with stages that it has steps for."""
    if layer.prologue:
        return None
    if tile.sums >= 128 and (tile_bytes(layer.code) or not layer.even):
        return None  # or registers spill
    # `convolve_tiles` counts on STAGES - 1 steps of a tile at least.
    lasting = replace(tile, stages=min(tile.stages, steps_of(layer) + 1), persistent=True)
    # Results change places beside the ring here, which takes room from it.
    while lasting.shared > layer.shared:
        lasting = replace(lasting, stages=lasting.stages - 1)
    return lasting if lasting.stages > 1 else None


def resident(layer: HopperLayer, tile: HopperTile) -> int:
    """Programs that a multiprocessor runs at once."""
    each = _operands(tile, layer.code) + _BESIDE
    return max(1, min(layer.shared // tile.shared, _FILE // (32 * tile.warps * each)))


def programs_of(call: CudaCall, tile: HopperTile) -> int:
    """Programs of a launch."""
    n, k, p, q = sums_of(call)
    tiles = -(-n * p * q // tile.rows) * -(-k // tile.columns)
    if not tile.persistent:
        return tiles
    return min(tiles, call.target.multiprocessors * resident(layer_of(call), tile))


def pixel_distance(strides: Sequence[int], sizes: Sequence[int]) -> int | None:
    """Elements between neighbours counted through all images, rows and columns, if it is one."""
    apart, together = None, 0
    for n, step in zip(reversed(sizes), reversed(strides), strict=True):
        if n > 1:
            if apart is None:
                apart = step
            # As far as all that the axes inside have.
            elif step != together:
                return None
            together = n * step
    return apart or 0


def matrix_step(call: CudaCall) -> int | None:
    """Elements between pixels of x if they are rows of a matrix that is multiplied, or None."""
    op: Conv2d = call.op
    x, weights, *_ = call.inputs
    if weights.shape[2:] != (1, 1) or any(op.padding) or op.stride != (1, 1):
        return None
    n, _, h, w = x.shape
    step = pixel_distance((x.strides[0], *x.strides[2:]), (n, h, w))
    return x.shape[1] if step == 0 else step  # of a single pixel


@per_call
def hopper_epilogue(call: CudaCall) -> tuple[BlockEpilogue, bool]:
    """The epilogue, and whether pixels are evenly apart: they count as q then."""
    op: Conv2d = call.op
    n, k, p, q = sums_of(call)
    y = call.outputs[0]
    before = prologue_views(call)
    views = [view.broadcast_to((n, k, p, q)) for view in call.inputs[2 + len(before) :]]
    merged = None if op.store is not None else by_pixel(views, y)
    if merged is None:
        return _block_epilogue(call, (*before, *views)), False
    return _block_epilogue(call, (*before, *merged)), True


def by_pixel(views: Sequence[View], y: View) -> list[View] | None:
    """Views of a result's shape with pixels numbered through all images; None if they cannot be.

    Args:
        views: What an epilogue reads, each as large as the sums; channels may be others.
        y: The result.
    """
    n, _, p, q = y.shape
    merged = []
    for view in (*views, y):
        step = pixel_distance((view.strides[0], *view.strides[2:]), (n, p, q))
        if step is None:
            return None
        channels, apart = view.shape[1], view.strides[1]
        merged.append(View(view.dtype, (1, channels, 1, n * p * q), (0, apart, 0, step)))
    return merged[:-1]


def adds(call: CudaCall) -> bool:
    """Whether the epilogue reads something for each element."""
    return bool(tile_bytes(hopper_epilogue(call)[0].code))


def _block_epilogue(call: CudaCall, views: tuple[View, ...]) -> BlockEpilogue:
    """The epilogue over all operands, the prologue's before its own."""
    words, operands, integers = words_of(call, 2, len(call.inputs), views)
    expression = moved(call.op.epilogue, call.op.n_prologue)
    return BlockEpilogue((expression, *words), operands, integers)


def fetches_early(tile: HopperTile, code: EpilogueCode) -> bool:
    """Whether registers hold what the epilogue reads for each element while products are made."""
    return _operands(tile, code) <= _REGISTERS[tile.persistent]


def _operands(tile: HopperTile, code: EpilogueCode) -> int:
    """Registers of a thread for sums and for what an epilogue adds to them, about."""
    return tile.sums + sum(tile.sums * size // 4 for size in tile_bytes(code)) + tile.columns // 4
