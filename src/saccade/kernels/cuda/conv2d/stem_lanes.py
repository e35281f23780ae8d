"""Stems of networks for images on Hopper: rows of taps go from planes straight to the lanes.

As `conv2d.few_channels_lanes` for windows of more terms than registers hold the weights of: strides
are even, rows of taps fit eight neighbours from an even pixel on, of which a lane loads two at
once. The image is read as it is given, converted on the way; no other one is written. Weights stay
in shared memory. Floor: the bytes of x and y.
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
from saccade.kernels.base import In, Launch, Out, Packed, Packing, Variant
from saccade.kernels.cuda.base import ELEMENTS, CudaCall, CudaKernel, Entry, element_of
from saccade.kernels.cuda.conv2d.few_channels_lanes import VECTOR, refused
from saccade.kernels.cuda.conv2d.fused_operands import STORES, fused_of
from saccade.kernels.cuda.conv2d.hopper import filters_map
from saccade.kernels.cuda.conv2d.hopper_epilogue import gluon_epilogue_of, gluon_fetch_of
from saccade.kernels.cuda.conv2d.window_config import WindowConfig, sums_of, window_of
from saccade.kernels.cuda.epilogue import EpilogueCode, integers_of, pointers_of
from saccade.kernels.cuda.machine import LAUNCH, stream_micros
from saccade.kernels.cuda.precision import product_dtype
from saccade.opdefs import Conv2d

__all__ = ["CONV2D_STEM_LANES", "StemLanesConfig", "StemLanesTile"]

_MOST_CHANNELS = 4  # of x
_ROW = 8  # taps of a row, with what lies beside them
_TERMS = 16  # of a step
_MOST_ROWS = 44  # of taps, of all channels: 11 of 4 channels
_PIXELS = 16  # of a line, of a warp
_WARPS = 4  # of a program, each with a line of its own


class StemLanesTile(NamedTuple):
    """How the work is cut.

    Attributes:
        spans: Blocks of 16 pixels of a program, beside each other.
        columns: Output channels of a program.
    """

    spans: int
    columns: int


_SPANS = (7, 4, 2, 1)  # of a program
_FEWEST, _COLUMNS = 16, (128, 64, 32)  # output channels of a program
_REGISTERS = 168  # the most of a thread, for three programs a multiprocessor
# Instructions of a warp: at the start, waits among them; of two rows of taps; of eight channels
# stored.
_BEGIN, _STEP, _STORED = 1200.0, 26.0, 9.0
_ISSUED = 0.56  # instructions of those that could be issued, as of `conv2d.few_outputs`
_FLOPS_PER_CYCLE = 256  # float32 operations of a multiprocessor
_BESIDE = 0.5  # of the shorter of both, bytes and instructions, that the longer does not hide
_RESIDENT = 3  # programs of a multiprocessor
# Microseconds of a program alone: to begin, of a span (4.7 and 5.2 with one and two on one H100).
_FIRST, _SPAN = 2.8, 0.6


@dataclass(frozen=True)
class StemLanesConfig:
    """What the code depends on.

    Attributes:
        elements: Of x, of the weights and y.
        channels: Of x.
        window: The window.
        tile: How the work is cut.
        epilogue: See `epilogue.EpilogueCode`.
    """

    elements: tuple[str, str]
    channels: int
    window: WindowConfig
    tile: StemLanesTile
    epilogue: EpilogueCode


def _supports(call: CudaCall) -> str | None:
    op: Conv2d = call.op
    x, w = call.inputs[:2]
    # Code with wgmma runs on sm_90 alone, on no later one either.
    if call.target.arch != 90:
        return f"sm_{call.target.arch}"
    if x.shape[1] > _MOST_CHANNELS or x.shape[1] * w.shape[2] > _MOST_ROWS:
        return f"{x.shape[1]} input channels, {w.shape[2]} rows of taps"
    if op.stride[1] % 2 or op.dilation[1] != 1 or op.padding[1] % 2 + w.shape[3] > _ROW:
        return f"rows of {w.shape[3]} taps, strides {op.stride}, dilations {op.dilation}"
    if x.strides[3] != 1 or any(n % 2 for n in (x.shape[3], *x.strides[:3])):
        return "rows of x are no pairs of neighbours"
    return refused(call)


def _tiles(call: CudaCall) -> Iterator[StemLanesTile]:
    k = call.inputs[1].shape[0]
    # The widest first, whose programs load the image least often.
    columns = [n for n in _COLUMNS if n < 2 * k] or [_FEWEST]
    for spans, n in product(_SPANS, columns):
        yield StemLanesTile(spans, n)


def _variants(call: CudaCall) -> Iterator[Variant]:
    timed = sorted(((_micros(call, tile), tile) for tile in _tiles(call)), key=itemgetter(0))
    for micros, tile in timed:
        yield Variant(micros, partial(_launches, call, tile))


def _steps(channels: int, rows: int) -> int:
    """Steps of a product: two rows of taps each."""
    return ceil(channels * rows * _ROW / _TERMS)


def _micros(call: CudaCall, tile: StemLanesTile) -> float:
    """The bytes and the instructions, counted as in the machine code, in whole turns.

    ResNet-50's on one H100, measured over estimated: 1.04 at batch 1, 0.91 at 32, 0.87 at 128.
    """
    _, c, r, _ = call.inputs[1].shape
    machine, programs = gpu(call.target.machine), _programs(call, tile)
    each = _steps(c, r) * _STEP + tile.columns // 8 * _STORED
    cycles = programs * _WARPS * (_BEGIN + tile.spans * each) / (4 * _ISSUED)
    spread: float = max(1.0, machine.multiprocessors / programs)
    busy = spread * cycles / (machine.flops / _FLOPS_PER_CYCLE)
    turns = programs / (machine.multiprocessors * _RESIDENT)
    turns = ceil(turns) / turns if turns > 1 else 1.0
    moved = stream_micros(call)
    whole: float = turns * (max(moved, busy) + _BESIDE * min(moved, busy))
    return LAUNCH + max(whole, _FIRST + _SPAN * tile.spans)


def _programs(call: CudaCall, tile: StemLanesTile) -> int:
    n, k, p, q = sums_of(call)
    return n * -(-p // _WARPS) * -(-q // (_PIXELS * tile.spans)) * -(-k // tile.columns)


def _launches(call: CudaCall, tile: StemLanesTile) -> tuple[Launch, ...]:
    x, w, y = call.inputs[0], call.inputs[1], call.outputs[0]
    _, c, r, _ = w.shape
    _, k, p, q = sums_of(call)
    fused, kind, op = fused_of(call), product_dtype(call), call.op
    depth, filters = _steps(c, r) * _TERMS, -(-k // tile.columns) * tile.columns
    config = StemLanesConfig(
        (element_of(x), ELEMENTS[kind]), c, window_of(call), tile,
        (fused.config.epilogue, *fused.config.operands),
    )  # fmt: skip
    packing = Packing(
        "cuda.lane_taps", (kind.value, depth, filters, tile.columns, op.padding[1] % 2), (1,),
        filters * depth * kind.itemsize,
    )  # fmt: skip
    integers = {
        "h": x.shape[2], "wd": x.shape[3] // 2, "k": k // VECTOR, "p": p, "q": q,
        "x_n": x.strides[0] // 2, "x_c": x.strides[1] // 2, "x_h": x.strides[2] // 2,
        "y_n": y.strides[0] // VECTOR, "y_p": y.strides[2] // VECTOR, "y_q": y.strides[3] // VECTOR,
        "filters": filters, "depth": depth,
        **{name: n for name, n in fused.integers.items() if name not in STORES},
    }  # fmt: skip
    operands = {"x": In(0), "w": Packed(packing), "y": Out(0), **fused.operands}
    return (Launch(config, operands, integers, _programs(call, tile)),)


def _entry(config: StemLanesConfig) -> Entry:
    tile, window = config.tile, config.window.constants()
    del window["PADDED"], window["DILATION_W"]
    functions = {"EPILOGUE": gluon_epilogue_of(config.epilogue)}
    fetch = gluon_fetch_of(config.epilogue)
    if fetch is not None:
        functions["FETCH"] = fetch
    x, y = config.elements
    return Entry(
        "conv2d.stem_lanes_code:convolve_stem",
        (("x", x), ("y", y)),
        ("h", "wd", "k", "p", "q", "x_n", "x_c", "x_h", "y_n", "y_p", "y_q"),
        {
            "C": config.channels, **window, "SPANS": tile.spans, "BN": tile.columns,
            "WARPS": _WARPS,
        },
        functions,
        pointers_of(config.epilogue),
        integers_of(config.epilogue),
        warps=_WARPS,
        descriptors=(filters_map(y, tile.columns, _TERMS),),
        gluon=True,
        registers=_REGISTERS,
    )  # fmt: skip


CONV2D_STEM_LANES = CudaKernel(
    "conv2d.stem_lanes", (Conv2d,), StemLanesConfig, _supports, _variants, _entry
)
"""Stems: pairs of taps of an image's rows are loaded to the lanes that multiply them."""
