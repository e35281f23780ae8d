"""Depthwise convolution whose weights stay in registers while rows of x go by.

A thread has two channels of a strip of results: a few side by side, and as many rows as keep the
GPU busy. Of what `conv2d.depthwise` does for each row of taps, to read x, convert it and find
whether it is on the image, it does once a row of x, so that of its instructions most are products.
Floor: the bytes of x and y at copy speed, or R·S products for each result on the CUDA cores, which
for 5x5 come to as much.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from operator import itemgetter

from saccade.ir.expr import IDENTITY
from saccade.kernels.base import In, Launch, Out, Variant
from saccade.kernels.cuda.base import CudaCall, CudaKernel, Entry, element_of
from saccade.kernels.cuda.conv2d.depthwise import depthwise_weights, x_vector
from saccade.kernels.cuda.conv2d.depthwise_rows_times import (
    OWN,
    WIDE_WINDOW,
    DepthwiseRowsTile,
    depthwise_rows_times,
    fits_registers,
    programs_of,
)
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
from saccade.opdefs import Conv2d

__all__ = ["CONV2D_DEPTHWISE_ROWS", "DepthwiseRowsConfig", "DepthwiseRowsTile"]

_FEW_PLACES = 6  # elements of x that are asked for at once: then one step more is under way
_INTEGERS = ("n", "h", "wd", "k", "p", "q", "down", "x_n", "x_h", "w_r", "w_s", "w_k", *STORES)


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
    return None if fits_registers(call) else "windows of more weights than registers"


def _variants(call: CudaCall) -> Iterator[Variant]:
    for micros, *tile in sorted(depthwise_rows_times(call), key=itemgetter(0)):
        yield Variant(micros, partial(_launches, call, DepthwiseRowsTile(*tile)))


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
    return (Launch(config, operands, integers, programs_of(call, tile)),)


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
        "UNROLL": ceil(r / down) if r * s < WIDE_WINDOW else 1,
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
        strips * columns // (32 * OWN),
    )


CONV2D_DEPTHWISE_ROWS = CudaKernel(
    "conv2d.depthwise_rows", (Conv2d,), DepthwiseRowsConfig, _supports, _variants, _entry
)
