"""Convolution to few channels whose operands go from memory straight to the lanes, in Gluon.

As `conv2d.few_outputs`, for windows of stride 1 whose rows of results under way are 16 sums a pixel
at most: 3 channels of 3x3 or 5x5. Pixels are the columns of products, and all that a row of x adds
to is one instruction for eight pixels and each tap of a row: a third of the products, and nothing
goes through shared memory. Floor: the bytes of x and y.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import gcd
from operator import itemgetter
from typing import NamedTuple

from saccade.backends.cuda.gpus import gpu
from saccade.ir import DType
from saccade.ir.expr import IDENTITY
from saccade.kernels.base import In, Launch, Out, Packed, Packing, Variant
from saccade.kernels.cuda.base import CudaCall, CudaKernel, Entry, element_of
from saccade.kernels.cuda.conv2d.fused_operands import STORES, fused_of
from saccade.kernels.cuda.conv2d.hopper_epilogue import gluon_epilogue_of, gluon_fetch_of
from saccade.kernels.cuda.conv2d.window_config import (
    channels_of,
    excess_of,
    sums_of,
    unfit,
)
from saccade.kernels.cuda.epilogue import EpilogueCode, integers_of, pointers_of
from saccade.kernels.cuda.machine import LAUNCH, stream_micros
from saccade.opdefs import Conv2d, DepthToSpaceStore, InterleaveStore

__all__ = ["CONV2D_FEW_OUTPUTS_LANES", "FewOutputsLanesConfig", "FewOutputsLanesTile"]

_SUMS = 16  # of a pixel, of all the rows of results that are under way
_DEPTHS = (16, 32)  # channels of a block of x
_ALIGNED = 8  # elements that strides of x are multiples of
_SINCE = 80  # the first compute capability with these matrix instructions
_ASKS = 90  # the first one that asks the L2 cache for many bytes at once
_MOST_WEIGHTS = 25  # operands of an instruction, four registers each
_FEW_WEIGHTS = 9  # which leave room for more programs beside each other
_REGISTERS = 255  # the most of a thread


class FewOutputsLanesTile(NamedTuple):
    """How the work is cut.

    Attributes:
        pixels: Of a row of a program.
        strip: Rows of results of a program, below each other.
        ahead: Rows of x that are loaded before their products.
        warps: Of a program.
        registers: The most of a thread, where there are few weights.
    """

    pixels: int
    strip: int
    ahead: int
    warps: int
    registers: int


_TILES = (
    FewOutputsLanesTile(128, 8, 2, 4, 168), FewOutputsLanesTile(64, 8, 2, 4, 128),
    FewOutputsLanesTile(64, 8, 1, 2, 168), FewOutputsLanesTile(32, 4, 1, 2, 128),
    FewOutputsLanesTile(32, 2, 1, 2, 168),
)  # fmt: skip
# Instructions of a warp: at the start, of a tap of eight pixels of a row of x, of eight results.
_BEGIN, _TAP, _STORED = 350.0, 5.0, 12.0
_ISSUED = 0.56  # instructions of those that could be issued, as of `conv2d.few_outputs`
_FLOPS_PER_CYCLE = 256  # float32 operations of a multiprocessor


@dataclass(frozen=True)
class FewOutputsLanesConfig:
    """What the code depends on.

    Attributes:
        elements: Of x and the weights, of y.
        taps, padding: The window: rows and columns, zeros at the top and the left.
        step: Elements from a pixel of x to the next.
        depth: Channels of a block.
        full: Whether there are so many.
        room: Sums of a pixel, for each row of results under way.
        vector: What `q` and the strides of y are multiples of.
        asked: Whether the L2 cache is asked for a program's rows of x when it begins.
        tile: How the work is cut.
        epilogue: See `epilogue.EpilogueCode`.
    """

    elements: tuple[str, str]
    taps: tuple[int, int]
    padding: tuple[int, int]
    step: int
    depth: int
    full: bool
    room: int
    vector: int
    asked: bool
    tile: FewOutputsLanesTile
    epilogue: EpilogueCode


def _supports(call: CudaCall) -> str | None:
    op: Conv2d = call.op
    x, w, y = call.inputs[0], call.inputs[1], call.outputs[0]
    if call.target.arch < _SINCE:
        return f"sm_{call.target.arch}"
    if x.dtype not in (DType.F16, DType.BF16):
        return "element types"
    if op.groups != 1:
        return f"{op.groups} groups"
    if op.prologue != IDENTITY:
        return "a prologue"
    if (op.stride, op.dilation) != ((1, 1), (1, 1)):
        return f"strides {op.stride}, dilations {op.dilation}"
    if not call.constant[1]:
        return "weights are no constant"
    if isinstance(op.store, DepthToSpaceStore | InterleaveStore):
        return "a store that moves channels"
    if _room(w.shape[2]) < w.shape[0] or _weights(call) > _MOST_WEIGHTS:
        return f"{w.shape[0]} output channels of {w.shape[2]}x{w.shape[3]} taps"
    if channels_of(call) > _DEPTHS[-1] or channels_of(call) % (_depth(call) // 4):
        return f"{channels_of(call)} input channels"
    if x.strides[1] != 1 or y.strides[3] != 1 or excess_of(call):
        return "neither pixels of x nor rows of y are neighbours"
    if any(stride % _ALIGNED for stride in (x.strides[0], *x.strides[2:])):
        return "input pixels are not aligned"
    return unfit(call)


def _room(taps: int) -> int:
    """Sums of a pixel for each of so many rows of results, a power of two."""
    return 1 << (_SUMS // taps).bit_length() - 1 if taps <= _SUMS else 0


def _weights(call: CudaCall) -> int:
    """Operands of the matrix units that weights are."""
    taps: int = call.inputs[1].shape[2] * call.inputs[1].shape[3]
    return taps * _depth(call) // _DEPTHS[0]


def _depth(call: CudaCall) -> int:
    return next((depth for depth in _DEPTHS if depth >= channels_of(call)), _DEPTHS[-1])


def _variants(call: CudaCall) -> Iterator[Variant]:
    timed = sorted(((_micros(call, tile), tile) for tile in _TILES), key=itemgetter(0))
    for micros, tile in timed:
        yield Variant(micros, partial(_launches, call, tile))


def _micros(call: CudaCall, tile: FewOutputsLanesTile) -> float:
    """The bytes, or the instructions, counted as in the machine code.

    One H100, 16 channels to 3, measured over estimated: 0.89 at 2880x5120, 1.2 at 720x1280.
    """
    _, _, r, s = call.inputs[1].shape
    machine, programs = gpu(call.target.machine), _programs(call, tile)
    blocks = tile.pixels // (8 * tile.warps)
    loaded = (tile.strip + r - 1) * s * blocks * _TAP * _depth(call) / _DEPTHS[0]
    issued = _BEGIN + loaded + tile.strip * blocks * _STORED
    cycles = programs * tile.warps * issued / (4 * _ISSUED)
    # A machine that is not full hides no latency.
    spread: float = min(1.0, programs / machine.multiprocessors)
    hidden: float = min(1.0, programs * tile.warps / (machine.multiprocessors * 8)) ** 0.5
    busy = cycles / (machine.flops / _FLOPS_PER_CYCLE) / max(0.001, spread * hidden)
    return max(stream_micros(call), LAUNCH + busy) + 0.05 * busy


def _programs(call: CudaCall, tile: FewOutputsLanesTile) -> int:
    n, _, p, q = sums_of(call)
    return n * -(-p // tile.strip) * -(-q // tile.pixels)


def _launches(call: CudaCall, tile: FewOutputsLanesTile) -> tuple[Launch, ...]:
    x, w, y = call.inputs[0], call.inputs[1], call.outputs[0]
    k, _, r, s = w.shape
    _, _, p, q = sums_of(call)
    fused, depth, channels = fused_of(call), _depth(call), channels_of(call)
    vector = gcd(2, q, y.strides[0], y.strides[1], y.strides[2])
    op: Conv2d = call.op
    config = FewOutputsLanesConfig(
        (element_of(x), element_of(y)), (r, s), (op.padding[0], op.padding[1]), x.strides[3], depth,
        channels == depth, _room(r), vector, call.target.arch >= _ASKS,
        tile if _weights(call) <= _FEW_WEIGHTS else tile._replace(registers=_REGISTERS),
        (fused.config.epilogue, *fused.config.operands),
    )  # fmt: skip
    packing = Packing(
        "cuda.lane_rows", (x.dtype.value, depth, _room(r)), (1,),
        r * s * _SUMS * depth * x.dtype.itemsize,
    )  # fmt: skip
    integers = {
        "h": x.shape[2], "wd": x.shape[3], "c": channels // (depth // 4), "k": k, "p": p,
        "q": q // vector, "x_n": x.strides[0] // _ALIGNED, "x_h": x.strides[2] // _ALIGNED,
        "y_n": y.strides[0] // vector, "y_k": y.strides[1] // vector, "y_p": y.strides[2] // vector,
        **{name: n for name, n in fused.integers.items() if name not in STORES},
    }  # fmt: skip
    operands = {"x": In(0), "w": Packed(packing), "y": Out(0), **fused.operands}
    return (Launch(config, operands, integers, _programs(call, tile)),)


def _entry(config: FewOutputsLanesConfig) -> Entry:
    x, y = config.elements
    tile = config.tile
    functions = {"EPILOGUE": gluon_epilogue_of(config.epilogue)}
    fetch = gluon_fetch_of(config.epilogue)
    if fetch is not None:
        functions["FETCH"] = fetch
    return Entry(
        "conv2d.few_outputs_lanes_code:convolve",
        (("x", x), ("w", x), ("y", y)),
        ("h", "wd", "c", "k", "p", "q", "x_n", "x_h", "y_n", "y_k", "y_p"),
        {
            "R": config.taps[0], "S": config.taps[1], "PAD_T": config.padding[0],
            "PAD_L": config.padding[1], "BM": tile.pixels, "BC": config.depth, "STEP": config.step,
            "FULL": config.full, "ROOM": config.room, "STRIP": tile.strip, "AHEAD": tile.ahead,
            "ASK": config.asked, "WARPS": tile.warps, "Y_VEC": config.vector,
        },
        functions,
        pointers_of(config.epilogue),
        integers_of(config.epilogue),
        warps=tile.warps,
        gluon=True,
        registers=tile.registers,
    )  # fmt: skip


CONV2D_FEW_OUTPUTS_LANES = CudaKernel(
    "conv2d.few_outputs_lanes", (Conv2d,), FewOutputsLanesConfig, _supports, _variants, _entry
)
"""Convolution to a few planes: rows of x go straight to lanes, by all the rows of taps at once."""
