"""Elementwise work behind a transposed product is done before the transposition.

    Pointwise f(Transpose(y), c…),  y a product   ->   Transpose(Pointwise f(y, Transpose⁻¹(c)…))

so that it becomes the product's epilogue, and a scale of channels goes into its weights. Blocks of
ConvNeXt end so: matrix products over channels that come last, a scale and a residual sum over
channels that come first. A residual that a transposition of the same kind made is read in front of
it, so that from block to block all is in the products' order. Must not touch: a transposition that
others read too, or one whose operand is read elsewhere; operands that no epilogue takes; a residual
that would have to be moved, unless it is a result of an operator over images, which are stored
in whatever order is cheapest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from saccade.ir import Factor, IndexMap, Node, Value
from saccade.ir.index_map import transpose_map
from saccade.opdefs import Conv2d, ConvTranspose2d, MatMul, Move, Pointwise, Pool2d
from saccade.passes._editor import Editor
from saccade.passes._operands import channel_axis
from saccade.passes._pass import Pass, Rule

__all__ = ["PASS"]

_Product = Conv2d | ConvTranspose2d | MatMul
_OverImages = Conv2d | ConvTranspose2d | Pool2d


@dataclass(frozen=True, slots=True)
class _Delayed:
    """A Pointwise over a transposition whose axis `order[i]` becomes axis i."""

    move: Node
    order: tuple[int, ...]
    pointwise: Node


def _order(index_map: IndexMap) -> tuple[int, ...] | None:
    """The order of a transposition that is more than a renaming of axes; None of other maps."""
    sizes = [size for axis in index_map.in_factors for size in axis]
    single = all(len(axis) == 1 for axis in index_map.in_factors)
    if not single or set(index_map.out_groups) != {1} or len(index_map.factors) != len(sizes):
        return None
    order = []
    for factor in index_map.factors:
        if factor.source is None or factor != Factor(sizes[factor.source], factor.source):
            return None
        order.append(factor.source)
    return tuple(order) if order != sorted(order) else None


def _product(editor: Editor, value: Value, depth: int = 8) -> Node | None:
    """The product that a value is computed by, perhaps with some elementwise work behind it."""
    if depth == 0 or not editor.single_use(value):
        return None
    node = editor.producer(value)
    if node is None or isinstance(node.op, _Product):
        return node
    if not isinstance(node.op, Pointwise):
        return None
    whole = (operand for operand in node.inputs if operand.shape == value.shape)
    found = (_product(editor, operand, depth - 1) for operand in whole)
    return next((product for product in found if product is not None), None)


def match(editor: Editor, node: Node) -> _Delayed | None:
    """A Pointwise over a transposed product."""
    if not isinstance(node.op, Pointwise):
        return None
    found = None
    # A residual may be a transposed product as well, which others read.
    for value in sorted(node.inputs, key=editor.single_use, reverse=True):
        move = editor.producer(value)
        if move is None or not isinstance(move.op, Move) or value.shape != node.output.shape:
            continue
        order = _order(move.op.map)
        if order is not None and _product(editor, move.inputs[0]) is not None:
            found = found or _Delayed(move, order, node)
    return found


def refuse(editor: Editor, found: _Delayed) -> str | None:
    """See the cases above."""
    moved, result = found.move.output, found.pointwise.output
    if not editor.single_use(moved):
        return f"%{moved.name} is also read elsewhere"
    if moved.dtype is not result.dtype:
        return f"the element type changes from {moved.dtype.value} to {result.dtype.value}"
    product = _product(editor, found.move.inputs[0])
    assert product is not None
    channel = found.order.index(channel_axis(product.op, moved.rank))
    others = [value for value in found.pointwise.inputs if value is not moved]
    reasons = (_refuse_operand(editor, value, found, channel) for value in others)
    return next((reason for reason in reasons if reason is not None), None)


def _refuse_operand(editor: Editor, operand: Value, found: _Delayed, channel: int) -> str | None:
    result = found.pointwise.output
    if editor.constant(operand) is not None:
        lead = result.rank - operand.rank
        varies = {lead + at for at, size in enumerate(operand.shape) if size != 1}
        return None if varies <= {channel} else f"%{operand.name} is not a number per channel"
    if operand.shape != result.shape:
        return f"%{operand.name} is broadcast"
    maker = editor.producer(operand)
    if maker is not None and isinstance(maker.op, _OverImages):
        return None
    if _before(editor, operand, found.order) is None:
        return f"%{operand.name} would have to be moved"
    return None


def _before(editor: Editor, operand: Value, order: tuple[int, ...]) -> Value | None:
    """What the same transposition made the operand of."""
    maker = editor.producer(operand)
    if maker is None or not isinstance(maker.op, Move) or _order(maker.op.map) != order:
        return None
    return maker.inputs[0]


def rewrite(editor: Editor, found: _Delayed) -> None:
    """Compute first, then transpose."""
    moved = found.move.output
    operands = [
        found.move.inputs[0] if value is moved else _moved_back(editor, value, found)
        for value in found.pointwise.inputs
    ]
    value = editor.emit(found.pointwise, found.pointwise.op, operands)
    editor.replace(found.pointwise, found.move.op, (value,))


def _moved_back(editor: Editor, operand: Value, found: _Delayed) -> Value:
    order, rank = found.order, len(found.order)
    back = tuple(order.index(axis) for axis in range(rank))
    array = editor.constant(operand)
    if array is not None:
        whole = array.reshape((1,) * (rank - array.ndim) + array.shape)
        return editor.add_constant(np.ascontiguousarray(whole.transpose(back)), operand.name)
    before = _before(editor, operand, order)
    if before is not None:
        return before
    return editor.emit(found.pointwise, Move(transpose_map(operand.shape, back)), (operand,))


PASS = Pass("delay_transposes", (Rule(match, refuse, rewrite),), after=("compose_moves",))
