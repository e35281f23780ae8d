"""Convolution of few input channels whose operands go from memory straight to the lanes, in Gluon.

As `conv2d.few_channels`, without shared memory on either way: each lane gathers the terms that it
multiplies, weights stay in registers for a strip of rows, and columns are numbered so that a lane's
sums are neighbours of a pixel, sixteen bytes of them. Floor: the bytes of x and y.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import ceil
from operator import itemgetter
from typing import NamedTuple

from saccade.backends.cuda.gpus import gpu
from saccade.ir import DType
from saccade.ir.expr import IDENTITY
from saccade.kernels.base import In, Launch, Out, Packed, Packing, Variant
from saccade.kernels.cuda.base import ELEMENTS, CudaCall, CudaKernel, Entry, element_of
from saccade.kernels.cuda.conv2d.fused_operands import STORES, fused_of
from saccade.kernels.cuda.conv2d.hopper import unaligned
from saccade.kernels.cuda.conv2d.hopper_epilogue import gluon_epilogue_of, gluon_fetch_of
from saccade.kernels.cuda.conv2d.window_config import WindowConfig, sums_of, unfit, window_of
from saccade.kernels.cuda.epilogue import EpilogueCode, integers_of, pointers_of
from saccade.kernels.cuda.machine import LAUNCH, stream_micros
from saccade.kernels.cuda.precision import product_dtype
from saccade.opdefs import Conv2d, DepthToSpaceStore, InterleaveStore

__all__ = [
    "CONV2D_FEW_CHANNELS_LANES", "VECTOR", "FewChannelsLanesConfig", "FewChannelsLanesTile",
    "refused",
]  # fmt: skip

_MOST_CHANNELS = 8  # of x: more are neighbours elsewhere, which other kernels load together
_MOST_TERMS = 80  # whose weights stay in registers
VECTOR = 8
"""Elements of y that a lane stores at once."""
_SINCE = 80  # the first compute capability with these matrix instructions


class FewChannelsLanesTile(NamedTuple):
    """How the work is cut.

    Attributes:
        pixels: Of a row of a program.
        strip: Rows of results of a program, below each other.
        columns: Output channels of a program.
        warps: Of a program.
    """

    pixels: int
    strip: int
    columns: int
    warps: int


_CUTS = ((16, 4, 1), (64, 4, 4), (64, 2, 4), (64, 1, 4), (128, 2, 4))
"""Pixels and rows of a program, warps."""
_FEWEST, _COLUMNS = 16, (32, 64)  # output channels of a program
_REGISTERS = 168  # the most of a thread, for three warps a scheduler
# Instructions of a warp: at the start; of sixteen pixels' step of sixteen terms, of eight channels
# of theirs stored, of a step's product for these.
_BEGIN, _STEP, _STORED, _PRODUCT = 280.0, 64.0, 8.0, 1.0
_ISSUED = 0.56  # instructions of those that could be issued, as of `conv2d.few_outputs`
_FLOPS_PER_CYCLE = 256  # float32 operations of a multiprocessor
# Microseconds that a program takes alone: to begin, and for sixteen terms of its rows, one after
# the other (a stem at batch 1 on one H100: 2.9, 3.4, 4.9 and 9.0 with 1, 2, 4 and 8 rows).
_FIRST, _ROW_STEP = 0.9, 0.35
_BESIDE = 0.4  # of the shorter of both, bytes and instructions, that the longer does not hide


@dataclass(frozen=True)
class FewChannelsLanesConfig:
    """What the code depends on.

    Attributes:
        elements: Of x, of the weights, of y.
        channels: Of x.
        window: The window.
        unit: The axis of x along which neighbours lie side by side, where it is known: w or none.
        depth: Terms, with zeros behind.
        tile: How the work is cut.
        epilogue: See `epilogue.EpilogueCode`.
    """

    elements: tuple[str, str, str]
    channels: int
    window: WindowConfig
    unit: str
    depth: int
    tile: FewChannelsLanesTile
    epilogue: EpilogueCode


def _supports(call: CudaCall) -> str | None:
    w = call.inputs[1]
    if call.target.arch < _SINCE:
        return f"sm_{call.target.arch}"
    terms = w.shape[1] * w.shape[2] * w.shape[3]
    if w.shape[1] > _MOST_CHANNELS or terms > _MOST_TERMS:
        return f"sums of {w.shape[1]} channels and {w.shape[2]}x{w.shape[3]} taps"
    return refused(call)


def refused(call: CudaCall) -> str | None:
    """Why sums do not go to the result as they lie in lanes, whatever the window."""
    op: Conv2d = call.op
    y = call.outputs[0]
    if product_dtype(call) not in (DType.F16, DType.BF16):
        return "products in float32"
    if y.dtype is not product_dtype(call):
        return "element types"
    if op.groups != 1:
        return f"{op.groups} groups"
    if op.prologue != IDENTITY:
        return "a prologue"
    if not call.constant[1]:
        return "weights are no constant"
    if isinstance(op.store, DepthToSpaceStore | InterleaveStore):
        return "a store that moves channels"
    if y.strides[1] != 1 or y.shape[1] % VECTOR:
        return "pixels of the result are no vectors"
    return unaligned(y) or unfit(call)


def _tiles(call: CudaCall) -> Iterator[FewChannelsLanesTile]:
    k = call.inputs[1].shape[0]
    # With sixteen columns a lane has eight bytes, not sixteen.
    columns = [_FEWEST] if k <= _FEWEST else [n for n in _COLUMNS if n < 2 * k]
    for (pixels, strip, warps), n in product(_CUTS, columns):
        yield FewChannelsLanesTile(pixels, strip, n, warps)


def _variants(call: CudaCall) -> Iterator[Variant]:
    timed = sorted(((_micros(call, tile), tile) for tile in _tiles(call)), key=itemgetter(0))
    for micros, tile in timed:
        yield Variant(micros, partial(_launches, call, tile))


def _micros(call: CudaCall, tile: FewChannelsLanesTile) -> float:
    """The bytes and the instructions, counted as in the machine code.

    Stems of 3x3 taps on one H100, measured over estimated: 0.82 to 1.05.
    """
    _, c, r, s = call.inputs[1].shape
    machine, programs = gpu(call.target.machine), _programs(call, tile)
    steps = ceil(c * r * s / 16)
    each = steps * _STEP + tile.columns // 8 * (_STORED + steps * _PRODUCT)
    issued = _BEGIN + tile.strip * tile.pixels / (16 * tile.warps) * each
    cycles = programs * tile.warps * issued / (4 * _ISSUED)
    # A machine that is not full hides no latency.
    spread: float = min(1.0, programs / machine.multiprocessors)
    hidden: float = min(1.0, programs * tile.warps / (machine.multiprocessors * 8)) ** 0.5
    busy = cycles / (machine.flops / _FLOPS_PER_CYCLE) / max(0.001, spread * hidden)
    bytes_moved, alone = stream_micros(call), _FIRST + _ROW_STEP * tile.strip * steps
    return max(max(bytes_moved, LAUNCH + busy) + _BESIDE * min(bytes_moved, busy), LAUNCH + alone)


def _programs(call: CudaCall, tile: FewChannelsLanesTile) -> int:
    n, k, p, q = sums_of(call)
    return n * -(-p // tile.strip) * -(-q // tile.pixels) * -(-k // tile.columns)


def _launches(call: CudaCall, tile: FewChannelsLanesTile) -> tuple[Launch, ...]:
    x, w, y = call.inputs[0], call.inputs[1], call.outputs[0]
    _, c, r, s = w.shape
    _, k, p, q = sums_of(call)
    fused, kind = fused_of(call), product_dtype(call)
    depth, filters = -(-c * r * s // 16) * 16, -(-k // tile.columns) * tile.columns
    config = FewChannelsLanesConfig(
        (element_of(x), ELEMENTS[kind], element_of(y)), c, window_of(call),
        "w" if x.strides[3] == 1 else "", depth, tile,
        (fused.config.epilogue, *fused.config.operands),
    )  # fmt: skip
    packing = Packing(
        "cuda.lane_filters", (kind.value, depth, filters), (1,), filters * depth * kind.itemsize
    )
    integers = {
        "h": x.shape[2], "wd": x.shape[3], "k": k // VECTOR, "p": p, "q": q,
        "x_n": x.strides[0], "x_c": x.strides[1], "x_h": x.strides[2], "x_w": x.strides[3],
        "y_n": y.strides[0] // VECTOR, "y_p": y.strides[2] // VECTOR,
        "y_q": y.strides[3] // VECTOR,
        **{name: n for name, n in fused.integers.items() if name not in STORES},
    }  # fmt: skip
    operands = {"x": In(0), "w": Packed(packing), "y": Out(0), **fused.operands}
    return (Launch(config, operands, integers, _programs(call, tile)),)


def _entry(config: FewChannelsLanesConfig) -> Entry:
    tile, window = config.tile, config.window.constants()
    del window["PADDED"]
    functions = {"EPILOGUE": gluon_epilogue_of(config.epilogue)}
    fetch = gluon_fetch_of(config.epilogue)
    if fetch is not None:
        functions["FETCH"] = fetch
    return Entry(
        "conv2d.few_channels_lanes_code:convolve",
        tuple(zip("xwy", config.elements, strict=True)),
        ("h", "wd", "k", "p", "q", "x_n", "x_c", "x_h", "x_w", "y_n", "y_p", "y_q"),
        {
            "C": config.channels, **window, "BM": tile.pixels, "BN": tile.columns,
            "DEPTH": config.depth, "STRIP": tile.strip, "WARPS": tile.warps, "X_UNIT": config.unit,
        },
        functions,
        pointers_of(config.epilogue),
        integers_of(config.epilogue),
        warps=tile.warps,
        gluon=True,
        registers=_REGISTERS,
    )  # fmt: skip


CONV2D_FEW_CHANNELS_LANES = CudaKernel(
    "conv2d.few_channels_lanes", (Conv2d,), FewChannelsLanesConfig, _supports, _variants, _entry
)
"""Convolution of few channels: each lane gathers its terms, and stores neighbours of a pixel."""
