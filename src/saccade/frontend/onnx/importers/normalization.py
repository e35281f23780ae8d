"""Normalisations: at inference most are a scale and a shift per channel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from saccade.frontend.onnx.call import OnnxNode, Operand
from saccade.frontend.onnx.importers._elementwise import pointwise
from saccade.frontend.onnx.moves import reshaped
from saccade.frontend.onnx.refusal import Refusal
from saccade.ir import Array, Expr, Value
from saccade.ir.expr import apply, const
from saccade.opdefs import GroupNorm, LayerNorm, LocalResponseNorm, LpNormalize, Reduce

__all__ = [
    "import_batch_normalization",
    "import_group_normalization",
    "import_instance_normalization",
    "import_layer_normalization",
    "import_lp_normalization",
    "import_lrn",
]

_TRAINING_MODE_SINCE = 14
_IS_TEST_UNTIL = 6


def import_batch_normalization(call: OnnxNode) -> Sequence[Operand]:
    """ONNX BatchNormalization 1 to 15; at inference `x · k + b`, which float64 gives if known."""
    x = call.value(0)
    # Up to version 8 there may be numbers of its own for each element of an image.
    spatial = call.flag("spatial", default=True)
    parameters = [call.value(index) for index in range(1, 5)]
    alike = {value.shape for value in parameters}
    rank = 1 if spatial else x.rank - 1
    if x.rank < 2 or len(alike) != 1 or parameters[0].rank != rank:
        what = "channel" if spatial else "element of an image"
        raise call.broken(f"parameters that are not one number per {what}")
    if _is_training(call):
        return _in_training(call, x, parameters)
    if not all(map(call.build.is_known, parameters)):
        return [_normalised(call, x, parameters)]
    scale, bias, mean, variance = (
        call.constant(index, "a parameter").astype(np.float64) for index in range(1, 5)
    )
    # A negative variance gives NaN, as it would at run time.
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(variance + call.number("epsilon", 1e-5))
        shift = bias - mean * factor
    parts = [_along_channels(call, array, x) for array in (factor, shift)]

    def make(e: Expr, k: Expr, b: Expr) -> Expr:
        return apply("add", apply("mul", e, k), b)

    return [pointwise(call, make, [x, *parts])]


def _is_training(call: OnnxNode) -> bool:
    """An attribute says it from version 14 on, another one up to 6, between them the results."""
    if call.opset >= _TRAINING_MODE_SINCE:
        return call.flag("training_mode")
    if call.opset <= _IS_TEST_UNTIL:
        return not call.flag("is_test")
    return any(value.name for value in call.node.outputs[1:])


def _normalised(call: OnnxNode, x: Value, parameters: Sequence[Value]) -> Value:
    """By numbers per channel (scale, bias, mean, variance) of which some are computed."""
    epsilon = call.number("epsilon", 1e-5)

    def factor(scale: Expr, variance: Expr) -> Expr:
        return apply("div", scale, apply("sqrt", apply("add", variance, const(epsilon))))

    def make(e: Expr, k: Expr, b: Expr, m: Expr) -> Expr:
        return apply("add", apply("mul", apply("sub", e, m), k), b)

    scale, bias, mean, variance = (
        reshaped(call, value, (1, *value.shape, *(1 for _ in x.shape[1 + value.rank :])))
        for value in parameters
    )
    k = pointwise(call, factor, [scale, variance], x.dtype.arithmetic)
    return pointwise(call, make, [x, k, bias, mean], x.dtype)


def _in_training(call: OnnxNode, x: Value, parameters: Sequence[Value]) -> Sequence[Operand]:
    """By the batch's own mean and variance; the running ones move towards these."""
    momentum = call.number("momentum", 0.9)
    scale, bias, *running = parameters
    axes = (0, *range(1 + scale.rank, x.rank))
    mean = call.emit(Reduce(kind="mean", axes=axes, keepdims=True), x)
    square = pointwise(call, _squared_distance, [x, mean])
    variance = call.emit(Reduce(kind="mean", axes=axes, keepdims=True), square)
    found = [reshaped(call, value, scale.shape) for value in (mean, variance)]
    y = _normalised(call, x, (scale, bias, *found))

    def moved(old: Expr, new: Expr) -> Expr:
        kept = apply("mul", old, const(momentum))
        return apply("add", kept, apply("mul", new, const(1 - momentum)))

    results = [y]
    results += [
        pointwise(call, moved, [old, new], old.dtype)
        for old, new in zip(running, found, strict=True)
    ]
    if call.opset < _TRAINING_MODE_SINCE:
        results += found  # for the gradient
    return results[: len(call.node.outputs)]


def _squared_distance(e: Expr, m: Expr) -> Expr:
    return apply("mul", apply("sub", e, m), apply("sub", e, m))


def _along_channels(call: OnnxNode, array: Array, x: Value) -> Value:
    # In the type that is computed in: float16 would lose what float64 has gained.
    shape = (1, *array.shape, *(1,) * (x.rank - 1 - array.ndim))
    shaped = array.astype(x.dtype.arithmetic.numpy).reshape(shape)
    return call.build.constant(shaped, f"{call.name}.parameter")


def import_layer_normalization(call: OnnxNode) -> Sequence[Operand]:
    """ONNX LayerNormalization 17."""
    x = call.value(0)
    op = LayerNorm(
        axis=call.axis(call.integer("axis", -1), x.rank), epsilon=call.number("epsilon", 1e-5)
    )
    operands = [call.value(1)] + ([call.value(2)] if call.has(2) else [])
    return [call.emit(op, x, *operands)]


def import_instance_normalization(call: OnnxNode) -> Sequence[Operand]:
    """ONNX InstanceNormalization 6 and 22."""
    x = call.value(0)
    if x.rank < 3 or not isinstance(x.shape[1], int):
        raise Refusal("instance normalization of an unknown number of channels")
    # Each channel is a group of its own.
    op = GroupNorm(groups=x.shape[1], epsilon=call.number("epsilon", 1e-5))
    return [call.emit(op, x, call.value(1), call.value(2))]


def import_group_normalization(call: OnnxNode) -> Sequence[Operand]:
    """ONNX GroupNormalization 18 (parameters per group) and 21 (per channel)."""
    x = call.value(0)
    groups = call.integer("num_groups", 0)
    scale, bias = call.value(1), call.value(2)
    if x.rank < 3 or not isinstance(x.shape[1], int) or groups < 1 or x.shape[1] % groups:
        raise call.broken(f"{groups} groups")
    if call.opset < 21:
        each = x.shape[1] // groups
        scale, bias = (
            call.build.known(
                np.repeat(call.constant(index, "a parameter"), each), value.dtype, call.name
            )
            for index, value in ((1, scale), (2, bias))
        )
    op = GroupNorm(groups=groups, epsilon=call.number("epsilon", 1e-5))
    return [call.emit(op, x, scale, bias)]


def import_lp_normalization(call: OnnxNode) -> Sequence[Operand]:
    """ONNX LpNormalization 1 and 22."""
    x = call.value(0)
    p = call.integer("p", 2)
    if p not in (1, 2):
        raise call.broken(f"p = {p}")
    return [call.emit(LpNormalize(call.axis(call.integer("axis", -1), x.rank), p), x)]


def import_lrn(call: OnnxNode) -> Sequence[Operand]:
    """ONNX LRN 1 and 13."""
    op = LocalResponseNorm(
        size=call.integer("size", 0),
        alpha=call.number("alpha", 1e-4),
        beta=call.number("beta", 0.75),
        bias=call.number("bias", 1.0),
    )
    return [call.emit(op, call.value(0))]
