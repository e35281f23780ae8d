"""Movements of channels behind a convolution are done while it stores.

    DepthToSpace(Conv2d)        ->  Conv2d with DepthToSpaceStore
    f(DepthToSpace(Conv2d), c)  ->  epilogue f, c repeated for the channels before
    shuffle(Concat(a, Conv2d))  ->  Conv2d with InterleaveStore, a beside it

The movements are recognised from their index maps, whatever operators they came from. Must not
touch: convolutions or movements that others read too, Concats of other than two equal parts or
along another axis, a Pointwise behind the movement with operands that vary from pixel to pixel.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from saccade.ir import Node, Value
from saccade.opdefs import (
    Concat,
    Conv2d,
    DepthToSpaceStore,
    InterleaveStore,
    Move,
    Pointwise,
    StoreMap,
)
from saccade.passes._editor import Editor
from saccade.passes._operands import channel_vector, epilogue_operands, inline
from saccade.passes._pass import Pass, Rule
from saccade.passes._store_maps import as_depth_to_space, is_shuffle

__all__ = ["PASS"]


@dataclass(frozen=True, slots=True)
class _StoreMatch:
    """A movement, the convolution that shall do it, and the operands that the store needs."""

    move: Node
    convolution: Node
    store: StoreMap
    others: tuple[Value, ...] = ()


def match_depth_to_space(editor: Editor, node: Node) -> _StoreMatch | None:
    """Depth to space behind a convolution."""
    maker = editor.producer(node.inputs[0]) if isinstance(node.op, Move) else None
    if maker is None or not isinstance(maker.op, Conv2d) or not isinstance(node.op, Move):
        return None
    store = as_depth_to_space(node.op.map)
    return None if store is None else _StoreMatch(node, maker, store)


def refuse_store(editor: Editor, found: _StoreMatch) -> str | None:
    """Results that are needed where they are, and convolutions that store elsewhere already."""
    assert isinstance(found.convolution.op, Conv2d)
    if not editor.single_use(found.convolution.output):
        return "the result of the convolution is also read elsewhere"
    if found.convolution.op.store is not None:
        return "the convolution has a store map already"
    return None


def rewrite_store(editor: Editor, found: _StoreMatch) -> None:
    """Store where the movement would have put it."""
    assert isinstance(found.convolution.op, Conv2d)
    op = replace(found.convolution.op, store=found.store)
    editor.replace(found.move, op, (*found.convolution.inputs, *found.others))


@dataclass(frozen=True, slots=True)
class _Behind:
    pointwise: Node
    convolution: Node


def match_behind(editor: Editor, node: Node) -> _Behind | None:
    """A Pointwise over pixels that a convolution stored from its channels."""
    if not isinstance(node.op, Pointwise):
        return None
    for value in node.inputs:
        maker = editor.producer(value)
        if maker is None or not isinstance(maker.op, Conv2d):
            continue
        if isinstance(maker.op.store, DepthToSpaceStore):
            return _Behind(node, maker)
    return None


def refuse_behind(editor: Editor, found: _Behind) -> str | None:
    """See the cases above."""
    value, result = found.convolution.output, found.pointwise.output
    if not editor.single_use(value):
        return f"%{value.name} is also read elsewhere"
    if value.type != result.type:
        return "the Pointwise changes shape or element type"
    for operand in found.pointwise.inputs:
        if operand is not value:
            array = editor.constant(operand)
            if array is None or channel_vector(array, 4, 1) is None:
                return f"%{operand.name} is not a constant per channel"
            if operand.dtype is not value.dtype:
                return f"%{operand.name} has another element type"
    return None


def rewrite_behind(editor: Editor, found: _Behind) -> None:
    """Compute it before the store."""
    pointwise, convolution = found.pointwise, found.convolution
    op = convolution.op
    assert isinstance(op, Conv2d)
    assert isinstance(op.store, DepthToSpaceStore)
    assert isinstance(pointwise.op, Pointwise)
    value = convolution.output
    inputs = [
        v if v is value else _before_store(editor, v, op.store) for v in pointwise.inputs
    ]  # fmt: skip
    own = epilogue_operands(convolution)
    epilogue, operands = inline(pointwise.op.expr, inputs, value, op.epilogue, own, offset=1)
    kept = convolution.inputs[: 2 + op.n_prologue]
    editor.replace(pointwise, replace(op, epilogue=epilogue), (*kept, *operands))


def _before_store(editor: Editor, value: Value, store: DepthToSpaceStore) -> Value:
    """A constant per channel of the result, for the channels that become its pixels."""
    array = editor.constant(value)
    assert array is not None
    pixels = store.block**2
    flat = array.reshape(-1)
    if flat.size > 1:
        # DCR counts pixels in the outer axis of the channels, CRD in the inner one.
        flat = np.tile(flat, pixels) if store.mode == "DCR" else np.repeat(flat, pixels)
    return editor.add_constant(flat.reshape(1, -1, 1, 1), value.name)


def match_shuffle(editor: Editor, node: Node) -> _StoreMatch | None:
    """A channel shuffle of a Concat, one part of which is a convolution's."""
    concat = editor.producer(node.inputs[0]) if isinstance(node.op, Move) else None
    if concat is None or concat.op != Concat(1) or not isinstance(node.op, Move):
        return None
    if not is_shuffle(node.op.map, len(concat.inputs)):
        return None
    best: Node | None = None
    for value in concat.inputs:
        maker = editor.producer(value)
        if maker is None or not isinstance(maker.op, Conv2d) or maker.op.store is not None:
            continue
        # The last one: when it stores, the other part has been computed.
        if best is None or editor.before(best, maker):
            best = maker
    if best is None:
        return None
    position = concat.inputs.index(best.output)
    others = tuple(value for value in concat.inputs if value is not best.output)
    return _StoreMatch(node, best, InterleaveStore(len(concat.inputs), position), others)


def refuse_shuffle(editor: Editor, found: _StoreMatch) -> str | None:
    """See the cases above."""
    concat = editor.producer(found.move.inputs[0])
    assert concat is not None
    if len(concat.inputs) != 2:
        return f"{len(concat.inputs)} parts interleave, not 2"
    if not editor.single_use(concat.output):
        return "the Concat is also read elsewhere"
    if len({value.shape for value in concat.inputs}) > 1:
        return "the parts are not of equal size"
    if len(found.others) + 1 != len(concat.inputs):
        return "one part is there twice"
    return refuse_store(editor, found)


PASS = Pass(
    "fuse_store",
    (
        Rule(match_depth_to_space, refuse_store, rewrite_store),
        Rule(match_behind, refuse_behind, rewrite_behind),
        Rule(match_shuffle, refuse_shuffle, rewrite_store),
    ),
    after=("compose_moves", "fuse_epilogue"),
)
