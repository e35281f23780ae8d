"""Convolution on Hopper down strips of pixels, for windows of several rows over large images.

For float16 and bfloat16, stride 1, few channels: what `conv2d.hopper_rows` is for, where pixels of
the result and of what is added can be moved by TMA and all else that the epilogue reads differs by
channel alone. A row of input is brought once for all its taps, and no thread computes an address.
Its floor is how fast products read their operands from shared memory: one of
64 pixels and 64 channels takes that to the full.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import NamedTuple

from saccade.backends.cuda.codegen.entry import Descriptor
from saccade.backends.cuda.gpus import gpu
from saccade.ir.expr import IDENTITY
from saccade.kernels.base import In, Launch, Variant, View
from saccade.kernels.cuda.base import CudaCall, CudaKernel, Entry, element_of
from saccade.kernels.cuda.conv2d.hopper import (
    HopperOperands,
    begins,
    filters_map,
    nested,
    refuse_vectors,
    unaligned,
)
from saccade.kernels.cuda.conv2d.hopper_epilogue import (
    beside_tiles,
    gluon_epilogue_of,
    gluon_known_of,
    tile_bytes,
    tiles_of,
)
from saccade.kernels.cuda.conv2d.hopper_stationary import movable
from saccade.kernels.cuda.conv2d.hopper_tiles import hopper_epilogue, step_depth
from saccade.kernels.cuda.conv2d.window_config import WindowConfig, sums_of, window_of
from saccade.kernels.cuda.epilogue import EpilogueCode
from saccade.kernels.cuda.machine import LAUNCH, SHARED_PORT, moved_bytes
from saccade.opdefs import Conv2d

__all__ = ["CONV2D_HOPPER_STRIPS", "HopperStripsConfig", "StripsTile"]

_INTEGERS = ("k", "p", "across", "runs", "length", "parts")
_PIXELS, _TEAMS = 64, 2  # of a strip; of a program
_SPARE = 2 << 10  # bytes of shared memory for barriers and alignment
_COLUMNS = (64, 32, 128)  # output channels of a program
_LEAST_STAGES, _MOST_STAGES = 3, 12  # of each team; of those that were tried
_MOST_SUMS = 128  # registers of a thread for the rows that are under way
_BEGIN = 2  # rows that a part takes besides its own
# Fitted to 19 times of 11 layers in float16 on one H200: 3.4% off in the mean.
_START, _ROW = 2.6, 0.117
"""Microseconds on an H200 until the first row is there, and that a row takes whatever it has."""
_PRODUCTS, _RESULTS = 0.80, 2.1
"""Times as long as their bytes take through shared memory: operands of products; results and what
is added to them."""


@dataclass(frozen=True, slots=True)
class StripsTile:
    """How the work is cut.

    Attributes:
        columns: Output channels of a program.
        depth: Input channels of a product.
        ring: Stages in shared memory, of each team: rows of input for one column of taps.
    """

    columns: int
    depth: int
    ring: int


@dataclass(frozen=True)
class HopperStripsConfig:
    """What the code depends on; see `HopperConfig` for what is not told here.

    Attributes:
        blocks: Of input channels.
        wide: Columns of sums that lie side by side in a row of the result, where a block is more
            than a pixel; else 0.
        channels: Of the result where packing brings those of a pixel together (CRD); else 0.
    """

    element: str
    window: WindowConfig
    tile: StripsTile
    blocks: int
    wide: int
    channels: int
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
    if not any(_parted(call, columns) for columns in _COLUMNS):
        return f"blocks of pixels whose rows have {_wide(call)} channels"
    return _moved(call) or (None if _tiles(call) else "weights do not fit shared memory")


def _moved(call: CudaCall) -> str | None:
    """Why TMA cannot move the result and what is added."""
    y, sums = call.outputs[0], sums_of(call)
    if not begins(y):
        return "pixels of the result are parts of wider ones"
    added = 0
    for view in call.inputs[2:]:
        strides = view.broadcast_to(sums).strides
        if not any((strides[0], *strides[2:])):
            continue
        added += 1
        if added > 1 or not movable(call, view) or unaligned(view):
            return "TMA cannot move what is added"
    op: Conv2d = call.op
    return "something is added to blocks of pixels" if added and op.store is not None else None


def _tiles(call: CudaCall) -> tuple[StripsTile, ...]:
    """The tiles whose weights and rows fit shared memory."""
    k, c, r, s = call.inputs[1].shape
    depth = step_depth(c)
    steps, found = s * ceil(c / depth), []
    # What is added to a row comes while the results of the one before leave.
    places = 1 + len(tile_bytes(hopper_epilogue(call)[0].code))
    for columns in _COLUMNS:
        weights = 2 * columns * (r * steps * depth + _TEAMS * places * _PIXELS)
        stages = (call.target.shared - _SPARE - weights) // (2 * _TEAMS * _PIXELS * depth)
        fits = stages >= _LEAST_STAGES and r * columns // 2 <= _MOST_SUMS
        if columns < 2 * k and fits and _parted(call, columns):
            found.append(StripsTile(columns, depth, min(_MOST_STAGES, stages)))
    return tuple(found)


def _wide(call: CudaCall) -> int:
    """See `HopperStripsConfig.wide`."""
    k, y = call.inputs[1].shape[0], call.outputs[0]
    block = sums_of(call)[1] // y.shape[1]  # pixels of a block
    return 0 if block == 1 else k // round(block**0.5)


def _parted(call: CudaCall, columns: int) -> bool:
    """Whether blocks of so many columns are whole parts of rows of results, or have whole ones."""
    wide = _wide(call)
    if not wide:
        return True
    return sums_of(call)[1] >= columns and (wide % columns == 0 or columns % wide == 0)


class _StripParts(NamedTuple):
    """Strips of an image, parts of a strip, rows of a part, parts of all images."""

    across: int
    runs: int
    length: int
    parts: int


def _cut(call: CudaCall, tile: StripsTile) -> tuple[_StripParts, int]:
    """As few rows as can be for the busiest program, and programs of each block of channels."""
    n, k, p, q = sums_of(call)
    across = ceil(q / _PIXELS)
    most = _TEAMS * max(1, call.target.multiprocessors // ceil(k / tile.columns))
    r = call.inputs[1].shape[2]
    found = []
    for turns in (1, 2, 3, 4):
        length = ceil(p / min(p, max(1, turns * most // (n * across))))
        length = ceil((length + r - 1) / r) * r - (r - 1)
        runs = ceil(p / length)
        parts = n * across * runs
        rows = ceil(parts / most) * (length + _BEGIN)
        found.append(
            (rows, _StripParts(across, runs, length, parts), ceil(min(parts, most) / _TEAMS))
        )
    _, parts_of_all, programs = min(found)
    return parts_of_all, programs


def _micros(call: CudaCall, tile: StripsTile) -> float:
    """Rows of the busiest multiprocessor, by what moves through shared memory; or the bytes."""
    machine = gpu(call.target.machine)
    _, c, r, s = call.inputs[1].shape
    cut, programs = _cut(call, tile)
    steps = s * ceil(c / tile.depth)
    products = r * steps * 2 * tile.depth * (_PIXELS + tile.columns)
    left = 4 * _PIXELS * tile.columns * (1 + len(tile_bytes(hopper_epilogue(call)[0].code)))
    row = _ROW + (_PRODUCTS * products + _RESULTS * left) / SHARED_PORT
    rows = ceil(cut.parts / (_TEAMS * programs)) * _TEAMS * (cut.length + _BEGIN)
    nbytes = moved_bytes(call)
    return LAUNCH + max(_START + rows * row, nbytes / machine.bandwidth)


def _variants(call: CudaCall) -> Iterator[Variant]:
    timed = sorted((_micros(call, tile), i, tile) for i, tile in enumerate(_tiles(call)))
    for micros, _, tile in timed:
        yield Variant(micros, partial(_launches, call, tile), tile.depth)


def _launches(call: CudaCall, tile: StripsTile) -> tuple[Launch, ...]:
    made = HopperOperands.of(call, tile.depth)
    k = call.inputs[1].shape[0]
    config = HopperStripsConfig(
        element_of(call.inputs[0]), window_of(call), tile,
        ceil(call.inputs[1].shape[1] / tile.depth), _wide(call),
        call.outputs[0].shape[1] if made.packed else 0, made.epilogue,
    )  # fmt: skip
    cut, programs = _cut(call, tile)
    described = ("n", "h", "wd", "c", "filters", "depth", "x_n", "x_h", "x_w", "k", "p")
    _, beside = beside_tiles(made.epilogue)
    integers = {
        **{name: made.integers[name] for name in (*described, *beside)}, **cut._asdict(),
        **_places("y", call.outputs[0], made.block),
    }  # fmt: skip
    for name in tiles_of(made.epilogue):
        operand = made.operands[name]
        assert isinstance(operand, In)
        integers |= _places(name, call.inputs[operand.index], 1)
    return (Launch(config, made.operands, integers, programs * ceil(k / tile.columns)),)


def _places(name: str, view: View, block: int) -> dict[str, int]:
    """Integers of the map of a result, or of what is added: blocks of pixels are one pixel."""
    (n, n_step), (h, h_step), (w, w_step) = nested(view)
    return {
        f"{name}_images": n, f"{name}_rows": h // block, f"{name}_inner": block,
        f"{name}_pixels": w // block, f"{name}_wide": view.shape[1] * block,
        f"{name}_by_image": n_step, f"{name}_by_row": h_step * block, f"{name}_by_inner": h_step,
        f"{name}_by_pixel": w_step * block,
    }  # fmt: skip


def _row_map(name: str, element: str, columns: int) -> Descriptor:
    """Of so many channels of a row of results, or of what is added to them."""
    sizes = tuple(f"{name}_{axis}" for axis in ("images", "rows", "inner", "pixels", "wide"))
    steps = tuple(f"{name}_by_{axis}" for axis in ("image", "row", "inner", "pixel"))
    return Descriptor(name, element, (1, 1, 1, _PIXELS, columns), sizes, (*steps, 1))


def _entry(config: HopperStripsConfig) -> Entry:
    tile, window = config.tile, config.window
    (r, s), (top, left) = window.taps, window.padding
    tiles = tiles_of(config.epilogue)
    pointers, integers = beside_tiles(config.epilogue)
    part = min(tile.columns, config.wide or tile.columns)
    pixels = Descriptor(
        "x", config.element, (1, 1, _PIXELS, tile.depth), ("n", "h", "wd", "c"),
        ("x_n", "x_h", "x_w", 1),
    )  # fmt: skip
    return Entry(
        f"conv2d.hopper_strips_code:convolve_strips{'_added' if tiles else ''}",
        (),
        _INTEGERS,
        {
            "R": r, "S": s, "PAD_T": top, "PAD_L": left, "BN": tile.columns, "BK": tile.depth,
            "BLOCKS": config.blocks, "RING": tile.ring, "WIDE": config.wide,
            "CHANNELS": config.channels,
        },
        {
            "EPILOGUE": gluon_epilogue_of(config.epilogue, moved=True, rounded=True, known=True),
            "KNOWN": gluon_known_of(config.epilogue),
        },
        pointers,
        integers,
        warps=4,
        descriptors=(
            pixels,
            filters_map(config.element, tile.columns, tile.depth),
            _row_map("y", config.element, part),
            *(_row_map(name, config.element, tile.columns) for name in tiles),
        ),
        gluon=True,
    )  # fmt: skip


CONV2D_HOPPER_STRIPS = CudaKernel(
    "conv2d.hopper_strips", (Conv2d,), HopperStripsConfig, _supports, _variants, _entry
)
"""Convolution on Hopper down strips, each row of input brought once for all its taps."""
