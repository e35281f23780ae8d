"""Convolution as a matrix product that is never laid out: pixels times taps and channels.

The large and middle layers of a network, on the matrix units, whatever the taps, strides, dilations
and paddings; with the whole epilogue, and DepthToSpace by where it stores.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from saccade.ir.expr import IDENTITY
from saccade.kernels.base import In, Launch, Out, Packed, Packing, Variant
from saccade.kernels.cuda.base import ELEMENTS, FLOATS, CudaCall, CudaKernel, Entry, element_of
from saccade.kernels.cuda.epilogue import (
    EpilogueCode,
    epilogue_of,
    integers_of,
    pointers_of,
    source_of,
)
from saccade.kernels.cuda.machine import product_micros
from saccade.kernels.cuda.precision import dot_precision, product_dtype
from saccade.opdefs import Conv2d, DepthToSpaceStore, InterleaveStore

__all__ = ["CONV2D_IMPLICIT_GEMM", "ImplicitGemmConfig", "sums_of"]

_INTEGERS = (
    "n", "h", "wd", "c", "k", "p", "q", "c_padded", "k_padded", "x_n", "x_h", "x_w", "channels",
    "y_n", "y_k", "y_p", "y_q",
)  # fmt: skip
_MULTIPLES = ("c", "k", "c_padded", "k_padded", "x_n", "x_h", "x_w", "y_n", "y_p", "y_q")
_LEAST_CHANNELS = 8  # fewer leave most of a step of the matrix units empty: `few_channels`
_TILES = (
    (128, 256, 64, 8, 3), (128, 128, 64, 8, 3), (128, 64, 64, 4, 4), (64, 128, 64, 4, 4),
    (64, 64, 64, 4, 4), (64, 32, 64, 4, 5), (32, 64, 64, 4, 5), (32, 32, 64, 4, 5),
    (16, 32, 128, 4, 4),
)  # fmt: skip
"""Rows, columns and depth of a block, warps, stages."""


@dataclass(frozen=True)
class ImplicitGemmConfig:
    """What the code depends on.

    Attributes:
        elements: Of x, of the weights and all products, of y.
        taps, stride, dilation, padding: Of the window; padding at the top and the left.
        precision: How products of float32 are made, for `tl.dot`.
        tile: Rows, columns and depth of a block, warps, stages.
        unit: Whether the result's channels are neighbours.
        block, crd: Of DepthToSpace; 1 for a plain store.
        epilogue: See `epilogue.BlockEpilogue.code`.
    """

    elements: tuple[str, str, str]
    taps: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    padding: tuple[int, int]
    precision: str
    tile: tuple[int, int, int, int, int]
    unit: bool
    block: int
    crd: bool
    epilogue: EpilogueCode


def _supports(call: CudaCall) -> str | None:
    op: Conv2d = call.op
    x, w, y = call.inputs[0], call.inputs[1], call.outputs[0]
    if op.groups != 1:
        return f"{op.groups} groups"
    if op.prologue != IDENTITY:
        return "a prologue"
    if isinstance(op.store, InterleaveStore):
        return "an interleaving store"
    if not call.constant[1]:
        return "weights are no constant"
    if any(view.dtype not in FLOATS for view in (*call.inputs, y)):
        return "element types"
    if x.strides[1] != 1 and x.shape[1] > 1:
        return "x is not channels-last"
    if w.shape[1] < _LEAST_CHANNELS:
        return f"{w.shape[1]} input channels"
    return None


def sums_of(call: CudaCall) -> tuple[int, int, int, int]:
    """[N, K, P, Q], the shape of the sums."""
    op: Conv2d = call.op
    n, k, p, q = op.sum_shape(call.inputs[0].shape, call.inputs[1].shape)
    assert isinstance(n, int) and isinstance(k, int) and isinstance(p, int) and isinstance(q, int)
    return n, k, p, q


def _variants(call: CudaCall) -> Iterator[Variant]:
    n, k, p, q = sums_of(call)
    depth = call.inputs[1].size // max(1, k)
    timed = [(product_micros(call, n * p * q, k, depth, tile), tile) for tile in _TILES]
    for micros, tile in sorted(timed):
        yield Variant(micros, partial(_launches, call, tile), rounding=tile[2])


def _launches(call: CudaCall, tile: tuple[int, int, int, int, int]) -> tuple[Launch, ...]:
    op: Conv2d = call.op
    x, w, y = call.inputs[0], call.inputs[1], call.outputs[0]
    n, k, p, q = sums_of(call)
    c, r, s = w.shape[1:]
    store = op.store if isinstance(op.store, DepthToSpaceStore) else DepthToSpaceStore(1)
    epilogue = epilogue_of(call, op.epilogue, 2, (n, k, p, q))
    kind = product_dtype(call)
    c_padded, k_padded = -(-c // 16) * 16, -(-k // 16) * 16
    config = ImplicitGemmConfig(
        (element_of(x), ELEMENTS[kind], element_of(y)),
        (r, s), op.stride, op.dilation, op.padding[:2],
        dot_precision(call), tile, y.strides[1] == 1 or y.shape[1] == 1,
        store.block, store.mode == "CRD", epilogue.code,
    )  # fmt: skip
    nbytes = r * s * c_padded * k_padded * kind.itemsize
    weights = Packing("cuda.taps", (kind.value, c_padded, k_padded), (1,), nbytes)
    integers = {
        "n": n, "h": x.shape[2], "wd": x.shape[3], "c": c, "k": k, "p": p, "q": q,
        "c_padded": c_padded, "k_padded": k_padded,
        "x_n": x.strides[0], "x_h": x.strides[2], "x_w": x.strides[3],
        "channels": y.shape[1], "y_n": y.strides[0], "y_k": y.strides[1],
        "y_p": y.strides[2], "y_q": y.strides[3], **epilogue.integers,
    }  # fmt: skip
    operands = {"x": In(0), "w": Packed(weights), "y": Out(0), **epilogue.operands}
    programs = -(-n * p * q // tile[0]) * -(-k // tile[1])
    return (Launch(config, operands, integers, programs),)


def _entry(config: ImplicitGemmConfig) -> Entry:
    bm, bn, bk, warps, stages = config.tile
    kind, weights, result = config.elements
    constants: dict[str, int | str] = {
        "R": config.taps[0], "S": config.taps[1],
        "STRIDE_H": config.stride[0], "STRIDE_W": config.stride[1],
        "DILATION_H": config.dilation[0], "DILATION_W": config.dilation[1],
        "PAD_T": config.padding[0], "PAD_L": config.padding[1], "PRECISION": config.precision,
        "BM": bm, "BN": bn, "BK": bk, "UNIT": config.unit, "BLOCK": config.block,
        "CRD": config.crd,
    }  # fmt: skip
    return Entry(
        "conv2d.implicit_gemm_code:convolve",
        (("x", kind), ("w", weights), ("y", result)),
        _INTEGERS,
        constants,
        {"EPILOGUE": source_of(config.epilogue)},
        pointers_of(config.epilogue),
        integers_of(config.epilogue),
        _MULTIPLES,
        warps,
        stages,
    )


CONV2D_IMPLICIT_GEMM = CudaKernel(
    "conv2d.implicit_gemm", (Conv2d,), ImplicitGemmConfig, _supports, _variants, _entry
)
