"""What implicit GEMM depends on and is launched with, for the kernels that sum by it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from math import gcd

from saccade.kernels.base import In, Operand, Packed, Packing, interned
from saccade.kernels.cuda.base import ELEMENTS, CudaCall, element_of
from saccade.kernels.cuda.conv2d.fused_operands import (
    PLAIN,
    FusedConfig,
    packed_block,
    stored_vector,
)
from saccade.kernels.cuda.conv2d.window_config import (
    WindowConfig,
    channels_of,
    excess_of,
    sums_of,
    weights_unit,
    window_of,
)
from saccade.kernels.cuda.precision import dot_precision, product_dtype
from saccade.opdefs import Conv2d, ConvTranspose2d

__all__ = [
    "MULTIPLES", "SUMMED", "WEIGHTS", "ImplicitGemmConfig", "Tile", "Weights", "config_of",
    "rounding_of", "summed", "tiles_of", "vector", "weights_of",
]  # fmt: skip

Tile = tuple[int, int, int, int, int]
"""Rows, columns and depth of a block, warps, stages."""

WEIGHTS = ("w_g", "w_r", "w_s", "w_c", "w_k")
SUMMED = ("n", "h", "wd", "c", "k", "p", "q", "columns", "x_n", "x_c", "x_h", "x_w", *WEIGHTS)
"""Integers of the sums; see `implicit_gemm_code`."""
MULTIPLES = ("columns", *WEIGHTS)
# Rows, columns and depth of a block, warps, stages.
_TILES: tuple[Tile, ...] = (
    (128, 256, 64, 8, 3), (256, 128, 64, 8, 3), (128, 128, 64, 8, 3), (128, 64, 64, 4, 4),
    (64, 128, 64, 4, 4), (64, 64, 64, 4, 4), (128, 32, 64, 4, 4), (64, 32, 64, 4, 5),
    (32, 64, 64, 4, 5), (32, 32, 64, 4, 5), (128, 16, 64, 4, 4), (16, 32, 128, 4, 4),
)  # fmt: skip
_WARP_GROUP = 64  # rows of the products of four warps together
_LEAST = 16  # of any edge of a block on the matrix units


@dataclass(frozen=True)
class ImplicitGemmConfig:
    """What the code depends on.

    Attributes:
        elements: Of x, the weights and y.
        window: The window.
        precision: How products of float32 are made, for `tl.dot`.
        tile: Rows, columns and depth of a block, warps, stages.
        group: Row blocks that go together from column to column.
        taps_inner: Whether steps go through the taps first, then through the channels.
        units: Whether the channels of x are neighbours, and the axis along which weights are.
        even: Whether blocks of channels and of columns are whole.
        vectors: What the strides of x and of y are multiples of.
        fused: Prologue, epilogue, where results go.
    """

    elements: tuple[str, str, str]
    window: WindowConfig
    precision: str
    tile: Tile
    group: int = 1
    taps_inner: bool = False
    units: tuple[bool, str] = (True, "k")
    even: tuple[bool, bool] = (False, False)
    vectors: tuple[int, int] = (1, 1)
    fused: FusedConfig = field(default=PLAIN)

    def constants(self) -> dict[str, int | str]:
        """For `Entry.constants`, of the sums."""
        bm, bn, bk, _, _ = self.tile
        return {
            **self.window.constants(), "PRECISION": self.precision, "BM": bm, "BN": bn, "BK": bk,
            "GROUP": self.group, "TAPS_INNER": self.taps_inner, "X_UNIT": self.units[0],
            "W_UNIT": self.units[1], "EVEN_C": self.even[0], "EVEN_K": self.even[1],
            "X_VEC": self.vectors[0],
        }  # fmt: skip


_config = interned(ImplicitGemmConfig)


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of a call as implicit GEMM reads them.

    Attributes:
        operand: For the launch.
        element: Their element type.
        unit: The axis along which neighbours lie side by side: k, c or none.
        columns: How many columns of a group may be read.
        integers: `WEIGHTS` and `columns`.
    """

    operand: Operand
    element: str
    unit: str
    columns: int
    integers: dict[str, int]


def weights_of(call: CudaCall) -> Weights:
    """Packed [groups, R, S, C', K'] where they are constant, else as they are."""
    op: Conv2d | ConvTranspose2d = call.op
    x, w = call.inputs[:2]
    transposed = isinstance(op, ConvTranspose2d)
    r, s = w.shape[2:]
    c = x.shape[1] // op.groups
    k = sums_of(call)[1] // op.groups
    if call.constant[1]:
        c_padded, k_padded, kind = _padded(c), _padded(k), product_dtype(call)
        steps = (r * s * c_padded * k_padded, s * c_padded * k_padded, c_padded * k_padded)
        packing = Packing(
            "cuda.transposed_taps" if transposed else "cuda.taps",
            (kind.value, c_padded, k_padded, op.groups, *packed_block(call)), (1,),
            op.groups * steps[0] * kind.itemsize,
        )  # fmt: skip
        integers = dict(zip(WEIGHTS, (*steps, k_padded, 1), strict=True))
        return Weights(
            Packed(packing), ELEMENTS[kind], "k", k_padded, {**integers, "columns": k_padded}
        )
    outer, inner, w_r, w_s = w.strides
    w_c, w_k = (outer, inner) if transposed else (inner, outer)
    places = (c * w_c if transposed else k * w_k, w_r, w_s, w_c, w_k)
    unit = weights_unit(call)
    if transposed:
        # `weights_unit` names axes as of [K, C]; these weights are [C, K].
        unit = {"c": "k", "k": "c", "": ""}[unit]
    integers = dict(zip(WEIGHTS, places, strict=True))
    return Weights(In(1), element_of(w), unit, k, {**integers, "columns": k})


def config_of(
    call: CudaCall, tile: Tile, weights: Weights, fused: FusedConfig,
    *, group: int = 1, taps_inner: bool = False,
) -> ImplicitGemmConfig:  # fmt: skip
    """The config of a call for a tile."""
    x, y = call.inputs[0], call.outputs[0]
    c, k = channels_of(call), sums_of(call)[1] // call.op.groups
    return _config(
        (element_of(x), weights.element, element_of(y)), window_of(call), dot_precision(call),
        tile, group, taps_inner, (x.strides[1] == 1 or x.shape[1] == 1, weights.unit),
        (c % tile[2] == 0, weights.columns % tile[1] == 0 and k == weights.columns),
        (_x_vector(call), stored_vector(call, k)), fused,
    )  # fmt: skip


def summed(call: CudaCall, weights: Weights) -> dict[str, int]:
    """`SUMMED` for a call, divided as the config says."""
    x = call.inputs[0]
    n, k, p, q = sums_of(call)
    groups, by_x = call.op.groups, _x_vector(call)
    by_y = stored_vector(call, k // groups)
    return {
        "n": n, "h": x.shape[2], "wd": x.shape[3], "c": channels_of(call) // by_x,
        "k": (k // groups + excess_of(call)) // by_y, "p": p, "q": q,
        "x_n": x.strides[0] // by_x, "x_c": x.strides[1], "x_h": x.strides[2] // by_x,
        "x_w": x.strides[3] // by_x, **weights.integers,
    }  # fmt: skip


def _x_vector(call: CudaCall) -> int:
    x = call.inputs[0]
    return vector(channels_of(call), x.strides[0], *x.strides[2:])


def vector(*counts: int) -> int:
    """The largest power of two up to 8 that they are all multiples of."""
    return gcd(8, *counts)


def tiles_of(call: CudaCall, channels: int, columns: int) -> tuple[Tile, ...]:
    """Tiles for products of so many channels and columns that shared memory has room for."""
    return _fitting(product_dtype(call).itemsize, channels, columns, call.target.shared)


@lru_cache(maxsize=1024)
def _fitting(size: int, channels: int, columns: int, shared: int) -> tuple[Tile, ...]:
    """The same for elements of so many bytes."""
    deepest = max(_LEAST, 1 << max(0, channels - 1).bit_length())
    widest = max(_LEAST, 1 << max(0, columns - 1).bit_length())
    found = dict[Tile, None]()
    for bm, bn, bk, warps, stages in _TILES:
        # float32 has half as many elements in as many bytes.
        depth = min(bk * 2 // size, deepest)
        # Its products may be three, whose parts take registers: smaller blocks, more warps.
        more = 2 if size == 4 and bm * bn == 128 * 64 else 1
        tile = (bm, min(bn, widest), depth, warps * more, stages)
        fits = stages * (bm + tile[1]) * depth * size <= shared
        if fits and (size < 4 or bm * tile[1] <= 128 * 128):
            found[tile] = None
    return tuple(found)


def rounding_of(tile: Tile) -> tuple[int, bool]:
    """What the bits of a sum depend on: the depth of steps, and whether warp groups multiply."""
    return tile[2], tile[0] >= _WARP_GROUP


def _padded(n: int) -> int:
    return -(-n // 16) * 16
