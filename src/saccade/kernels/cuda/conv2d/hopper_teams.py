"""Implicit GEMM on Hopper by one to three teams of warps, and a warp that has TMA bring all.

For layers that products bound, of float16 and bfloat16: tiles of 64 to 192 pixels by 64 to 256
output channels, one program a multiprocessor. Tiles of 192 read less of the L2 cache for a product,
and there are other numbers of them than powers of two give: 6 304 pixels by 768 channels are 132,
as many as multiprocessors. Its floor is the matrix units' rate.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from math import ceil, gcd
from typing import NamedTuple

from saccade.backends.cuda.codegen.entry import Descriptor
from saccade.backends.cuda.gpus import gpu
from saccade.ir.expr import IDENTITY
from saccade.kernels.base import Launch, Variant
from saccade.kernels.cuda.base import CudaCall, CudaKernel, Entry, element_of
from saccade.kernels.cuda.conv2d.hopper import (
    HopperOperands,
    filters_map,
    matrix_map,
    refuse_vectors,
    window_map,
)
from saccade.kernels.cuda.conv2d.hopper_epilogue import (
    beside_tiles,
    moved_functions,
    tiles_of,
)
from saccade.kernels.cuda.conv2d.hopper_stationary import (
    BEGUN,
    HELD,
    moved_integers,
    unmovable,
)
from saccade.kernels.cuda.conv2d.hopper_tiles import (
    adds,
    matrix_step,
    step_depth,
)
from saccade.kernels.cuda.conv2d.window_config import WindowConfig, sums_of, window_of
from saccade.kernels.cuda.epilogue import EpilogueCode
from saccade.kernels.cuda.machine import LAUNCH
from saccade.opdefs import Conv2d

__all__ = ["CONV2D_HOPPER_TEAMS", "HopperTeamsConfig", "TeamsTile"]

_INTEGERS = ("rows", "k", "p", "q", "steps", "tiles")
_ROWS = 64  # pixels of a team
_SPARE = 2 << 10  # bytes of shared memory for barriers and alignment
_STAGES = 8  # more brought nothing
_DEPTH = 64  # input channels that a layer has at least
_MOVED = 128  # of results at a time, or registers spill


# Fitted to 111 times of ResNet-50's layers at batch 32: 6% off in the mean.
_BEGIN, _TILE, _END, _ADDED = 1.55, 0.11, 3.6e-5, 0.95
"""Microseconds on an H200 of a program's begin; of a tile's end; of each result's; as much again
where something is added to it."""
_NARROW, _COLUMNS, _SINGLE = 0.46, 64, 0.33
"""Of a tile's end, more where it has so few output channels; more where no other team goes on."""
_RATE, _COPY = 1.2, 1.0
"""Of what `Gpu` says: products alone; x and y, beside which the rest goes on."""
_SHALLOW = 1.12  # times as long for products of steps that are no deeper than half of others
_BESIDE_EACH_OTHER = 2.7  # 1 where sums and bytes wait for each other, much more where they do not
_EACH_ALONE = 1 / _BESIDE_EACH_OTHER


@dataclass(frozen=True, slots=True)
class TeamsTile:
    """How the work is cut.

    Attributes:
        teams: Of four warps, each with 64 pixels of a tile.
        columns: Output channels of a tile's first block.
        rest: Of its second; 0 where there is one.
        depth: Input channels of a step.
        moved: Output channels of results in shared memory: the first block's, or half of them.
        stages: Steps in shared memory.
    """

    teams: int
    columns: int
    rest: int
    depth: int
    moved: int
    stages: int

    @property
    def rows(self) -> int:
        """Pixels of a tile."""
        return _ROWS * self.teams

    @property
    def width(self) -> int:
        """Output channels of a tile."""
        return self.columns + self.rest


@dataclass(frozen=True)
class HopperTeamsConfig:
    """What the code depends on; see `HopperConfig` for what is not told here.

    Attributes:
        matrix: Whether pixels are rows of a matrix.
    """

    element: str
    window: WindowConfig
    tile: TeamsTile
    taps_inner: bool
    matrix: bool
    epilogue: EpilogueCode


_SHAPES = (
    (3, 128, 64), (3, 128, 128), (3, 128, 0), (3, 64, 0), (2, 256, 0), (2, 128, 64), (2, 128, 0),
    (2, 64, 0), (1, 128, 0),
)  # fmt: skip
"""Teams, output channels of both blocks."""


def _supports(call: CudaCall) -> str | None:
    reason = refuse_vectors(call)
    if reason is not None:
        return reason
    op: Conv2d = call.op
    if op.prologue != IDENTITY or op.store is not None:
        return "a prologue or a store of its own"
    reason = unmovable(call)
    if reason is not None:
        return reason
    k, c, *_ = call.inputs[1].shape
    if c < _DEPTH:
        return f"{c} input channels"
    return None if _fitting(k, c, call.target.shared, adds(call)) else f"{k} output channels"


@lru_cache(maxsize=1024)
def _fitting(k: int, c: int, shared: int, added: bool) -> tuple[TeamsTile, ...]:
    """The tiles that fit so much shared memory, for k filters of c channels."""
    found = []
    for teams, columns, rest in _SHAPES:
        # Blocks that are less than half empty; what is added comes all at once.
        if columns + rest >= 2 * k or (added and columns > _MOVED):
            continue
        moved = columns if added else columns // 2
        results = 2 * _ROWS * teams * (columns + rest if added else moved)
        for depth, least in ((step_depth(c), 4), (_DEPTH // 2, 6)):
            stage = 2 * depth * (_ROWS * teams + columns + rest)
            stages = min(_STAGES, (shared - _SPARE - results) // stage)
            if stages >= least:
                found.append(TeamsTile(teams, columns, rest, depth, moved, stages))
                break
    return tuple(found)


class _TeamsWork(NamedTuple):
    """Of a tile, whatever the size of the image.

    Attributes:
        tile: The tile.
        blocks: Of output channels.
        turn: Microseconds of a tile.
    """

    tile: TeamsTile
    blocks: int
    turn: float


@lru_cache(maxsize=1024)
def _works(
    machine: str, shared: int, k: int, c: int, taps: int, added: bool
) -> tuple[_TeamsWork, ...]:
    """Of k filters of c channels, with or without an image that is added."""
    found, on = [], gpu(machine)
    for tile in _fitting(k, c, shared, added):
        flops = 2.0 * tile.rows * tile.width * taps * ceil(c / tile.depth) * tile.depth
        products = flops * on.multiprocessors / (_RATE * on.matrix_flops)
        products *= _SHALLOW if tile.depth < step_depth(c) else 1.0
        ends = _TILE + _END * tile.rows * tile.width * (1 + _ADDED * added)
        ends += _NARROW * (tile.width == _COLUMNS) + _SINGLE * (tile.teams == 1)
        found.append(_TeamsWork(tile, ceil(k / tile.width), products + ends))
    return tuple(found)


def _times(call: CudaCall) -> list[tuple[float, int, TeamsTile]]:
    """Estimated microseconds of each tile, a number, the tile; fastest first."""
    machine, target = gpu(call.target.machine), call.target
    k, c, r, s = call.inputs[1].shape
    n, _, p, q = sums_of(call)
    op: Conv2d = call.op
    x, *others = (view.nbytes for view in (*call.inputs, *call.outputs))
    # Pixels that no tap meets are not read.
    met = min(1.0, r / op.stride[0]) * min(1.0, s / op.stride[1])
    copied = ((met * x + sum(others)) / (_COPY * machine.bandwidth)) ** _BESIDE_EACH_OTHER
    found = []
    works = _works(target.machine, target.shared, k, c, r * s, adds(call))
    for i, (tile, blocks, turn) in enumerate(works):
        tiles = -(-n * p * q // tile.rows) * blocks
        turns = -(-tiles // target.multiprocessors)
        together: float = ((_BEGIN + turns * turn) ** _BESIDE_EACH_OTHER + copied) ** _EACH_ALONE
        found.append((LAUNCH + together, i, tile))
    return sorted(found)


def _variants(call: CudaCall) -> Iterator[Variant]:
    for micros, _, tile in _times(call):
        yield Variant(micros, partial(_launches, call, tile), (tile.depth, False))


def _launches(call: CudaCall, tile: TeamsTile) -> tuple[Launch, ...]:
    made = HopperOperands.of(call, tile.depth)
    n, k, p, q = sums_of(call)
    _, c, r, s = call.inputs[1].shape
    inner = r * s > 1 and c > tile.depth
    config = HopperTeamsConfig(
        element_of(call.inputs[0]), window_of(call), tile, inner, matrix_step(call) is not None,
        made.epilogue,
    )  # fmt: skip
    tiles = -(-n * p * q // tile.rows) * -(-k // tile.width)
    integers = {**moved_integers(call, made, tiles), "steps": ceil(c / tile.depth)}
    programs = min(tiles, call.target.multiprocessors)
    return (Launch(config, made.operands, integers, programs),)


def _entry(config: HopperTeamsConfig) -> Entry:
    tile, window = config.tile, config.window
    tiles = tiles_of(config.epilogue)
    pointers, integers = beside_tiles(config.epilogue)
    part = gcd(tile.columns, tile.rest)
    if config.matrix:
        pixels = matrix_map(config.element, _ROWS, tile.depth)
    else:
        pixels = window_map(config.element, _ROWS, tile.depth, window)
    pixels = replace(pixels, box=(tile.rows, tile.depth))
    moved = [
        Descriptor(
            name,
            config.element,
            (_ROWS, min(part, tile.moved)),
            ("rows", "filters"),
            (f"{name}_apart", 1),
        )
        for name in ("y", *tiles)
    ]
    constants = window.constants()
    del constants["PADDED"]  # what lies outside is zero for TMA
    return Entry(
        f"conv2d.hopper_teams_code:convolve_teams{'_added' if tiles else ''}",
        (),
        _INTEGERS,
        {
            **constants, "BN": tile.columns, "BN2": tile.rest, "BK": tile.depth,
            "MOVED": tile.moved, "TEAMS": tile.teams, "STAGES": tile.stages,
            "TAPS_INNER": config.taps_inner, "BEGUN": BEGUN,
            "MATRIX": config.matrix,
        },
        moved_functions(
            config.epilogue, tile.width // 2, tile.width, HELD[tile.teams]
        ),
        pointers,
        integers,
        warps=4,
        descriptors=(pixels, filters_map(config.element, part, tile.depth), *moved),
        gluon=True,
    )  # fmt: skip


CONV2D_HOPPER_TEAMS = CudaKernel(
    "conv2d.hopper_teams", (Conv2d,), HopperTeamsConfig, _supports, _variants, _entry
)
