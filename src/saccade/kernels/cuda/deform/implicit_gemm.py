"""Deformable convolution as one matrix product: sampled pixels times weights, never laid out.

Rows are output pixels, sums run over taps and channels. Where a tap samples and with which weights
is found out once for all channels that share the offset; then each of four pixels is a vector of
channels. Any groups, strides, weights constant (packed) or not. Floor: that of the product; what
binds is the L2 cache, which gives four pixels for each element of the columns, again for each block
of outputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import gcd

from saccade.ir import DType
from saccade.kernels.base import In, Launch, Operand, Out, Packed, Packing, Variant
from saccade.kernels.cuda.base import (
    ELEMENTS,
    FLOATS,
    CudaCall,
    CudaKernel,
    Entry,
    element_of,
)
from saccade.kernels.cuda.machine import cached_micros, product_micros
from saccade.kernels.cuda.precision import dot_precision, product_dtype
from saccade.opdefs import DeformConv

__all__ = ["DEFORM_IMPLICIT_GEMM", "DeformGemmConfig"]

_Tile = tuple[int, int, int, int, int]

_INTEGERS = (
    "rows", "p", "q", "h", "wd", "groups", "c", "k", "segment", "shared", "w_r", "w_s", "w_c",
    "w_k", "x_n", "x_c", "x_h", "x_w", "o_n", "o_c", "o_p", "o_q", "m_n", "m_c", "m_p", "m_q",
    "b_k", "y_n", "y_k", "y_p", "y_q",
)  # fmt: skip
_MULTIPLES = (
    "c", "k", "segment", "w_r", "w_s", "w_c", "x_n", "x_c", "x_h", "x_w", "y_n", "y_k", "y_p",
    "y_q",
)  # fmt: skip
# Of float32, as those below.
_TILES: tuple[_Tile, ...] = (
    (64, 128, 32, 8, 2), (64, 64, 32, 8, 2), (32, 128, 32, 8, 2), (32, 64, 32, 8, 2),
    (32, 32, 32, 8, 2), (16, 32, 32, 4, 2),
)  # fmt: skip
_HALF_TILES: tuple[_Tile, ...] = (
    (64, 128, 32, 8, 2), (64, 64, 32, 8, 2), (32, 64, 32, 4, 2), (32, 32, 32, 4, 2),
    (16, 32, 32, 2, 2),
)  # fmt: skip
"""Rows, columns and depth of a block, warps, stages.

No thread samples more than 8 elements at once, of float32 seldom more than 4: their four pixels
each, with addresses, would not fit its registers.
"""
_MOST_WIDE = 64 * 64  # sums of a block of float32 where neighbouring channels are loaded together
_APART, _UNPACKED = 8, 4
"""What channels of x that are no neighbours cost, and weights as PyTorch has them (one H200: 542 to
4 080 µs in float16 and float32 where `columns` took 98 and 461)."""
_DOUBLE_TILES: tuple[_Tile, ...] = ((32, 32, 16, 4, 1), (16, 16, 16, 1, 1))  # of float64


@dataclass(frozen=True)
class DeformGemmConfig:
    """What the code depends on.

    Attributes:
        elements: Of x, the weights, y, the offsets, the mask and the bias; "" for none.
        taps, stride, dilation, padding: Of the window; padding at the top and the left.
        precision: How products of float32 are made, for `tl.dot`.
        tile: Rows, columns and depth of a block, warps, stages.
        last: Whether x's channels are neighbours.
        packed: Whether the weights of a channel are neighbours.
        unit: Whether the result's channels are.
    """

    elements: tuple[str, str, str, str, str, str]
    taps: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    padding: tuple[int, int]
    precision: str
    tile: _Tile
    last: bool
    packed: bool
    unit: bool


def _supports(call: CudaCall) -> str | None:
    views = (*call.inputs, *call.outputs)
    if any(view.dtype not in (*FLOATS, DType.F64) for view in views):
        return "element types"
    if not call.constant[1] and call.inputs[1].dtype is not product_dtype(call):
        return "x and weights of different types"
    if max(view.extent for view in views) >= 1 << 31:
        return "2^31 elements or more"
    return None


def _variants(call: CudaCall) -> Iterator[Variant]:
    timed = [(_micros(call, tile), tile) for tile in _tiles(call)]
    for micros, tile in sorted(timed):
        yield Variant(micros, partial(_launches, call, tile), rounding=tile[2])


def _tiles(call: CudaCall) -> Iterator[_Tile]:
    """Tiles whose blocks fit the registers."""
    tiles = {DType.F32: _TILES, DType.F64: _DOUBLE_TILES}.get(product_dtype(call), _HALF_TILES)
    wide = call.inputs[0].channels_last and tiles is _TILES
    return (tile for tile in tiles if not wide or tile[0] * tile[1] <= _MOST_WIDE)


def _micros(call: CudaCall, tile: _Tile) -> float:
    """The product's and the samples' times, of which blocks overlap little."""
    op: DeformConv = call.op
    x, y = call.inputs[0], call.outputs[0]
    rows, outputs = y.shape[0] * y.shape[2] * y.shape[3], y.shape[1] // op.groups
    taps = call.inputs[1].shape[2] * call.inputs[1].shape[3]
    product = product_micros(call, rows * op.groups, outputs, x.shape[1] // op.groups * taps, tile)
    blocks = -(-outputs // tile[1])
    samples = rows * taps * x.shape[1] * blocks * 4 * x.dtype.itemsize
    # Channels that are no neighbours come one by one, and weights that are not packed.
    apart = 1 if x.channels_last else _APART
    again = 1 if call.constant[1] else _UNPACKED
    sampled = cached_micros(call, apart * samples, -(-rows // tile[0]) * blocks * op.groups)
    return again * product + sampled


def _weights(call: CudaCall) -> tuple[Operand, DType, dict[str, int]]:
    """Constant weights are packed [taps, C', K'] as products take them, others read as they are."""
    w = call.inputs[1]
    k, c, r, s = w.shape
    if not call.constant[1]:
        strides = dict(zip(("w_k", "w_c", "w_r", "w_s"), w.strides, strict=True))
        return In(1), w.dtype, strides
    depth, width, kind = -(-c // 16) * 16, -(-k // 16) * 16, product_dtype(call)
    nbytes = r * s * depth * width * kind.itemsize
    packing = Packing("cuda.taps", (kind.value, depth, width), (1,), nbytes)
    strides = {"w_k": 1, "w_c": width, "w_s": depth * width, "w_r": s * depth * width}
    return Packed(packing), kind, strides


def _launches(call: CudaCall, tile: _Tile) -> tuple[Launch, ...]:
    op: DeformConv = call.op
    x, w, offset = call.inputs[:3]
    y = call.outputs[0]
    n, k, p, q = y.shape
    weights, kind, strides = _weights(call)
    mask_at = len(call.inputs) - 1 if op.mask else 2  # what there is not, is not read
    bias_at = 3 if op.bias else 2
    mask, bias = call.inputs[mask_at], call.inputs[bias_at]
    c, shared = x.shape[1] // op.groups, x.shape[1] // op.offset_groups
    config = DeformGemmConfig(
        (
            element_of(x), ELEMENTS[kind], element_of(y), element_of(offset),
            element_of(mask) if op.mask else "", element_of(bias) if op.bias else "",
        ),
        (w.shape[2], w.shape[3]), op.stride, op.dilation, op.padding[:2], dot_precision(call), tile,
        x.channels_last, strides["w_k"] == 1, y.strides[1] == 1 or k == 1,
    )  # fmt: skip
    outputs = k // op.groups
    integers = {
        "rows": n * p * q, "p": p, "q": q, "h": x.shape[2], "wd": x.shape[3],
        "groups": op.groups, "c": c, "k": outputs, "segment": gcd(c, shared), "shared": shared,
        **strides, **_strides("x", "nchw", x.strides), **_strides("o", "ncpq", offset.strides),
        **_strides("m", "ncpq", mask.strides), "b_k": bias.strides[0],
        **_strides("y", "nkpq", y.strides),
    }  # fmt: skip
    operands = {
        "x": In(0), "w": weights, "offset": In(2), "mask": In(mask_at), "bias": In(bias_at),
        "y": Out(0),
    }  # fmt: skip
    programs = -(-n * p * q // tile[0]) * op.groups * -(-outputs // tile[1])
    return (Launch(config, operands, integers, programs),)


def _strides(prefix: str, axes: str, strides: tuple[int, ...]) -> dict[str, int]:
    return {f"{prefix}_{axis}": stride for axis, stride in zip(axes, strides, strict=True)}


def _entry(config: DeformGemmConfig) -> Entry:
    bm, bn, bk, warps, stages = config.tile
    x, w, y, offset, mask, bias = config.elements
    constants: dict[str, int | float | bool | str] = {
        "R": config.taps[0], "S": config.taps[1],
        "STRIDE_H": config.stride[0], "STRIDE_W": config.stride[1],
        "DILATION_H": config.dilation[0], "DILATION_W": config.dilation[1],
        "PAD_T": config.padding[0], "PAD_L": config.padding[1], "MASK": bool(mask),
        "BIAS": bool(bias), "LAST": config.last, "PACKED": config.packed, "UNIT": config.unit,
        "DOUBLE": x == "fp64", "PRECISION": config.precision, "BM": bm, "BN": bn, "BK": bk,
    }  # fmt: skip
    pointers = (
        ("x", x), ("w", w), ("offset", offset), ("mask", mask or offset), ("bias", bias or offset),
        ("y", y),
    )  # fmt: skip
    return Entry(
        "deform.implicit_gemm_code:deform", pointers, _INTEGERS, constants,
        multiples=_MULTIPLES, warps=warps, stages=stages,
    )  # fmt: skip


DEFORM_IMPLICIT_GEMM = CudaKernel(
    "deform.implicit_gemm", (DeformConv,), DeformGemmConfig, _supports, _variants, _entry
)
