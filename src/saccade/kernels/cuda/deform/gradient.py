"""Gradients of deformable convolution with columns of as many images as stay in the L2 cache.

    cleared, largest: what scales float32 for products of halves
    samples         cell, distances and mask of each (pixel, tap, offset group), once
    starts, listed, records: each cell's samples, in order
    sampled         columns of x, for the weights
    weights         dy times columns, in parts; `add` sums these in order
    columns         Wᵀ·dy, in the place of x's
    slopes          offset and mask: sums over the channels of columns times pixels of x
    gather          x: for each pixel the columns of the samples around it, times their weights
    bias            sums over pixels in parts, which `add` sums, too

Of these those that are wanted. Nothing is summed by atomics but integers, so that all runs give the
same bits: for x there are four reads of each element of the columns (from the L2 cache, mostly) in
place of four atomic sums.

Floor: two products for all gradients, with four pixels of x for each element of the columns in
both, two writes and five reads of columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from saccade.ir import DType
from saccade.kernels.base import Launch, Variant
from saccade.kernels.cuda.base import FLOATS, CudaCall, CudaKernel
from saccade.kernels.cuda.deform.gradient_columns import column_launches
from saccade.kernels.cuda.deform.gradient_config import (
    CudaDeformGradientConfig,
    GradientTile,
    entry_of,
)
from saccade.kernels.cuda.deform.gradient_pieces import GradientPiece, ProductTiles
from saccade.kernels.cuda.deform.gradient_sizes import sizes_of
from saccade.kernels.cuda.deform.gradient_sums import (
    MOST_SPLITS,
    adding_launches,
    sum_launches,
)
from saccade.kernels.cuda.deform.gradient_tables import sampling_launches
from saccade.kernels.cuda.deform.half_products import parts_of
from saccade.kernels.cuda.machine import LAUNCH, cached_micros, product_micros
from saccade.kernels.cuda.refusals import refuse_extents, refuse_repeats
from saccade.opdefs import DeformConvGradient

__all__ = ["DEFORM_GRADIENT"]

# Of 16-bit elements.
_HALF_TILES: tuple[ProductTiles, ...] = (
    ((128, 256, 64, 8, 2), (64, 256, 64, 4, 3)),
    ((128, 64, 64, 4, 3), (64, 128, 64, 4, 3)),
    ((64, 64, 64, 4, 3), (64, 64, 64, 4, 3)),
    ((32, 64, 64, 4, 2), (64, 64, 64, 4, 3)),
    ((16, 32, 32, 1, 2), (32, 32, 32, 2, 2)),
)
# Of float32 in parts.
_PARTED_TILES: tuple[ProductTiles, ...] = (
    ((128, 128, 64, 8, 3), (128, 128, 64, 8, 3)),
    ((128, 128, 32, 8, 3), (128, 128, 32, 8, 4)),
    ((128, 64, 64, 4, 3), (128, 64, 64, 4, 3)),
    ((64, 64, 64, 4, 2), (64, 64, 64, 4, 3)),
    ((32, 64, 32, 4, 2), (64, 32, 32, 4, 2)),
    ((16, 32, 16, 1, 2), (32, 32, 16, 4, 2)),
)
# Of float32 as it is, of float64.
_TILES: tuple[ProductTiles, ...] = (
    ((64, 64, 16, 4, 2), (64, 64, 16, 4, 2)),
    ((32, 64, 16, 4, 2), (64, 32, 16, 4, 2)),
    ((16, 32, 16, 1, 2), (32, 32, 16, 4, 2)),
)
_DOUBLE_TILES: tuple[ProductTiles, ...] = (
    ((32, 32, 16, 4, 1), (32, 32, 16, 4, 1)), ((16, 16, 16, 1, 1), (16, 16, 16, 1, 1)),
)  # fmt: skip


def _supports(call: CudaCall) -> str | None:
    grad, x, weight = call.inputs[:3]
    views = (*call.inputs, *call.outputs)
    if any(view.dtype not in (*FLOATS, DType.F64) for view in views):
        return "element types"
    if not grad.dtype is x.dtype is weight.dtype:
        return "x, weights and the result's gradient of different types"
    sizes = sizes_of(call)
    if not sizes.channels or not call.op.wanted:
        return "no channels" if call.op.wanted else "no gradient is wanted"
    widest = max(piece.channels for piece in sizes.channel_pieces())
    if max(sizes.columns(widest), 4 * sizes.samples * sizes.together) >= 1 << 31:
        return "an image of too many samples"
    repeated = next(filter(None, map(refuse_repeats, call.outputs)), None)
    return repeated or refuse_extents(call)


def _variants(call: CudaCall) -> Iterator[Variant]:
    kind = call.inputs[1].dtype
    tiles = {DType.F32: _TILES, DType.F64: _DOUBLE_TILES}.get(kind, _HALF_TILES)
    tiles = _PARTED_TILES if parts_of(call, kind) else tiles
    if call.target.arch < 90:  # operands are in registers, and less memory is shared
        tiles = tuple((_halved(one), _halved(other)) for one, other in tiles)
    for micros, pair in sorted((_micros(call, pair), pair) for pair in tiles):
        yield Variant(micros, partial(_launches, call, pair), rounding=pair)


def _halved(tile: GradientTile) -> GradientTile:
    rows, columns, depth, warps, stages = tile
    return rows, columns, max(16, depth // 2), warps, min(stages, 3)


def _micros(call: CudaCall, tiles: ProductTiles) -> float:
    """Products, pixels of x from the L2 cache, columns written and read, launches."""
    sizes = sizes_of(call)
    rows, depth = sizes.images * sizes.pixels, sizes.channels * sizes.taps
    groups = sizes.op.groups
    elements = rows * depth * groups
    total = 4 * LAUNCH
    if sizes.spread:
        total += product_micros(call, rows * groups, depth, sizes.outputs, tiles[0])
    if sizes.wants("x"):
        total += 3 * LAUNCH + cached_micros(call, 5 * elements * sizes.x.dtype.itemsize, 1000)
    if sizes.wants("offset", "mask"):
        total += cached_micros(call, 5 * elements * sizes.x.dtype.itemsize, 1000)
    if sizes.wants("weight"):
        blocks = -(-sizes.outputs // tiles[1][0]) * -(-depth // tiles[1][1])
        splits = max(1, min(MOST_SPLITS, 2 * call.target.multiprocessors // max(1, blocks)))
        each = (splits * sizes.outputs * groups, depth, -(-rows // splits))
        total += product_micros(call, *each, tiles[1])
        total += cached_micros(call, 6 * elements * sizes.x.dtype.itemsize, 1000)
    return total


def _launches(call: CudaCall, tiles: ProductTiles) -> tuple[Launch, ...]:
    sizes = sizes_of(call)
    pieces = [GradientPiece(call, sizes, first, count, tiles) for first, count in sizes.batches()]
    return tuple(
        launch
        for piece in pieces
        for launch in (*sampling_launches(piece), *column_launches(piece), *sum_launches(piece))
    ) + tuple(adding_launches(pieces[0]))


DEFORM_GRADIENT = CudaKernel(
    "deform.gradient", (DeformConvGradient,), CudaDeformGradientConfig, _supports, _variants,
    entry_of,
)  # fmt: skip
"""Gradients of deformable convolution: see this module."""
