"""Elementwise work behind an operator becomes its epilogue.

    Pointwise f(y, c…),  y = op(x…) with epilogue g   ->   op(x…) with epilogue f∘g

Biases, activations, residual sums, gates per image and channel. Of two operators that could
take a Pointwise, the later one does: then nothing moves. Must not touch: results that others read
or that the caller gets; a Pointwise that broadcasts its operand to a larger shape or changes the
element type; operands that are neither a number per channel, nor per image and channel, nor the
size of the result; convolutions with a store map; pooling, reductions and Resize when the
Pointwise reads another tensor; epilogues longer than a bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cmp_to_key

from saccade.ir import DType, Node, Value
from saccade.opdefs import Conv2d, ConvTranspose2d, MatMul, Pointwise
from saccade.passes._editor import Editor
from saccade.passes._operands import (
    Fusible,
    channel_axis,
    epilogue_operands,
    first_epilogue_operand,
    inline,
    too_large,
)
from saccade.passes._pass import Pass, Rule

__all__ = ["PASS"]

_MOST_OPERANDS = 6


@dataclass(frozen=True, slots=True)
class _EpilogueMatch:
    pointwise: Node
    makers: Sequence[Node]


def match(editor: Editor, node: Node) -> _EpilogueMatch | None:
    """A Pointwise, and the operators behind its operands, the latest first."""
    if not isinstance(node.op, Pointwise):
        return None
    found = (editor.producer(value) for value in node.inputs)
    makers = [maker for maker in found if maker is not None and isinstance(maker.op, Fusible)]
    makers.sort(key=cmp_to_key(lambda a, b: 1 if editor.before(a, b) else -1))
    return _EpilogueMatch(node, makers) if makers else None


def refuse(editor: Editor, found: _EpilogueMatch) -> str | None:
    """The last reason, if none of the operators takes the Pointwise."""
    reason = None
    for maker in found.makers:
        reason = _refuse(editor, found.pointwise, maker)
        if reason is None:
            return None
    return reason


def _refuse(editor: Editor, pointwise: Node, maker: Node) -> str | None:
    value, result = maker.output, pointwise.output
    if editor.is_output(value):
        return f"%{value.name} is an output of the graph"
    if not editor.single_use(value):
        return f"%{value.name} is also read elsewhere"
    if value.shape != result.shape:
        return f"%{value.name} is broadcast to a larger shape"
    if value.dtype is not result.dtype:
        return f"the element type changes from {value.dtype.value} to {result.dtype.value}"
    if isinstance(maker.op, Conv2d) and maker.op.store is not None:
        return f"%{value.name} is stored by a map"
    return _refuse_operands(pointwise, maker) or _refuse_length(editor, pointwise, maker)


def _refuse_length(editor: Editor, pointwise: Node, maker: Node) -> str | None:
    assert isinstance(pointwise.op, Pointwise)
    assert isinstance(maker.op, Fusible)
    between, epilogue = maker.output, maker.op.epilogue
    return too_large(pointwise.op.expr, pointwise.inputs, between, epilogue, editor.limits)


def _refuse_operands(pointwise: Node, maker: Node) -> str | None:
    others = [v for v in pointwise.inputs if v is not maker.output]
    if others and not isinstance(maker.op, Conv2d | ConvTranspose2d | MatMul):
        return f"the epilogue of {maker.op.family} takes no tensors"
    if len(set(others) | set(epilogue_operands(maker))) > _MOST_OPERANDS:
        return f"there would be more than {_MOST_OPERANDS} epilogue operands"
    axis = channel_axis(maker.op, maker.output.rank)
    for operand in others:
        if operand.dtype not in (maker.output.dtype, DType.BOOL):
            return f"%{operand.name} has another element type"
        if not _fits(operand, maker.output, axis):
            return f"%{operand.name} is neither per channel nor the size of the result"
    return None


def _fits(operand: Value, result: Value, channel: int) -> bool:
    """Whether the operand varies along all axes, none, the channels, or images and channels."""
    lead = result.rank - operand.rank
    varies = {lead + at for at, size in enumerate(operand.shape) if size != 1}
    every = {at for at, size in enumerate(result.shape) if size != 1}
    allowed = (every, set[int](), {channel} & every, {0, channel} & every)
    return varies in allowed


def rewrite(editor: Editor, found: _EpilogueMatch) -> None:
    """Compute the Pointwise where the result is still in registers."""
    pointwise = found.pointwise
    maker = next(m for m in found.makers if _refuse(editor, pointwise, m) is None)
    assert isinstance(pointwise.op, Pointwise)
    assert isinstance(maker.op, Fusible)
    operands = epilogue_operands(maker)
    epilogue, operands = inline(
        pointwise.op.expr, pointwise.inputs, maker.output, maker.op.epilogue, operands, offset=1
    )
    inputs = (*maker.inputs[: first_epilogue_operand(maker.op)], *operands)
    editor.replace(pointwise, replace(maker.op, epilogue=epilogue), inputs)


PASS = Pass(
    "fuse_epilogue",
    (Rule(match, refuse, rewrite),),
    after=(
        "fold_scale_shift",
        "merge_activations",
        "compose_moves",
        "fold_padding",
    ),
)
