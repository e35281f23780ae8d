"""A 1x1 convolution that widens a large picture goes into the depthwise convolution behind it.

    Conv2d(Conv2d(x, w1), w2)  ->  ExpandDepthwise(x, w1, w2)

The wide picture is the largest value of a mobile network, larger than a core's caches: computed a
few rows at a time it never leaves them. Must not touch: a wide picture that anyone else needs or
that is stored anywhere but plainly, epilogues of the first convolution with operands that vary
from pixel to pixel or picture to picture, prologues, and wide pictures that a core's cache holds
anyway, for which one convolution after the other is as fast.
"""

from __future__ import annotations

from dataclasses import dataclass

from saccade.ir import Node, Value
from saccade.ir.expr import IDENTITY
from saccade.opdefs import Conv2d, ExpandDepthwise
from saccade.passes._editor import Editor
from saccade.passes._operands import epilogue_operands
from saccade.passes._pass import Pass, Rule

__all__ = ["PASS"]

_LARGE = 1 << 18
"""Elements of a wide picture from which on it is fused: 1 MiB of float32, a second cache."""


@dataclass(frozen=True, slots=True)
class _Match:
    expand: Node
    depthwise: Node


def match(editor: Editor, node: Node) -> _Match | None:
    """A convolution with a group for each channel of what a 1x1 convolution gives."""
    if not _is_depthwise(node):
        return None
    maker = editor.producer(node.inputs[0])
    if maker is None or not isinstance(maker.op, Conv2d):
        return None
    return _Match(maker, node) if maker.inputs[1].shape[2:] == (1, 1) else None


def _is_depthwise(node: Node) -> bool:
    op = node.op
    if not isinstance(op, Conv2d) or op.groups == 1:
        return False
    return node.inputs[1].shape[:2] == (op.groups, 1)


def refuse(editor: Editor, found: _Match) -> str | None:
    """See the cases above."""
    op, wide = found.expand.op, found.expand.output
    assert isinstance(op, Conv2d) and isinstance(found.depthwise.op, Conv2d)
    if not editor.single_use(wide):
        return "the result of the 1x1 convolution is also read elsewhere"
    if (op.stride, op.padding, op.groups, op.store) != ((1, 1), (0, 0, 0, 0), 1, None):
        return "the 1x1 convolution strides, pads, has groups or stores elsewhere"
    if found.depthwise.op.store is not None:
        return "the depthwise convolution stores elsewhere"
    if op.prologue != IDENTITY or found.depthwise.op.prologue != IDENTITY:
        return "a convolution has a prologue"
    if any(editor.constant(node.inputs[1]) is None for node in (found.expand, found.depthwise)):
        return "weights are not known ahead"
    return _refuse_operands(editor, found.expand) or _refuse_size(wide)


def _refuse_operands(editor: Editor, expand: Node) -> str | None:
    for value in epilogue_operands(expand):
        shape = (1,) * (4 - value.rank) + value.shape
        if editor.constant(value) is None or shape[0] != 1 or shape[2:] != (1, 1):
            return f"%{value.name} is not a constant per channel"
    return None


def _refuse_size(wide: Value) -> str | None:
    size = 1
    for dim in wide.shape[1:]:
        if not isinstance(dim, int):
            return f"%{wide.name} has no size yet"
        size *= dim
    return None if size >= _LARGE else f"%{wide.name} fits a core's cache"


def rewrite(editor: Editor, found: _Match) -> None:
    """Replace the depthwise convolution; the other one goes with its last reader."""
    first, second = found.expand, found.depthwise
    assert isinstance(first.op, Conv2d) and isinstance(second.op, Conv2d)
    own, others = epilogue_operands(first), epilogue_operands(second)
    op = ExpandDepthwise(first.op, second.op, len(own))
    inputs = (first.inputs[0], first.inputs[1], second.inputs[1], *own, *others)
    editor.replace(second, op, inputs)


PASS = Pass("fuse_expand", (Rule(match, refuse, rewrite),), after=("fuse_store", "fuse_prologue"))
