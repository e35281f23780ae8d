"""Convolution to few channels, as from features to an image: strips of rows share what they read.

A layer that gives three channels has few products for the bytes that it reads, and as a matrix
product [pixels, taps and channels] it would read each element of x once for each tap. Here a
program makes a strip of rows below each other: each row of x is loaded once (at each tap's shift,
from the L1 cache) and multiplied by all the rows of taps that meet it, results are written along
the pixels where these are neighbours. Floor: the bytes of x and y.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter

from saccade.backends.cuda.gpus import gpu
from saccade.ir import DType
from saccade.ir.expr import IDENTITY
from saccade.kernels.base import In, Launch, Out, Packed, Packing, Variant
from saccade.kernels.cuda.base import ELEMENTS, CudaCall, CudaKernel, Entry, element_of
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
    channels_of,
    excess_of,
    sums_of,
    unfit,
    window_of,
)
from saccade.kernels.cuda.machine import LAUNCH, stream_micros
from saccade.kernels.cuda.precision import dot_precision, product_dtype
from saccade.opdefs import Conv2d

__all__ = ["CONV2D_FEW_OUTPUTS", "CudaFewOutputsConfig"]

_COLUMNS = 8  # of a product, the least that the matrix units take
_PACKED = 16  # columns of packed weights
_MOST_CHANNELS = 32  # of x
_MOST_TERMS = 400  # of a sum, whose weights stay in registers: 25 taps of 16 channels
_MOST_REGISTERS = 160  # of two rows of taps, the weights and the sums under way
_LEAST_VECTOR = 8  # bytes of x that a thread takes at once
_SHALLOWEST = 16  # channels of a step of the matrix units
# Cycles of a warp's 16 bytes a thread: loaded, written to shared memory, read there (counted, 128
# bytes a cycle).
_LINES = 12
_ISSUED = 0.56  # instructions of those that could be issued, as measured for depthwise layers
_FLOPS_PER_CYCLE = 256  # float32 operations of a multiprocessor
_SHARED = 0.5  # of the cycles of shared memory: as measured for 16 channels to 3 (one H200)
_INTEGERS = ("n", "h", "wd", "c", "k", "p", "q", "columns", "x_n", "x_h", "x_w", *STORES)
FewOutputsTile = tuple[int, int, int]
"""Pixels of a row and rows of a program, warps."""
_TILES: tuple[FewOutputsTile, ...] = (
    (64, 8, 2), (64, 4, 2), (32, 8, 1), (32, 4, 2), (64, 2, 2), (64, 1, 2),
)  # fmt: skip
"""With four warps the matrix units would read x from shared memory for each of the rows anew."""


@dataclass(frozen=True)
class CudaFewOutputsConfig:
    """What the code depends on.

    Attributes:
        elements: Of x, the weights and y.
        window: The window.
        precision: How products of float32 are made, for `tl.dot`.
        tile: Pixels of a row and rows of a program, warps.
        depth: Channels of x, as a power of two that the matrix units take.
        vectors: What the strides of x and of y are multiples of.
        rows: Whether neighbours of a row of y lie side by side.
        fused: Epilogue, and where results go.
    """

    elements: tuple[str, str, str]
    window: WindowConfig
    precision: str
    tile: FewOutputsTile
    depth: int
    vectors: tuple[int, int]
    rows: bool
    fused: FusedConfig = field(default=PLAIN)


def _supports(call: CudaCall) -> str | None:
    op: Conv2d = call.op
    x, w = call.inputs[:2]
    if op.groups != 1:
        return f"{op.groups} groups"
    if sums_of(call)[1] > _COLUMNS:
        return f"{sums_of(call)[1]} output channels"
    if not 1 <= x.shape[1] <= _MOST_CHANNELS:
        return f"{x.shape[1]} input channels"
    if x.strides[1] != 1:
        return "input channels are no neighbours"
    if _x_vector(call) * x.dtype.itemsize < _LEAST_VECTOR:
        return "input pixels are not aligned"
    if product_dtype(call) is DType.F32:
        return "products in float32"
    if op.prologue != IDENTITY:
        return "a prologue"
    if not call.constant[1]:
        return "weights are no constant"
    if w.shape[2] * w.shape[3] * _depth(call) > _MOST_TERMS or not list(_tiles(call)):
        return f"{w.shape[2]}x{w.shape[3]} taps"
    return unfit(call)


def _tiles(call: CudaCall) -> Iterator[FewOutputsTile]:
    """Those that registers have room for: two elements of products in one."""
    r, s = call.inputs[1].shape[2:]
    weights = 2 * r * s * _depth(call) // _SHALLOWEST
    for pixels, strip, warps in _TILES:
        rows = pixels * _depth(call) * s // (32 * warps)
        sums = pixels * _COLUMNS * min(strip, r) // (32 * warps)
        if rows + weights + sums <= _MOST_REGISTERS:
            yield pixels, strip, warps


def _variants(call: CudaCall) -> Iterator[Variant]:
    timed = sorted(((_micros(call, tile), tile) for tile in _tiles(call)), key=itemgetter(0))
    for micros, tile in timed:
        yield Variant(micros, partial(_launches, call, tile))


def _micros(call: CudaCall, tile: FewOutputsTile) -> float:
    """The bytes, the instructions (counted as in the machine code), or shared memory's cycles."""
    pixels, strip, warps = tile
    r, s = call.inputs[1].shape[2:]
    op: Conv2d = call.op
    machine, programs = gpu(call.target.machine), _programs(call, tile)
    rows = (strip - 1) * op.stride[0] + (r - 1) * op.dilation[0] + 1
    loaded = rows * s * pixels * _depth(call) / 256
    products = strip * r * s * pixels * _depth(call) / 256
    issued = 250.0 * warps + 8.5 * loaded + products + strip * pixels * _COLUMNS / 32 * 8.5
    cycles = programs * max(issued / (4 * _ISSUED), loaded * _LINES / _SHARED)
    # A machine that is not full hides no latency.
    spread: float = min(1.0, programs / machine.multiprocessors)
    hidden: float = min(1.0, programs * warps / (machine.multiprocessors * 8)) ** 0.5
    busy = cycles / (machine.flops / _FLOPS_PER_CYCLE) / max(0.001, spread * hidden)
    return max(stream_micros(call), LAUNCH + busy) + 0.05 * busy


def _programs(call: CudaCall, tile: FewOutputsTile) -> int:
    n, _, p, q = sums_of(call)
    return n * -(-p // tile[1]) * -(-q // tile[0])


def _depth(call: CudaCall) -> int:
    return max(_SHALLOWEST, 1 << (call.inputs[0].shape[1] - 1).bit_length())


def _x_vector(call: CudaCall) -> int:
    x = call.inputs[0]
    return vector(channels_of(call), x.strides[0], *x.strides[2:])


def _launches(call: CudaCall, tile: FewOutputsTile) -> tuple[Launch, ...]:
    x, y = call.inputs[0], call.outputs[0]
    n, k, p, q = sums_of(call)
    fused, kind, depth = fused_of(call), product_dtype(call), _depth(call)
    r, s = call.inputs[1].shape[2:]
    by_x = _x_vector(call)
    rows = y.strides[3] == 1
    # Of a greatest common divisor 0 is no part: with ROWS the code knows the last stride.
    by_y = stored_vector(call, k, y.strides[0], y.strides[2], 0 if rows else y.strides[3])
    config = CudaFewOutputsConfig(
        (element_of(x), ELEMENTS[kind], element_of(y)), window_of(call), dot_precision(call), tile,
        depth, (by_x, by_y), rows, fused.config,
    )  # fmt: skip
    packing = Packing(
        "cuda.taps", (kind.value, depth, _PACKED, 1, *packed_block(call)), (1,),
        r * s * depth * _PACKED * kind.itemsize,
    )  # fmt: skip
    integers = {
        "n": n, "h": x.shape[2], "wd": x.shape[3], "c": channels_of(call) // by_x,
        "k": (k + excess_of(call)) // by_y,
        "p": p, "q": q, "columns": _PACKED, "x_n": x.strides[0] // by_x,
        "x_h": x.strides[2] // by_x, "x_w": x.strides[3] // by_x,
        **divided(fused.integers, by_y),
    }  # fmt: skip
    operands = {"x": In(0), "w": Packed(packing), "y": Out(0), **fused.operands}
    return (Launch(config, operands, integers, _programs(call, tile)),)


def _entry(config: CudaFewOutputsConfig) -> Entry:
    x, w, y = config.elements
    pixels, strip, warps = config.tile
    window = {n: v for n, v in config.window.constants().items() if n != "PADDED"}
    return Entry(
        "conv2d.few_outputs_code:convolve",
        (("x", x), ("w", w), ("y", y)),
        _INTEGERS,
        {
            **window, "PRECISION": config.precision, "BM": pixels, "BN": _COLUMNS,
            "BC": config.depth, "STRIP": strip, "X_VEC": config.vectors[0],
            "Y_VEC": config.vectors[1], "ROWS": config.rows, **config.fused.constants(),
        },
        config.fused.functions(),
        config.fused.pointers,
        config.fused.integers,
        ("columns",),
        warps,
    )  # fmt: skip


CONV2D_FEW_OUTPUTS = CudaKernel(
    "conv2d.few_outputs", (Conv2d,), CudaFewOutputsConfig, _supports, _variants, _entry
)
