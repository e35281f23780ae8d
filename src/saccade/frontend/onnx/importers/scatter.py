"""What writes elements to places that indices name."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from math import prod

import numpy as np

from saccade.frontend.onnx.call import OnnxNode, Operand
from saccade.frontend.onnx.importers._elementwise import cast_to, pointwise
from saccade.frontend.onnx.importers._volumes import convolve_volume_transposed
from saccade.frontend.onnx.importers._window import SpatialWindow
from saccade.frontend.onnx.importers.selection import along_axis, known_sizes
from saccade.frontend.onnx.measured import fitted
from saccade.frontend.onnx.moves import move, reshaped, slice_map, transpose_map
from saccade.frontend.onnx.open_axes import close, from_the_end, is_open, planned, reopened
from saccade.frontend.onnx.refusal import Refusal
from saccade.ir import Dim, DType, Expr, Value
from saccade.ir.dim import product
from saccade.ir.expr import apply, const
from saccade.opdefs import ConvTranspose2d, Pad, ScatterRows

__all__ = [
    "import_col2im",
    "import_max_unpool",
    "import_scatter_elements",
    "import_scatter_nd",
    "import_tensor_scatter",
]


def _reduction(call: OnnxNode) -> ScatterRows:
    name = call.text("reduction", "none")
    if name not in ("none", "add", "mul", "min", "max"):
        raise call.broken(f"reduction {name!r}")
    return ScatterRows(name)


def import_scatter_elements(call: OnnxNode) -> Sequence[Operand]:
    """ONNX Scatter 9 and ScatterElements 11 to 18, where sizes are known."""
    data, where, updates = call.value(0), call.value(1), call.value(2)
    if where.shape != updates.shape:
        updates = _as_many(call, updates, where.shape)
    if where.dtype not in (DType.I32, DType.I64) or where.shape != updates.shape:
        raise call.broken(f"indices {list(where.shape)}, updates {list(updates.shape)}")
    if where.rank != data.rank:
        raise call.broken(f"indices of {where.rank} axes, data of {data.rank}")
    axis = call.axis(call.integer("axis", 0), data.rank)
    rows = _whole_slices(call, data, where, updates, axis)
    if rows is not None:
        return [rows]
    sizes, counts = known_sizes(data.shape), known_sizes(where.shape)
    if any(n > size for a, (n, size) in enumerate(zip(counts, sizes, strict=True)) if a != axis):
        raise call.broken(f"indices {list(counts)} for data {list(sizes)}")
    if 0 in counts:
        return [data]
    places = along_axis(call, where, sizes, axis)
    flat = [reshaped(call, v, (prod(n), 1)) for v, n in ((data, sizes), (updates, counts))]
    rows = call.emit(_reduction(call), flat[0], reshaped(call, places, (prod(counts),)), flat[1])
    return [reshaped(call, rows, data.shape)]


def _as_many(call: OnnxNode, x: Value, shape: Sequence[Dim]) -> Value:
    """A value with the sizes that steps found elsewhere, where they have to be equal."""
    for axis, (size, wanted) in enumerate(zip(x.shape, shape, strict=False)):
        if size != wanted and is_open(call, size, wanted):
            x = reopened(call, fitted(call, x, axis, planned(call, wanted)), axis, wanted)
    return x


def _whole_slices(
    call: OnnxNode, data: Value, where: Value, updates: Value, axis: int
) -> Value | None:
    """The result where indices are alike along all other axes; None if they may differ.

    Only how long that one axis is has to be known, or found out, for `_rows`.
    """
    source, others = call.build.spread.get(where), [a for a in range(data.rank) if a != axis]
    if source is None or any(updates.shape[a] != data.shape[a] for a in others):
        return None
    alike = tuple(size if a == axis else 1 for a, size in enumerate(where.shape))
    if source.shape != alike and not (product(source.shape) == product(alike) == 1):
        return None
    indices = cast_to(call, reshaped(call, source, where.shape[axis : axis + 1]), DType.I64)
    if axis == 0:
        return _rows(call, data, indices, updates)
    order = (axis, *others)
    first, new = (move(call, x, transpose_map(x.shape, order)) for x in (data, updates))
    rows = _rows(call, first, indices, new)
    return move(call, rows, transpose_map(rows.shape, np.argsort(order).tolist()))


def _rows(call: OnnxNode, data: Value, indices: Value, updates: Value) -> Value:
    """Data with the slices of its first axis replaced that indices name."""
    size, row = data.shape[0], product(data.shape[1:])
    if is_open(call, size):
        indices = from_the_end(call, indices, size)
    else:
        indices = _flat_places(call, [indices], (size,))
    # What is no update has no place.
    where, new = close(call, indices, 0, -1), close(call, updates, 0)
    old = close(call, data, 0)
    flat = [reshaped(call, v, (v.shape[0], row)) for v in (old, new)]
    rows = call.emit(_reduction(call), flat[0], where, flat[1])
    return reopened(call, reshaped(call, rows, old.shape), 0, size)


def import_scatter_nd(call: OnnxNode) -> Sequence[Operand]:
    """ONNX ScatterND 11 to 18."""
    data, where, updates = call.value(0), call.value(1), call.value(2)
    if where.dtype is not DType.I64 or not where.rank:
        raise call.broken(f"indices {where.dtype.value} {list(where.shape)}")
    depth = where.shape[-1]
    if not isinstance(depth, int) or not 1 <= depth <= data.rank:
        raise Refusal("tuples of indices of unknown length")
    sizes = data.shape[:depth]
    tuples, row = product(where.shape[:-1]), product(data.shape[depth:])
    flat = reshaped(call, where, (tuples, depth))
    columns = [
        reshaped(call, move(call, flat, slice_map((tuples, depth), {1: (i, 1, 1)})), (tuples,))
        for i in range(depth)
    ]
    places = _flat_places(call, columns, sizes)
    # What is no update has no place.
    rows = call.emit(
        _reduction(call),
        reshaped(call, data, (product(sizes), row)),
        close(call, places, 0, -1),
        close(call, reshaped(call, updates, (tuples, row)), 0),
    )
    return [reshaped(call, rows, data.shape)]


def _flat_places(call: OnnxNode, columns: Sequence[Value], sizes: Sequence[Dim]) -> Value:
    """Indices of rows from one index for each axis, negative ones counted from its end."""

    def place(e: Expr, size: Expr, step: Expr) -> Expr:
        behind = apply("add", e, size)
        return apply("mul", apply("where", apply("less", e, const(0)), behind, e), step)

    parts = []
    for i, (column, size) in enumerate(zip(columns, sizes, strict=True)):
        extents = [call.build.sized(d, call.name) for d in (size, product(sizes[i + 1 :]))]
        parts.append(pointwise(call, place, [column, *extents], DType.I64))
    if len(parts) == 1:
        return parts[0]
    return pointwise(call, lambda *e: reduce(partial(apply, "add"), e), parts, DType.I64)


def import_tensor_scatter(call: OnnxNode) -> Sequence[Operand]:
    """ONNX TensorScatter 24: updates follow each other along an axis, from a place on."""
    cache, update = call.value(0), call.value(1)
    axis = call.axis(call.integer("axis", -2), cache.rank)
    mode = call.text("mode", "linear")
    if axis == 0 or mode not in ("linear", "circular"):
        raise call.broken(f"axis {axis}, mode {mode!r}")
    sizes, counts = known_sizes(cache.shape), known_sizes(update.shape)
    steps = call.build.constant(
        np.arange(counts[axis], dtype=np.int64).reshape((-1, *(1,) * (len(sizes) - axis - 1))),
        "steps",
    )
    if call.has(2):
        start = reshaped(call, call.value(2), (sizes[0], *(1,) * (len(sizes) - 1)))
    else:
        start = call.build.constant(np.zeros((), np.int64))
    size = sizes[axis]

    def step_of(e: Expr, s: Expr) -> Expr:
        place = apply("add", e, s)
        return apply("mod", place, const(size)) if mode == "circular" else place

    where = pointwise(call, step_of, [start, steps], DType.I64)
    zeros = call.build.constant(np.zeros(counts, np.int64))
    spread = pointwise(call, partial(apply, "add"), [where, zeros], DType.I64)
    places = along_axis(call, spread, sizes, axis)
    flat = [reshaped(call, v, (prod(n), 1)) for v, n in ((cache, sizes), (update, counts))]
    rows = call.emit(ScatterRows(), flat[0], reshaped(call, places, (prod(counts),)), flat[1])
    return [reshaped(call, rows, cache.shape)]


def import_max_unpool(call: OnnxNode) -> Sequence[Operand]:
    """ONNX MaxUnpool 9 to 22: each element where the pool found it, zeros elsewhere."""
    x, where = call.value(0), call.value(1)
    sizes = known_sizes(x.shape)
    kernel = call.integers("kernel_shape") or ()
    spatial = len(sizes) - 2
    strides = call.integers("strides") or (1,) * spatial
    pads = call.integers("pads") or (0,) * (2 * spatial)
    if not len(kernel) == len(strides) == spatial or len(pads) != 2 * spatial:
        raise call.broken(f"a window over {len(kernel)} axes for an operand of {len(sizes)}")
    pooled = tuple(
        (sizes[2 + a] - 1) * strides[a] + kernel[a] - pads[a] - pads[a + spatial]
        for a in range(spatial)
    )
    shape: tuple[int, ...] = (*sizes[:2], *pooled)
    target = call.integers_of(2, "the size of a result") if call.has(2) else shape
    if len(target) != len(shape) or any(t < n for t, n in zip(target, shape, strict=True)):
        raise call.broken(f"a result {list(target)} of {list(sizes)}, which fill {list(shape)}")
    empty = call.build.constant(np.zeros((prod(shape), 1), x.dtype.numpy))
    flat = [reshaped(call, v, (prod(sizes), *n)) for v, n in ((where, ()), (x, (1,)))]
    image = reshaped(call, call.emit(ScatterRows(), empty, *flat), shape)
    if target == shape:
        return [image]
    # Indices count in the image that the pool says, whatever the result's size is.
    around = tuple((0, t - n) for t, n in zip(target, shape, strict=True))
    return [call.emit(Pad(pads=around), image)]


def import_col2im(call: OnnxNode) -> Sequence[Operand]:
    """ONNX Col2Im 18: sums of overlapping blocks over one to three axes."""
    x = call.value(0)
    image = call.integers_of(1, "the size of an image")
    block = call.integers_of(2, "the size of a block")
    if len(image) != len(block) or x.rank != 3:
        raise call.broken(f"blocks {list(block)} of images {list(image)}")
    if not 1 <= len(image) <= 3:
        raise Refusal(f"blocks over {len(image)} axes")
    # A sequence is an image of one row, and blocks of one row.
    row = len(image) == 1
    size, taps = ((1, *image), (1, *block)) if row else (image, block)
    window = _blocks(call, len(image), taps)
    y = _summed_blocks(call, x, size, window)
    return [reshaped(call, y, (*y.shape[:2], y.shape[3])) if row else y]


def _blocks(call: OnnxNode, axes: int, taps: tuple[int, ...]) -> SpatialWindow:
    """Blocks over two or three axes."""
    steps, apart = (call.integers(n) or (1,) * axes for n in ("strides", "dilations"))
    pads = call.integers("pads") or (0,) * (2 * axes)
    if len(steps) != axes or len(apart) != axes or len(pads) != 2 * axes:
        raise call.broken(f"strides, dilations or pads of blocks over {axes} axes")
    if min(*steps, *apart) < 1 or min(pads) < 0:
        raise call.broken("strides, dilations or pads of blocks")
    window = SpatialWindow(taps[-axes:], steps, apart, pads)
    return window.as_row() if axes == 1 else window


def _summed_blocks(
    call: OnnxNode, x: Value, image: tuple[int, ...], window: SpatialWindow
) -> Value:
    """Columns [N, channels · taps, blocks] as images [N, channels, spatial…]."""
    block, axes = window.kernel, len(image)
    pads = [side for side in window.padding if isinstance(side, int)]
    spans = [
        image[a] + pads[a] + pads[a + axes] - window.dilation[a] * (block[a] - 1) - 1
        for a in range(axes)
    ]
    counts = [span // window.stride[a] + 1 for a, span in enumerate(spans)]
    (rows,) = known_sizes(x.shape[1:2])
    taps = prod(block)
    if rows % taps or min(counts) < 1:
        raise call.broken(f"{rows} rows of blocks {list(block)} of images {list(image)}")
    channels = rows // taps
    columns = reshaped(call, x, (x.shape[0], rows, *counts))
    # Each row of a column is one tap of its channel.
    weights = np.tile(np.eye(taps, dtype=np.float32), (channels, 1)).reshape(rows, 1, *block)
    extra = [span - (counts[a] - 1) * window.stride[a] for a, span in enumerate(spans)]
    op = ConvTranspose2d(
        stride=(window.stride[-2], window.stride[-1]),
        padding=(pads[axes - 2], pads[axes - 1], pads[-2], pads[-1]),
        output_padding=(extra[-2], extra[-1]),
        dilation=(window.dilation[-2], window.dilation[-1]),
        groups=channels,
    )
    kernel = cast_to(call, call.build.constant(weights, "taps"), x.dtype)
    if axes == 2:
        return call.emit(op, columns, kernel)
    return convolve_volume_transposed(call, op, (columns, kernel), None, window, extra[0])
