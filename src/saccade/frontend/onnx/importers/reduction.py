"""Reductions, ArgMax, Softmax, CumSum."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from saccade.frontend.onnx.call import Importer, OnnxNode, Operand
from saccade.frontend.onnx.importers._elementwise import EXACT_SHORT, cast_to, pointwise
from saccade.frontend.onnx.moves import reshaped
from saccade.frontend.onnx.open_axes import close, highest, is_open, lowest, reopened
from saccade.frontend.onnx.refusal import Refusal
from saccade.ir import DType, Expr, Value
from saccade.ir.dim import product
from saccade.ir.expr import apply, const
from saccade.opdefs import ArgReduce, CumSum, Reduce, Softmax

__all__ = [
    "REDUCTIONS",
    "import_arg_max",
    "import_arg_min",
    "import_cumprod",
    "import_cumsum",
    "import_log_softmax",
    "import_softmax",
]

# Axes became an operand, for sums before the others.
_AXES_INPUT_SINCE = 18
_SUM_AXES_INPUT_SINCE = 13
_ONE_AXIS_SINCE = 13


def _reduce(call: OnnxNode, kind: str) -> Sequence[Operand]:
    x = call.value(0)
    if kind.startswith("log") and not x.dtype.is_float:
        raise Refusal("logarithms of integers")
    since = _SUM_AXES_INPUT_SINCE if call.node.op_type == "ReduceSum" else _AXES_INPUT_SINCE
    if call.opset >= since:
        given = call.integers_of(1, "the axes") if call.has(1) else ()
        # Else no axes mean all of them.
        if not given and call.flag("noop_with_empty_axes"):
            return [_of_each(call, kind, x)]
    else:
        given = call.integers("axes") or ()
    axes = call.axes(given, x.rank) if given else tuple(range(x.rank))
    keepdims = call.flag("keepdims", default=True)
    if not axes:
        return [_of_each(call, kind, x)]
    count = product(x.shape[axis] for axis in axes)
    if kind == "mean" and is_open(call, count):
        op = Reduce(kind="sum", axes=axes, keepdims=keepdims)
        total = call.emit(op, _closed(call, "sum", x, axes))
        true = cast_to(call, reshaped(call, call.build.sized(count, call.name), ()), x.dtype)
        return [pointwise(call, partial(apply, "div"), [total, true], x.dtype)]
    op = Reduce(kind=kind, axes=axes, keepdims=keepdims)
    closed = _closed(call, kind, x, axes)
    # What is exact in float32 has kernels there: the largest or smallest of numbers of 8 bits.
    if kind in ("max", "min") and x.dtype in EXACT_SHORT:
        found = call.emit(op, cast_to(call, closed, DType.F32))
        low, high = const(lowest(x.dtype)), const(highest(x.dtype))
        # Of no elements it is infinite.
        return [pointwise(call, lambda e: apply("clip", e, low, high), [found], x.dtype)]
    return [call.emit(op, closed)]


def _closed(call: OnnxNode, kind: str, x: Value, axes: Sequence[int]) -> Value:
    """The operand without axes whose sizes depend on data among those that are reduced."""
    fills: dict[str, float] = {
        **dict.fromkeys(("sum", "l1", "l2", "sum_square", "log_sum"), 0), "prod": 1,
        **dict.fromkeys(("max", "log_sum_exp"), lowest(x.dtype)), "min": highest(x.dtype),
    }  # fmt: skip
    # Elements that change nothing of what they are combined with; a mean has none.
    if kind in fills:
        for axis in axes:
            x = close(call, x, axis, fills[kind])
    return x


def _of_each(call: OnnxNode, kind: str, x: Value) -> Value:
    """The reduction over no axes: what is done before and after summing is still done."""
    step = _OF_ONE.get(kind)
    return x if step is None else pointwise(call, step, [x])


_OF_ONE: dict[str, Callable[[Expr], Expr]] = {
    "l1": lambda e: apply("abs", e),
    "l2": lambda e: apply("abs", e),
    "sum_square": lambda e: apply("mul", e, e),
    "log_sum": lambda e: apply("log", e),
}
"""Reductions of a single element that are not that element."""

REDUCTIONS: dict[str, Importer] = {
    f"Reduce{onnx_name}": partial(_reduce, kind=kind)
    for onnx_name, kind in {
        "Sum": "sum",
        "Mean": "mean",
        "Max": "max",
        "Min": "min",
        "Prod": "prod",
        "L1": "l1",
        "L2": "l2",
        "SumSquare": "sum_square",
        "LogSum": "log_sum",
        "LogSumExp": "log_sum_exp",
    }.items()
}
"""ONNX Reduce*, versions 1 to 20."""


def _arg_reduce(call: OnnxNode, kind: str) -> Sequence[Operand]:
    x = call.value(0)
    op = ArgReduce(
        kind=kind,
        axis=call.axis(call.integer("axis", 0), x.rank),
        keepdims=call.flag("keepdims", default=True),
        select_last=call.flag("select_last_index"),
    )
    size = x.shape[op.axis]
    if not is_open(call, size):
        return [call.emit(op, x)]
    return [call.emit(replace(op, counted=True), x, call.build.sized(size, call.name))]


def import_arg_max(call: OnnxNode) -> Sequence[Operand]:
    """ONNX ArgMax 1 to 13."""
    return _arg_reduce(call, "argmax")


def import_arg_min(call: OnnxNode) -> Sequence[Operand]:
    """ONNX ArgMin 1 to 13."""
    return _arg_reduce(call, "argmin")


def _softmax(call: OnnxNode, *, log: bool) -> Sequence[Operand]:
    x = call.value(0)
    old = call.opset < _ONE_AXIS_SINCE
    axis = call.axis(call.integer("axis", 1 if old else -1), x.rank)
    # Axes of 1 behind it change nothing, and reshapes could be refused.
    if not old or all(d == 1 for d in x.shape[axis + 1 :]):
        return [call.emit(Softmax(axis=axis, log=log), x)]
    # up to version 11 all axes from `axis` on were one
    flat = reshaped(call, x, (*x.shape[:axis], product(x.shape[axis:])))
    return [reshaped(call, call.emit(Softmax(axis=axis, log=log), flat), x.shape)]


def import_softmax(call: OnnxNode) -> Sequence[Operand]:
    """ONNX Softmax 1 to 13."""
    return _softmax(call, log=False)


def import_log_softmax(call: OnnxNode) -> Sequence[Operand]:
    """ONNX LogSoftmax 1 to 13."""
    return _softmax(call, log=True)


def import_cumsum(call: OnnxNode) -> Sequence[Operand]:
    """ONNX CumSum 11 and 14."""
    return [_running(call, product=False)]


def import_cumprod(call: OnnxNode) -> Sequence[Operand]:
    """ONNX CumProd 26."""
    return [_running(call, product=True)]


def _running(call: OnnxNode, *, product: bool) -> Value:
    x = call.value(0)
    axes = call.integers_of(1, "the axis of a running sum")
    if len(axes) != 1:
        raise call.broken(f"axis {list(axes)}")
    axis = call.axis(axes[0], x.rank)
    op = CumSum(
        axis=axis,
        exclusive=call.flag("exclusive"),
        reverse=call.flag("reverse"),
        product=product,
    )
    size = x.shape[axis]
    return reopened(call, call.emit(op, close(call, x, axis, 1 if product else 0)), axis, size)
