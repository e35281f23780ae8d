"""Pooling over windows: every tap of a block of pixels and channels is loaded, most from the cache.

A program has a block of output pixels times channels; windows of few taps are unrolled, so that
all of their loads are on their way together. Its floor is the bytes of image and result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import ceil

import numpy as np

from saccade.backends.cuda.gpus import gpu
from saccade.kernels.base import In, Launch, Out, Variant, View
from saccade.kernels.cuda.base import ELEMENTS, FLOATS, CudaCall, CudaKernel, Entry, element_of
from saccade.kernels.cuda.epilogue import (
    EpilogueCode,
    epilogue_of,
    integers_of,
    pointers_of,
    source_of,
)
from saccade.kernels.cuda.machine import LAUNCH, PROGRAM, moved_bytes
from saccade.kernels.cuda.reduce.axis_loops import (
    block_of,
    common_step,
    pixel_step,
    power_above,
)
from saccade.kernels.cuda.refusals import refuse_epilogue, refuse_places
from saccade.opdefs import Pool2d

__all__ = ["POOL_DIRECT", "CudaPoolConfig"]

_INTEGERS = (
    "n", "c", "c_read", "h", "w", "p", "q", "x_n", "x_c", "x_h", "x_w", "y_n", "y_c", "y_p", "y_q",
    "h_low", "w_low", "h_end", "w_end",
)  # fmt: skip
_UNROLLED = 25  # taps
# Microseconds of a program's loads, arithmetic and stores, and instructions for each tap of an
# element (estimates, not measured).
_LATENCY, _INSTRUCTIONS = 1.2, 2.5

_TILES = {
    "channels": ((8, 64), (16, 64), (32, 64), (16, 32), (32, 32), (4, 128), (8, 128), (64, 16)),
    "columns": ((256, 1), (512, 1), (1024, 1), (64, 8)),
    "": ((32, 32), (128, 8)),
}
"""Pixels and channels of a block, by what lies side by side in x."""


@dataclass(frozen=True)
class CudaPoolConfig:
    """What the code depends on.

    Attributes:
        elements: Of x, of y, and what sums are kept in.
        largest: Whether the largest is taken; else the mean.
        taps, stride, dilation, padding: Of the window; padding at the top and the left.
        limit: The least integer of the type.
        units: What lies side by side in x and in y: "channels", "columns" or "".
        steps: Channels and strides of x and of y are multiples of so many elements.
        tile: Pixels and channels of a block, warps.
        epilogue: See `epilogue.Epilogue.code`.
    """

    elements: tuple[str, str, str]
    largest: bool
    taps: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    padding: tuple[int, int]
    limit: int
    units: tuple[str, str]
    steps: tuple[int, int]
    tile: tuple[int, int, int]
    epilogue: EpilogueCode


def _supports(call: CudaCall) -> str | None:
    return refuse_epilogue(call, call.op.epilogue) or refuse_places(call)


def _unit(view: View) -> str:
    if view.strides[1] == 1 or (view.shape[1] == 1 and view.strides[3] != 1):
        return "channels"
    return "columns" if view.strides[3] == 1 else ""


def _variants(call: CudaCall) -> Iterator[Variant]:
    x = call.inputs[0]
    each = 16 if _unit(x) == "channels" else 8
    tiles = {
        block_of(pixels, min(block, power_above(x.shape[1])), x.dtype, each)
        for pixels, block in _TILES[_unit(x)]
    }
    timed = sorted((_micros(call, tile), tile) for tile in tiles)
    for micros, tile in timed:
        yield Variant(micros, partial(_launches, call, tile))


def _programs(call: CudaCall, tile: tuple[int, int, int]) -> int:
    n, c, p, q = call.outputs[0].shape
    return -(-n * p * q // tile[0]) * -(-c // tile[1])


def _micros(call: CudaCall, tile: tuple[int, int, int]) -> float:
    machine = gpu(call.target.machine)
    pixels, channels, warps = tile
    taps: int = call.op.kernel[0] * call.op.kernel[1]
    programs = _programs(call, tile)
    resident = max(1, min(32, 48 // warps))
    waves = ceil(programs / (call.target.multiprocessors * resident))
    waiting = waves * _LATENCY * max(1.0, taps / _UNROLLED)
    run = {"channels": channels, "columns": pixels, "": 1}[_unit(call.inputs[0])]
    nbytes = moved_bytes(call)
    moved = nbytes * (1 + 16 / (run * call.inputs[0].dtype.itemsize))  # short runs cost more
    done = programs * pixels * channels * taps * _INSTRUCTIONS / (machine.flops / 2)
    starts = programs * PROGRAM
    busy: float = max(waiting, moved / (0.8 * machine.bandwidth), done, starts)
    return LAUNCH + busy + 0.1 * starts


def _wide(call: CudaCall) -> str:
    dtype = call.inputs[0].dtype
    return "fp32" if dtype in FLOATS else ELEMENTS[dtype]


def _launches(call: CudaCall, tile: tuple[int, int, int]) -> tuple[Launch, ...]:
    op: Pool2d = call.op
    x, y = call.inputs[0], call.outputs[0]
    epilogue = epilogue_of(call, op.epilogue, 1, y.shape)
    largest, dtype = op.kind == "max", x.dtype
    limit = 0 if dtype.is_float or not largest else int(np.iinfo(dtype.numpy).min)
    steps = _steps(call)
    config = CudaPoolConfig(
        (element_of(x), element_of(y), _wide(call)), largest, op.kernel, op.stride, op.dilation,
        op.padding[:2], limit, (_unit(x), _unit(y)), steps, tile, epilogue.code,
    )  # fmt: skip
    integers = {
        "n": y.shape[0], "c": y.shape[1], "h": x.shape[2], "w": x.shape[3], "p": y.shape[2],
        "q": y.shape[3], "c_read": -(-y.shape[1] // steps[0]) * steps[0],
        **_strides("x", "nchw", x), **_strides("y", "ncpq", y), **_counted(op, x),
        **epilogue.integers,
    }  # fmt: skip
    operands = {"x": In(0), "y": Out(0), **epilogue.operands}
    return (Launch(config, operands, integers, _programs(call, tile)),)


def _strides(name: str, axes: str, view: View) -> dict[str, int]:
    return {f"{name}_{axis}": step for axis, step in zip(axes, view.strides, strict=True)}


def _counted(op: Pool2d, x: View) -> dict[str, int]:
    """Where the taps that a mean divides by begin and end: with padding or without."""
    top, left, bottom, right = op.padding if op.count_include_pad else (0, 0, 0, 0)
    return {
        "h_low": -top, "w_low": -left, "h_end": x.shape[2] + bottom, "w_end": x.shape[3] + right,
    }  # fmt: skip


def _steps(call: CudaCall) -> tuple[int, int]:
    """Elements that loads of x move at once; what channels and strides of y all divide by."""
    x, y = call.inputs[0], call.outputs[0]
    x_strides, y_strides = (
        [view.strides[axis] for axis in (0, 2, 3) if view.shape[axis] > 1] for view in (x, y)
    )
    step = common_step(x_strides, (x,)) if _unit(x) == "channels" else 1
    return (
        pixel_step(x.shape[1], x.strides[3], step),
        common_step((*y_strides, y.shape[1]), (y,)) if _unit(y) == "channels" else 1,
    )


def _entry(config: CudaPoolConfig) -> Entry:
    kind, result, wide = config.elements
    pixels, channels, warps = config.tile
    constants: dict[str, int | float | str] = {
        "LARGEST": config.largest, "R": config.taps[0], "S": config.taps[1],
        "STRIDE_H": config.stride[0], "STRIDE_W": config.stride[1],
        "DILATION_H": config.dilation[0], "DILATION_W": config.dilation[1],
        "PAD_T": config.padding[0], "PAD_L": config.padding[1], "WIDE": wide,
        "LIMIT": config.limit, "X_UNIT": config.units[0], "Y_UNIT": config.units[1],
        "X_STEP": config.steps[0], "Y_STEP": config.steps[1], "BM": pixels, "BC": channels,
        "UNROLLED": config.taps[0] * config.taps[1] <= _UNROLLED, "STAGES": 4,
    }  # fmt: skip
    return Entry(
        "pool.direct_code:pool",
        (("x", kind), ("y", result)),
        _INTEGERS,
        constants,
        {"EPILOGUE": source_of(config.epilogue)},
        pointers_of(config.epilogue),
        integers_of(config.epilogue),
        warps=warps,
    )


POOL_DIRECT = CudaKernel("pool.direct", (Pool2d,), CudaPoolConfig, _supports, _variants, _entry)
