"""Deformable convolution on Hopper: samples become the products' operand where they are taken.

    arranged  where x is sampled, weights in the products' order, x with its channels as neighbours
    fused     samples times weights: sums in parts
    summed    their sums and the bias, as the result lies

For float16 and bfloat16, one group, and blocks of 64 channels that have the same offsets. Floor:
the products; four pixels of x for each sample from the L1 cache, which a block of pixels has most
of its own in, as all taps of a block of channels come one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import ceil

from saccade.ir import DType
from saccade.kernels.base import In, Launch, Operand, Temp, Variant, View
from saccade.kernels.cuda.base import CudaCall, CudaKernel, element_of
from saccade.kernels.cuda.deform.columns_phases import (
    pixels_last,
    strides_of,
    summed,
)
from saccade.kernels.cuda.deform.gradient_config import (
    PREPARING,
    CudaDeformGradientConfig,
    GradientTile,
    copying_programs,
    entry_of,
    packing_programs,
    phase_launch,
)
from saccade.kernels.cuda.machine import LAUNCH, cached_micros, stream_micros
from saccade.opdefs import DeformConv

__all__ = ["DEFORM_HOPPER"]

_PIXELS, _CHANNELS = 128, 64
"""Of a block; of a step."""
_STAGES = 3  # steps whose weights are in shared memory, or on their way
# Pixels, outputs and channels of a block, warps, stages.
_TILES: tuple[GradientTile, ...] = tuple(
    (_PIXELS, outputs, _CHANNELS, 4, _STAGES) for outputs in (256, 128, 64)
)
_SHARES = (1, 2, 3, 4, 6, 8)  # parts of the channels that have the same offsets
_GROUPS = 8  # of offsets: the sums of each are parts of their own
_SUMS = 32 << 20  # bytes of sums in parts: they stay in the L2 cache
_SQUARE = 2 * 4 * 4  # bytes of four places and their weights
_SPARE = 2 << 10  # bytes of shared memory for barriers and alignment
_MOST = 1 << 31  # elements
_BEGIN, _STEP, _END = 10.3, 0.82, 2.2
"""Microseconds of a program on an H200, with 256 outputs."""


def _supports(call: CudaCall) -> str | None:
    if call.target.arch != 90:
        return f"sm_{call.target.arch}"
    x, weight, y = call.inputs[0], call.inputs[1], call.outputs[0]
    op: DeformConv = call.op
    views = (*call.inputs, *call.outputs)
    if {view.dtype for view in views} not in ({DType.F16}, {DType.BF16}):
        return "element types"
    groups, shared = op.offset_groups, x.shape[1] // op.offset_groups
    if op.groups > 1 or x.shape[1] == 0 or x.shape[1] % _CHANNELS or shared % _CHANNELS:
        return f"{op.groups} groups of {x.shape[1]} channels, {shared} with the same offsets"
    if groups > _GROUPS:
        return f"{groups} offset groups"
    if any(step % 8 for step in _last_strides(call)):
        return "pixels of x that do not begin at multiples of 16 bytes"
    squares = _rows(call) * _taps(call) * groups * _SQUARE // 4
    if max(squares, *(view.extent for view in views)) >= _MOST:
        return "2^31 elements or more"
    if weight.size == 0 or y.size == 0 or not any(_fits(call, tile) for tile in _TILES):
        return f"{_taps(call)} taps of {y.shape[1]} outputs"
    return None


def _last_strides(call: CudaCall) -> tuple[int, ...]:
    """Of x's images, rows and pixels, where its channels are neighbours."""
    n, _, h, w = pixels_last(call.inputs[0])[1].strides
    return n, h, w


def _taps(call: CudaCall) -> int:
    return call.inputs[1].shape[2] * call.inputs[1].shape[3]


def _fits(call: CudaCall, tile: GradientTile) -> bool:
    """Whether a program's weights and squares have room in shared memory."""
    weights = 2 * tile[1] * tile[2] * tile[4]
    return weights + tile[0] * _taps(call) * _SQUARE + _SPARE <= call.target.shared


def _rows(call: CudaCall) -> int:
    """Pixels that there are squares of: a last block goes beyond them."""
    y = call.outputs[0]
    return -(-(y.shape[0] * y.shape[2] * y.shape[3] + _PIXELS - 1) // _PIXELS) * _PIXELS


def _variants(call: CudaCall) -> Iterator[Variant]:
    blocks = call.inputs[0].shape[1] // call.op.offset_groups // _CHANNELS
    timed = [
        (_micros(call, tile, shares), tile, shares)
        for tile in _TILES if _fits(call, tile)
        for shares in _SHARES if -(-blocks // -(-blocks // shares)) == shares
    ]  # fmt: skip
    for micros, tile, shares in sorted(timed):
        # How a sum is parted shows in its last bits.
        yield Variant(micros, partial(_launches, call, tile, shares), rounding=shares)


def _micros(call: CudaCall, tile: GradientTile, shares: int) -> float:
    """Copies; programs, one a multiprocessor; sums in parts written and read; launches."""
    op: DeformConv = call.op
    x, weight, y = call.inputs[0], call.inputs[1], call.outputs[0]
    rows = y.shape[0] * y.shape[2] * y.shape[3]
    splits, blocks = shares * op.offset_groups, x.shape[1] // op.offset_groups // tile[2]
    programs = -(-rows // tile[0]) * -(-y.shape[1] // tile[1]) * splits
    steps = -(-blocks // shares) * _taps(call)
    # Few outputs leave what samples take, which is as long for all.
    turn = _BEGIN + steps * _STEP * max(0.8, tile[1] / 256) + _END * tile[1] / 256
    copied = 0.0 if x.channels_last else stream_micros(call, 2 * x.nbytes)
    squares = stream_micros(call, _rows(call) * _taps(call) * op.offset_groups * _SQUARE)
    return (
        copied + squares + stream_micros(call, 2 * weight.nbytes)
        + ceil(programs / call.target.multiprocessors) * turn
        + 2 * LAUNCH + cached_micros(call, 2 * 4 * splits * rows * y.shape[1], 1000)
    )  # fmt: skip


def _launches(call: CudaCall, tile: GradientTile, shares: int) -> tuple[Launch, ...]:
    y = call.outputs[0]
    splits, pixels = shares * call.op.offset_groups, y.shape[2] * y.shape[3]
    each = 4 * splits * y.shape[1] * pixels
    step = max(1, min(y.shape[0], _SUMS // each))
    sums = Temp(4, step * each)
    launches = [_arranged(call, tile)]
    for first in range(0, y.shape[0], step):
        rows = min(step, y.shape[0] - first) * pixels
        launches.append(_fused(call, tile, shares, sums, (first * pixels, rows)))
        launches.append(summed(call, sums, splits, first, rows))
    return tuple(launches)


def _padded(call: CudaCall, tile: GradientTile) -> int:
    """Outputs of whole blocks."""
    return -(-call.outputs[0].shape[1] // tile[1]) * tile[1]


def _weights(call: CudaCall, tile: GradientTile) -> Temp:
    weight: View = call.inputs[1]
    return Temp(1, _padded(call, tile) * weight.nbytes // weight.shape[0])


def _squares(call: CudaCall) -> Temp:
    return Temp(2, _rows(call) * _taps(call) * call.op.offset_groups * _SQUARE)


def _arranged(call: CudaCall, tile: GradientTile) -> Launch:
    op: DeformConv = call.op
    x, weight, offset, y = *call.inputs[:3], call.outputs[0]
    source, last = pixels_last(x)
    at = len(call.inputs) - 1 if op.mask else 2  # what there is not, is not read
    mask = call.inputs[at]
    element = element_of(x)
    config = CudaDeformGradientConfig(
        "arranged", (*(element,) * 6, "i32"), PREPARING, (op.mask, x.dtype is DType.F16),
        taps=(weight.shape[2], weight.shape[3]),
        window=(*op.stride, *op.dilation, op.padding[0], op.padding[1]),
    )  # fmt: skip
    squaring = _rows(call) // PREPARING[0] * _taps(call) * op.offset_groups
    packing = packing_programs(weight)
    copying = 0 if last is x else copying_programs(x, x.shape[0])
    integers = {
        "squaring": squaring, "packing": packing, "first_image": 0, "p": y.shape[2],
        "q": y.shape[3], "h": x.shape[2], "wd": x.shape[3], "offset_groups": op.offset_groups,
        "pixels": y.shape[0] * y.shape[2] * y.shape[3], "rows": _rows(call),
        "outputs": y.shape[1], "padded": _padded(call, tile), "c": x.shape[1],
        "columns": weight.shape[3], **strides_of("w", "kcrs", weight), **strides_of("x", "nchw", x),
        **dict(zip(("l_n", "l_h", "l_w"), _last_strides(call), strict=True)),
        **strides_of("o", "ncpq", offset), **strides_of("m", "ncpq", mask),
    }  # fmt: skip
    operands: dict[str, Operand] = {
        "w": In(1), "packed": _weights(call, tile), "x": In(0),
        "x_last": _weights(call, tile) if last is x else source, "offset": In(2), "mask": In(at),
        "squares": _squares(call),
    }  # fmt: skip
    return phase_launch(config, operands, integers, squaring + packing + copying)


def _fused(
    call: CudaCall, tile: GradientTile, shares: int, sums: Temp, pixels: tuple[int, int]
) -> Launch:
    """Of so many pixels from the first on."""
    x, y = call.inputs[0], call.outputs[0]
    first, rows = pixels
    element = element_of(x)
    config = CudaDeformGradientConfig(
        "fused", (element, "i32", element, "fp32"), tile,
        taps=(call.inputs[1].shape[2], call.inputs[1].shape[3]),
    )  # fmt: skip
    integers = {
        "pixels": rows, "first_pixel": first, "rows": _rows(call), "k": y.shape[1],
        "shared": x.shape[1] // call.op.offset_groups // tile[2], "shares": shares,
    }  # fmt: skip
    operands: dict[str, Operand] = {
        "x": pixels_last(x)[0], "squares": _squares(call), "w": _weights(call, tile), "parts": sums,
    }  # fmt: skip
    splits = shares * call.op.offset_groups
    programs = -(-rows // tile[0]) * -(-y.shape[1] // tile[1]) * splits
    return phase_launch(config, operands, integers, programs)


DEFORM_HOPPER = CudaKernel(
    "deform.hopper", (DeformConv,), CudaDeformGradientConfig, _supports, _variants, entry_of
)
