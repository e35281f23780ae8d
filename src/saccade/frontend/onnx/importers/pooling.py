"""MaxPool, AveragePool and their global forms; MaxRoiPool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from saccade.frontend.onnx.call import OnnxNode, Operand
from saccade.frontend.onnx.importers._elementwise import EXACT_SHORT, cast_to, pointwise
from saccade.frontend.onnx.importers._places_of_maxima import places_of_maxima
from saccade.frontend.onnx.importers._window import SpatialWindow, read_window
from saccade.frontend.onnx.moves import reshaped
from saccade.frontend.onnx.refusal import Refusal
from saccade.ir import Dim, DType, Expr, Value
from saccade.ir.dim import product
from saccade.ir.expr import apply, const
from saccade.opdefs import Pad, Pool2d, Reduce, RoiPool

__all__ = [
    "import_average_pool",
    "import_global_average_pool",
    "import_global_lp_pool",
    "import_global_max_pool",
    "import_lp_pool",
    "import_max_pool",
    "import_max_roi_pool",
]


def import_max_pool(call: OnnxNode) -> Sequence[Operand]:
    """ONNX MaxPool 1 to 22; places of maxima for sizes that are known."""
    x = call.value(0)
    # What is exact in float32 has kernels there.
    short = x.dtype in EXACT_SHORT
    y = _pool(call, cast_to(call, x, DType.F32) if short else x, "max")
    y = cast_to(call, y, x.dtype)
    if len(call.node.outputs) < 2:
        return [y]
    order = call.flag("storage_order")
    return [y, places_of_maxima(call, x, _window(call), y.shape[2:], columns=order)]


def import_average_pool(call: OnnxNode) -> Sequence[Operand]:
    """ONNX AveragePool 1 to 22."""
    return [_pool(call, call.value(0), "average")]


def _pool(call: OnnxNode, x: Value, kind: str) -> Value:
    window = _window(call)
    # `auto_pad` says by itself how many windows there are.
    ceil = call.flag("ceil_mode") and call.text("auto_pad", "NOTSET") == "NOTSET"
    include = call.flag("count_include_pad")
    return _pooled(call, x, window, Pool2d(kind, (1, 1), ceil_mode=ceil, count_include_pad=include))


def _window(call: OnnxNode) -> SpatialWindow:
    kernel = call.integers("kernel_shape")
    if kernel is None:
        raise call.broken("no kernel_shape")
    return read_window(call, call.value(0).shape, kernel)


def _pooled(call: OnnxNode, x: Value, window: SpatialWindow, like: Pool2d) -> Value:
    """The pool over any number of axes: over images, then over one axis after another."""
    if x.rank == 3:
        row = reshaped(call, x, (x.shape[0], x.shape[1], 1, x.shape[2]))
        y = _of_images(call, row, window.as_row(), like)
        return reshaped(call, y, (y.shape[0], y.shape[1], y.shape[3]))
    if x.rank == 4:
        return _of_images(call, x, window, like)
    # Largest elements and means over a box are those over its lines, one axis after the other.
    for axis in range(2, x.rank):
        before, size, behind = product(x.shape[:axis]), x.shape[axis], product(x.shape[axis + 1 :])
        column = reshaped(call, x, (1, before, size, behind))
        y = _of_images(call, column, window.along(axis - 2), like)
        x = reshaped(call, y, (*x.shape[:axis], y.shape[2], *x.shape[axis + 1 :]))
    return x


def _of_images(call: OnnxNode, x: Value, window: SpatialWindow, like: Pool2d) -> Value:
    x, padding = _padded(call, x, window, like.kind)
    op = replace(
        like,
        kernel=(window.kernel[0], window.kernel[1]),
        stride=(window.stride[0], window.stride[1]),
        padding=padding,
        dilation=(window.dilation[0], window.dilation[1]),
    )
    return call.emit(op, x)


def import_lp_pool(call: OnnxNode) -> Sequence[Operand]:
    """ONNX LpPool 1 to 22: the root of a sum of powers; `ceil_mode` for sizes that are known."""
    x, window, p = call.value(0), _window(call), _exponent(call)
    ceil = call.flag("ceil_mode") and call.text("auto_pad", "NOTSET") == "NOTSET"
    pads = _zeros_around(call, x, window, ceil=ceil)
    powers = pointwise(call, partial(_power, p), [x], x.dtype.arithmetic)
    powers = call.emit(Pad(pads=pads), powers)
    plain = replace(window, padding=(0,) * (2 * (x.rank - 2)))
    means = _pooled(call, powers, plain, Pool2d("average", (1, 1)))
    taps = float(np.prod(window.kernel))

    def root(e: Expr) -> Expr:
        return _root(p, apply("mul", e, const(taps)))

    return [pointwise(call, root, [means], x.dtype)]


def import_global_lp_pool(call: OnnxNode) -> Sequence[Operand]:
    """ONNX GlobalLpPool 1 to 22."""
    x, p = call.value(0), _exponent(call)
    if p in (1, 2):
        return [_global(call, f"l{int(p)}")]
    powers = pointwise(call, partial(_power, p), [x], x.dtype.arithmetic)
    op = Reduce(kind="sum", axes=_spatial(call, x), keepdims=True)
    return [pointwise(call, partial(_root, p), [call.emit(op, powers)], x.dtype)]


def _exponent(call: OnnxNode) -> float:
    p = call.integer("p", 2) if call.opset > 1 else call.finite("p", 2.0)
    if p < 1:
        raise call.broken(f"p is {p}")
    return p


def _power(p: float, e: Expr) -> Expr:
    if p == 1:
        return apply("abs", e)
    return apply("mul", e, e) if p == 2 else apply("pow", apply("abs", e), const(p))


def _root(p: float, total: Expr) -> Expr:
    if p == 1:
        return total
    return apply("sqrt", total) if p == 2 else apply("pow", total, const(1 / p))


def _zeros_around(
    call: OnnxNode, x: Value, window: SpatialWindow, *, ceil: bool
) -> tuple[tuple[Dim, Dim], ...]:
    """Pads that make every window whole."""
    pads: list[tuple[Dim, Dim]] = [(0, 0), (0, 0)]
    count = len(window.kernel)
    for axis, size in enumerate(x.shape[2:]):
        before, after = window.padding[axis], window.padding[axis + count]
        if ceil:
            if not (isinstance(size, int) and isinstance(before, int) and isinstance(after, int)):
                raise Refusal("ceil_mode of a size that varies")
            reach = (window.kernel[axis] - 1) * window.dilation[axis] + 1
            last = -(-(size + before + after - reach) // window.stride[axis])
            # The last window starts on the image or before it.
            last = min(last, (size + before - 1) // window.stride[axis])
            after = max(after, last * window.stride[axis] + reach - size - before)
        pads.append((before, after))
    return tuple(pads)


def _padded(
    call: OnnxNode, x: Value, window: SpatialWindow, kind: str
) -> tuple[Value, tuple[int, int, int, int]]:
    """Padding that the pool does itself; symbolic padding is a Pad with what never wins."""
    sides = window.sides()
    if sides is not None:
        return x, sides
    # A mean would take the padding in, and integers have no minus infinity.
    if kind != "max" or not x.dtype.is_float:
        raise Refusal("SAME padding of a symbolic size under a mean")
    pads: list[tuple[Dim, Dim]] = [(0, 0), (0, 0)]
    pads += list(zip(window.padding[:2], window.padding[2:], strict=True))
    return call.emit(Pad(pads=tuple(pads), value=float("-inf")), x), (0, 0, 0, 0)


def _global(call: OnnxNode, kind: str) -> Value:
    x = call.value(0)
    # Any number of spatial axes, where `Pool2d` has two.
    return call.emit(Reduce(kind=kind, axes=_spatial(call, x), keepdims=True), x)


def _spatial(call: OnnxNode, x: Value) -> tuple[int, ...]:
    if x.rank < 3:
        raise call.broken(f"global pooling of {x.rank} axes")
    return tuple(range(2, x.rank))


def import_global_average_pool(call: OnnxNode) -> Sequence[Operand]:
    """ONNX GlobalAveragePool."""
    return [_global(call, "mean")]


def import_global_max_pool(call: OnnxNode) -> Sequence[Operand]:
    """ONNX GlobalMaxPool."""
    return [_global(call, "max")]


def import_max_roi_pool(call: OnnxNode) -> Sequence[Operand]:
    """ONNX MaxRoiPool 1 and 22; boxes that name an image that is not there have empty bins."""
    bins = call.integers("pooled_shape")
    if bins is None or len(bins) != 2:
        raise call.broken("pooled_shape is not two integers")
    op = RoiPool((bins[0], bins[1]), call.finite("spatial_scale", 1.0))
    return [call.emit(op, call.value(0), call.value(1))]
