"""Depthwise convolution whose weights stay in registers while rows of x go by.

A thread has two channels of a strip of results: a few side by side, and as many rows as keep the
GPU busy. Of what `conv2d.depthwise` does for each row of taps, to read x, convert it and find
whether it is on the image, it does once a row of x, so that of its instructions most are products.
Floor: the bytes of x and y at copy speed, or R·S products for each result on the CUDA cores, which
for 5x5 come to as much.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil
from operator import itemgetter

from saccade.backends.cuda.gpus import gpu
from saccade.ir.expr import IDENTITY
from saccade.kernels.base import In, Launch, Out, Variant
from saccade.kernels.cuda.base import CudaCall, CudaKernel, Entry, element_of
from saccade.kernels.cuda.conv2d.depthwise import depthwise_weights, x_vector
from saccade.kernels.cuda.conv2d.fused_operands import (
    PLAIN,
    STORES,
    FusedConfig,
    divided,
    fused_of,
    stored_vector,
)
from saccade.kernels.cuda.conv2d.window_config import (
    WindowConfig,
    excess_of,
    sums_of,
    unfit,
    window_of,
)
from saccade.kernels.cuda.machine import LAUNCH, moved_bytes
from saccade.opdefs import Conv2d

__all__ = ["CONV2D_DEPTHWISE_ROWS", "DepthwiseRowsConfig", "DepthwiseRowsTile"]

_OWN = 2  # channels of a thread: with four, weights and sums leave room for too few warps
_COLUMNS = (64, 32, 16, 8)  # channels of a program: fewer leave fewer threads without one
_ACROSS = (7, 4, 2)  # results of a strip side by side; feature maps are often multiples of seven
_WIDE_WINDOW = 10  # taps: then seven side by side pay, and writing out the turns of sums does not
_LEAST_ROWS = 7  # of a part of an image
_MOST_REGISTERS = 150  # of weights, sums and a row of x
_BESIDE = 38  # registers for all the rest, as compiled
_FILE, _THREAD = 64 << 10, 255  # registers of a multiprocessor; the most of a thread
_FEW_PLACES = 6  # elements of x that are asked for at once: then one step more is under way
_WARP_FLOPS = 64  # of a warp's instruction, as the machine's rate counts
_CLOCK = 0.885  # of that rate: what a busy H200's clock is of the data sheet's
_WAIT = 1.55
"""Warps of a scheduler at which every second instruction that could be is issued. This and what
follows: 45 layers of EfficientNet-B0, MobileNetV3 and ShuffleNetV2 in float16, batches 1 and 64,
319 tiles on one H200, within 24% for two thirds of them."""
_LOAD, _STORE, _ONCE = 6.6, 1.0, 423.0  # instructions of an element, of a result, of a warp
_FETCHED = {64: 1.0, 32: 1.16, 16: 1.57, 8: 2.62}  # times the bytes' time, by channels of a program
_STEP, _STEP_ROW = 0.017, 0.11  # microseconds of a step of an empty H200, and of each row of it
_HINDERED = 0.235  # of the shorter one of products and bytes, beside the longer one
_INTEGERS = ("n", "h", "wd", "k", "p", "q", "down", "x_n", "x_h", "w_r", "w_s", "w_k", *STORES)


@dataclass(frozen=True, slots=True)
class DepthwiseRowsTile:
    """How the work is cut.

    Attributes:
        strips: Of a program.
        columns: Channels of a program.
        across: Results of a strip side by side.
        parts: Strips that the rows of an image are cut into.
    """

    strips: int
    columns: int
    across: int
    parts: int

    @property
    def warps(self) -> int:
        """Of a program."""
        return self.strips * self.columns // (32 * _OWN)


@dataclass(frozen=True)
class DepthwiseRowsConfig:
    """What the code depends on.

    Attributes:
        elements: Of x, the weights and y.
        window: The window.
        tile: Strips and channels of a program, results of a strip side by side.
        whole: Whether a strip has all rows of an image.
        pixel: Elements from a pixel of x to the next.
        unit: Whether the channels of the weights are neighbours.
        wide: Whether x and the weights may be read as far as results are stored.
        vectors: What the strides of x and of y are multiples of.
        fused: Epilogue, where results go.
    """

    elements: tuple[str, str, str]
    window: WindowConfig
    tile: tuple[int, int, int]
    whole: bool
    pixel: int
    unit: bool
    wide: tuple[bool, bool]
    vectors: tuple[int, int]
    fused: FusedConfig = field(default=PLAIN)


def _supports(call: CudaCall) -> str | None:
    op: Conv2d = call.op
    x, w = call.inputs[:2]
    if op.groups == 1 or w.shape[1] > 1:
        return "groups of several channels" if op.groups > 1 else "one group"
    if w.shape[0] != op.groups:
        return "several results of a channel"
    if op.prologue != IDENTITY:
        return "a prologue"
    if op.dilation != (1, 1):
        return f"dilations {op.dilation}"
    if x.strides[1] != 1:
        return "channels apart"
    if w.shape[2] <= op.stride[0] or w.shape[3] <= op.stride[1]:
        return "windows that do not overlap"
    reason = unfit(call)
    if reason is not None:
        return reason
    return None if any(_tiles(call)) else "windows of more weights than registers"


def _variants(call: CudaCall) -> Iterator[Variant]:
    timed = ((_micros(call, tile), tile) for tile in _tiles(call))
    for micros, tile in sorted(timed, key=itemgetter(0)):
        yield Variant(micros, partial(_launches, call, tile))


def _tiles(call: CudaCall) -> Iterator[DepthwiseRowsTile]:
    """Programs of four warps, whose strips share what they read; of one where these are too few."""
    _, k, p, q = sums_of(call)
    r, s = call.inputs[1].shape[2:]
    least = min(_COLUMNS[0], 1 << max(3, (k - 1).bit_length()))
    for columns in (one for one in _COLUMNS if one <= least):
        for across in _ACROSS[r * s < _WIDE_WINDOW :]:
            if across > q or _registers(call, across) > _MOST_REGISTERS:
                continue
            for parts in (1, 2, 4, 8):
                if parts == 1 or p >= _LEAST_ROWS * parts:
                    tile = DepthwiseRowsTile(32 * _OWN * 4 // columns, columns, across, parts)
                    yield tile
                    if _programs(call, tile) < call.target.multiprocessors:
                        yield replace(tile, strips=tile.strips // 4)


def _registers(call: CudaCall, across: int) -> int:
    """Registers of a thread's weights, sums and elements of x."""
    op: Conv2d = call.op
    r, s = call.inputs[1].shape[2:]
    down, aside = op.stride
    return _OWN * (r * s + ceil(r / down) * across) + down * ((across - 1) * aside + s)


def _programs(call: CudaCall, tile: DepthwiseRowsTile) -> int:
    n, k, _, q = sums_of(call)
    return ceil(n * tile.parts * ceil(q / tile.across) / tile.strips) * ceil(k / tile.columns)


def _micros(call: CudaCall, tile: DepthwiseRowsTile) -> float:
    """The bytes, or the instructions of the busiest multiprocessor: few warps issue few of them.

    Or one step after the other, each waiting for its rows of x: few images are all that is there.
    """
    machine = gpu(call.target.machine)
    op: Conv2d = call.op
    registers = min(_THREAD, ceil((_registers(call, tile.across) + _BESIDE) / 8) * 8)
    resident = max(1, _FILE // (32 * registers * tile.warps))
    programs = max(1, _programs(call, tile))  # none for an empty batch
    waves = ceil(programs / (machine.multiprocessors * resident))
    beside = resident if waves > 1 else ceil(programs / machine.multiprocessors)
    warps = beside * tile.warps / 4  # of a scheduler
    rate = _CLOCK * machine.flops / machine.multiprocessors / _WARP_FLOPS
    rate *= warps / (warps + _WAIT)
    steps = ceil(sums_of(call)[2] / tile.parts) + ceil(call.inputs[1].shape[2] / op.stride[0]) - 1
    issued = waves * beside * tile.warps * (_ONCE + steps * _instructions(call, tile)) / rate
    moved = moved_bytes(call) / machine.bandwidth * _FETCHED[tile.columns]
    chained = waves * steps * (_STEP + _STEP_ROW * op.stride[0])
    return LAUNCH + max(issued, moved, chained) + _HINDERED * min(issued, moved)


def _instructions(call: CudaCall, tile: DepthwiseRowsTile) -> float:
    """Of a step of a warp: products, loads with their conversions, the stores."""
    op: Conv2d = call.op
    r, s = call.inputs[1].shape[2:]
    down, aside = op.stride
    loads = down * ((tile.across - 1) * aside + s)
    products, stores = _OWN * tile.across * r * s, _OWN * tile.across
    return products + loads * (_LOAD + _OWN) + tile.across * 4 + stores * _STORE


def _launches(call: CudaCall, tile: DepthwiseRowsTile) -> tuple[Launch, ...]:
    x, w, y = call.inputs[0], call.inputs[1], call.outputs[0]
    n, k, p, q = sums_of(call)
    fused = fused_of(call)
    weights, strides, unit = depthwise_weights(call)
    by_x = x_vector(call)
    by_y, excess = stored_vector(call, k), excess_of(call)
    config = DepthwiseRowsConfig(
        (element_of(x), element_of(w), element_of(y)), window_of(call),
        (tile.strips, tile.columns, tile.across), tile.parts == 1, x.strides[3], unit,
        (x.room >= excess, call.constant[1]), (by_x, by_y), fused.config,
    )  # fmt: skip
    integers = {
        "n": n, "h": x.shape[2], "wd": x.shape[3], "k": (k + excess) // by_y, "p": p, "q": q,
        "down": ceil(p / tile.parts), "x_n": x.strides[0] // by_x, "x_h": x.strides[2] // by_x,
        **{name: strides[name] for name in ("w_r", "w_s", "w_k")},
        **divided(fused.integers, by_y),
    }  # fmt: skip
    operands = {"x": In(0), "w": weights, "y": Out(0), **fused.operands}
    return (Launch(config, operands, integers, _programs(call, tile)),)


def _entry(config: DepthwiseRowsConfig) -> Entry:
    x, w, y = config.elements
    strips, columns, across = config.tile
    window = config.window
    (r, s), (down, aside) = window.taps, window.stride
    places = down * ((across - 1) * aside + s)
    constants: dict[str, int | str] = {
        "R": r, "S": s, "STRIDE_H": down, "STRIDE_W": aside, "PAD_T": window.padding[0],
        "PAD_L": window.padding[1], "BM": strips, "BN": columns, "ACROSS": across,
        "AHEAD": 2 if places <= _FEW_PLACES else 1,
        # After as many steps, sums are in the registers that they began in.
        "UNROLL": ceil(r / down) if r * s < _WIDE_WINDOW else 1,
        "WHOLE": config.whole, "X_W": config.pixel, "W_UNIT": config.unit,
        "X_WIDE": config.wide[0], "W_WIDE": config.wide[1], "X_VEC": config.vectors[0],
        "Y_VEC": config.vectors[1], **config.fused.constants(),
    }  # fmt: skip
    return Entry(
        "conv2d.depthwise_rows_code:convolve_rows",
        (("x", x), ("w", w), ("y", y)),
        _INTEGERS,
        constants,
        config.fused.functions(),
        config.fused.pointers,
        config.fused.integers,
        ("w_r", "w_s"),
        strips * columns // (32 * _OWN),
    )


CONV2D_DEPTHWISE_ROWS = CudaKernel(
    "conv2d.depthwise_rows", (Conv2d,), DepthwiseRowsConfig, _supports, _variants, _entry
)
