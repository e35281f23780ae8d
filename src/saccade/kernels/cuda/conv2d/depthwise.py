"""Depthwise convolution, with a multiplier, and convolution of thin groups: on the CUDA cores.

There is too little to sum for the matrix units. A thread has 16 bytes of neighbouring channels of a
run of results side by side: a row of taps at a time, x goes by in registers once for all of them,
beside the row's weights. Most instructions are the products then, with the conversions of x next.
Floor: the bytes of x and y at copy speed, or R·S products for each result on the CUDA cores, which
for 5x5 come to as much.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache, partial
from math import prod
from operator import itemgetter
from typing import NamedTuple

from saccade.backends.cuda.gpus import gpu
from saccade.kernels.base import In, Launch, Operand, Out, Packed, Packing, Variant
from saccade.kernels.cuda.base import CudaCall, CudaKernel, Entry, element_of
from saccade.kernels.cuda.conv2d.fused_operands import (
    PLAIN,
    STORES,
    FusedConfig,
    divided,
    fused_of,
    packed_block,
    stored_vector,
)
from saccade.kernels.cuda.conv2d.implicit_gemm_config import vector
from saccade.kernels.cuda.conv2d.window_config import (
    WindowConfig,
    excess_of,
    sums_of,
    unfit,
    window_of,
)
from saccade.kernels.cuda.machine import LAUNCH, stream_micros
from saccade.opdefs import Conv2d

__all__ = ["CONV2D_DEPTHWISE", "CudaDepthwiseConfig", "depthwise_weights", "x_vector"]

_MOST_CHANNELS = 15  # of a group: with more the matrix units take it
_UNROLLED = 25  # terms of all results of a run, of windows that are
_MOST_REGISTERS = 112  # of a run's sums and a row's weights
_RUNS = (7, 4, 2, 1)  # results of a run; sizes of feature maps are often multiples of seven
_WARP_FLOPS = 64  # of a warp's instruction, as the machine's rate counts
_ISSUED = 0.56  # of the instructions that could be: as measured on a 5x5 layer (one H200)
_NARROW_WINDOW = 3  # taps of a row
# Measured times over estimates by run, for narrow windows and wider ones, side by side and further
# apart; and of blocks of few channels: 24 layers of EfficientNet and MobileNetV3 in float16, batch
# 64 on one H200, all variants of each.
_MEASURED = {
    (False, False): {1: 1.25, 2: 1.17, 4: 1.28, 7: 1.26},
    (False, True): {1: 1.45, 2: 1.16, 4: 1.43, 7: 1.41},
    (True, False): {1: 1.15, 2: 1.2, 4: 1.17, 7: 1.63},
    (True, True): {1: 1.2, 2: 1.27, 4: 1.5, 7: 1.75},
}
_NARROW, _MEASURED_NARROW = 16, 1.12
_WAIT = 0.82
"""Microseconds of a row of taps where windows are not written out, as what it reads is waited for:
7x7 taps of ConvNeXt's layers at batch 1 in float16, one H200."""
_INTEGERS = (
    "n", "h", "wd", "k", "p", "q", "x_n", "x_c", "x_h", "x_w", "w_r", "w_s", "w_c", "w_k",
    *STORES,
)  # fmt: skip

DepthwiseTile = tuple[int, int, int, int]
"""Runs and channels of a block, results of a run, warps."""


@dataclass(frozen=True)
class CudaDepthwiseConfig:
    """What the code depends on.

    Attributes:
        elements: Of x, the weights and y.
        channels, multiplier: Of x and of y in a group.
        window: The window.
        tile: Runs and channels of a block, results of a run, warps.
        units: Whether the channels of x are neighbours, and the results' within the weights.
        wide: Whether x and the weights may be read as far as results are stored.
        vectors: What the strides of x and of y are multiples of.
        fused: Prologue, epilogue, where results go.
    """

    elements: tuple[str, str, str]
    channels: int
    multiplier: int
    window: WindowConfig
    tile: DepthwiseTile
    units: tuple[bool, bool]
    wide: tuple[bool, bool]
    vectors: tuple[int, int]
    fused: FusedConfig = field(default=PLAIN)


def _supports(call: CudaCall) -> str | None:
    op: Conv2d = call.op
    c = call.inputs[1].shape[1]
    if op.groups == 1 and c > 1:
        return "one group"
    if packed_block(call):
        return "a block's channels are apart in weights that are not packed"
    if c > _MOST_CHANNELS:
        return f"groups of {c} input channels"
    return unfit(call)


def _variants(call: CudaCall) -> Iterator[Variant]:
    for micros, tile in sorted(_times(call), key=itemgetter(0)):
        yield Variant(micros, partial(_launches, call, tile), code=tile)


class _DepthwiseWork(NamedTuple):
    """Of a tile, whatever the size of the image.

    Attributes:
        tile: The tile.
        blocks: Of channels.
        instructions: Of a program.
        measured: Times over estimates.
    """

    tile: DepthwiseTile
    blocks: int
    instructions: float
    measured: float


def _times(call: CudaCall) -> list[tuple[float, DepthwiseTile]]:
    """Of each tile the bytes, or the instructions, counted as in the machine code, with gaps."""
    op: Conv2d = call.op
    n, k, p, q = sums_of(call)
    machine = gpu(call.target.machine)
    multiprocessors = machine.multiprocessors
    rate, moved = _ISSUED * machine.flops / _WARP_FLOPS, stream_micros(call)
    r, s = call.inputs[1].shape[2:]
    waited = r * _WAIT if r * s > _UNROLLED else 0.0
    found = []
    for tile, blocks, instructions, measured in _works(
        k, _own(call), call.inputs[1].shape[1:], op.stride[1], op.dilation[1]
    ):
        rows, _, across, warps = tile
        if across > q and across > 1:
            continue
        programs = -(-n * p * -(-q // across) // rows) * blocks
        # A machine that is not full hides no latency.
        spread: float = min(1.0, programs / multiprocessors)
        hidden: float = min(1.0, programs * warps / (multiprocessors * 8)) ** 0.5
        busy = programs * warps * instructions / rate / max(0.001, spread * hidden)
        micros = LAUNCH + (busy if busy > waited else waited)
        micros = (moved if moved > micros else micros) + 0.05 * busy
        narrow = _MEASURED_NARROW if tile[1] <= _NARROW else 1.0
        found.append((micros * measured * narrow, tile))
    return found


@lru_cache(maxsize=1024)
def _works(
    k: int, own: int, filters: tuple[int, int, int], stride: int, dilation: int
) -> tuple[_DepthwiseWork, ...]:
    """Of blocks of k channels whose threads have so many of their own.

    Narrow ones read 32 bytes of a pixel, a sector, and leave fewer channels over.
    """
    c, r, s = filters
    widest = max(own, min(64, 1 << max(0, k - 1).bit_length()))
    works = []
    for width in dict.fromkeys((widest, min(widest, 32), max(own, min(widest, 16)))):
        for across in _RUNS:
            # Runs that registers have room for, of windows that overlap; one at least, as a
            # supported call has to have a variant.
            if across > 1 and (s <= stride or own * (across + s) > _MOST_REGISTERS):
                continue
            # Of a warp: products, loads with their conversions, masks and addresses, the stores.
            # Between windows or taps that are apart nothing is read.
            places = min((across - 1) * stride + (s - 1) * dilation + 1, across * s)
            loaded = c * r * (places * (own + 8.0) + s * (own + 4.0))
            instructions = 60.0 + loaded + own * across * (c * r * s + 6.0)
            measured = _MEASURED[s > _NARROW_WINDOW, stride > 1][across]
            for warps in (4, 1):
                tile = (warps * 32 * own // width, width, across, warps)
                works.append(_DepthwiseWork(tile, -(-k // width), instructions, measured))
    return tuple(works)


def _own(call: CudaCall) -> int:
    """Channels of a thread: 16 bytes of them if these are aligned."""
    k = sums_of(call)[1]
    whole = 1 << max(0, k - 1).bit_length()
    aligned = min(16 // call.inputs[0].dtype.itemsize, max(2, x_vector(call)))
    return min(whole, aligned if call.inputs[1].shape[1] == 1 else 4)


def x_vector(call: CudaCall) -> int:
    x = call.inputs[0]
    return vector(x.strides[0], *x.strides[2:])


def _programs(call: CudaCall, tile: DepthwiseTile) -> int:
    n, k, p, q = sums_of(call)
    rows, width, across, _ = tile
    return -(-n * p * -(-q // across) // rows) * -(-k // width)


def depthwise_weights(call: CudaCall) -> tuple[Operand, dict[str, int], bool]:
    """The weights, packed [R·S, C, K] in their own type where they are constant; their strides."""
    w = call.inputs[1]
    k, c, _, s = w.shape
    if not call.constant[1]:
        strides = dict(zip(("w_k", "w_c", "w_r", "w_s"), w.strides, strict=True))
        return In(1), strides, w.strides[0] == 1
    # Each tap's weights begin at a multiple of 16 bytes, whatever their type.
    columns = -(-k // 16) * 16
    nbytes = w.size // max(1, k) * columns * w.dtype.itemsize
    packing = Packing("cuda.taps", (w.dtype.value, c, columns), (1,), nbytes)
    strides = {"w_r": s * c * columns, "w_s": c * columns, "w_c": columns, "w_k": 1}
    return Packed(packing), strides, True


def _launches(call: CudaCall, tile: DepthwiseTile) -> tuple[Launch, ...]:
    op: Conv2d = call.op
    x, w, y = call.inputs[0], call.inputs[1], call.outputs[0]
    n, k, p, q = sums_of(call)
    fused = fused_of(call)
    weights, strides, unit = depthwise_weights(call)
    by_x = x_vector(call)
    by_y, excess = stored_vector(call, k), excess_of(call)
    config = CudaDepthwiseConfig(
        (element_of(x), element_of(w), element_of(y)), w.shape[1], k // op.groups,
        window_of(call), tile, (x.strides[1] == 1 or x.shape[1] == 1, unit),
        (w.shape[0] == x.shape[1] and x.room >= excess, call.constant[1]), (by_x, by_y),
        fused.config,
    )  # fmt: skip
    integers = {
        "n": n, "h": x.shape[2], "wd": x.shape[3], "k": (k + excess) // by_y, "p": p, "q": q,
        "x_n": x.strides[0] // by_x, "x_c": x.strides[1], "x_h": x.strides[2] // by_x,
        "x_w": x.strides[3] // by_x, **strides, **divided(fused.integers, by_y),
    }  # fmt: skip
    operands = {"x": In(0), "w": weights, "y": Out(0), **fused.operands}
    return (Launch(config, operands, integers, _programs(call, tile)),)


def _entry(config: CudaDepthwiseConfig) -> Entry:
    x, w, y = config.elements
    rows, width, across, warps = config.tile
    constants: dict[str, int | str] = {
        **config.window.constants(), "C": config.channels, "MULTIPLIER": config.multiplier,
        "BM": rows, "BN": width, "ACROSS": across, "UNROLL": _unrolled(config),
        "X_UNIT": config.units[0], "W_UNIT": config.units[1], "X_WIDE": config.wide[0],
        "W_WIDE": config.wide[1], "X_VEC": config.vectors[0], "Y_VEC": config.vectors[1],
        **config.fused.constants(),
    }  # fmt: skip
    return Entry(
        "conv2d.depthwise_code:convolve",
        (("x", x), ("w", w), ("y", y)),
        _INTEGERS,
        constants,
        config.fused.functions(),
        config.fused.pointers,
        config.fused.integers,
        ("w_r", "w_s", "w_c"),
        warps,
    )


def _unrolled(config: CudaDepthwiseConfig) -> int:
    """How many rows of taps one step of the loop has: all, if they are few."""
    rows, terms = config.window.taps[0], config.channels * prod(config.window.taps)
    return rows * config.channels if terms * config.tile[2] <= _UNROLLED else 1


CONV2D_DEPTHWISE = CudaKernel(
    "conv2d.depthwise", (Conv2d,), CudaDepthwiseConfig, _supports, _variants, _entry
)
