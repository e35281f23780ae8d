"""Depthwise convolution, with a multiplier, and convolution of thin groups: on the CUDA cores.

There is too little to sum for the matrix units. Blocks of pixels times neighbouring channels keep
sums in registers, the window is unrolled, and strips of results below each other share rows of x.
Floor: the bytes of x and y at copy speed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from math import prod
from operator import itemgetter

from saccade.backends.cuda.gpus import gpu
from saccade.kernels.base import In, Launch, Operand, Out, Packed, Packing, Variant
from saccade.kernels.cuda.base import CudaCall, CudaKernel, Entry, element_of
from saccade.kernels.cuda.conv2d.fused_operands import (
    PLAIN,
    STORES,
    FusedConfig,
    divided,
    fused_of,
)
from saccade.kernels.cuda.conv2d.implicit_gemm_config import vector
from saccade.kernels.cuda.conv2d.window_config import WindowConfig, sums_of, unfit, window_of
from saccade.kernels.cuda.machine import LAUNCH, stream_micros
from saccade.opdefs import Conv2d

__all__ = ["CONV2D_DEPTHWISE", "CudaDepthwiseConfig"]

_MOST_CHANNELS = 15  # of a group: with more the matrix units take it
_UNROLLED = 25  # terms, of windows that are
_INTEGERS = (
    "n", "h", "wd", "k", "p", "q", "x_n", "x_c", "x_h", "x_w", "w_r", "w_s", "w_c", "w_k",
    *STORES,
)  # fmt: skip


@dataclass(frozen=True)
class CudaDepthwiseConfig:
    """What the code depends on.

    Attributes:
        elements: Of x, the weights and y.
        channels, multiplier: Of x and of y in a group.
        window: The window.
        tile: Strips, channels, results of a strip; warps.
        units: Whether the channels of x are neighbours, and the results' within the weights.
        vectors: What the strides of x and of y are multiples of.
        fused: Prologue, epilogue, where results go.
    """

    elements: tuple[str, str, str]
    channels: int
    multiplier: int
    window: WindowConfig
    tile: tuple[int, int, int, int]
    units: tuple[bool, bool]
    vectors: tuple[int, int]
    fused: FusedConfig = field(default=PLAIN)


def _supports(call: CudaCall) -> str | None:
    op: Conv2d = call.op
    c = call.inputs[1].shape[1]
    if op.groups == 1 and c > 1:
        return "one group"
    if c > _MOST_CHANNELS:
        return f"groups of {c} input channels"
    return unfit(call)


def _variants(call: CudaCall) -> Iterator[Variant]:
    timed = [(_micros(call, tile), tile) for tile in _tiles(call)]
    for micros, tile in sorted(timed, key=itemgetter(0)):
        yield Variant(micros, partial(_launches, call, tile), code=tile)


def _tiles(call: CudaCall) -> Iterator[tuple[int, int, int, int]]:
    """Strips, channels, results of a strip, warps: a thread has 16 bytes of channels."""
    _, k, p, _ = sums_of(call)
    _, c, r, s = call.inputs[1].shape
    own = 16 // call.inputs[0].dtype.itemsize if c == 1 else 4
    widest = max(own, min(64, 1 << max(0, k - 1).bit_length()))
    for width in dict.fromkeys((widest, min(widest, 32))):
        for strip in (1, 2, 4):
            # Rows are shared only where windows overlap, and registers are for few sums.
            if strip > 1 and (r <= call.op.stride[0] or p < strip or c > 1 or r * s > 9 * strip):
                continue
            for pixels in (1, 2):
                if pixels * strip * r * s > 36 and pixels * strip > 1:
                    continue
                for warps in (4, 1):
                    yield (warps * 32 * own * pixels // width, width, strip, warps)


def _micros(call: CudaCall, tile: tuple[int, int, int, int]) -> float:
    n, k, p, q = sums_of(call)
    _, c, r, s = call.inputs[1].shape
    rows, width, strip, warps = tile
    machine = gpu(call.target.machine)
    programs = -(-n * -(-p // strip) * q // rows) * -(-k // width)
    op: Conv2d = call.op
    # Loads and conversions of each row that a strip reads, then a product for each term.
    loaded = min((strip - 1) * op.stride[0] + (r - 1) * op.dilation[0] + 1, strip * r) * s * c
    work = programs * rows * width * (1.5 * loaded + strip * (c * r * s + 2.0))
    # Half of the rate of the CUDA cores; a machine that is not full hides no latency.
    spread: float = min(1.0, programs / machine.multiprocessors)
    hidden: float = min(1.0, programs * warps / (machine.multiprocessors * 8)) ** 0.5
    slots = min(1.0, 32 * warps / 48)  # programs that a multiprocessor has at once are limited
    busy = work / (machine.flops / 4 * slots) / max(0.001, spread * hidden)
    return max(stream_micros(call), LAUNCH + busy) + 0.05 * busy


def _weights(call: CudaCall) -> tuple[Operand, dict[str, int], bool]:
    """The weights, packed [R·S, C, K] in their own type where they are constant; their strides."""
    w = call.inputs[1]
    k, c, _, s = w.shape
    if not call.constant[1]:
        strides = dict(zip(("w_k", "w_c", "w_r", "w_s"), w.strides, strict=True))
        return In(1), strides, w.strides[0] == 1
    columns = -(-k // 16) * 16
    nbytes = w.size // max(1, k) * columns * w.dtype.itemsize
    packing = Packing("cuda.taps", (w.dtype.value, c, columns), (1,), nbytes)
    strides = {"w_r": s * c * columns, "w_s": c * columns, "w_c": columns, "w_k": 1}
    return Packed(packing), strides, True


def _launches(call: CudaCall, tile: tuple[int, int, int, int]) -> tuple[Launch, ...]:
    op: Conv2d = call.op
    x, w, y = call.inputs[0], call.inputs[1], call.outputs[0]
    n, k, p, q = sums_of(call)
    fused = fused_of(call)
    weights, strides, unit = _weights(call)
    by_x = vector(x.strides[0], *x.strides[2:])
    by_y = vector(k, y.shape[1], y.strides[0], *y.strides[2:])
    config = CudaDepthwiseConfig(
        (element_of(x), element_of(w), element_of(y)), w.shape[1], k // op.groups,
        window_of(call), tile, (x.strides[1] == 1 or x.shape[1] == 1, unit), (by_x, by_y),
        fused.config,
    )  # fmt: skip
    integers = {
        "n": n, "h": x.shape[2], "wd": x.shape[3], "k": k // by_y, "p": p, "q": q,
        "x_n": x.strides[0] // by_x, "x_c": x.strides[1], "x_h": x.strides[2] // by_x,
        "x_w": x.strides[3] // by_x, **strides, **divided(fused.integers, by_y),
    }  # fmt: skip
    operands = {"x": In(0), "w": weights, "y": Out(0), **fused.operands}
    rows, width, strip, _ = tile
    programs = -(-n * -(-p // strip) * q // rows) * -(-k // width)
    return (Launch(config, operands, integers, programs),)


def _entry(config: CudaDepthwiseConfig) -> Entry:
    x, w, y = config.elements
    rows, width, strip, warps = config.tile
    constants: dict[str, int | str] = {
        **config.window.constants(), "C": config.channels, "MULTIPLIER": config.multiplier,
        "BM": rows, "BN": width, "STRIP": strip, "UNROLL": _unrolled(config),
        "X_UNIT": config.units[0], "W_UNIT": config.units[1],
        "X_VEC": config.vectors[0], "Y_VEC": config.vectors[1], **config.fused.constants(),
    }  # fmt: skip
    return Entry(
        "conv2d.depthwise_code:convolve",
        (("x", x), ("w", w), ("y", y)),
        _INTEGERS,
        constants,
        config.fused.functions(),
        config.fused.pointers,
        config.fused.integers,
        ("w_r", "w_s", "w_c", *config.fused.integers),
        warps,
    )


def _unrolled(config: CudaDepthwiseConfig) -> int:
    """How many rows of taps one step of the loop has: all, if they are few."""
    rows, terms = config.window.taps[0], config.channels * prod(config.window.taps)
    return rows * config.channels if terms <= _UNROLLED else 1


CONV2D_DEPTHWISE = CudaKernel(
    "conv2d.depthwise", (Conv2d,), CudaDepthwiseConfig, _supports, _variants, _entry
)
