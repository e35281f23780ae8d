"""A convolution on Hopper and the 1x1 convolution of its result, whose operand stays in registers.

`y = second(first(x, w), w2)`, the end of a residual block: the first window is that of
`conv2d.hopper`, of at most 256 output channels, so that a program has all of its pixels'. Layouts,
element types and refusals are those of `conv2d.hopper` for either. Floor: the operations of both,
or the bytes of x, y and what the second epilogue reads; as two steps, what lies between would be
written and read besides, and products would wait for bytes where bytes now wait for products.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import ceil

from saccade.backends.cuda.codegen.entry import Descriptor
from saccade.backends.cuda.fusions import Conv2dPoint
from saccade.backends.cuda.gpus import gpu
from saccade.kernels.base import In, Launch, Packed, Variant, per_call
from saccade.kernels.cuda.base import CudaCall, CudaKernel, Entry, element_of
from saccade.kernels.cuda.conv2d.fused_operands import chain_halves, moved, words_of
from saccade.kernels.cuda.conv2d.hopper import (
    HopperConfig,
    HopperOperands,
    constants_of,
    filters_map,
    pixels_map,
    refuse_vectors,
    upper_of,
)
from saccade.kernels.cuda.conv2d.hopper_epilogue import (
    gluon_epilogue_of,
    gluon_fetch_of,
    tile_bytes,
)
from saccade.kernels.cuda.conv2d.hopper_tiles import HopperTile, by_pixel, step_depth
from saccade.kernels.cuda.conv2d.window_config import sums_of, window_of
from saccade.kernels.cuda.epilogue import BlockEpilogue, integers_of, pointers_of
from saccade.kernels.cuda.machine import LAUNCH, moved_bytes

__all__ = ["CONV2D_HOPPER_POINT", "HopperPointConfig", "PointTile"]

_INTEGERS = ("rows", "k", "p", "q", "channels", "steps", "y_n", "y_p", "y_q")
_FILE, _BESIDE = 64 << 10, 72  # registers of a multiprocessor; of a thread, beside sums and operand
_MOST_REGISTERS = 255  # of a thread
_STEP, _END = 0.71, 4.5e-5
"""Microseconds on an H100 from asking for a step to having it; of each result's end."""
_MEASURED = 1.25
"""Times over estimates: within 14% on one H100 for seven tiles of two layers (batch 128)."""


@dataclass(frozen=True, slots=True)
class PointTile(HopperTile):
    """How the work is cut: that of the first window, whose columns are all channels between.

    Attributes:
        chunk: Output channels that are made at a time.
        ahead: Blocks of the second weights in shared memory.
    """

    chunk: int = 64
    ahead: int = 2

    @property
    def room(self) -> int:
        """Bytes of shared memory, the second weights among them."""
        return self.shared + 2 * self.ahead * self.chunk * self.columns

    @property
    def registers(self) -> int:
        """Of a thread, about: sums of the first window; or its result, and a chunk's sums."""
        between, chunk = self.sums // 2, self.rows * self.chunk // (32 * self.warps)
        return max(self.sums, between + chunk + chunk // 2) + _BESIDE


_TILES = (
    PointTile(128, 64, 64, 4, 3), PointTile(128, 64, 64, 4, 4), PointTile(256, 64, 64, 8, 3),
    PointTile(64, 64, 64, 4, 4), PointTile(128, 128, 64, 8, 4, chunk=128),
    PointTile(128, 128, 64, 4, 3, chunk=32), PointTile(64, 128, 64, 4, 3),
    PointTile(128, 256, 64, 8, 3), PointTile(64, 256, 64, 4, 3),
)  # fmt: skip


@dataclass(frozen=True)
class HopperPointConfig(HopperConfig):
    """What the code depends on: the first convolution's config, and what the second adds to it.

    `even`, `block`, `packed` and `epilogue` are the second one's; the words of the epilogue are
    those of all operands.

    Attributes:
        middle: The first one's epilogue.
        chunks: Blocks of the second one's output channels.
    """

    tile: PointTile
    middle: str = "$0"
    chunks: int = 1


@per_call
def _halves(call: CudaCall) -> tuple[CudaCall, CudaCall]:
    """Both convolutions as calls, of and to an image that would lie between."""
    op: Conv2dPoint = call.op
    shape = op.first.sum_shape(call.inputs[0].shape, call.inputs[1].shape)
    return chain_halves(call, [size for size in shape if isinstance(size, int)])  # all are


def _supports(call: CudaCall) -> str | None:
    first, second = _halves(call)
    for half in (first, second):
        reason = refuse_vectors(half)
        if reason is not None:
            return reason
    if not _tiles(call):
        return f"{first.inputs[1].shape[0]} channels between"
    made, _ = _epilogue(call)
    if tile_bytes((str(call.op.first.epilogue), *made.code[1:])):
        return "the first epilogue reads an image"
    return None


def _tiles(call: CudaCall) -> tuple[PointTile, ...]:
    first, second = _halves(call)
    between, c, *_ = first.inputs[1].shape
    depth, k = step_depth(c), second.inputs[1].shape[0]
    fitting = (tile for tile in _TILES if tile.columns == between and tile.chunk < 2 * k)
    found = (replace(tile, depth=depth) for tile in fitting)
    return tuple(dict.fromkeys(tile for tile in found if tile.room <= call.target.shared))


@per_call
def _epilogue(call: CudaCall) -> tuple[BlockEpilogue, bool]:
    """The second epilogue over the operands of both, and whether pixels are evenly apart."""
    first, second = _halves(call)
    seen = [
        view.broadcast_to(sums_of(half)) for half in (first, second) for view in half.inputs[2:]
    ]
    merged = None if call.op.second.store is not None else by_pixel(seen, call.outputs[0])
    views = tuple(seen if merged is None else merged)
    words, operands, integers = words_of(call, 3, len(call.inputs), views)
    expression = moved(call.op.second.epilogue, call.op.n_first)
    return BlockEpilogue((expression, *words), operands, integers), merged is not None


def _micros(call: CudaCall, tile: PointTile) -> float:
    """Tiles of the busiest multiprocessor, as many at a time as it holds; or the bytes."""
    first, second = _halves(call)
    machine, made = gpu(call.target.machine), _epilogue(call)[0]
    n, k, p, q = sums_of(second)
    between, c, r, s = first.inputs[1].shape
    rate = machine.matrix_flops / machine.multiprocessors
    from_l2 = machine.cached / machine.multiprocessors
    steps, chunks = r * s * ceil(c / tile.depth), ceil(k / tile.chunk)
    read = 2.0 * tile.depth * (tile.rows + tile.columns) / from_l2
    step = max(2.0 * tile.rows * tile.columns * tile.depth / rate, read)
    ends = tile.rows * tile.chunk * _END * (1 + sum(tile_bytes(made.code)) / 2)
    chunk = 2.0 * tile.rows * tile.chunk * between / rate + ends
    fitting = _FILE // (32 * tile.warps * min(_MOST_REGISTERS, tile.registers))
    resident = max(1, min(call.target.shared // tile.room, fitting))
    tiles = ceil(n * p * q / tile.rows)
    busiest = ceil(tiles / machine.multiprocessors)
    alone = steps * max(step, _STEP / (tile.stages - 1)) + chunks * (chunk + _STEP / 2)
    rounds, most = ceil(busiest / resident), min(busiest, resident)
    total = rounds * max(alone, most * (steps * step + chunks * chunk))
    nbytes = moved_bytes(call)
    return LAUNCH + _MEASURED * max(total, nbytes / machine.bandwidth)


def _variants(call: CudaCall) -> Iterator[Variant]:
    timed = sorted((_micros(call, tile), i, tile) for i, tile in enumerate(_tiles(call)))
    for micros, _, tile in timed:
        yield Variant(micros, partial(_launches, call, tile), tile.depth)


def _launches(call: CudaCall, tile: PointTile) -> tuple[Launch, ...]:
    first, second = _halves(call)
    own, other = HopperOperands.of(first, tile.depth), HopperOperands.of(second, tile.columns)
    epilogue, even = _epilogue(call)
    n, k, p, q = sums_of(second)
    config = HopperPointConfig(
        element_of(call.inputs[0]), window_of(first), tile, False, even, other.block, other.packed,
        epilogue.code, middle=str(call.op.first.epilogue), chunks=ceil(k / tile.chunk),
    )  # fmt: skip
    upper_h, upper_w = upper_of(first)
    described = ("n", "h", "wd", "c", "filters", "depth", "x_n", "x_h", "x_w")
    stored = ("k", "p", "q", "channels", "y_n", "y_p", "y_q")
    integers = {
        **{name: own.integers[name] for name in described},
        **{name: other.integers[name] for name in stored},
        **epilogue.integers, "rows": n * p * q, "upper_h": upper_h, "upper_w": upper_w,
        "steps": ceil(first.inputs[0].shape[1] / tile.depth),
        "filters2": other.integers["filters"], "depth2": other.integers["depth"],
    }  # fmt: skip
    weights = other.operands["w"]
    assert isinstance(weights, Packed)
    operands = {
        "x": In(0), "w": own.operands["w"], "v": Packed(weights.packing._replace(inputs=(2,))),
        "y": other.operands["y"], **epilogue.operands,
    }  # fmt: skip
    return (Launch(config, operands, integers, ceil(n * p * q / tile.rows)),)


def _entry(config: HopperPointConfig) -> Entry:
    tile = config.tile
    constants = {
        name: value
        for name, value in constants_of(config).items()
        if name not in ("TAPS_INNER", "EARLY")
    }
    words = config.epilogue[1:]
    functions = {
        "EPILOGUE": gluon_epilogue_of(config.epilogue, rounded=True),
        "MIDDLE": gluon_epilogue_of((config.middle, *words), "middle", rounded=True),
    }
    fetch = gluon_fetch_of(config.epilogue)
    if fetch is not None:
        functions["FETCH"] = fetch
    return Entry(
        "conv2d.hopper_point_code:convolve_point",
        (("y", config.element),),
        _INTEGERS,
        {**constants, "CHUNK": tile.chunk, "CHUNKS": config.chunks, "AHEAD": tile.ahead},
        functions,
        pointers_of(config.epilogue),
        integers_of(config.epilogue),
        warps=tile.warps,
        descriptors=(
            pixels_map(config),
            filters_map(config.element, tile.columns, tile.depth),
            Descriptor(
                "v", config.element, (tile.chunk, tile.columns), ("filters2", "depth2"),
                ("depth2", 1),
            ),
        ),
        gluon=True,
    )  # fmt: skip


CONV2D_HOPPER_POINT = CudaKernel(
    "conv2d.hopper_point", (Conv2dPoint,), HopperPointConfig, _supports, _variants, _entry
)
