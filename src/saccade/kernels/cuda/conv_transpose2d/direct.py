"""Transposed convolution as a gather, on the matrix units: one product for each residue class.

`y[n,k,i,j] = Σ x[n,c,p,q] · w[c,k,r,s]` over all p·stride + r·dilation - pad = i, likewise in j.
Results whose i + pad leave the same remainder by the stride read the same taps: a class of them is
an implicit GEMM of stride 1, and no product with an inserted zero is computed. All classes and
groups are one launch. Floor: the products that there are, or the bytes of x, the weights and y.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from math import gcd, prod
from operator import itemgetter

from saccade.kernels.base import In, Launch, Out, Variant
from saccade.kernels.cuda.base import CudaCall, CudaKernel, Entry
from saccade.kernels.cuda.conv2d.fused_operands import STORES, divided, fused_of
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
from saccade.kernels.cuda.conv2d.implicit_gemm_times import Products, tile_times
from saccade.kernels.cuda.conv2d.window_config import unfit
from saccade.opdefs import ConvTranspose2d

__all__ = ["CONV_TRANSPOSE2D_DIRECT"]

_UNUSED = ("GROUP", "TAPS_INNER", "PADDED")  # constants of convolutions that are none here


def _supports(call: CudaCall) -> str | None:
    return unfit(call)


def _places(call: CudaCall) -> int:
    """Results of a channel, of the largest class."""
    op: ConvTranspose2d = call.op
    n, _, p, q = call.outputs[0].shape
    return n * -(-p // op.stride[0]) * -(-q // op.stride[1])


def _taps(call: CudaCall, axis: int) -> int:
    """Taps of the largest class along an axis."""
    op: ConvTranspose2d = call.op
    return -(-call.inputs[1].shape[2 + axis] // _step(op.stride[axis], op.dilation[axis]))


def _step(stride: int, dilation: int) -> int:
    """Distance of the taps of a class."""
    return stride // gcd(stride, dilation)


def _variants(call: CudaCall) -> Iterator[Variant]:
    op: ConvTranspose2d = call.op
    c, k = call.inputs[1].shape[0] // op.groups, call.inputs[1].shape[1]
    products = Products(op.groups * prod(op.stride), k, _taps(call, 0) * _taps(call, 1), c)
    tiles = tiles_of(call, c, k)
    times = tile_times(call, tiles, products, _places(call))
    timed = [(micros, tile) for (micros, _), tile in zip(times, tiles, strict=True)]
    for micros, tile in sorted(timed, key=itemgetter(0)):
        yield Variant(micros, partial(_launches, call, tile), rounding_of(tile), tile)


def _launches(call: CudaCall, tile: Tile) -> tuple[Launch, ...]:
    op: ConvTranspose2d = call.op
    weights, fused = weights_of(call), fused_of(call)
    config = config_of(call, tile, weights, fused.config)
    # Neither end of the image is told apart: every load looks.
    config = replace(config, window=replace(config.window, padded=True))
    integers = {
        **summed(call, weights), "groups": op.groups,
        **divided(fused.integers, config.vectors[1]),
    }  # fmt: skip
    operands = {"x": In(0), "w": weights.operand, "y": Out(0), **fused.operands}
    col_blocks = -(-call.inputs[1].shape[1] // tile[1])
    programs = -(-_places(call) // tile[0]) * col_blocks * op.groups * prod(op.stride)
    return (Launch(config, operands, integers, programs),)


def _entry(config: ImplicitGemmConfig) -> Entry:
    x, w, y = config.elements
    window = config.window
    made = {**config.constants(), "Y_VEC": config.vectors[1], **config.fused.constants()}
    steps = (_step(*pair) for pair in zip(window.stride, window.dilation, strict=True))
    return Entry(
        "conv_transpose2d.direct_code:convolve_transposed",
        (("x", x), ("w", w), ("y", y)),
        (*SUMMED, "groups", *STORES),
        {
            **{name: value for name, value in made.items() if name not in _UNUSED},
            **dict(zip(("STEP_H", "STEP_W"), steps, strict=True)),
        },
        config.fused.functions(),
        config.fused.pointers,
        config.fused.integers,
        MULTIPLES,
        *config.tile[3:],
    )


CONV_TRANSPOSE2D_DIRECT = CudaKernel(
    "conv_transpose2d.direct", (ConvTranspose2d,), ImplicitGemmConfig, _supports, _variants, _entry
)
