"""1x1 convolutions on Hopper beside weights that stay in shared memory; TMA moves all the rest.

For windows of one tap over float16 and bfloat16 whose weights for a block of output channels fit
shared memory: layers that bytes bound, above all those that end a residual block. Of what
`conv2d.hopper` reads from the L2 it reads the weights once a program, and what the epilogue adds
comes while products are made. Its floor are the bytes of x, y and what is added to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from math import ceil
from typing import NamedTuple

from saccade.backends.cuda.codegen.entry import Descriptor
from saccade.backends.cuda.gpus import Gpu, gpu
from saccade.ir.expr import IDENTITY
from saccade.kernels.base import In, Launch, Variant, View
from saccade.kernels.cuda.base import CudaCall, CudaKernel, Entry, element_of
from saccade.kernels.cuda.conv2d.hopper import (
    HopperOperands,
    begins,
    filters_map,
    matrix_map,
    refuse_vectors,
    upper_of,
)
from saccade.kernels.cuda.conv2d.hopper_epilogue import (
    beside_tiles,
    moved_functions,
    tiles_of,
)
from saccade.kernels.cuda.conv2d.hopper_tiles import (
    adds,
    hopper_epilogue,
    matrix_step,
    pixel_distance,
    step_depth,
)
from saccade.kernels.cuda.conv2d.window_config import sums_of
from saccade.kernels.cuda.epilogue import EpilogueCode
from saccade.kernels.cuda.machine import LAUNCH, moved_bytes
from saccade.opdefs import Conv2d

__all__ = [
    "BEGUN", "CONV2D_HOPPER_STATIONARY", "HELD", "HopperStationaryConfig", "StationaryTile",
    "movable", "moved_integers", "unmovable",
]  # fmt: skip

_INTEGERS = ("rows", "k", "p", "q", "tiles")
_DESCRIBED = ("c", "filters", "depth")
_WINDOW = ("n", "h", "wd", "x_n", "x_h", "x_w")  # of the map of x that is no matrix
_SPARE = 1 << 10  # bytes of shared memory for barriers and alignment
_STAGES = 6
"""Of a team, where there is room: 40 KB of pixels on their way, and more brought nothing. More only
where two programs would fit a multiprocessor: they come while the launch before is still running,
and would crowd where it ends first, with others left idle (159 µs for 75 on one H100)."""

_FEW = 4
"""Stages that are kept where a second block of results takes their room."""
BEGUN = 3
"""Steps that are asked for before warps have parts; two or six were 1% slower at 1024 to 256."""
HELD = {1: 160, 2: 160, 3: 104}
"""Registers of a thread, by teams, for sums and for what the epilogue reads for channels."""

# Fitted with `hopper_times`'s: 10% off in the mean.
_STEP, _BEGIN = 0.6, 2.2
"""Microseconds on an H200 from asking for a step to having it; until all weights are there."""
_TILE, _END, _ADDED, _SHOWN = 0.11, 5.1e-5, 1.75, 0.55
"""Microseconds on an H200 of a tile's end; of each result's; times so much where an image is added;
the share that is not hidden behind another team's products."""
_BESIDE_EACH_OTHER = 2.8  # 1 where sums and bytes wait for each other, much more where they do not
_EACH_ALONE = 1 / _BESIDE_EACH_OTHER


@dataclass(frozen=True, slots=True)
class StationaryTile:
    """How the work is cut.

    Attributes:
        rows: Output pixels of a tile.
        columns: Output channels of a program.
        depth: Input channels of a step.
        warps: Of a team; each four hold 64 pixels, or so many times that one after the other.
        teams: In a program: they take tiles beside one another, by the same weights.
        stages: Steps in shared memory, of each team.
        results: Blocks in shared memory for results and what is added to them, of each team.
    """

    rows: int
    columns: int
    depth: int
    warps: int
    teams: int
    stages: int
    results: int


_SHAPES = (
    (64, 128, 4, 2), (64, 128, 4, 3), (128, 64, 4, 2), (64, 64, 4, 2), (64, 64, 4, 3),
    (128, 128, 4, 2), (128, 32, 4, 2), (64, 32, 4, 3),
)  # fmt: skip
"""Pixels, output channels, warps, teams."""


@dataclass(frozen=True)
class HopperStationaryConfig:
    """What the code depends on; see `HopperConfig` for what is not told here.

    Attributes:
        stride: Pixels from one to the next, rows then columns.
        steps: Blocks of input channels.
        matrix: Whether pixels are rows of a matrix.
    """

    element: str
    stride: tuple[int, int]
    steps: int
    matrix: bool
    tile: StationaryTile
    epilogue: EpilogueCode


def _supports(call: CudaCall) -> str | None:
    reason = refuse_vectors(call)
    if reason is not None:
        return reason
    op: Conv2d = call.op
    if call.inputs[1].shape[2:] != (1, 1) or any(op.padding):
        return "a window of several taps, or padded"
    if op.prologue != IDENTITY or op.store is not None:
        return "a prologue or a store of its own"
    reason = unmovable(call)
    if reason is not None:
        return reason
    k, c, *_ = call.inputs[1].shape
    tiles = _fitting(k, c, call.target.shared, adds(call))
    return None if tiles else "weights do not fit shared memory"


def unmovable(call: CudaCall) -> str | None:
    """Why TMA cannot move the result, and an operand that varies along pixels and channels."""
    epilogue, even = hopper_epilogue(call)
    tiles = tiles_of(epilogue.code)
    if len(tiles) > 1:
        return "several operands of the epilogue that vary along pixels and channels"
    added = [call.inputs[operand.index] for name, operand in epilogue.operands.items()
             if name in tiles and isinstance(operand, In)]  # fmt: skip
    if not even or not all(movable(call, view) for view in (*added, call.outputs[0])):
        return "TMA cannot move the result or what is added"
    return None


def movable(call: CudaCall, view: View) -> bool:
    """Whether TMA can move blocks of an image of the result's shape: pixels side by side."""
    shape = call.outputs[0].shape
    whole = view.shape == shape and view.strides[1] == 1 and begins(view)
    return whole and view.dtype is call.outputs[0].dtype


@lru_cache(maxsize=1024)
def _fitting(k: int, c: int, shared: int, added: bool) -> tuple[StationaryTile, ...]:
    """The tiles whose weights and stages fit so much shared memory."""
    depth = step_depth(c)
    weights, found = 2 * ceil(c / depth) * depth, []
    for rows, columns, warps, teams in _SHAPES:
        if columns >= 2 * max(16, k):
            continue
        stage, block = 2 * rows * depth, 2 * rows * columns
        # Of the whole, and of one that leaves no room for another program.
        rooms = [(room - _SPARE - weights * columns) // teams for room in (shared, shared // 2)]
        for results, least in ((2, _FEW), (1, 2)) if added else ((1, 2),):
            most, more = ((room - results * block) // stage for room in rooms)
            stages = min(most, max(_STAGES, more + 2))
            if stages >= least:
                found.append(StationaryTile(rows, columns, depth, warps, teams, stages, results))
                break
    return tuple(found)


def _cut(pixels: int, tile: StationaryTile, parts: int, multiprocessors: int) -> tuple[int, int]:
    """Tiles of a block of output channels, and programs that take them."""
    tiles = -(-pixels // tile.rows)
    return tiles, max(1, min(-(-tiles // tile.teams), multiprocessors // parts))


class _StationaryWork(NamedTuple):
    """Of a tile, whatever the size of the image.

    Attributes:
        tile: The tile.
        parts: Blocks of output channels.
        turn: Microseconds of a tile of each team.
    """

    tile: StationaryTile
    parts: int
    turn: float


@lru_cache(maxsize=1024)
def _works(machine: str, shared: int, k: int, c: int, added: bool) -> tuple[_StationaryWork, ...]:
    """Of k filters of c channels, with or without an image that is added."""
    return tuple(_work(gpu(machine), tile, k, c, added) for tile in _fitting(k, c, shared, added))


def _work(machine: Gpu, tile: StationaryTile, k: int, c: int, added: bool) -> _StationaryWork:
    results, teams = tile.rows * tile.columns, tile.teams
    products = 2.0 * results * c * machine.multiprocessors / machine.matrix_flops
    moved = 2.0 * (tile.rows * c + results * (2 if added else 1)) * machine.multiprocessors
    ends = _TILE + _END * results * (_ADDED if added else 1.0)
    alone = ceil(c / tile.depth) * _STEP / (tile.stages - 1) + products + ends
    beside = max(products, moved / machine.cached) + _SHOWN * ends
    return _StationaryWork(tile, ceil(k / tile.columns), max(alone, teams * beside))


def _times(call: CudaCall) -> list[tuple[float, int, StationaryTile]]:
    """Estimated microseconds of each tile, a number, the tile; fastest first.

    The tiles of the busiest team, as they share what a multiprocessor has; and the bytes.
    """
    machine, target = gpu(call.target.machine), call.target
    k, c, *_ = call.inputs[1].shape
    n, _, p, q = sums_of(call)
    pixels = n * p * q
    nbytes = moved_bytes(call)
    copied = (nbytes / machine.bandwidth) ** _BESIDE_EACH_OTHER
    found = []
    works = _works(target.machine, target.shared, k, c, adds(call))
    for i, (tile, parts, turn) in enumerate(works):
        tiles, programs = _cut(pixels, tile, parts, target.multiprocessors)
        turns = -(-tiles // (programs * tile.teams))
        together: float = ((_BEGIN + turns * turn) ** _BESIDE_EACH_OTHER + copied) ** _EACH_ALONE
        found.append((LAUNCH + together, i, tile))
    return sorted(found)


def _variants(call: CudaCall) -> Iterator[Variant]:
    for micros, _, tile in _times(call):
        yield Variant(micros, partial(_launches, call, tile), (tile.depth, False))


def _launches(call: CudaCall, tile: StationaryTile) -> tuple[Launch, ...]:
    made, op = HopperOperands.of(call, tile.depth), call.op
    n, k, p, q = sums_of(call)
    steps = ceil(call.inputs[1].shape[1] / tile.depth)
    config = HopperStationaryConfig(
        element_of(call.inputs[0]), op.stride, steps, matrix_step(call) is not None, tile,
        made.epilogue,
    )  # fmt: skip
    parts = ceil(k / tile.columns)
    tiles, programs = _cut(n * p * q, tile, parts, call.target.multiprocessors)
    integers = moved_integers(call, made, tiles)
    return (Launch(config, made.operands, integers, parts * programs),)


def moved_integers(call: CudaCall, made: HopperOperands, tiles: int) -> dict[str, int]:
    """Integers of a launch in so many tiles whose pixels, results and what is added TMA moves."""
    n, k, p, q = sums_of(call)
    _, beside = beside_tiles(made.epilogue)
    views = {"y": call.outputs[0]}
    for name in tiles_of(made.epilogue):
        operand = made.operands[name]
        assert isinstance(operand, In)
        views[name] = call.inputs[operand.index]
    # TMA steps from pixel to pixel, through the rows of all images.
    apart = {f"{name}_apart": pixel_distance((v.strides[0], *v.strides[2:]), (n, p, q)) or k
             for name, v in views.items()}  # fmt: skip
    names, step = (*_DESCRIBED, "k", "p", "q", *beside), matrix_step(call)
    if step is None:
        names += _WINDOW
        apart["upper_h"], apart["upper_w"] = upper_of(call)
    else:
        apart["x_apart"] = step
    named = {name: made.integers[name] for name in names}
    return {**named, "rows": n * p * q, "tiles": tiles, **apart}


def _entry(config: HopperStationaryConfig) -> Entry:
    tile = config.tile
    tiles = tiles_of(config.epilogue)
    pointers, integers = beside_tiles(config.epilogue)
    if config.matrix:
        pixels = matrix_map(config.element, tile.rows, tile.depth)
    else:
        pixels = Descriptor(
            "x", config.element, (tile.rows, tile.depth), ("n", "h", "wd", "c"),
            ("x_n", "x_h", "x_w", 1), (0, 0), ("upper_h", "upper_w"), config.stride,
        )  # fmt: skip
    moved = [
        Descriptor(name, config.element, (tile.rows, tile.columns), ("rows", "filters"),
                   (f"{name}_apart", 1))
        for name in ("y", *tiles)
    ]  # fmt: skip
    return Entry(
        f"conv2d.hopper_stationary_code:convolve_stationary{'_added' if tiles else ''}",
        (),
        _INTEGERS,
        {
            "STRIDE_H": config.stride[0], "STRIDE_W": config.stride[1], "BM": tile.rows,
            "BN": tile.columns, "BK": tile.depth, "STEPS": config.steps, "WARPS": tile.warps,
            "TEAMS": tile.teams, "STAGES": tile.stages, "RESULTS": tile.results,
            "BEGUN": min(BEGUN, tile.stages - 1), "MATRIX": config.matrix,
        },
        moved_functions(
            config.epilogue, tile.rows * tile.columns // (32 * tile.warps), tile.columns,
            HELD[tile.teams],
        ),
        pointers,
        integers,
        warps=tile.warps,
        descriptors=(pixels, filters_map(config.element, tile.columns, tile.depth), *moved),
        gluon=True,
    )  # fmt: skip


CONV2D_HOPPER_STATIONARY = CudaKernel(
    "conv2d.hopper_stationary", (Conv2d,), HopperStationaryConfig, _supports, _variants, _entry
)
