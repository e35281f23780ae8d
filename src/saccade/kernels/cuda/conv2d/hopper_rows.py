"""Convolution on Hopper by rows of pixels that serve all taps of a column, beside resident weights.

For windows of several rows over float16 and bfloat16, stride 1, whose weights for a block of output
channels fit shared memory: few channels, large images. Of what `conv2d.hopper` reads from the L2,
every tap's pixels and a tile's weights, it reads the pixels of a column of taps once, and the
weights once a program. Its floor is the matrix units' rate, or how fast these read their operands
from shared memory: a product of 64 pixels and 64 channels takes both to the full.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from math import ceil

from saccade.backends.cuda.codegen.entry import Descriptor
from saccade.backends.cuda.gpus import gpu
from saccade.ir.expr import IDENTITY
from saccade.kernels.base import Launch, Variant
from saccade.kernels.cuda.base import CudaCall, CudaKernel, Entry, element_of
from saccade.kernels.cuda.conv2d.hopper import (
    HopperOperands,
    filters_map,
    refuse_vectors,
)
from saccade.kernels.cuda.conv2d.hopper_epilogue import (
    gluon_epilogue_of,
    gluon_fetch_of,
    tile_bytes,
)
from saccade.kernels.cuda.conv2d.hopper_tiles import hopper_epilogue, step_depth
from saccade.kernels.cuda.conv2d.window_config import WindowConfig, sums_of, window_of
from saccade.kernels.cuda.epilogue import EpilogueCode, integers_of, pointers_of
from saccade.kernels.cuda.machine import LAUNCH, SHARED_PORT, moved_bytes
from saccade.opdefs import Conv2d

__all__ = [
    "CONV2D_HOPPER_ROWS", "HopperRowsConfig", "RowsTile", "asked_rows", "rows_entry", "rows_launch",
    "rows_micros", "rows_tiles",
]  # fmt: skip

_INTEGERS = ("k", "p", "q", "down", "across", "tiles", "y_n", "y_p", "y_q")
_SPARE = 512  # bytes of shared memory for barriers and alignment
_FILE, _BESIDE = 64 << 10, 112  # registers of a multiprocessor; of a thread, for all the rest
_MOST_REGISTERS, _MOST_SUMS = 255, 128  # of a thread
_MOST_STAGES = 13  # by eye: TMA is a microsecond behind at most
_MOST_PRODUCTS = 400  # instructions of a tile: they are written out
# Fitted to 64 times of 16 layers in float16 on one H100, and to which is the fastest of each: 10%
# off in the mean.
_ASKED = 1.6e-3
"""Microseconds in which TMA brings a pixel on an H100, however few its channels."""
_END, _READ, _READ_EARLY = 0.10, 0.47, 0.36
"""Microseconds on an H100 of the end of 64 pixels by 64 channels; more where the epilogue reads for
each."""
_MANY, _FULL = 1.74, 2.86
"""Times as long where sums take more than 64 registers of a thread, and all that there are."""
_HIDDEN = 0.27  # the share of an end that another team's products hide
_ALONE = 1.57  # times as long where four warps are all that a multiprocessor has
_FULL_ALONE = 1.4  # as often again where one program with all registers in use is


@dataclass(frozen=True, slots=True)
class RowsTile:
    """How the work is cut.

    Attributes:
        lines: Rows of output pixels of a tile.
        pixels: Of a row.
        columns: Output channels of a program.
        depth: Input channels of a product.
        warps: Of a team; each four hold 64 pixels of a row.
        teams: In a program: they take tiles beside one another, by the same weights.
        stages: Rows of input in shared memory, of each team.
    """

    lines: int
    pixels: int
    columns: int
    depth: int
    warps: int
    teams: int
    stages: int

    @property
    def row(self) -> int:
        """Bytes of a row of input."""
        return 2 * self.pixels * self.depth

    @property
    def beside(self) -> int:
        """Bytes of shared memory besides rows and weights: results of a row change places there."""
        return _SPARE + self.teams * 2 * self.pixels * self.columns

    @property
    def sums(self) -> int:
        """Registers of a thread."""
        return self.lines * self.pixels * self.columns // (32 * self.warps)

    @property
    def early(self) -> int:
        """Rows of input before its end when a row of results' epilogue asks for what it reads."""
        return 2 if self.sums <= 64 else 0


_SHAPES = (
    (4, 64, 64, 4, 1), (3, 64, 64, 4, 1), (2, 64, 64, 4, 1), (4, 128, 64, 8, 1), (2, 64, 128, 4, 1),
    (6, 64, 32, 4, 1), (4, 64, 32, 4, 1), (2, 64, 128, 4, 2), (1, 64, 128, 4, 2),
)  # fmt: skip
"""Rows, pixels, output channels, warps, teams.

Where two programs fit beside each other, two teams of one are slower, by up to a fifth."""


@dataclass(frozen=True)
class HopperRowsConfig:
    """What the code depends on; see `HopperConfig` for what is not told here.

    Attributes:
        blocks: Of input channels.
        channels: Of the result where a block is more than a pixel, divided by 8; else 0.
    """

    element: str
    window: WindowConfig
    tile: RowsTile
    blocks: int
    even: bool
    block: int
    channels: int
    packed: bool
    epilogue: EpilogueCode


def _supports(call: CudaCall) -> str | None:
    reason = refuse_vectors(call)
    if reason is not None:
        return reason
    op: Conv2d = call.op
    if op.prologue != IDENTITY:
        return "a prologue"
    if (op.stride, op.dilation) != ((1, 1), (1, 1)):
        return f"strides {op.stride}, dilations {op.dilation}"
    if call.inputs[1].shape[2] == 1:
        return "windows of one row"
    return None if rows_tiles(call) else "weights do not fit shared memory"


def rows_tiles(call: CudaCall) -> tuple[RowsTile, ...]:
    """The tiles whose weights and rows fit shared memory."""
    k, c, r, s = call.inputs[1].shape
    return _fitting(k, c, r, s, call.op.stride[0], call.target.shared)


@lru_cache(maxsize=1024)
def _fitting(k: int, c: int, r: int, s: int, stride: int, shared: int) -> tuple[RowsTile, ...]:
    """Tiles for k filters of c channels, r by s taps, in so much shared memory."""
    depth = step_depth(c)
    blocks, found = ceil(c / depth), []
    for lines, pixels, columns, warps, teams in _SHAPES:
        weights = 2 * r * s * blocks * depth * columns
        rows = s * blocks * ((lines - 1) * stride + r)
        bare = RowsTile(lines, pixels, columns, depth, warps, teams, 1)
        products = s * blocks * r * lines * depth // 16
        if columns >= 2 * max(16, k) or products > _MOST_PRODUCTS or bare.sums > _MOST_SUMS:
            continue
        for programs in (2, 1) if teams == 1 else (1,):
            room = shared // programs - bare.beside - weights
            most = min(_MOST_STAGES, room // (teams * bare.row))
            # A row arrives while one is multiplied and one may still be.
            stages = max((n for n in range(3, most + 1) if rows % n == 0), default=0)
            if stages:
                found.append(replace(bare, stages=stages))
                break  # one alone has nothing beside its ends, however many its stages
    return tuple(found)


def _shared(call: CudaCall, tile: RowsTile) -> int:
    _, c, r, s = call.inputs[1].shape
    inputs = ceil(c / tile.depth) * tile.depth
    rows = tile.teams * tile.stages * tile.row
    return 2 * r * s * inputs * tile.columns + rows + tile.beside


def _resident(call: CudaCall, tile: RowsTile) -> int:
    """Programs that a multiprocessor runs at once."""
    each = min(_MOST_REGISTERS, tile.sums + _BESIDE)
    threads = 32 * tile.warps * tile.teams
    return max(1, min(call.target.shared // _shared(call, tile), _FILE // (threads * each)))


def _grid(call: CudaCall, tile: RowsTile) -> tuple[int, int, int, int]:
    """Tiles down and across an image, all of them, blocks of output channels."""
    n, k, p, q = sums_of(call)
    down, across = ceil(p / tile.lines), ceil(q / tile.pixels)
    return down, across, n * down * across, ceil(k / tile.columns)


def _programs(call: CudaCall, tile: RowsTile) -> int:
    """Programs of a launch: as many for each block of output channels."""
    _, _, tiles, parts = _grid(call, tile)
    most = call.target.multiprocessors * _resident(call, tile)
    return parts * max(1, min(ceil(tiles / tile.teams), most // parts))


def asked_rows(call: CudaCall, tile: RowsTile) -> tuple[int, int]:
    """Rows of input that a tile asks for, and how many tiles there are."""
    _, c, r, s = call.inputs[1].shape
    stride: int = call.op.stride[0]
    *_, tiles, parts = _grid(call, tile)
    return s * ceil(c / tile.depth) * ((tile.lines - 1) * stride + r), tiles * parts


def rows_micros(call: CudaCall, tile: RowsTile) -> float:
    """Tiles of the busiest multiprocessor, by shared memory, TMA, their ends; or the bytes."""
    machine = gpu(call.target.machine)
    _, c, r, s = call.inputs[1].shape
    blocks = ceil(c / tile.depth)
    rows, tiles = asked_rows(call, tile)
    rate = machine.matrix_flops / machine.multiprocessors  # of a multiprocessor, a microsecond
    products = r * s * blocks * tile.lines * tile.depth // 16 * (tile.pixels // 64)
    exchanged = 2 * 2 * tile.lines * tile.pixels * tile.columns
    moved = products * 32.0 * (64 + tile.columns) + rows * tile.row + exchanged
    busy = max(products * 2.0 * 64 * 16 * tile.columns / rate, moved / SHARED_PORT)
    cached = machine.cached / machine.multiprocessors
    read = rows * max(tile.row / cached, tile.pixels * _ASKED)
    epilogue, _ = hopper_epilogue(call)
    end = _END + (_READ_EARLY if tile.early else _READ) * bool(tile_bytes(epilogue.code))
    end *= tile.sums / 32
    end *= _FULL if tile.sums == _MOST_SUMS else _MANY if tile.sums > 64 else 1.0
    beside = tile.teams * _resident(call, tile)
    each = max(busy, read) + end * (1 - _HIDDEN if beside > 1 else 1)
    each *= _ALONE if beside * tile.warps == 4 else 1
    each *= _FULL_ALONE if beside == 1 and tile.sums == _MOST_SUMS else 1
    # Teams of a multiprocessor share what it has: each takes so many times as long.
    turns = ceil(tiles / (tile.teams * _programs(call, tile)))
    nbytes = moved_bytes(call)
    return LAUNCH + max(turns * beside * each, nbytes / machine.bandwidth)


def _variants(call: CudaCall) -> Iterator[Variant]:
    timed = sorted((rows_micros(call, tile), i, tile) for i, tile in enumerate(rows_tiles(call)))
    for micros, _, tile in timed:
        yield Variant(micros, partial(_launches, call, tile), tile.depth)


def _launches(call: CudaCall, tile: RowsTile) -> tuple[Launch, ...]:
    return (rows_launch(call, tile),)


def rows_launch(call: CudaCall, tile: RowsTile) -> Launch:
    """The launch of a call by these tiles."""
    made = HopperOperands.of(call, tile.depth)
    blocks = ceil(call.inputs[1].shape[1] / tile.depth)
    config = HopperRowsConfig(
        element_of(call.inputs[0]), window_of(call), tile, blocks, made.even, made.block,
        made.integers["channels"] if made.block > 1 else 0, made.packed, made.epilogue,
    )  # fmt: skip
    down, across, tiles, _ = _grid(call, tile)
    integers = {**made.integers, "down": down, "across": across, "tiles": tiles}
    del integers["channels"]  # which the code knows
    return Launch(config, made.operands, integers, _programs(call, tile))


def rows_entry(config: HopperRowsConfig) -> Entry:
    """What is compiled."""
    tile, window = config.tile, config.window
    (r, s), (top, left) = window.taps, window.padding
    constants = {
        "R": r, "S": s, "STRIDE": window.stride[0], "PAD_T": top, "PAD_L": left,
        "LINES": tile.lines, "BM": tile.pixels, "BN": tile.columns, "BK": tile.depth,
        "BLOCKS": config.blocks, "WARPS": tile.warps, "TEAMS": tile.teams, "STAGES": tile.stages,
        "EVEN": config.even, "BLOCK": config.block, "CHANNELS": config.channels,
        "EARLY": tile.early, "CRD": config.packed,
    }  # fmt: skip
    functions = {"EPILOGUE": gluon_epilogue_of(config.epilogue)}
    fetch = gluon_fetch_of(config.epilogue)
    if fetch is not None:
        functions["FETCH"] = fetch
    row = Descriptor(
        "x", config.element, (1, 1, tile.pixels, tile.depth), ("n", "h", "wd", "c"),
        ("x_n", "x_h", "x_w", 1),
    )  # fmt: skip
    return Entry(
        "conv2d.hopper_rows_code:convolve_rows",
        (("y", config.element),),
        _INTEGERS,
        constants,
        functions,
        pointers_of(config.epilogue),
        integers_of(config.epilogue),
        warps=tile.warps,
        descriptors=(row, filters_map(config.element, tile.columns, tile.depth)),
        gluon=True,
    )


CONV2D_HOPPER_ROWS = CudaKernel(
    "conv2d.hopper_rows", (Conv2d,), HopperRowsConfig, _supports, _variants, rows_entry
)
