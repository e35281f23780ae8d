"""MaxPool, AveragePool and their global forms; MaxRoiPool."""

from __future__ import annotations

from collections.abc import Sequence

from saccade.frontend.onnx.call import OnnxNode, Operand
from saccade.frontend.onnx.importers._window import SpatialWindow, read_window
from saccade.frontend.onnx.moves import reshaped
from saccade.frontend.onnx.refusal import Refusal
from saccade.ir import Dim, Value
from saccade.opdefs import Pad, Pool2d, Reduce, RoiPool

__all__ = [
    "import_average_pool",
    "import_global_average_pool",
    "import_global_max_pool",
    "import_max_pool",
    "import_max_roi_pool",
]


def import_max_pool(call: OnnxNode) -> Sequence[Operand]:
    """ONNX MaxPool 1 to 22, without its indices."""
    return [_pool(call, "max")]


def import_average_pool(call: OnnxNode) -> Sequence[Operand]:
    """ONNX AveragePool 1 to 22."""
    return [_pool(call, "average")]


def _pool(call: OnnxNode, kind: str) -> Value:
    x = call.value(0)
    kernel = call.integers("kernel_shape")
    if kernel is None:
        raise call.broken("no kernel_shape")
    if x.rank > 4:
        raise Refusal(f"pooling over {x.rank - 2} axes")
    window = read_window(call, x.shape, kernel)
    original = x.rank
    if original == 3:
        x = reshaped(call, x, (x.shape[0], x.shape[1], 1, x.shape[2]))
        window = window.as_row()
    x, padding = _padded(call, x, window, kind)
    op = Pool2d(
        kind=kind,
        kernel=(window.kernel[0], window.kernel[1]),
        stride=(window.stride[0], window.stride[1]),
        padding=padding,
        dilation=(window.dilation[0], window.dilation[1]),
        # `auto_pad` says by itself how many windows there are.
        ceil_mode=call.flag("ceil_mode") and call.text("auto_pad", "NOTSET") == "NOTSET",
        count_include_pad=call.flag("count_include_pad"),
    )
    y = call.emit(op, x)
    return reshaped(call, y, (y.shape[0], y.shape[1], y.shape[3])) if original == 3 else y


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
    if x.rank < 3:
        raise call.broken(f"global pooling of {x.rank} axes")
    # Any number of spatial axes, where `Pool2d` has two.
    return call.emit(Reduce(kind=kind, axes=tuple(range(2, x.rank)), keepdims=True), x)


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
