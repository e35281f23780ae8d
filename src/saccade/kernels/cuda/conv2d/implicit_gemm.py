"""Convolution as a matrix product that is never laid out: pixels times taps and channels.

The large and middle layers of a network, on the matrix units, whatever the taps, strides, dilations
and paddings, with prologue, epilogue and store map. Floor: 2·N·P·Q·K·C·R·S operations of the matrix
units, or the bytes of x, the weights and y.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache, partial
from operator import itemgetter

from saccade.ir.expr import IDENTITY
from saccade.kernels.base import In, Launch, Out, Variant
from saccade.kernels.cuda.base import CudaCall, CudaKernel, Entry
from saccade.kernels.cuda.conv2d.fused_operands import STORES, divided, fused_of, prologue_views
from saccade.kernels.cuda.conv2d.implicit_gemm_config import (
    MULTIPLES,
    SUMMED,
    ImplicitGemmConfig,
    Tile,
    config_of,
    rounding_of,
    summed,
    tiles_of,
    weights_of,
)
from saccade.kernels.cuda.conv2d.implicit_gemm_times import BEGIN, Products, tile_times
from saccade.kernels.cuda.conv2d.window_config import channels_of, sums_of, unfit
from saccade.opdefs import Conv2d

__all__ = ["CONV2D_IMPLICIT_GEMM", "ImplicitGemmConfig", "products_of"]

_LEAST_CHANNELS = 8  # fewer leave most of a step of the matrix units empty: `few_channels`
# Measured times over estimates of the sums: 200 layers of five networks in float16 on one H200.
_MEASURED = 1.05
_END = 1e-4  # microseconds of a result's end, by a multiprocessor
_CHANGED, _CHANGED_BY_IMAGE = 4e-5, 2e-4
"""The same of a prologue for an element of x; where its operands differ by image, too."""
_MEASURED_BLOCKS = {
    (256, 64): 1.25,
    (256, 128): 1.1,
    (64, 128): 0.85,
    (64, 64): 0.88,
    (32, 64): 0.95,
}
_BAND = 8  # row blocks that go together where weights are too many to be read again and again


def _supports(call: CudaCall) -> str | None:
    op: Conv2d = call.op
    if op.groups != 1:
        return f"{op.groups} groups"
    channels = call.inputs[0].shape[1]
    if channels < _LEAST_CHANNELS:
        return f"{channels} input channels"
    return unfit(call)


def products_of(call: CudaCall) -> Iterator[Variant]:
    """A variant for each tile; for the best of them also the other orders of steps and blocks."""
    n, k, p, q = sums_of(call)
    groups = call.op.groups
    r, s = call.inputs[1].shape[2:]
    c = channels_of(call)
    products = Products(groups, k // groups, r * s, c)
    tiles = tiles_of(call, c, k // groups)
    times = tile_times(call, tiles, products, n * p * q)
    timed = [
        (micros * measured + BEGIN + ends * waves, tile)
        for (micros, waves), (measured, ends), tile in zip(
            times, _corrections(tiles, products, _changed(call)), tiles, strict=True
        )
    ]
    timed.sort(key=itemgetter(0))
    for i, (micros, tile) in enumerate(timed):
        rounding = rounding_of(tile)
        yield Variant(micros, partial(_launches, call, tile, 1, False), (rounding, False))
        if i < 2 and r * s > 1 and c > tile[2]:
            # What one program reads again lies a tap, not an image, back.
            yield Variant(micros * 1.01, partial(_launches, call, tile, 1, True), (rounding, True))
        # With one block of columns, or two of rows, bands are hardly another order.
        if i < 2 and k // groups > tile[1] and n * p * q > 2 * tile[0]:
            banded = partial(_launches, call, tile, _BAND, False)
            yield Variant(micros * 1.02, banded, (rounding, False))


@lru_cache(maxsize=1024)
def _corrections(
    tiles: tuple[Tile, ...], products: Products, changed: float
) -> tuple[tuple[float, float], ...]:
    """For each tile, measured times over estimates, and microseconds of the ends of a block."""
    found = []
    for bm, bn, bk, _, _ in tiles:
        depth = products.taps * -(-products.terms // bk) * bk
        measured = _MEASURED * _MEASURED_BLOCKS.get((bm, bn), 1.0)
        found.append((measured, bm * (bn * _END + depth * changed)))
    return tuple(found)


def _changed(call: CudaCall) -> float:
    """Microseconds of an element's prologue."""
    if call.op.prologue == IDENTITY:
        return 0.0
    by_image = any(view.strides[0] and view.shape[0] > 1 for view in prologue_views(call))
    return _CHANGED_BY_IMAGE if by_image else _CHANGED


def _launches(call: CudaCall, tile: Tile, group: int, taps_inner: bool) -> tuple[Launch, ...]:
    n, k, p, q = sums_of(call)
    groups = call.op.groups
    weights, fused = weights_of(call), fused_of(call)
    config = config_of(call, tile, weights, fused.config, group=group, taps_inner=taps_inner)
    integers = {**summed(call, weights), **divided(fused.integers, config.vectors[1])}
    operands = {"x": In(0), "w": weights.operand, "y": Out(0), **fused.operands}
    programs = groups * -(-n * p * q // tile[0]) * -(-(k // groups) // tile[1])
    return (Launch(config, operands, integers, programs),)


def entry_of(config: ImplicitGemmConfig) -> Entry:
    """What is compiled for a config."""
    x, w, y = config.elements
    constants = {**config.constants(), "Y_VEC": config.vectors[1], **config.fused.constants()}
    return Entry(
        "conv2d.implicit_gemm_code:convolve",
        (("x", x), ("w", w), ("y", y)),
        (*SUMMED, *STORES),
        constants,
        config.fused.functions(),
        config.fused.pointers,
        config.fused.integers,
        MULTIPLES,
        *config.tile[3:],
    )


CONV2D_IMPLICIT_GEMM = CudaKernel(
    "conv2d.implicit_gemm", (Conv2d,), ImplicitGemmConfig, _supports, products_of, entry_of
)
