"""Convolution of up to four channels on Hopper, in two launches: stems of networks for images.

The image is first written as `conv2d.row_taps` has it: [N, H', W', 4], zeros around it. The taps of
a row are neighbours there, so that an image whose pixels are such rows of taps, overlapping, is
what a window of one column is moved over by `conv2d.hopper_rows`: rows of input stay in shared
memory for all their taps, the weights as long as a program runs. Behind the last tap of a row TMA
fills in zeros, so that no other pixel meets a weight. Floor: the bytes of x, of the image twice,
and of the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import ceil

from saccade.backends.cuda.gpus import gpu
from saccade.ir import DType
from saccade.kernels.base import Launch, Packed, Packing, Temp, Variant, View, per_call
from saccade.kernels.cuda.base import CudaCall, CudaKernel, Entry
from saccade.kernels.cuda.conv2d.fused_operands import packed_block
from saccade.kernels.cuda.conv2d.hopper import unaligned
from saccade.kernels.cuda.conv2d.hopper_rows import (
    HopperRowsConfig,
    RowsTile,
    asked_rows,
    rows_entry,
    rows_launch,
    rows_micros,
    rows_tiles,
)
from saccade.kernels.cuda.conv2d.row_taps import (
    CONV2D_ROW_TAPS,
    PIXEL,
    RowTapsConfig,
    image_bytes,
    image_of,
    row_taps_entry,
    spread_launch,
)
from saccade.kernels.cuda.conv2d.window_config import sums_of
from saccade.kernels.cuda.machine import LAUNCH, stream_micros
from saccade.kernels.cuda.precision import product_dtype
from saccade.opdefs import Conv2d, InterleaveStore

__all__ = ["CONV2D_HOPPER_STEM", "HopperStemConfig"]

_VECTOR = 8  # elements of 16 bytes: what tensor maps count distances in

_ASKED = 3.25e-3
"""Microseconds of a multiprocessor until TMA has a window's row of taps: within 10% on one H100 for
five tiles of ResNet-50's stem (batch 128), whose rows have 64 bytes."""


@dataclass(frozen=True)
class HopperStemConfig:
    """What the code depends on: of the image's launch, or of the sums'.

    Attributes:
        spread: Of the first launch.
        sums: Of the second.
    """

    spread: RowTapsConfig | None = None
    sums: HopperRowsConfig | None = None


def _supports(call: CudaCall) -> str | None:
    if call.target.arch != 90:
        return f"sm_{call.target.arch}"
    reason = CONV2D_ROW_TAPS.supports(call)
    if reason is not None:
        return reason
    op: Conv2d = call.op
    k, _, r, _ = call.inputs[1].shape
    y = call.outputs[0]
    if product_dtype(call) not in (DType.F16, DType.BF16) or y.dtype is not product_dtype(call):
        return "element types"
    if isinstance(op.store, InterleaveStore):
        return "an interleaving store"
    if op.stride[1] * PIXEL % _VECTOR or op.stride[0] > r or op.dilation[0] != 1:
        return f"strides {op.stride}, dilations {op.dilation}"
    if k % _VECTOR or y.shape[1] % _VECTOR:
        return f"{k} filters, {y.shape[1]} channels of the result"
    if 0 in y.shape or y.strides[1] != 1:
        return "not channels-last"
    return unaligned(y) or (
        None if rows_tiles(_by_rows(call)) else "weights do not fit shared memory"
    )


@per_call
def _by_rows(call: CudaCall) -> CudaCall:
    """The same sums of the image's rows of taps: a window of one column over overlapping pixels."""
    op: Conv2d = call.op
    w = call.inputs[1]
    n, _, _, q = sums_of(call)
    down, across = image_of(call)
    (k, _, r, s), kind = w.shape, product_dtype(call)
    steps = (down * across * PIXEL, 1, across * PIXEL, op.stride[1] * PIXEL)
    rows = View(kind, (n, s * PIXEL, down, q), steps)
    weights = View(kind, (k, s * PIXEL, r, 1), (s * PIXEL * r, r, 1, 1))
    plain = replace(op, stride=(op.stride[0], 1), padding=(0, 0, 0, 0), dilation=(1, 1))
    return replace(call, op=plain, inputs=(rows, weights, *call.inputs[2:]))


def _variants(call: CudaCall) -> Iterator[Variant]:
    rows = _by_rows(call)
    before = stream_micros(call, call.inputs[0].nbytes + image_bytes(call))
    timed = ((_micros(rows, tile), i, tile) for i, tile in enumerate(rows_tiles(rows)))
    for micros, _, tile in sorted(timed):
        yield Variant(before + micros, partial(_launches, call, tile), tile.depth)


def _micros(rows: CudaCall, tile: RowsTile) -> float:
    """As any image's rows; or what TMA takes for windows of a pixel each."""
    asked, tiles = asked_rows(rows, tile)
    turns = ceil(tiles / gpu(rows.target.machine).multiprocessors)
    return max(rows_micros(rows, tile), LAUNCH + turns * asked * tile.pixels * _ASKED)


def _launches(call: CudaCall, tile: RowsTile) -> tuple[Launch, ...]:
    spread, sums = spread_launch(call), rows_launch(_by_rows(call), tile)
    k, _, r, _ = call.inputs[1].shape
    kind = product_dtype(call)
    assert isinstance(spread.config, RowTapsConfig) and isinstance(sums.config, HopperRowsConfig)
    packing = Packing(
        "cuda.filter_rows", (kind.value, tile.depth, *packed_block(call)), (1,),
        k * r * tile.depth * kind.itemsize,
    )  # fmt: skip
    operands = {**sums.operands, "x": Temp(0, image_bytes(call)), "w": Packed(packing)}
    return (
        replace(spread, config=HopperStemConfig(spread=spread.config)),
        replace(sums, config=HopperStemConfig(sums=sums.config), operands=operands),
    )


def _entry(config: HopperStemConfig) -> Entry:
    if config.spread is not None:
        return row_taps_entry(config.spread)
    assert config.sums is not None
    return rows_entry(config.sums)


CONV2D_HOPPER_STEM = CudaKernel(
    "conv2d.hopper_stem", (Conv2d,), HopperStemConfig, _supports, _variants, _entry
)
