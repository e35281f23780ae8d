"""Deformable convolution by its columns, of as many images as stay in the L2 cache.

    last            x with its channels as neighbours, where they are not
    prepare         weights as [tap, output, channel]
    sampled         columns: where a tap samples is found out once for all channels that share it
    multiplied      columns times weights

The last two for one piece of the images after the other. Each sample is taken once, where
`implicit_gemm` takes it again for each block of outputs. Floor: the product; four pixels of x for
each element of the columns from the L2 cache, which is written and read once more.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import ceil, gcd

from saccade.backends.cuda.gpus import gpu
from saccade.ir import DType
from saccade.kernels.base import In, Launch, Operand, Out, Temp, Variant, View
from saccade.kernels.cuda.base import FLOATS, CudaCall, CudaKernel, element_of
from saccade.kernels.cuda.deform.gradient_config import (
    PACKING,
    CudaDeformGradientConfig,
    GradientTile,
    entry_of,
    integers_of,
    packing_programs,
)
from saccade.kernels.cuda.machine import LAUNCH, cached_micros, stream_micros
from saccade.kernels.cuda.precision import dot_precision
from saccade.opdefs import DeformConv

__all__ = ["DEFORM_COLUMNS"]

_PIECE = 40 << 20  # bytes of columns: most of them stay in the L2 cache
_MOST = 1 << 31  # elements
_COPY: GradientTile = (32, 64, 0, 4, 1)  # pixels and channels of a block
# Of the samples: pixels and channels of a block, and of the products.
_SAMPLES: tuple[GradientTile, ...] = ((8, 256, 0, 4, 1), (16, 128, 0, 4, 1), (16, 64, 0, 4, 1))
_HALF_TILES: tuple[GradientTile, ...] = (
    (128, 128, 64, 8, 3), (128, 64, 64, 4, 4), (64, 128, 64, 4, 4), (64, 64, 64, 4, 4),
    (32, 32, 64, 4, 3),
)  # fmt: skip
_TILES: tuple[GradientTile, ...] = (
    (128, 128, 32, 8, 2), (128, 64, 32, 8, 3), (64, 64, 32, 4, 3), (32, 32, 32, 2, 3),
)  # fmt: skip
_APART: tuple[GradientTile, ...] = ((64, 64, 16, 4, 3), (32, 32, 16, 4, 3))
"""Of float32 whose channels are no multiple of 16: addresses of single elements fill registers."""
# Of float64.
_DOUBLE_TILES: tuple[GradientTile, ...] = ((32, 32, 16, 4, 1), (16, 16, 16, 1, 1))


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


def _together(call: CudaCall) -> int:
    """Images of a piece, all pieces having about as many."""
    images = call.inputs[0].shape[0]
    most = max(1, _PIECE // max(1, _columns(call) * call.inputs[0].dtype.itemsize))
    return max(1, -(-images // max(1, -(-images // most))))


def _variants(call: CudaCall) -> Iterator[Variant]:
    tiles = {DType.F32: _TILES, DType.F64: _DOUBLE_TILES}.get(call.inputs[0].dtype, _HALF_TILES)
    if tiles is _TILES and call.inputs[1].shape[1] % 16:
        tiles = _APART
    block = _samples(call)
    timed = [(_micros(call, tile), tile) for tile in tiles]
    for micros, tile in sorted(timed):
        yield Variant(micros, partial(_launches, call, block, tile), rounding=tile[2])


def _samples(call: CudaCall) -> GradientTile:
    """A block of samples: channels in one piece where there are so many."""
    op: DeformConv = call.op
    x = call.inputs[0]
    segment = gcd(x.shape[1] // op.groups, x.shape[1] // op.offset_groups)
    wide = x.dtype in (DType.F32, DType.F64)
    fitting = [tile for tile in _SAMPLES if tile[1] <= max(64, 2 * segment - 1)]
    pixels, channels, *rest = fitting[0]
    return (max(1, pixels // (2 if wide else 1)), channels, rest[0], rest[1], rest[2])


def _micros(call: CudaCall, tile: GradientTile) -> float:
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
        + pieces * (2 * LAUNCH + _product_micros(call, sizes, tile))
    )  # fmt: skip


def _product_micros(call: CudaCall, sizes: tuple[int, int, int], tile: GradientTile) -> float:
    """Of a piece's product: what its blocks read from the L2 cache, or its operations."""
    op: DeformConv = call.op
    machine, dtype = gpu(call.target.machine), call.inputs[0].dtype
    rows, outputs, depth = sizes
    programs = -(-rows // tile[0]) * -(-outputs // tile[1]) * op.groups
    read = cached_micros(call, programs * (tile[0] + tile[1]) * depth * dtype.itemsize, programs)
    rate = {DType.F64: machine.flops / 2, DType.F32: machine.matrix_flops / 2}.get(
        dtype, machine.matrix_flops
    )
    times = 3 if dot_precision(call) == "tf32x3" else 1
    waves = ceil(programs / machine.multiprocessors)
    busy = waves * times * 2 * tile[0] * tile[1] * depth * machine.multiprocessors / rate
    return max(read, 2 * busy)


def _launches(call: CudaCall, block: GradientTile, tile: GradientTile) -> tuple[Launch, ...]:
    op: DeformConv = call.op
    x, y = call.inputs[0], call.outputs[0]
    source, view = _last(x)
    launches = [_packed(call)]
    if view is not x:
        launches.append(_copied(call, source))
    step = _together(call)
    for first in range(0, x.shape[0], step):
        images = min(step, x.shape[0] - first)
        rows = images * y.shape[2] * y.shape[3]
        launches.append(_sampled(call, (source, view), block, first, rows))
        launches.append(_multiplied(call, op, tile, first, rows))
    return tuple(launches)


def _last(x: View) -> tuple[Operand, View]:
    """X with its channels as neighbours, or a copy that has them so."""
    if x.channels_last:
        return In(0), x
    n, c, h, w = x.shape
    size = max(16, n * c * h * w * x.dtype.itemsize)
    return Temp(0, size), x._replace(strides=(h * w * c, 1, w * c, c))


def _copied(call: CudaCall, target: Operand) -> Launch:
    x = call.inputs[0]
    n, c, h, w = x.shape
    config = CudaDeformGradientConfig("last", (element_of(x),) * 2, _COPY)
    integers = {"first_image": 0, "channels": c, "h": h, "wd": w, **_strides("x", "nchw", x)}
    programs = n * -(-h * w // _COPY[0]) * -(-c // _COPY[1])
    return _launch(config, {"x": In(0), "y": target}, integers, programs)


def _split(call: CudaCall) -> bool:
    """Whether products of float32 are three of TF32: weights are then packed in two parts."""
    return call.inputs[0].dtype is DType.F32 and dot_precision(call) == "tf32x3"


def _weights(call: CudaCall) -> Temp:
    return Temp(1, max(16, call.inputs[1].nbytes * (1 + _split(call))))


def _packed(call: CudaCall) -> Launch:
    weight = call.inputs[1]
    k, c, r, s = weight.shape
    config = CudaDeformGradientConfig(
        "prepare", (element_of(weight),) * 2 + ("i32",), PACKING, (_split(call),), (r, s)
    )
    packing = packing_programs(weight)
    integers = {
        "cleared": 0, "packing": packing, "outputs": k, "c": c, "columns": s,
        **_strides("w", "kcrs", weight),
    }  # fmt: skip
    # Nothing is cleared: any pointer will do.
    operands: dict[str, Operand] = {
        "w": In(1), "packed": _weights(call), "counts": _weights(call),
    }  # fmt: skip
    return _launch(config, operands, integers, packing)


def _kept(call: CudaCall) -> Temp:
    return Temp(2, max(16, _together(call) * _columns(call) * call.inputs[0].dtype.itemsize))


def _sampled(
    call: CudaCall, source: tuple[Operand, View], block: GradientTile, first: int, rows: int
) -> Launch:
    op: DeformConv = call.op
    (x, view), weight, offset, y = source, call.inputs[1], call.inputs[2], call.outputs[0]
    at = len(call.inputs) - 1 if op.mask else 2  # what there is not, is not read
    mask = call.inputs[at]
    config = CudaDeformGradientConfig(
        "sampled", (element_of(view), element_of(offset), element_of(mask), element_of(view)),
        block, (op.mask, view.dtype is DType.F64), (weight.shape[2], weight.shape[3]),
        (*op.stride, *op.dilation, op.padding[0], op.padding[1]),
    )  # fmt: skip
    shared, c = view.shape[1] // op.offset_groups, view.shape[1] // op.groups
    integers = {
        "pixels": rows, "first_image": first, "x_image": first, "p": y.shape[2], "q": y.shape[3],
        "h": view.shape[2], "wd": view.shape[3], "offset_groups": op.offset_groups,
        "shared": shared, "segment": gcd(c, shared), "c": c,
        "x_n": view.strides[0], "x_h": view.strides[2], "x_w": view.strides[3],
        **_strides("o", "ncpq", offset), **_strides("m", "ncpq", mask),
    }  # fmt: skip
    taps = weight.shape[2] * weight.shape[3]
    operands: dict[str, Operand] = {
        "x": x, "offset": In(2), "mask": In(at), "kept": _kept(call),
    }  # fmt: skip
    return _launch(config, operands, integers, -(-rows // block[0]) * taps * op.offset_groups)


def _multiplied(
    call: CudaCall, op: DeformConv, tile: GradientTile, first: int, rows: int
) -> Launch:
    x, weight, y = call.inputs[0], call.inputs[1], call.outputs[0]
    at = 3 if op.bias else 2
    bias = call.inputs[at]
    config = CudaDeformGradientConfig(
        "multiplied", (element_of(x), element_of(weight), element_of(bias), element_of(y)), tile,
        (op.bias, y.strides[1] == 1 or y.shape[1] == 1, x.dtype is DType.F64, _split(call)),
        (weight.shape[2], weight.shape[3]), precision=dot_precision(call),
    )  # fmt: skip
    outputs = y.shape[1] // op.groups
    integers = {
        "pixels": rows, "first_image": first, "p": y.shape[2], "q": y.shape[3],
        "groups": op.groups, "c": x.shape[1] // op.groups, "k": outputs, "b_k": bias.strides[0],
        **_strides("y", "nkpq", y),
    }  # fmt: skip
    operands: dict[str, Operand] = {
        "kept": _kept(call), "w": _weights(call), "bias": In(at), "y": Out(0),
    }  # fmt: skip
    programs = -(-rows // tile[0]) * op.groups * -(-outputs // tile[1])
    return _launch(config, operands, integers, programs)


def _strides(prefix: str, axes: str, view: View) -> dict[str, int]:
    return {f"{prefix}_{axis}": s for axis, s in zip(axes, view.strides, strict=True)}


def _launch(
    config: CudaDeformGradientConfig, operands: dict[str, Operand], known: dict[str, int],
    programs: int,
) -> Launch:  # fmt: skip
    integers = {name: known[name] for name in integers_of(config.phase)}
    return Launch(config, operands, integers, programs)


DEFORM_COLUMNS = CudaKernel(
    "deform.columns", (DeformConv,), CudaDeformGradientConfig, _supports, _variants, entry_of
)
