"""Convolution on Hopper by patches of pixels: each is brought once for all taps of a column.

For float16 and bfloat16, windows of several taps, strides of one and two, of few channels or of
groups of few. Groups are put together until they fill a product, as if they were one with zeros for
weights between them: of groups of four channels a sixteenth of all products counts, which takes
less than those that do on the CUDA cores. An infinity makes NaN of the other groups of its block.
Floor: the matrix units' rate for all products, the bytes of x and y, or how fast TMA brings pixels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from math import ceil
from typing import NamedTuple

from saccade.backends.cuda.codegen.entry import Descriptor
from saccade.backends.cuda.gpus import gpu
from saccade.ir.expr import IDENTITY
from saccade.kernels.base import In, Launch, Out, Packed, Packing, Variant
from saccade.kernels.cuda.base import CudaCall, CudaKernel, Entry, element_of
from saccade.kernels.cuda.conv2d.hopper import beyond_tma, filters_map, nested
from saccade.kernels.cuda.conv2d.hopper_epilogue import (
    gluon_epilogue_of,
    gluon_fetch_of,
    tile_bytes,
)
from saccade.kernels.cuda.conv2d.hopper_tiles import hopper_epilogue, pixel_distance, step_depth
from saccade.kernels.cuda.conv2d.window_config import WindowConfig, sums_of, window_of
from saccade.kernels.cuda.epilogue import EpilogueCode, integers_of, pointers_of
from saccade.kernels.cuda.machine import LAUNCH, SHARED_PORT, moved_bytes
from saccade.opdefs import Conv2d

__all__ = ["CONV2D_HOPPER_PATCHES", "HopperPatchesConfig", "PatchesTile"]

_INTEGERS = ("k", "p", "q", "down", "across", "tiles", "blocks", "y_n", "y_p", "y_q")
_VECTOR, _SECTOR = 8, 16  # elements of 16 bytes, TMA's unit; of 32, what memory gives
_WARPS = 4  # of a team
_WIDTHS = (64, 32)  # channels of a product: as many as TMA swizzles, and half
_MOST_STAGES = 7  # by eye: a column of taps each, of windows up to that wide
_MOST_PRODUCTS = 400  # instructions of a tile: they are written out
_SPARE = 1 << 10  # bytes of shared memory for barriers and alignment
_FILE, _BESIDE = 64 << 10, 90  # registers of a multiprocessor; of a thread, for all but sums
# Fitted to 1 720 times of 120 layers of seven networks in float16 on one H200: 14% off in the mean,
# and what is chosen is 3.4% slower than the best.
_BEGIN, _PIXEL, _LOAD = 0.87, 0.6e-3, 0.022
"""Microseconds on an H200 until the first patch is there; in which TMA brings a pixel, however few
its channels; that a load takes besides."""
_ADDED = 0.95
"""Microseconds on an H200 of 64 pixels by 64 channels that the epilogue reads."""
_SPLIT = 2.26  # times as long where pixels of a block begin inside of 32 bytes
_PRODUCTS = 0.89  # of what products take at the matrix units' rate, or shared memory's
_LONGEST, _BESIDE_BYTES = 4.4, 1.41
"""1 where a tile's parts wait for each other, and tiles for bytes, much more where they do not."""


@dataclass(frozen=True, slots=True)
class PatchesTile:
    """How the work is cut.

    Attributes:
        lines: Rows of output pixels of a tile.
        pixels: Of a row.
        together: Groups of a block of channels; 0 where there is one group, of which a block is
            some of the filters.
        inputs: Channels of x that a product sums over; of groups all of a block are among them.
        outputs: Filters of a product; those of a block are the first of them.
        teams: In a program: they take tiles beside one another, by the same weights.
        stages: Patches of input in shared memory, of each team.
    """

    lines: int
    pixels: int
    together: int
    inputs: int
    outputs: int
    teams: int
    stages: int

    def patch(self, rows: int, stride: int) -> int:
        """Rows of pixels of a patch, for so many rows of taps."""
        return min(stride, rows) * (self.lines + (rows - 1) // stride)

    def shared(self, rows: int, steps: int, stride: int) -> int:
        """Bytes of shared memory, for so many rows of taps, and steps through all else."""
        weights = rows * steps * self.inputs * self.outputs
        patches = self.stages * self.patch(rows, stride) * self.pixels * self.inputs
        results = self.lines * self.pixels * self.outputs
        return 2 * (weights + self.teams * (patches + results)) + _SPARE

    @property
    def sums(self) -> int:
        """Registers of a thread."""
        return self.lines * self.pixels * self.outputs // (32 * _WARPS)


_SHAPES = (
    (8, 16, 2), (16, 8, 2), (4, 32, 2), (2, 64, 2), (8, 8, 2), (4, 16, 2), (2, 32, 2), (8, 16, 1),
    (16, 8, 1), (8, 8, 1), (4, 16, 1), (2, 32, 1),
)  # fmt: skip
"""Rows, pixels, teams."""


@dataclass(frozen=True)
class HopperPatchesConfig:
    """What the code depends on; see `HopperConfig` for what is not told here.

    Attributes:
        deep: Products that sum over the channels of a block.
        block: Input channels from one block to the next, and filters of a block.
    """

    element: str
    window: WindowConfig
    tile: PatchesTile
    deep: int
    block: tuple[int, int]
    even: bool
    epilogue: EpilogueCode


def _supports(call: CudaCall) -> str | None:
    op: Conv2d = call.op
    _, c, r, s = call.inputs[1].shape
    if r * s == 1:
        return "one tap"
    if c == 1 and op.groups > 1:
        return "depthwise"
    if op.prologue != IDENTITY:
        return "a prologue"
    if op.store is not None:
        return "a store map"
    if op.dilation != (1, 1) or op.stride not in ((1, 1), (2, 2)):
        return f"strides {op.stride}, dilations {op.dilation}"
    reason = beyond_tma(call)
    if reason is not None:
        return reason
    channels = c * op.groups
    if channels % _VECTOR:
        return f"{channels} input channels"
    return None if _works(_layer(call)) else "weights and patches do not fit shared memory"


def _tiles(layer: _PatchesLayer) -> Iterable[PatchesTile]:
    """The tiles whose weights and patches fit shared memory."""
    k, c, r, s = layer.filters
    found = dict[PatchesTile, None]()
    for together, inputs, outputs in _blocks(k // layer.groups, c, layer.groups):
        steps = s * ceil(c / inputs)
        stages = [n for n in range(_MOST_STAGES, 1, -1) if steps % n == 0]
        for lines, pixels, teams in _SHAPES:
            products = r * steps * (inputs // 16) * (lines * pixels // 64)
            tiles = [
                PatchesTile(lines, pixels, together, inputs, outputs, teams, n) for n in stages
            ]
            fitting = (t for t in tiles if t.shared(r, steps, layer.stride) <= layer.shared)
            if products <= _MOST_PRODUCTS and (tile := next(fitting, None)) is not None:
                found[tile] = None
    return found


def _blocks(k: int, c: int, groups: int) -> Iterator[tuple[int, int, int]]:
    """Groups of a block, channels and filters of a product: as wide as TMA swizzles, and half."""
    for width in _WIDTHS:
        if groups == 1:
            yield 0, step_depth(c), min(width, _room(k))
            continue
        together = min(groups, width // max(k, c))
        # Blocks begin at multiples of 16 bytes.
        while together and (together * k % _VECTOR or together * c % _VECTOR):
            together -= 1
        if together:
            yield together, _room(together * c), _room(together * k)


def _room(channels: int) -> int:
    return max(16, 1 << (channels - 1).bit_length())


def _grid(call: CudaCall, tile: PatchesTile) -> tuple[int, int, int, int]:
    """Tiles down and across an image, all of them, blocks of channels."""
    n, k, p, q = sums_of(call)
    down, across = -(-p // tile.lines), -(-q // tile.pixels)
    whole, part = (call.op.groups, tile.together) if tile.together else (k, tile.outputs)
    blocks = -(-whole // part)
    return down, across, n * down * across, blocks


def _steps(c: int, s: int, tile: PatchesTile) -> int:
    """Columns of taps, for each block of channels that products sum over."""
    return s * (1 if tile.together else ceil(c / tile.inputs))


class _PatchesLayer(NamedTuple):
    """What times depend on, whatever the size of the image.

    Attributes:
        machine, shared: See `GpuTarget`.
        filters: k, c, r, s of the weights.
        groups, stride: Of the convolution.
        added: Whether the epilogue reads for each result.
    """

    machine: str
    shared: int
    filters: tuple[int, int, int, int]
    groups: int
    stride: int
    added: bool


class _PatchesWork(NamedTuple):
    """Of a tile, whatever the size of the image.

    Attributes:
        tile: The tile.
        resident: Programs that a multiprocessor runs at once.
        busy: Microseconds of its products, among others'.
        asked: Of what TMA brings for it.
        alone: Of a tile from its first patch to its end.
    """

    tile: PatchesTile
    resident: int
    busy: float
    asked: float
    alone: float


def _layer(call: CudaCall) -> _PatchesLayer:
    k, c, r, s = call.inputs[1].shape
    op: Conv2d = call.op
    added = bool(tile_bytes(hopper_epilogue(call)[0].code))
    target = call.target
    return _PatchesLayer(
        target.machine, target.shared, (k, c, r, s), op.groups, op.stride[0], added
    )


@lru_cache(maxsize=1024)
def _works(layer: _PatchesLayer) -> tuple[_PatchesWork, ...]:
    return tuple(_work(layer, tile) for tile in _tiles(layer))


def _work(layer: _PatchesLayer, tile: PatchesTile) -> _PatchesWork:
    machine = gpu(layer.machine)
    _, c, r, s = layer.filters
    steps, pixels = _steps(c, s, tile), tile.lines * tile.pixels
    products = r * steps * tile.inputs // 16 * pixels // 64
    rate = machine.matrix_flops / machine.multiprocessors  # of a multiprocessor, a microsecond
    patches = steps * tile.patch(r, layer.stride) * tile.pixels
    moved = products * 32.0 * (64 + tile.outputs) + 2 * patches * tile.inputs
    moved += 4 * pixels * tile.outputs
    busy = max(products * 2.0 * 64 * 16 * tile.outputs / rate, moved / SHARED_PORT)
    asked = patches * _PIXEL + steps * min(layer.stride, r) * _LOAD
    # Pixels of x, and blocks of its channels, that begin inside of what memory gives at a time.
    splits = layer.groups * c % _SECTOR > 0 or tile.together * c % _SECTOR > 0
    asked *= _SPLIT if splits else 1.0
    added = layer.added * _ADDED * pixels * tile.outputs / 4096
    room = layer.shared // tile.shared(r, steps, layer.stride)
    registers = 32 * _WARPS * tile.teams * (tile.sums + _BESIDE)
    resident = max(1, min(room, _FILE // registers))
    return _PatchesWork(tile, resident, busy, asked, busy + asked + added)


@lru_cache(maxsize=4096)
def _each(work: _PatchesWork, beside: int) -> float:
    """Microseconds of a tile beside so many, less one: products, TMA, or one behind the other."""
    parts = beside * _PRODUCTS * work.busy, beside * work.asked, work.alone
    found: float = sum(part**_LONGEST for part in parts) ** (1 / _LONGEST)
    return found


def _programs(call: CudaCall, work: _PatchesWork) -> int:
    """Programs of a launch: as many for each block of channels."""
    _, _, tiles, blocks = _grid(call, work.tile)
    most = call.target.multiprocessors * work.resident
    return blocks * max(1, min(-(-tiles // work.tile.teams), most // blocks))


def _times(call: CudaCall) -> list[tuple[float, int, _PatchesWork]]:
    """Estimated microseconds of each tile, a number; fastest first.

    Tiles of the busiest multiprocessor, beside the bytes.
    """
    machine = gpu(call.target.machine)
    copied = (moved_bytes(call) / machine.bandwidth) ** _BESIDE_BYTES
    found = []
    for i, work in enumerate(_works(_layer(call))):
        _, _, tiles, blocks = _grid(call, work.tile)
        programs, teams = _programs(call, work), work.tile.teams
        beside = teams * min(work.resident, -(-programs // machine.multiprocessors))
        turns = -(-tiles * blocks // (programs * teams))
        total = _BEGIN + turns * _each(work, beside)
        together: float = (total**_BESIDE_BYTES + copied) ** (1 / _BESIDE_BYTES)
        found.append((LAUNCH + together, i, work))
    return sorted(found)


def _variants(call: CudaCall) -> Iterator[Variant]:
    for micros, _, work in _times(call):
        rounding = work.tile.together, work.tile.inputs
        yield Variant(micros, partial(_launches, call, work), rounding)


def _launches(call: CudaCall, work: _PatchesWork) -> tuple[Launch, ...]:
    tile = work.tile
    x, y = call.inputs[0], call.outputs[0]
    n, k, p, q = sums_of(call)
    _, c, r, s = call.inputs[1].shape
    groups, steps = call.op.groups, _steps(c, s, tile)
    epilogue, even = hopper_epilogue(call)
    down, across, tiles, blocks = _grid(call, tile)
    depth = r * steps * tile.inputs
    filters = blocks * tile.outputs if tile.together else k
    block = (tile.together * c, tile.together * (k // groups) or tile.outputs)
    order: tuple[object, ...] = (groups, tile.together, tile.inputs, tile.outputs)
    packing = Packing(
        "cuda.groups" if tile.together else "cuda.filters",
        (x.dtype.value, *(order if tile.together else (depth // (r * s),))), (1,),
        filters * depth * x.dtype.itemsize,
    )  # fmt: skip
    step = pixel_distance((y.strides[0], *y.strides[2:]), (n, p, q)) if even else y.strides[3]
    integers = {
        "k": k // _VECTOR, "p": p, "q": q, "down": down, "across": across, "tiles": tiles,
        "blocks": blocks, "y_n": y.strides[0] // _VECTOR, "y_p": y.strides[2] // _VECTOR,
        "y_q": (step or 0) // _VECTOR, "n": n, "h": x.shape[2], "wd": x.shape[3], "c": x.shape[1],
        "filters": filters, "depth": depth,
        **{f"x_{axis}": step for axis, (_, step) in zip("nhw", nested(x), strict=True)},
        **epilogue.integers,
    }  # fmt: skip
    config = HopperPatchesConfig(
        element_of(x), window_of(call), tile, steps // s, block, even, epilogue.code
    )
    operands = {"x": In(0), "w": Packed(packing), "y": Out(0), **epilogue.operands}
    return (Launch(config, operands, integers, _programs(call, work)),)


def _entry(config: HopperPatchesConfig) -> Entry:
    tile, window = config.tile, config.window
    (r, s), (top, left), stride = window.taps, window.padding, window.stride[0]
    together = tile.patch(r, stride) // min(stride, r)  # rows of a patch
    functions = {"EPILOGUE": gluon_epilogue_of(config.epilogue, rounded=True)}
    fetch = gluon_fetch_of(config.epilogue)
    if fetch is not None:
        functions["FETCH"] = fetch
    pixels = Descriptor(
        "x", config.element, (1, 1, tile.pixels, tile.inputs), ("n", "h", "wd", "c"),
        ("x_n", "x_h", "x_w", 1), steps=() if stride == 1 else window.stride,
        box=(1, together, tile.pixels, tile.inputs),
    )  # fmt: skip
    return Entry(
        "conv2d.hopper_patches_code:convolve_patches",
        (("y", config.element),),
        _INTEGERS,
        {
            "R": r, "S": s, "STRIDE": stride, "PAD_T": top, "PAD_L": left, "LINES": tile.lines,
            "WIDE": tile.pixels, "BN": tile.outputs, "BK": tile.inputs,
            "DEEP": config.deep, "INPUTS": config.block[0], "OUTPUTS": config.block[1],
            "TEAMS": tile.teams, "STAGES": tile.stages, "EVEN": config.even,
        },
        functions,
        pointers_of(config.epilogue),
        integers_of(config.epilogue),
        warps=_WARPS,
        descriptors=(pixels, filters_map(config.element, tile.outputs, tile.inputs)),
        gluon=True,
    )  # fmt: skip


CONV2D_HOPPER_PATCHES = CudaKernel(
    "conv2d.hopper_patches", (Conv2d,), HopperPatchesConfig, _supports, _variants, _entry
)
