"""Convolution of few input channels as a product over taps times channels (OpenPPL's IDXN).

First layers, whose x may lie in rows (NCHW) as models get it, and thin ones: where a step of the
matrix units would be mostly empty at a single tap, steps run over taps times channels, padded once
at the end. Elements of x are gathered to registers by their own addresses, not staged. Floor: the
bytes of x and y.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter

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
from saccade.kernels.cuda.conv2d.implicit_gemm_config import (
    Tile,
    Weights,
    rounding_of,
    vector,
)
from saccade.kernels.cuda.conv2d.implicit_gemm_times import Products, tile_times
from saccade.kernels.cuda.conv2d.window_config import (
    WindowConfig,
    channels_of,
    excess_of,
    sums_of,
    unfit,
    window_of,
)
from saccade.kernels.cuda.precision import dot_precision, product_dtype
from saccade.opdefs import Conv2d

__all__ = ["CONV2D_FEW_CHANNELS", "FewChannelsConfig"]

_MOST_CHANNELS = 64  # they are part of the code
_INTEGERS = (
    "n", "h", "wd", "k", "p", "q", "columns", "x_n", "x_c", "x_h", "x_w",
    "w_r", "w_s", "w_c", "w_k", *STORES,
)  # fmt: skip
_TILES: tuple[Tile, ...] = (
    (128, 64, 32, 8, 2), (128, 32, 32, 8, 2), (64, 64, 32, 4, 2), (64, 32, 32, 4, 2),
    (128, 64, 32, 8, 3), (64, 32, 32, 4, 3), (128, 64, 64, 8, 2), (128, 128, 32, 8, 2),
    (32, 64, 32, 4, 2), (128, 16, 32, 8, 2), (128, 64, 16, 8, 2),
)  # fmt: skip
"""Rows, columns and depth of a block, warps, stages: no thread gathers more than 32 elements.

With two stages, what is gathered element by element goes to registers.
"""
_SHALLOW = 64  # terms of a sum that are one step or two
# Measured times over estimates, as for implicit GEMM (one H200).
_MEASURED_BLOCKS = {
    (128, 128, 32): 1.5, (128, 64, 16): 1.4, (128, 64, 32): 1.2, (128, 16, 32): 1.15,
    (128, 32, 32): 1.06,
}  # fmt: skip
_MEASURED_SHALLOW, _MEASURED_DEEP = (
    tuple(factor * _MEASURED_BLOCKS.get(tile[:3], 1.0) for tile in _TILES)
    for factor in (1.25, 1.08)
)


@dataclass(frozen=True)
class FewChannelsConfig:
    """What the code depends on.

    Attributes:
        elements: Of x, the weights and y.
        channels: Of x, with the zeros behind them.
        window: The window.
        precision: How products of float32 are made, for `tl.dot`.
        tile: Rows, columns and depth of a block, warps, stages.
        unit: The axis of x along which neighbours lie side by side: c, w or none.
        packed: Whether the weights are.
        vectors: What the strides of x and of y are multiples of.
        fused: Prologue, epilogue, where results go.
    """

    elements: tuple[str, str, str]
    channels: int
    window: WindowConfig
    precision: str
    tile: Tile
    unit: str
    packed: bool
    vectors: tuple[int, int]
    fused: FusedConfig = field(default=PLAIN)


def _supports(call: CudaCall) -> str | None:
    op: Conv2d = call.op
    if op.groups != 1:
        return f"{op.groups} groups"
    channels = call.inputs[0].shape[1]
    if not 1 <= channels <= _MOST_CHANNELS:
        return f"{channels} input channels"
    return unfit(call)


def _unit(call: CudaCall) -> str:
    x = call.inputs[0]
    return "c" if x.strides[1] == 1 else "w" if x.strides[3] == 1 else ""


def _depth(call: CudaCall) -> int:
    r, s = call.inputs[1].shape[2:]
    return _channels(call) * r * s


def _channels(call: CudaCall) -> int:
    """Channels that sums run over."""
    # Only behind channels that are neighbours there are zeros that may be summed as well.
    return channels_of(call) if _unit(call) == "c" else call.inputs[0].shape[1]


def _variants(call: CudaCall) -> Iterator[Variant]:
    n, k, p, q = sums_of(call)
    size = call.inputs[0].dtype.itemsize
    # Neighbours are gathered one by one where channels do not fill 16 bytes.
    gathered = 1.0 if _unit(call) == "c" and _channels(call) * size % 16 == 0 else 1.5
    depth = _depth(call)
    measured = _MEASURED_SHALLOW if depth <= _SHALLOW else _MEASURED_DEEP
    times = tile_times(call, _TILES, Products(1, k, 1, depth), n * p * q)
    timed = [
        (micros * gathered * more, tile)
        for (micros, _), more, tile in zip(times, measured, _TILES, strict=True)
    ]
    for micros, tile in sorted(timed, key=itemgetter(0)):
        yield Variant(micros, partial(_launches, call, tile), rounding_of(tile))


def _weights(call: CudaCall, order: str) -> Weights:
    w = call.inputs[1]
    k = w.shape[0]
    if not call.constant[1]:
        w_k, w_c, w_r, w_s = w.strides
        integers = {"w_r": w_r, "w_s": w_s, "w_c": w_c, "w_k": w_k, "columns": k}
        return Weights(In(1), element_of(w), "", k, integers)
    depth, columns, kind = _depth(call), -(-k // 16) * 16, product_dtype(call)
    packing = Packing(
        "cuda.flat_taps",
        (kind.value, depth, columns, order, _channels(call), *packed_block(call)), (1,),
        depth * columns * kind.itemsize,
    )  # fmt: skip
    # The code finds packed weights by the number of the term, and reads none of these strides.
    integers = {"w_r": 0, "w_s": 0, "w_c": 0, "w_k": 1, "columns": columns}
    return Weights(Packed(packing), ELEMENTS[kind], "k", columns, integers)


def _launches(call: CudaCall, tile: Tile) -> tuple[Launch, ...]:
    x, y = call.inputs[0], call.outputs[0]
    n, k, p, q = sums_of(call)
    unit, fused = _unit(call), fused_of(call)
    # Terms in the order in which x has neighbours: channels of a pixel, or taps of a row.
    weights = _weights(call, "channels" if unit == "w" else "taps")
    by_x = vector(x.strides[0], *x.strides[2:]) if unit == "c" else 1
    by_y = stored_vector(call, k)
    config = FewChannelsConfig(
        (element_of(x), weights.element, element_of(y)), _channels(call), window_of(call),
        dot_precision(call), tile, unit, call.constant[1], (by_x, by_y), fused.config,
    )  # fmt: skip
    integers = {
        "n": n, "h": x.shape[2], "wd": x.shape[3], "k": (k + excess_of(call)) // by_y,
        "p": p, "q": q,
        "x_n": x.strides[0] // by_x, "x_c": x.strides[1], "x_h": x.strides[2] // by_x,
        "x_w": x.strides[3] // by_x, **weights.integers, **divided(fused.integers, by_y),
    }  # fmt: skip
    operands = {"x": In(0), "w": weights.operand, "y": Out(0), **fused.operands}
    programs = -(-n * p * q // tile[0]) * -(-k // tile[1])
    return (Launch(config, operands, integers, programs),)


def _entry(config: FewChannelsConfig) -> Entry:
    x, w, y = config.elements
    bm, bn, bk, warps, stages = config.tile
    constants: dict[str, int | str] = {
        **config.window.constants(), "C": config.channels, "PRECISION": config.precision,
        "BM": bm, "BN": bn, "BK": bk, "TAPS_FIRST": config.unit != "w", "PACKED": config.packed,
        "X_UNIT": config.unit, "X_VEC": config.vectors[0], "Y_VEC": config.vectors[1],
        **config.fused.constants(),
    }  # fmt: skip
    return Entry(
        "conv2d.few_channels_code:convolve",
        (("x", x), ("w", w), ("y", y)),
        _INTEGERS,
        constants,
        config.fused.functions(),
        config.fused.pointers,
        config.fused.integers,
        ("columns",),
        warps,
        stages,
    )


CONV2D_FEW_CHANNELS = CudaKernel(
    "conv2d.few_channels", (Conv2d,), FewChannelsConfig, _supports, _variants, _entry
)
