"""Batch normalisation and other per-channel arithmetic around a convolution goes into its weights.

    a·(w * x + b) + c   ->   (a·w) * x + (a·b + c)          one a, c per output channel
    w * (s·x + t) + b   ->   (s·w) * x + (b + Σ w·t)        one s, t per input channel

computed in float64, stored in the weights' type. The bias is the epilogue `add($0, $1)`.

Must not touch: results that others read too; weights that are not constants; an epilogue that is
not affine; a shift in front of a convolution that pads (the padding is 0, not t: the border would
be wrong); scales that are not finite.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from saccade.ir import Array, Node, Value
from saccade.ir import expr as e
from saccade.opdefs import Conv2d, ConvTranspose2d, MatMul, Pointwise
from saccade.passes._editor import Editor
from saccade.passes._operands import (
    affine,
    channel_axis,
    channel_vector,
    epilogue_operands,
    inline,
)
from saccade.passes._pass import Pass, Rule

__all__ = ["PASS", "own_affine", "scale_shift", "with_bias"]

_Weighted = Conv2d | ConvTranspose2d | MatMul
_BIAS = e.apply("add", e.arg(0), e.arg(1))


@dataclass(frozen=True, slots=True)
class _ScaleShiftMatch:
    """A product with weights, and `scale · + shift` in front of or behind it."""

    product: Node
    pointwise: Node
    scale: Array
    shift: Array


def scale_shift(editor: Editor, node: Node, x: Value, axis: int) -> tuple[Array, Array] | None:
    """What a Pointwise multiplies `x` with and adds to it, per channel."""
    if not isinstance(node.op, Pointwise) or not x.dtype.is_float:
        return None
    if node.output.shape != x.shape or node.output.dtype is not x.dtype:
        return None
    vectors = _vectors(editor, [v for v in node.inputs if v is not x], x.rank, axis)
    if vectors is None:
        return None
    index = node.inputs.index(x)
    known = {i: vectors[v] for i, v in enumerate(node.inputs) if v is not x}
    return affine(node.op.expr, index, known)


def _vectors(
    editor: Editor, values: list[Value], rank: int, axis: int
) -> dict[Value, Array] | None:
    found: dict[Value, Array] = {}
    for value in values:
        array = editor.constant(value)
        vector = None if array is None else channel_vector(array, rank, axis)
        if vector is None:
            return None
        found[value] = vector
    return found


def match_behind(editor: Editor, node: Node) -> _ScaleShiftMatch | None:
    """A Pointwise that scales and shifts the channels of a product."""
    if not isinstance(node.op, Pointwise):
        return None
    for value in node.inputs:
        product = editor.producer(value)
        if product is not None and isinstance(product.op, _Weighted):
            found = scale_shift(editor, node, value, channel_axis(product.op, value.rank))
            if found is not None:
                return _ScaleShiftMatch(product, node, *found)
    return None


def refuse_behind(editor: Editor, found: _ScaleShiftMatch) -> str | None:
    """See the cases above."""
    product = found.product
    if not editor.single_use(product.output):
        return "the result in front of it is also read elsewhere"
    if not (np.isfinite(found.scale).all() and np.isfinite(found.shift).all()):
        return "a scale or a shift is not finite"
    if own_affine(editor, product) is None:
        return "the epilogue in front of it is not a scale and a shift"
    if isinstance(product.op, Conv2d) and product.op.store is not None:
        return "the convolution stores its channels elsewhere"
    if editor.constant(product.inputs[1]) is None:
        return "the weights are not constant"
    if isinstance(product.op, MatMul) and product.inputs[1].rank != 2:
        return "there is a matrix of weights per batch"
    return None


def own_affine(editor: Editor, product: Node) -> tuple[Array, Array] | None:
    """What the epilogue does to the sums, per channel."""
    operands, rank = epilogue_operands(product), product.output.rank
    vectors = _vectors(editor, list(operands), rank, channel_axis(product.op, rank))
    if vectors is None:
        return None
    assert isinstance(product.op, _Weighted)
    known = {index: vectors[value] for index, value in enumerate(operands, start=1)}
    return affine(product.op.epilogue, 0, known)


def rewrite_behind(editor: Editor, found: _ScaleShiftMatch) -> None:
    """Scale the weights and the bias."""
    product = found.product
    own = own_affine(editor, product)
    assert own is not None
    scale, bias = found.scale * own[0], found.scale * own[1] + found.shift
    weights = _scale_outputs(editor, product, scale)
    op, operands = with_bias(editor, product, bias)
    end = len(product.inputs) - len(epilogue_operands(product))
    inputs = (product.inputs[0], weights, *product.inputs[2:end], *operands)
    editor.replace(found.pointwise, op, inputs)


def _scale_outputs(editor: Editor, product: Node, scale: Array) -> Value:
    """The weights with every output channel scaled."""
    value = product.inputs[1]
    if (scale == 1).all():
        return value
    weights = editor.constant(value)
    assert weights is not None
    op = product.op
    factors: Array
    if isinstance(op, Conv2d):
        factors = scale.reshape(-1, 1, 1, 1)
    elif isinstance(op, MatMul):
        factors = scale.reshape(-1, 1) if op.transpose_b else scale
    else:
        assert isinstance(op, ConvTranspose2d)
        grouped = weights.reshape(op.groups, -1, *weights.shape[1:])
        factors = np.broadcast_to(scale, op.groups * weights.shape[1])
        factors = factors.reshape(op.groups, 1, -1, 1, 1)
        return editor.add_constant(_product(grouped, factors).reshape(weights.shape), value.name)
    return editor.add_constant(_product(weights, factors), value.name)


def _product(weights: Array, factors: Array) -> Array:
    """The product in float64, rounded once to the weights' type."""
    return np.multiply(
        weights, factors, dtype=np.float64, out=np.empty_like(weights), casting="same_kind"
    )


def with_bias(editor: Editor, product: Node, bias: Array) -> tuple[_Weighted, tuple[Value, ...]]:
    """The operator with a bias as its whole epilogue."""
    assert isinstance(product.op, _Weighted)
    if not bias.any():
        return replace(product.op, epilogue=e.IDENTITY), ()
    result = product.output
    return replace(product.op, epilogue=_BIAS), (_bias_constant(editor, product, bias, result),)


def _bias_constant(editor: Editor, product: Node, bias: Array, result: Value) -> Value:
    axis = channel_axis(product.op, result.rank)
    channels = result.shape[axis]
    full = np.broadcast_to(bias, (channels,)) if isinstance(channels, int) else bias
    shape = (1, -1, 1, 1) if axis == 1 and result.rank == 4 else (-1,)
    array = full.astype(result.dtype.numpy).reshape(shape)
    return editor.add_constant(array, f"{result.name}.bias")


def match_front(editor: Editor, node: Node) -> _ScaleShiftMatch | None:
    """A convolution of a feature map whose channels a Pointwise scales and shifts."""
    if not isinstance(node.op, Conv2d):
        return None
    pointwise = editor.producer(node.inputs[0])
    if pointwise is None or not isinstance(pointwise.op, Pointwise):
        return None
    varying = [v for v in pointwise.inputs if editor.constant(v) is None]
    if len(varying) != 1:
        return None
    found = scale_shift(editor, pointwise, varying[0], 1)
    return None if found is None else _ScaleShiftMatch(node, pointwise, *found)


def refuse_front(editor: Editor, found: _ScaleShiftMatch) -> str | None:
    """See the cases above."""
    for reader in editor.readers(found.pointwise.output):
        if not isinstance(reader.op, Conv2d) or reader.inputs.count(found.pointwise.output) > 1:
            return "the scaled feature map is also read by others than convolutions"
        if editor.constant(reader.inputs[1]) is None:
            return "the weights are not constant"
        if found.shift.any() and any(reader.op.padding):
            return "the shift does not hold in the padding"
        if reader.op.prologue != e.IDENTITY:
            return "the convolution has a prologue"
    if editor.is_output(found.pointwise.output):
        return "the scaled feature map is an output of the graph"
    if not (np.isfinite(found.scale).all() and np.isfinite(found.shift).all()):
        return "a scale or a shift is not finite"
    return None


def rewrite_front(editor: Editor, found: _ScaleShiftMatch) -> None:
    """Scale the weights per input channel; the shift becomes a bias under the epilogue."""
    product = found.product
    op, value = product.op, product.inputs[1]
    assert isinstance(op, Conv2d)
    weights = editor.constant(value)
    assert weights is not None
    channels = weights.shape[1] * op.groups
    grouped = weights.reshape(op.groups, -1, *weights.shape[1:])
    scale, shift = (
        np.broadcast_to(v, channels).reshape(op.groups, 1, -1, 1, 1)
        for v in (found.scale, found.shift)
    )
    scaled = _product(grouped, scale).reshape(weights.shape)
    source = next(v for v in found.pointwise.inputs if editor.constant(v) is None)
    inputs = [source, editor.add_constant(scaled, value.name), *product.inputs[2:]]
    # The sum over a window of the shift, which is the same for all pixels as nothing is padded.
    if shift.any():
        sums = (grouped.astype(np.float64) * shift).sum(axis=(2, 3, 4)).reshape(-1)
        op, operands = _shifted(editor, product, sums)
        end = len(product.inputs) - len(epilogue_operands(product)) - op.n_store
        store = product.inputs[len(product.inputs) - op.n_store :]
        inputs = [*inputs[:end], *operands, *store]
    editor.replace(product, op, inputs)


def _shifted(editor: Editor, product: Node, sums: Array) -> tuple[Conv2d, tuple[Value, ...]]:
    """The operator and its epilogue operands when `sums` are added before the epilogue."""
    op = product.op
    assert isinstance(op, Conv2d)
    own = own_affine(editor, product) if op.store is None else None
    # A bias alone takes the sums up; an epilogue of more than that gets them as an operand.
    if own is not None and (own[0] == 1).all():
        shifted, operands = with_bias(editor, product, own[1] + sums)
        assert isinstance(shifted, Conv2d)
        return shifted, operands
    bias = editor.add_constant(
        sums.astype(product.output.dtype.numpy).reshape(1, -1, 1, 1), product.output.name
    )
    under = Value("sum", product.output.dtype, product.output.shape)
    inputs = (under, *epilogue_operands(product))
    expr, operands = inline(op.epilogue, inputs, under, _BIAS, (bias,), offset=1)
    return replace(op, epilogue=expr), operands


PASS = Pass(
    "fold_scale_shift",
    (
        Rule(match_behind, refuse_behind, rewrite_behind),
        Rule(match_front, refuse_front, rewrite_front),
    ),
    after=("fold_constants", "normalise_operands", "canonicalise"),
)
