"""One spelling for things that can be said in several ways.

    Pointwise($0), Pad by nothing, 1x1 pooling, Resize to the same size, Concat of one  ->  gone
    Concat(…, Concat(…), …) on one axis       ->  one Concat
    Pool2d over the whole feature map         ->  Reduce over rows and columns
    Reduce(keepdims), Move that squeezes      ->  Reduce without keepdims

Must not touch casts to another type, inner Concats that others read or that are read twice (every
level would double the operands), or pooling whose windows reach into padding.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from saccade.ir import Node, Value
from saccade.ir.compose_maps import is_view
from saccade.ir.expr import IDENTITY, apply, const
from saccade.opdefs import Concat, Move, Pad, Pointwise, Pool2d, Reduce, Resize
from saccade.passes._editor import Editor
from saccade.passes._pass import Pass, Rule

__all__ = ["NOTHING", "PASS"]


_SAME_INTEGERS = frozenset(
    apply(op, IDENTITY, const(number)) for op, number in (("add", 0), ("sub", 0), ("mul", 1))
)


def match_nothing(_editor: Editor, node: Node) -> Node | None:
    """An operator that hands its operand through."""
    if len(node.inputs) != 1 or not _hands_through(node):
        return None
    same = node.inputs[0].dtype is node.output.dtype and node.inputs[0].shape == node.output.shape
    return node if same else None


def _hands_through(node: Node) -> bool:
    op = node.op
    if isinstance(op, Pointwise):
        # Floating-point expressions are shortened in more ways (`simplify_expressions`).
        return op.expr == IDENTITY or (not op.dtype.is_float and op.expr in _SAME_INTEGERS)
    if isinstance(op, Concat):
        return True
    if isinstance(op, Pad):
        return all(pair == (0, 0) for pair in op.pads)
    if isinstance(op, Resize):
        plain = op.scales is None or all(scale == 1 for scale in op.scales)
        return plain and op.epilogue == IDENTITY
    if isinstance(op, Pool2d):
        alone = op.kernel == (1, 1) and op.stride == (1, 1) and not any(op.padding)
        return alone and op.epilogue == IDENTITY
    return False


def refuse_nothing(_editor: Editor, _node: Node) -> str | None:
    """No reason to keep it."""
    return None


def rewrite_nothing(editor: Editor, node: Node) -> None:
    """Read the operand instead."""
    editor.alias(node.output, node.inputs[0])


@dataclass(frozen=True, slots=True)
class _NodePair:
    """A node and the node that it reads."""

    outer: Node
    inner: Node


def match_concat(editor: Editor, node: Node) -> _NodePair | None:
    """A Concat that reads a Concat on the same axis."""
    if not isinstance(node.op, Concat):
        return None
    for value in node.inputs:
        inner = editor.producer(value)
        if inner is not None and inner.op == node.op:
            return _NodePair(node, inner)
    return None


def refuse_concat(editor: Editor, found: _NodePair) -> str | None:
    """An inner Concat that is needed anyway, or that is made once and copied as often as read."""
    if found.outer.inputs.count(found.inner.output) > 1:
        return "the inner Concat is read twice"
    if not editor.single_use(found.inner.output):
        return "the inner Concat is also read elsewhere"
    return None


def rewrite_concat(editor: Editor, found: _NodePair) -> None:
    """Splice the inner operands in."""
    inputs: list[Value] = []
    for value in found.outer.inputs:
        inputs += found.inner.inputs if value is found.inner.output else (value,)
    editor.replace(found.outer, found.outer.op, inputs)


def match_global_pool(_editor: Editor, node: Node) -> Node | None:
    """Pooling with one window that is as large as the feature map."""
    op = node.op
    if not isinstance(op, Pool2d) or op.dilation != (1, 1):
        return None
    return node if tuple(node.inputs[0].shape[2:]) == op.kernel else None


def refuse_global_pool(_editor: Editor, node: Node) -> str | None:
    """Windows with padding, and a 1x1 feature map."""
    assert isinstance(node.op, Pool2d)
    if any(node.op.padding):
        return "the window reaches into padding"
    return None


def rewrite_global_pool(editor: Editor, node: Node) -> None:
    """A reduction over rows and columns."""
    op = node.op
    assert isinstance(op, Pool2d)
    kind = "mean" if op.kind == "average" else "max"
    editor.replace(node, Reduce(kind, (2, 3), True, op.epilogue), node.inputs)


def match_squeeze(editor: Editor, node: Node) -> _NodePair | None:
    """A reduction whose axes of 1 are dropped next."""
    inner = editor.producer(node.inputs[0]) if isinstance(node.op, Move) else None
    if inner is None or not isinstance(inner.op, Reduce) or not inner.op.keepdims:
        return None
    kept = tuple(d for i, d in enumerate(inner.output.shape) if i not in inner.op.axes)
    assert isinstance(node.op, Move)
    squeezed = node.output.shape == kept and is_view(node.op.map)
    return _NodePair(node, inner) if squeezed else None


def refuse_squeeze(editor: Editor, found: _NodePair) -> str | None:
    """Reductions that others read, or whose epilogue has operands with those axes."""
    if not editor.single_use(found.inner.output):
        return "the reduction is also read elsewhere"
    if len(found.inner.inputs) > 1:
        return "the epilogue has operands with the reduced axes"
    return None


def rewrite_squeeze(editor: Editor, found: _NodePair) -> None:
    """Reduce without the axes of 1."""
    assert isinstance(found.inner.op, Reduce)
    editor.replace(found.outer, replace(found.inner.op, keepdims=False), found.inner.inputs)


NOTHING = Rule(match_nothing, refuse_nothing, rewrite_nothing)
"""Operators that hand their operand through."""

PASS = Pass(
    "canonicalise",
    (
        NOTHING,
        Rule(match_concat, refuse_concat, rewrite_concat),
        Rule(match_global_pool, refuse_global_pool, rewrite_global_pool),
        Rule(match_squeeze, refuse_squeeze, rewrite_squeeze),
    ),
    after=("fold_constants", "normalise_operands", "simplify_expressions"),
)
