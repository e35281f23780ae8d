"""Deformable convolution by its columns, of as many images as stay in the L2 cache.

    cleared, largest: what scales float32 for products of halves
    prepare         weights as [tap, output, channel], x with its channels as neighbours
    sampled         columns: where a tap samples is found out once for all channels that share it
    multiplied      columns times weights: sums in parts
    summed          their sums and the bias, as the result lies

The last three for one piece of the images after the other. Each sample is taken once, where
`implicit_gemm` takes it again for each block of outputs. Floor: the product; four pixels of x for
each element of the columns from the L2 cache, which is written and read once more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import ceil

from saccade.backends.cuda.gpus import gpu
from saccade.ir import DType
from saccade.kernels.base import In, Launch, Operand, Temp, Variant, View
from saccade.kernels.cuda.base import ELEMENTS, FLOATS, CudaCall, CudaKernel, element_of
from saccade.kernels.cuda.deform.columns_phases import (
    column_element,
    packed_weights,
    parts_in,
    pixels_last,
    prepared,
    scale_slots,
    strides_of,
    sum_type,
    summed,
)
from saccade.kernels.cuda.deform.gradient_config import (
    CudaDeformGradientConfig,
    GradientTile,
    entry_of,
    phase_launch,
)
from saccade.kernels.cuda.deform.half_products import (
    MASKS,
    PIXELS,
    WEIGHTS,
    scale_launches,
)
from saccade.kernels.cuda.machine import LAUNCH, cached_micros, stream_micros
from saccade.kernels.cuda.precision import dot_precision
from saccade.opdefs import DeformConv

__all__ = ["DEFORM_COLUMNS", "sample_tile"]

_PIECE = 40 << 20  # bytes of columns: most of them stay in the L2 cache
_PARTS = 16 << 20  # bytes of sums in parts
_MOST = 1 << 31  # elements
# Of the samples: pixels and channels of a block, and of the products.
_WIDE_SAMPLES: tuple[GradientTile, ...] = ((8, 256, 0, 4, 1), (8, 128, 0, 4, 1), (8, 64, 0, 4, 1))
_SAMPLES: tuple[GradientTile, ...] = ((16, 128, 0, 4, 1), (16, 64, 0, 4, 1))
_HALF_TILES: tuple[GradientTile, ...] = (
    (128, 256, 64, 8, 3), (128, 128, 64, 8, 4), (128, 64, 64, 4, 4), (64, 128, 64, 4, 4),
    (64, 64, 64, 4, 4), (32, 32, 64, 4, 3),
)  # fmt: skip
_PARTED_TILES: tuple[GradientTile, ...] = (
    (128, 128, 64, 8, 3), (128, 128, 32, 8, 4), (128, 64, 64, 4, 3), (64, 64, 64, 4, 3),
    (32, 32, 32, 4, 3),
)  # fmt: skip
"""Of float32 in parts."""
_TILES: tuple[GradientTile, ...] = ((64, 64, 16, 4, 3), (32, 32, 16, 4, 3))
"""Of float32 as it is."""
# Of float64.
_DOUBLE_TILES: tuple[GradientTile, ...] = ((32, 32, 16, 4, 1), (16, 16, 16, 1, 1))
_SPLITS = (1, 2, 4, 8)  # parts of sums


def _supports(call: CudaCall) -> str | None:
    x, weight = call.inputs[:2]
    views = (*call.inputs, *call.outputs)
    if any(view.dtype not in (*FLOATS, DType.F64) for view in views):
        return "element types"
    if x.dtype is not weight.dtype or x.dtype is not call.outputs[0].dtype:
        return "x, weights and results of different types"
    if max(view.extent for view in views) >= _MOST or _columns(call) >= _MOST:
        return "2^31 elements or more"
    return None


def _columns(call: CudaCall) -> int:
    """Elements of an image's columns."""
    x, weight, y = call.inputs[0], call.inputs[1], call.outputs[0]
    return x.shape[1] * weight.shape[2] * weight.shape[3] * y.shape[2] * y.shape[3]


def _sums_bytes(call: CudaCall, splits: int) -> int:
    """Of parts of a piece's sums."""
    y = call.outputs[0]
    each = y.shape[1] * y.shape[2] * y.shape[3] * sum_type(call).itemsize
    return splits * _together(call) * each


def _together(call: CudaCall) -> int:
    """Images of a piece, all pieces having about as many."""
    x, y = call.inputs[0], call.outputs[0]
    images = x.shape[0]
    each = _columns(call) * x.dtype.itemsize
    each = max(1, each, y.shape[1] * y.shape[2] * y.shape[3] * sum_type(call).itemsize * 2)
    most = max(1, _PIECE // each)
    return max(1, -(-images // max(1, -(-images // most))))


def _variants(call: CudaCall) -> Iterator[Variant]:
    tiles = {DType.F64: _DOUBLE_TILES, DType.F32: _TILES}.get(call.inputs[0].dtype, _HALF_TILES)
    tiles = _PARTED_TILES if parts_in(call) else tiles
    block = sample_tile(call.inputs[0], call.inputs[0].shape[1] // call.op.offset_groups)
    timed = [
        (_micros(call, tile, splits), tile, splits)
        for tile in tiles for splits in _SPLITS if _fits(call, tile, splits)
    ]  # fmt: skip
    for micros, tile, splits in sorted(timed):
        launches = partial(_launches, call, block, tile, splits)
        # How a sum is parted shows in its last bits.
        yield Variant(micros, launches, rounding=(tile[2], splits))


def _fits(call: CudaCall, tile: GradientTile, splits: int) -> bool:
    """Whether sums may come in so many parts: each of some length, all of them in bounded memory.

    With one group of channels only, as sums of several are short.
    """
    weight = call.inputs[1]
    steps = weight.shape[2] * weight.shape[3] * -(-weight.shape[1] // tile[2])
    short = steps < 4 * splits or call.op.groups > 1
    return splits == 1 or (not short and _sums_bytes(call, splits) <= _PARTS)


def sample_tile(x: View, shared: int) -> GradientTile:
    """A block of samples: all channels that have the same offsets, where a block takes so many."""
    tiles = _SAMPLES if x.dtype.itemsize == 2 else _WIDE_SAMPLES
    return next(tile for tile in tiles if tile[1] <= max(64, 2 * shared - 1))


def _micros(call: CudaCall, tile: GradientTile, splits: int) -> float:
    """Copies, samples from the L2 cache, columns written and read, products, launches."""
    op: DeformConv = call.op
    x, weight, y = call.inputs[0], call.inputs[1], call.outputs[0]
    rows, outputs = y.shape[0] * y.shape[2] * y.shape[3], y.shape[1] // op.groups
    depth = x.shape[1] // op.groups * weight.shape[2] * weight.shape[3]
    pieces = -(-x.shape[0] // _together(call))
    columns = rows * depth * op.groups * x.dtype.itemsize
    copied = 0.0 if x.channels_last else stream_micros(call, 2 * x.nbytes)
    sizes = (-(-rows // pieces), outputs, depth)
    return (
        copied + stream_micros(call, 2 * weight.nbytes) + cached_micros(call, 5 * columns, 1000)
        + pieces * (2 * LAUNCH + _product_micros(call, sizes, tile, splits))
    )  # fmt: skip


def _product_micros(
    call: CudaCall, sizes: tuple[int, int, int], tile: GradientTile, splits: int
) -> float:
    """Of a piece's product: what its blocks read from the L2 cache, or its operations; parts."""
    op: DeformConv = call.op
    machine, dtype = gpu(call.target.machine), call.inputs[0].dtype
    rows, outputs, depth = sizes
    depth = -(-depth // splits)
    programs = -(-rows // tile[0]) * -(-outputs // tile[1]) * op.groups * splits
    waves = ceil(programs / machine.multiprocessors)
    full = waves * machine.multiprocessors
    read = cached_micros(call, full * (tile[0] + tile[1]) * depth * dtype.itemsize, full)
    plain = {DType.F64: machine.flops / 2, DType.F32: machine.matrix_flops / 2}
    parted = parts_in(call)
    rate = machine.matrix_flops if parted else plain.get(dtype, machine.matrix_flops)
    times = 2 * parted - 1 if parted else 1
    busy = waves * times * 2 * tile[0] * tile[1] * depth * machine.multiprocessors / rate
    added = LAUNCH + cached_micros(call, 2 * splits * 4 * rows * outputs * op.groups, 1000)
    # Few warps of a multiprocessor leave its matrix unit idle while they wait.
    alone = 1.7 if programs * tile[3] < 8 * machine.multiprocessors else 1.0
    # Small blocks wait more for what they multiply: fitted to nine tiles of one H200.
    fill: float = min(1.0, tile[0] * tile[1] / (128 * 256)) ** 0.2
    return max(alone * read, 2 * busy / fill) + added


def _launches(
    call: CudaCall, block: GradientTile, tile: GradientTile, splits: int
) -> tuple[Launch, ...]:
    x, y = call.inputs[0], call.outputs[0]
    source, view = pixels_last(x)
    launches: list[Launch] = []
    if parts_in(call):
        launches += _scaled(call)
    launches.append(prepared(call, source if view is not x else packed_weights(call)))
    step = _together(call)
    for first in range(0, x.shape[0], step):
        images = min(step, x.shape[0] - first)
        piece = _ColumnsPiece(call, tile, splits, first, images * y.shape[2] * y.shape[3])
        launches.append(_sampled(piece, (source, view), block))
        launches.append(_multiplied(piece))
        launches.append(summed(piece.call, piece.sums, piece.splits, piece.first, piece.rows))
    return tuple(launches)


def _scaled(call: CudaCall) -> Iterator[Launch]:
    views: dict[int, tuple[Operand, View]] = {
        PIXELS: (In(0), call.inputs[0]), WEIGHTS: (In(1), call.inputs[1]),
    }  # fmt: skip
    if call.op.mask:
        views[MASKS] = (In(len(call.inputs) - 1), call.inputs[-1])
    return scale_launches(scale_slots(), views)


@dataclass(frozen=True, slots=True)
class _ColumnsPiece:
    """Some images: the first, and how many pixels of the result they have."""

    call: CudaCall
    tile: GradientTile
    splits: int
    first: int
    rows: int

    @property
    def kept(self) -> Temp:
        """The columns."""
        call = self.call
        return Temp(2, max(16, _together(call) * _columns(call) * call.inputs[0].dtype.itemsize))

    @property
    def plane(self) -> int:
        """Elements of one part of them."""
        return _together(self.call) * _columns(self.call)

    @property
    def sums(self) -> Temp:
        """Parts of the result's sums."""
        return Temp(4, max(16, _sums_bytes(self.call, self.splits)))


def _sampled(piece: _ColumnsPiece, source: tuple[Operand, View], block: GradientTile) -> Launch:
    call, (x, view) = piece.call, source
    op: DeformConv = call.op
    weight, offset, y = call.inputs[1], call.inputs[2], call.outputs[0]
    at = len(call.inputs) - 1 if op.mask else 2  # what there is not, is not read
    mask = call.inputs[at]
    config = CudaDeformGradientConfig(
        "sampled",
        (element_of(view), element_of(offset), element_of(mask), "i32", column_element(call)),
        block, (op.mask, view.dtype is DType.F64), parts_in(call),
        (weight.shape[2], weight.shape[3]),
        (*op.stride, *op.dilation, op.padding[0], op.padding[1]),
    )  # fmt: skip
    shared = view.shape[1] // op.offset_groups
    integers = {
        "pixels": piece.rows, "first_image": piece.first, "x_image": piece.first,
        "p": y.shape[2], "q": y.shape[3], "h": view.shape[2], "wd": view.shape[3],
        "offset_groups": op.offset_groups, "shared": shared, "first_channel": 0,
        "channels": shared, "plane": piece.plane,
        "x_n": view.strides[0], "x_h": view.strides[2], "x_w": view.strides[3],
        **strides_of("o", "ncpq", offset), **strides_of("m", "ncpq", mask),
    }  # fmt: skip
    taps = weight.shape[2] * weight.shape[3]
    operands: dict[str, Operand] = {
        "x": x, "offset": In(2), "mask": In(at), "slots": scale_slots(), "kept": piece.kept,
    }  # fmt: skip
    programs = -(-piece.rows // block[0]) * taps * op.offset_groups
    return phase_launch(config, operands, integers, programs)


def _multiplied(piece: _ColumnsPiece) -> Launch:
    call, tile = piece.call, piece.tile
    op: DeformConv = call.op
    x, weight, y = call.inputs[0], call.inputs[1], call.outputs[0]
    element = column_element(call)
    config = CudaDeformGradientConfig(
        "multiplied", (element, element, "i32", ELEMENTS[sum_type(call)]), tile,
        (x.dtype is DType.F64, op.mask), parts_in(call), (weight.shape[2], weight.shape[3]),
        precision=dot_precision(call),
    )  # fmt: skip
    outputs = y.shape[1] // op.groups
    integers = {
        "pixels": piece.rows, "groups": op.groups, "c": x.shape[1] // op.groups, "k": outputs,
        "splits": piece.splits, "plane": piece.plane,
    }  # fmt: skip
    operands: dict[str, Operand] = {
        "kept": piece.kept, "w": packed_weights(call), "slots": scale_slots(), "parts": piece.sums,
    }  # fmt: skip
    programs = -(-piece.rows // tile[0]) * op.groups * -(-outputs // tile[1]) * piece.splits
    return phase_launch(config, operands, integers, programs)


DEFORM_COLUMNS = CudaKernel(
    "deform.columns", (DeformConv,), CudaDeformGradientConfig, _supports, _variants, entry_of
)
