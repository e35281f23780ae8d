"""A sub-pixel convolution on Hopper and the 3x3 one of the image that it gives, to few planes.

`y = second(first(x, w), w2)`, the end of a super-resolution network: `first` gives four times as
many channels as the image has that it stores as blocks of 2x2 pixels, `second` makes at most four
planes of it. That image is the largest of its network, and is neither written nor read. Floor: the
products of both (those of a block's 2x2 pixels with all of the 4x4 results around it, of which
9/16 are no zeros), which also read their operands from shared memory at full rate; or the bytes of
x and y.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import ceil, gcd
from typing import NamedTuple

from saccade.backends.cuda.codegen.entry import Descriptor
from saccade.backends.cuda.fusions import Conv2dSubPixel
from saccade.backends.cuda.gpus import gpu
from saccade.ir import DType
from saccade.kernels.base import In, Launch, Out, Packed, Packing, Variant, per_call
from saccade.kernels.cuda.base import CudaCall, CudaKernel, Entry, element_of
from saccade.kernels.cuda.conv2d.fused_operands import chain_halves, moved, words_of
from saccade.kernels.cuda.conv2d.hopper import (
    HopperOperands,
    filters_map,
    refuse_vectors,
)
from saccade.kernels.cuda.conv2d.hopper_epilogue import gluon_epilogue_of, gluon_known_of
from saccade.kernels.cuda.conv2d.hopper_tiles import step_depth
from saccade.kernels.cuda.conv2d.pack_subpixel import SUBPIXEL_SUMS
from saccade.kernels.cuda.conv2d.window_config import WindowConfig, sums_of, unfit, window_of
from saccade.kernels.cuda.epilogue import EpilogueCode, integers_of, pointers_of
from saccade.kernels.cuda.machine import LAUNCH, SHARED_PORT, moved_bytes
from saccade.opdefs import Conv2d, DepthToSpaceStore

__all__ = ["CONV2D_HOPPER_SUBPIXEL", "HopperSubPixelConfig", "SubPixelTile"]

_INTEGERS = ("k", "p", "q", "across", "runs", "length", "parts", "y_n", "y_k", "y_p")
_PIXELS, _SHARED = 64, 2  # of a strip; of these are its neighbours'
_SPARE = 8 << 10  # bytes of shared memory for barriers, alignment and what neighbours give
_MOST_PLANES = 4  # that each result of a block has room for
_MOST_COLUMNS = 128  # of the first sums, or registers spill
_GIVEN = 8 << 10  # bytes that neighbours give each other in a row
_BEGIN, _START, _MEASURED = 3, 3.0, {2: 1.16, 3: 1.1}
"""Rows that a part takes besides its own; microseconds until the first is there; times over what
shared memory takes, by teams. With 1.1 within 10% of five times on one H200, 32x32 to 720x1280
pixels given; of 1440x2560 two teams took 304 to 346 µs in four races, three 296 to 311."""


@dataclass(frozen=True, slots=True)
class SubPixelTile:
    """How the work is cut.

    Attributes:
        columns: Sums of a pixel, the first convolution's channels.
        depth: Input channels of a product.
        ring: Rows of input in shared memory, of each team; a power of two.
        teams: Of four warps.
    """

    columns: int
    depth: int
    ring: int
    teams: int


@dataclass(frozen=True)
class HopperSubPixelConfig:
    """What the code depends on.

    Attributes:
        elements: Of x and the weights, of y.
        window: Of the first convolution.
        tile: How the work is cut.
        blocks: Of input channels.
        channels: Of the image between.
        packed: Whether packing brings the channels of a pixel together (CRD).
        vector: What the strides of y are multiples of.
        middle: The first epilogue.
        epilogue: The second one, and the operands of both; see `epilogue.EpilogueCode`.
    """

    elements: tuple[str, str]
    window: WindowConfig
    tile: SubPixelTile
    blocks: int
    channels: int
    packed: bool
    vector: int
    middle: str
    epilogue: EpilogueCode


@per_call
def _halves(call: CudaCall) -> tuple[CudaCall, CudaCall]:
    """Both convolutions as calls, of and to an image that would lie between."""
    return chain_halves(call, _between(call))


def _between(call: CudaCall) -> tuple[int, int, int, int]:
    """The shape of the image between."""
    op: Conv2dSubPixel = call.op
    b = _block(op.first)
    sums = op.first.sum_shape(call.inputs[0].shape, call.inputs[1].shape)
    n, k, p, q = (size for size in sums if isinstance(size, int))  # all are
    return n, k // (b * b), p * b, q * b


def _block(op: Conv2d) -> int:
    """The edge of the blocks of pixels that the first convolution stores."""
    assert isinstance(op.store, DepthToSpaceStore)
    return op.store.block


def _supports(call: CudaCall) -> str | None:
    first, second = _halves(call)
    reason = refuse_vectors(first) or _first(first) or _second(second)
    if reason is not None:
        return reason
    return None if _tiles(call) else "weights and rows of input do not fit a multiprocessor"


def _first(call: CudaCall) -> str | None:
    op: Conv2d = call.op
    if _block(op) != 2:
        return f"blocks of {_block(op)}x{_block(op)} pixels"
    if (op.stride, op.dilation) != ((1, 1), (1, 1)):
        return f"strides {op.stride}, dilations {op.dilation}"
    if _reads_more(call):
        return "the first epilogue reads more than a number for each channel"
    return None


def _reads_more(call: CudaCall) -> bool:
    """Whether the epilogue reads what differs by image, row or pixel."""
    sums = sums_of(call)
    found = [view.broadcast_to(sums).strides for view in call.inputs[2:]]
    return any(any((strides[0], *strides[2:])) for strides in found)


def _second(call: CudaCall) -> str | None:
    op: Conv2d = call.op
    w, y = call.inputs[1], call.outputs[0]
    if w.shape[2:] != (3, 3) or op.padding != (1, 1, 1, 1):
        return f"a second window of {w.shape[2]}x{w.shape[3]} taps, padding {op.padding}"
    if (op.stride, op.dilation, op.groups) != ((1, 1), (1, 1), 1):
        return f"second strides {op.stride}, dilations {op.dilation}, {op.groups} groups"
    if w.shape[0] > _MOST_PLANES:
        return f"{w.shape[0]} planes"
    if not call.constant[1]:
        return "weights are no constant"
    if y.dtype not in (DType.F32, DType.F16, DType.BF16) or y.strides[3] != 1:
        return "rows of y are no neighbouring floats"
    if _reads_more(call):
        return "the second epilogue reads more than a number for each plane"
    return unfit(call)


@per_call
def _tiles(call: CudaCall) -> tuple[SubPixelTile, ...]:
    """The tiles whose weights and rows fit."""
    k, c, r, _ = call.inputs[1].shape
    depth, columns = step_depth(c), 1 << (k - 1).bit_length()
    ring = 1 << r.bit_length()  # one more than a window has: it arrives meanwhile
    found = (SubPixelTile(columns, depth, max(4, ring), teams) for teams in (3, 2))
    return tuple(
        tile for tile in found
        if columns <= _MOST_COLUMNS and _shared(call, tile) <= call.target.shared
    )  # fmt: skip


def _shared(call: CudaCall, tile: SubPixelTile) -> int:
    _, c, r, s = call.inputs[1].shape
    steps = s * ceil(c / tile.depth)
    rows = 2 * tile.teams * tile.ring * steps * _PIXELS * tile.depth
    weights = 2 * tile.columns * (r * steps * tile.depth + SUBPIXEL_SUMS)
    return rows + weights + _SPARE


class _Strips(NamedTuple):
    """Strips of an image, parts of a strip, rows of blocks of a part, parts of all images."""

    across: int
    runs: int
    length: int
    parts: int


def _cut(call: CudaCall, tile: SubPixelTile) -> _Strips:
    """As few rows as can be for the busiest team."""
    n, _, p, q = sums_of(_halves(call)[0])
    across = ceil(q / (_PIXELS - _SHARED))
    teams = call.target.multiprocessors * tile.teams
    found = []
    for turns in (1, 2, 3):
        length = ceil((p + 1) / min(p + 1, max(1, turns * teams // (n * across))))
        runs = ceil((p + 1) / length)
        parts = n * across * runs
        found.append(
            (ceil(parts / teams) * (length + _BEGIN), _Strips(across, runs, length, parts))
        )
    return min(found)[1]


def _micros(call: CudaCall, tile: SubPixelTile) -> float:
    """Rows of the busiest multiprocessor, by what moves through shared memory; or the bytes."""
    machine, cut = gpu(call.target.machine), _cut(call, tile)
    _, c, r, s = call.inputs[1].shape
    steps = s * ceil(c / tile.depth)
    # Products take pixels and weights from shared memory; what lies between is in registers.
    products = r * steps * 2 * tile.depth * (_PIXELS + tile.columns)
    products += 2 * tile.columns * SUBPIXEL_SUMS
    row = (products + steps * 2 * tile.depth * _PIXELS + _GIVEN) / SHARED_PORT
    turns = ceil(cut.parts / (machine.multiprocessors * tile.teams))
    busy = turns * (_START + tile.teams * (cut.length + _BEGIN) * row * _MEASURED[tile.teams])
    nbytes = moved_bytes(call)
    return LAUNCH + max(busy, nbytes / machine.bandwidth)


def _variants(call: CudaCall) -> Iterator[Variant]:
    timed = sorted((_micros(call, tile), i, tile) for i, tile in enumerate(_tiles(call)))
    for micros, _, tile in timed:
        yield Variant(micros, partial(_launches, call, tile), tile.depth)


def _launches(call: CudaCall, tile: SubPixelTile) -> tuple[Launch, ...]:
    first, second = _halves(call)
    op: Conv2dSubPixel = call.op
    own = HopperOperands.of(first, tile.depth)
    y, w2 = call.outputs[0], call.inputs[2]
    _, _, p, q = sums_of(first)
    views = tuple(
        view.broadcast_to(sums_of(half)) for half in (first, second) for view in half.inputs[2:]
    )
    words, operands, integers = words_of(call, 3, len(call.inputs), views)
    vector = gcd(2, *y.strides[:3])
    cut = _cut(call, tile)
    config = HopperSubPixelConfig(
        (element_of(call.inputs[0]), element_of(y)), window_of(first), tile,
        ceil(call.inputs[0].shape[1] / tile.depth), w2.shape[1], own.packed, vector,
        str(op.first.epilogue), (moved(op.second.epilogue, op.n_first), *words),
    )  # fmt: skip
    kind = call.inputs[0].dtype
    packing = Packing(
        "cuda.subpixel", (kind.value, tile.columns), (2,),
        SUBPIXEL_SUMS * tile.columns * kind.itemsize,
    )  # fmt: skip
    described = ("n", "h", "wd", "c", "filters", "depth", "x_n", "x_h", "x_w")
    numbers = {
        **{name: own.integers[name] for name in described}, **integers,
        **cut._asdict(), "k": w2.shape[0], "p": p, "q": q,
        "y_n": y.strides[0] // vector, "y_k": y.strides[1] // vector,
        "y_p": y.strides[2] // vector,
    }  # fmt: skip
    return (
        Launch(
            config,
            {"x": In(0), "w": own.operands["w"], "v": Packed(packing), "y": Out(0), **operands},
            numbers,
            ceil(cut.parts / tile.teams),
        ),
    )


def _entry(config: HopperSubPixelConfig) -> Entry:
    tile, window = config.tile, config.window
    (r, s), (top, left) = window.taps, window.padding
    element, result = config.elements
    middle = (config.middle, *config.epilogue[1:])
    return Entry(
        "conv2d.hopper_subpixel_code:convolve_subpixel",
        (("y", result),),
        _INTEGERS,
        {
            "R": r, "S": s, "PAD_T": top, "PAD_L": left, "BN": tile.columns, "BK": tile.depth,
            "BLOCKS": config.blocks, "RING": tile.ring, "TEAMS": tile.teams,
            "M": config.channels, "CRD": config.packed, "Y_VEC": config.vector,
        },
        {
            "EPILOGUE": gluon_epilogue_of(config.epilogue, known=True),
            "KNOWN": gluon_known_of(config.epilogue),
            "MIDDLE": gluon_epilogue_of(middle, "middle", rounded=True, known=True),
            "MIDDLE_KNOWN": gluon_known_of(middle, "middle_known"),
        },
        pointers_of(config.epilogue),
        integers_of(config.epilogue),
        warps=4,
        descriptors=(
            Descriptor(
                "x", element, (1, 1, _PIXELS, tile.depth), ("n", "h", "wd", "c"),
                ("x_n", "x_h", "x_w", 1),
            ),
            filters_map(element, tile.columns, tile.depth),
            Descriptor(
                "v", element, (SUBPIXEL_SUMS, tile.columns), (SUBPIXEL_SUMS, tile.columns),
                (tile.columns, 1),
            ),
        ),
        gluon=True,
    )  # fmt: skip


CONV2D_HOPPER_SUBPIXEL = CudaKernel(
    "conv2d.hopper_subpixel", (Conv2dSubPixel,), HopperSubPixelConfig, _supports, _variants, _entry
)
"""Rows of sums that are blocks of pixels, multiplied once more where they are, and added up."""
