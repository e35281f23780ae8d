"""Operators on integers that stand for numbers: what the numbers give, quantised again.

Each is defined by the numbers, `(x - zero) · scale`, and most are stored like QuantizeLinear's
results: `saturate(round(y / scale) + zero)`, halves to even. Sums, products and means of windows
add the zero point before they round, as ONNX Runtime, whose operators they are, does: halves of a
level are so common there that it shows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from saccade.frontend.onnx.call import OnnxNode, Operand
from saccade.frontend.onnx.importers._elementwise import cast_to, pointwise
from saccade.frontend.onnx.importers._quantised import (
    along,
    centred,
    dequantised,
    quantised,
    rescaled,
)
from saccade.frontend.onnx.importers.contrib._forms import (
    as_standard,
    channels_first,
    channels_last,
    only,
    optional,
)
from saccade.frontend.onnx.importers.pooling import import_average_pool
from saccade.frontend.onnx.importers.quantisation import factor, import_qlinear_conv
from saccade.frontend.onnx.moves import reshaped
from saccade.frontend.onnx.refusal import Refusal
from saccade.ir import DType, Expr, Value
from saccade.ir.dim import product
from saccade.ir.expr import apply, const
from saccade.opdefs import Concat, Reduce, Softmax

__all__ = [
    "import_qlinear_add",
    "import_qlinear_average_pool",
    "import_qlinear_concat",
    "import_qlinear_conv_of_either_order",
    "import_qlinear_global_average_pool",
    "import_qlinear_leaky_relu",
    "import_qlinear_mul",
    "import_qlinear_reduce_mean",
    "import_qlinear_sigmoid",
    "import_qlinear_softmax",
    "import_qlinear_where",
]

_SINCE_AXIS = 13
"""The set in which Softmax stopped taking all axes from the one on together."""


class Levels(NamedTuple):
    """How numbers are stored: one scale and one zero point for all of them."""

    scale: Value
    zero: Value | None


def _levels(call: OnnxNode, index: int) -> Levels:
    """A scale at an index, and the zero point behind it."""
    found = [call.value(index), optional(call, index + 1)]
    shapes = [value.shape for value in found if value is not None]
    if any(shape not in ((), (1,)) for shape in shapes):
        raise Refusal("a scale or zero point of more than one number")
    scale, zero = (None if value is None else along(call, value, (), 0) for value in found)
    assert scale is not None
    return Levels(scale, zero)


def _numbers(call: OnnxNode, x: Value, levels: Levels) -> Value:
    return dequantised(call, x, levels.scale, levels.zero, DType.F32)


def _stored(call: OnnxNode, y: Value, levels: Levels, like: Value) -> Value:
    dtype = like.dtype if levels.zero is None else levels.zero.dtype
    return quantised(call, y, levels.scale, levels.zero, dtype)


def _rounded_last(
    call: OnnxNode,
    y: Value,
    levels: Levels,
    like: Value,
    factor_of: Value | None = None,
) -> Value:
    """`saturate(round(y / scale + zero))`: some add before they round, and halves go elsewhere.

    Args:
        call: The node.
        y: Numbers.
        levels: Of the result.
        like: What has its type if there is no zero point.
        factor_of: What y is multiplied by where it is not divided by the result's scale.
    """
    operands = [y, levels.scale if factor_of is None else factor_of]
    scaled = partial(apply, "div" if factor_of is None else "mul")
    zero, dtype = levels.zero, like.dtype
    if zero is not None:
        operands, dtype = [*operands, cast_to(call, zero, DType.F32)], zero.dtype

    def place(e: Expr, s: Expr, *zeros: Expr) -> Expr:
        return apply("add", scaled(e, s), *zeros) if zeros else scaled(e, s)

    places = pointwise(call, place, operands, DType.F32)
    one = call.build.constant(np.ones((), np.float32), "one")
    return quantised(call, places, one, None, dtype)


def import_qlinear_add(call: OnnxNode) -> Sequence[Operand]:
    """ONNX com.microsoft.QLinearAdd 1."""
    only(call, inputs=8)
    a, b = call.value(0), call.value(3)
    parts = [_numbers(call, a, _levels(call, 1)), _numbers(call, b, _levels(call, 4))]
    total = pointwise(call, partial(apply, "add"), parts, DType.F32)
    return [_rounded_last(call, total, _levels(call, 6), a)]


def import_qlinear_mul(call: OnnxNode) -> Sequence[Operand]:
    """ONNX com.microsoft.QLinearMul 1: a product of integers, scaled once."""
    only(call, inputs=8)
    a, b, levels = call.value(0), call.value(3), [_levels(call, i) for i in (1, 4, 6)]
    sides = [centred(call, a, levels[0].zero), centred(call, b, levels[1].zero)]
    product = pointwise(call, partial(apply, "mul"), sides, DType.F32)
    scale = factor(call, *(one.scale for one in levels))
    return [_rounded_last(call, product, levels[2], a, scale)]


def _unary(call: OnnxNode, make: Callable[[Expr], Expr]) -> Sequence[Operand]:
    x = call.value(0)
    y = pointwise(call, make, [_numbers(call, x, _levels(call, 1))], DType.F32)
    return [_stored(call, y, _levels(call, 3), x)]


def import_qlinear_leaky_relu(call: OnnxNode) -> Sequence[Operand]:
    """ONNX com.microsoft.QLinearLeakyRelu 1."""
    only(call, "alpha", inputs=5)
    alpha = const(call.finite("alpha", 0.01))
    return _unary(call, lambda x: apply("leaky_relu", x, alpha))


def import_qlinear_sigmoid(call: OnnxNode) -> Sequence[Operand]:
    """ONNX com.microsoft.QLinearSigmoid 1."""
    only(call, inputs=5)
    return _unary(call, partial(apply, "sigmoid"))


def import_qlinear_softmax(call: OnnxNode) -> Sequence[Operand]:
    """ONNX com.microsoft.QLinearSoftmax 1: of the axis, or of all from the axis on (`opset`)."""
    only(call, "axis", "opset", inputs=5)
    x = call.value(0)
    numbers = _numbers(call, x, _levels(call, 1))
    axis = call.axis(call.integer("axis", -1), x.rank)
    if call.integer("opset", _SINCE_AXIS) < _SINCE_AXIS:
        flat = reshaped(call, numbers, (product(x.shape[:axis]), product(x.shape[axis:])))
        y = reshaped(call, call.emit(Softmax(1), flat), x.shape)
    else:
        y = call.emit(Softmax(axis), numbers)
    return [_stored(call, y, _levels(call, 3), x)]


def import_qlinear_where(call: OnnxNode) -> Sequence[Operand]:
    """ONNX com.microsoft.QLinearWhere 1."""
    only(call, inputs=9)
    x, y, levels = call.value(1), call.value(4), _levels(call, 7)
    sides = [
        _stored(call, _numbers(call, one, _levels(call, index)), levels, x)
        for one, index in ((x, 2), (y, 5))
    ]
    operands = [call.value(0), *sides]
    return [pointwise(call, partial(apply, "where"), operands, sides[0].dtype)]


def import_qlinear_concat(call: OnnxNode) -> Sequence[Operand]:
    """ONNX com.microsoft.QLinearConcat 1: what is stored otherwise is stored anew first."""
    only(call, "axis", inputs=len(call.operands))
    levels = _levels(call, 0)
    if len(call.operands) < 5 or len(call.operands) % 3 != 2:
        raise call.broken(f"{len(call.operands)} inputs")
    parts = []
    for index in range(2, len(call.operands), 3):
        x = call.value(index)
        parts.append(_stored(call, _numbers(call, x, _levels(call, index + 1)), levels, x))
    return [call.emit(Concat(call.axis(call.integer("axis", 0), parts[0].rank)), *parts)]


def import_qlinear_reduce_mean(call: OnnxNode) -> Sequence[Operand]:
    """ONNX com.microsoft.QLinearReduceMean 1."""
    only(call, "axes", "keepdims", inputs=5)
    x = call.value(0)
    axes = call.integers("axes")
    chosen = call.axes(range(x.rank) if axes is None else axes, x.rank)
    op = Reduce("mean", chosen, keepdims=call.flag("keepdims", default=True))
    mean = call.emit(op, centred(call, x, _levels(call, 1).zero))
    return [_scaled_mean(call, mean, x)]


def _scaled_mean(call: OnnxNode, mean: Value, x: Value) -> Value:
    """A mean of integers as it is stored."""
    before, after = _levels(call, 1), _levels(call, 3)

    def ratio(a: Expr, b: Expr) -> Expr:
        return apply("div", a, b)

    scale = pointwise(call, ratio, [before.scale, after.scale], DType.F32)
    dtype = x.dtype if after.zero is None else after.zero.dtype
    return rescaled(call, mean, scale, after.zero, dtype)


def import_qlinear_global_average_pool(call: OnnxNode) -> Sequence[Operand]:
    """ONNX com.microsoft.QLinearGlobalAveragePool 1: channels first or last."""
    only(call, "channels_last", inputs=5)
    x = call.value(0)
    if x.rank < 3:
        raise call.broken(f"global pooling of {x.rank} axes")
    last = call.flag("channels_last")
    axes = tuple(range(1, x.rank - 1) if last else range(2, x.rank))
    mean = call.emit(Reduce("mean", axes), centred(call, x, _levels(call, 1).zero))
    return [_scaled_mean(call, mean, x)]


_POOL = ("auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides")


def import_qlinear_average_pool(call: OnnxNode) -> Sequence[Operand]:
    """ONNX com.microsoft.QLinearAveragePool 1: channels first or last."""
    only(call, "channels_last", *_POOL, inputs=5)
    x, last = call.value(0), call.flag("channels_last")
    numbers = _numbers(call, channels_first(call, x) if last else x, _levels(call, 1))
    (y,) = import_average_pool(as_standard(call, numbers))
    assert isinstance(y, Value)
    stored = _rounded_last(call, y, _levels(call, 3), x)
    return [channels_last(call, stored) if last else stored]


def import_qlinear_conv_of_either_order(call: OnnxNode) -> Sequence[Operand]:
    """ONNX com.microsoft.QLinearConv 1: ONNX's, of data with channels first or last."""
    window = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
    only(call, "channels_last", *window, inputs=9)
    if not call.flag("channels_last"):
        return import_qlinear_conv(call)
    x = channels_first(call, call.value(0))
    (y,) = import_qlinear_conv(as_standard(call, x, *call.operands[1:]))
    assert isinstance(y, Value)
    return [channels_last(call, y)]
