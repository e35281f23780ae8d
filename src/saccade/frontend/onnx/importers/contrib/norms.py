"""Normalisations: of sums, of roots of mean squares alone, and of groups with channels last."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce

import numpy as np

from saccade.frontend.onnx.call import OnnxNode, Operand
from saccade.frontend.onnx.importers._elementwise import cast_to, pointwise
from saccade.frontend.onnx.importers.contrib._forms import (
    channels_first,
    channels_last,
    only,
    optional,
)
from saccade.frontend.onnx.importers.normalization import import_layer_normalization
from saccade.frontend.onnx.moves import reshaped
from saccade.frontend.onnx.refusal import Refusal
from saccade.ir import Dim, DType, Expr, Value
from saccade.ir.expr import apply, arg, const
from saccade.opdefs import Gather, GroupNorm, LayerNorm, Reduce

__all__ = [
    "import_embed_layer_normalization",
    "import_group_norm",
    "import_older_layer_normalization",
    "import_simplified_layer_normalization",
    "import_skip_group_norm",
    "import_skip_layer_normalization",
    "import_skip_simplified_layer_normalization",
]

_EPSILON = 1e-12
"""ONNX Runtime's default where it adds before it normalises."""
_STANDARD_SINCE = 17


def _added(call: OnnxNode, *operands: Value | None) -> Value:
    """The sum of what is there."""
    there = [value for value in operands if value is not None]
    return pointwise(
        call, lambda *e: reduce(partial(apply, "add"), e), there, there[0].dtype
    )  # fmt: skip


def import_older_layer_normalization(call: OnnxNode) -> Sequence[Operand]:
    """ONNX LayerNormalization 17, and 1 as ONNX Runtime wrote it before there was one."""
    if call.opset < _STANDARD_SINCE:
        only(call, "axis", "epsilon", "stash_type", inputs=3)
    return import_layer_normalization(call)


def import_skip_layer_normalization(call: OnnxNode) -> Sequence[Operand]:
    """ONNX com.microsoft.SkipLayerNormalization 1, without mean and deviation."""
    only(call, "epsilon", inputs=5)
    total = _added(call, call.value(0), call.value(1), optional(call, 4))
    beta = [call.value(3)] if call.has(3) else []
    op = LayerNorm(axis=total.rank - 1, epsilon=call.finite("epsilon", _EPSILON))
    return _with_sum(call, call.emit(op, total, call.value(2), *beta), total)


def import_skip_simplified_layer_normalization(call: OnnxNode) -> Sequence[Operand]:
    """ONNX com.microsoft.SkipSimplifiedLayerNormalization 1, without mean and deviation."""
    only(call, "epsilon", inputs=4)
    total = _added(call, call.value(0), call.value(1), optional(call, 3))
    epsilon = call.finite("epsilon", _EPSILON)
    return _with_sum(call, _by_squares(call, total, call.value(2), epsilon, total.rank - 1), total)


def _with_sum(call: OnnxNode, y: Value, total: Value) -> Sequence[Operand]:
    """The results: the sum is the fourth, and the two between are for training."""
    for index, name in ((1, "mean"), (2, "inv_std_var")):
        if index < len(call.node.outputs) and call.node.outputs[index].name:
            raise Refusal(f"its output {name}")
    return [y, total, total, total]


def import_simplified_layer_normalization(call: OnnxNode) -> Sequence[Operand]:
    """ONNX SimplifiedLayerNormalization 1, ONNX Runtime's: `x / sqrt(mean(x²) + epsilon) · s`."""
    only(call, "axis", "epsilon", "stash_type", inputs=2)
    if call.integer("stash_type", 1) != 1:
        raise Refusal("attribute 'stash_type'")
    x = call.value(0)
    axis = call.axis(call.integer("axis", -1), x.rank)
    return [_by_squares(call, x, call.value(1), call.finite("epsilon", 1e-5), axis)]


def _by_squares(call: OnnxNode, x: Value, scale: Value, epsilon: float, axis: int) -> Value:
    """`x / sqrt(mean(x²) + epsilon) · scale` over the axes from `axis` on."""
    square = pointwise(call, lambda e: apply("mul", e, e), [cast_to(call, x, DType.F32)])
    root = apply("rsqrt", apply("add", arg(0), const(epsilon)))
    factor = call.emit(Reduce("mean", tuple(range(axis, x.rank)), epilogue=root), square)

    def make(e: Expr, f: Expr, s: Expr) -> Expr:
        return apply("mul", apply("mul", e, f), s)

    return pointwise(call, make, [x, factor, scale], x.dtype)


def import_embed_layer_normalization(call: OnnxNode) -> Sequence[Operand]:
    """ONNX com.microsoft.EmbedLayerNormalization 1, without the lengths that a mask gives."""
    only(call, "epsilon", "mask_index_type", inputs=9)
    # A mask is only counted, into a result that nothing else here gives.
    words = call.value(0)
    if words.rank != 2:
        raise call.broken(f"words of {words.rank} axes")
    places = optional(call, 8)
    if places is None:
        length = words.shape[1]
        if not isinstance(length, int):
            raise Refusal("places of sequences whose length varies")
        places = call.build.constant(np.arange(length, dtype=np.int64), "places")
    parts = [_rows(call, call.value(2), words), _rows(call, call.value(3), places)]
    if call.has(1):
        parts.append(_rows(call, call.value(4), call.value(1)))
    total = _added(call, *parts)
    op = LayerNorm(axis=total.rank - 1, epsilon=call.finite("epsilon", _EPSILON))
    return [call.emit(op, total, call.value(5), call.value(6))]


def _rows(call: OnnxNode, table: Value, indices: Value) -> Value:
    return call.emit(Gather(axis=0), table, cast_to(call, indices, DType.I64))


_GROUPED = ("activation", "channels_last", "epsilon", "groups")


def import_group_norm(call: OnnxNode) -> Sequence[Operand]:
    """ONNX com.microsoft.GroupNorm 1: channels last or first, SiLU behind it or not."""
    only(call, *_GROUPED, inputs=3)
    return [_grouped(call, call.value(0))]


def import_skip_group_norm(call: OnnxNode) -> Sequence[Operand]:
    """ONNX com.microsoft.SkipGroupNorm 1: GroupNorm of a sum, and the sum."""
    only(call, *_GROUPED, inputs=5)
    x, skip = call.value(0), call.value(3)
    if skip.rank == 2 and x.rank == 4:
        skip = reshaped(call, skip, _spread(call, skip.shape))
    bias = optional(call, 4)
    if bias is not None and not call.flag("channels_last", default=True):
        bias = reshaped(call, bias, (*bias.shape, *(1,) * (x.rank - 2)))
    total = _added(call, x, skip, bias)
    return [_grouped(call, total), total]


def _spread(call: OnnxNode, shape: Sequence[Dim]) -> tuple[Dim, ...]:
    """[N, C] as images of one pixel."""
    n, c = shape
    return (n, 1, 1, c) if call.flag("channels_last", default=True) else (n, c, 1, 1)


def _grouped(call: OnnxNode, x: Value) -> Value:
    last = call.flag("channels_last", default=True)
    x = channels_first(call, x) if last else x
    op = GroupNorm(call.integer("groups", 0), call.finite("epsilon", 1e-5))
    scale, bias = (cast_to(call, call.value(index), x.dtype) for index in (1, 2))
    y = call.emit(op, x, scale, bias)
    if call.flag("activation"):
        y = pointwise(call, partial(apply, "silu"), [y])
    return channels_last(call, y) if last else y
