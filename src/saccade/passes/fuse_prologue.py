"""Elementwise work in front of a 1x1 convolution is done while it loads.

    Conv2d(f(x, c…))  ->  Conv2d(x, c…) with prologue f

DenseNet's BN-ReLU, and the gate of squeeze-and-excite: c is a number per channel, or per image
and channel. Must not touch: windows larger than 1x1 (every element would be computed for every
tap), padding (which must stay 0), groups, a Pointwise that anyone else needs, and operands of
other shapes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from saccade.ir import Node, Value
from saccade.ir import expr as e
from saccade.opdefs import Conv2d, Pointwise
from saccade.passes._editor import Editor
from saccade.passes._pass import Pass, Rule

__all__ = ["PASS"]


@dataclass(frozen=True, slots=True)
class _PrologueMatch:
    convolution: Node
    pointwise: Node


def match(editor: Editor, node: Node) -> _PrologueMatch | None:
    """A convolution of what a Pointwise gives."""
    maker = editor.producer(node.inputs[0]) if isinstance(node.op, Conv2d) else None
    if maker is None or not isinstance(maker.op, Pointwise):
        return None
    return _PrologueMatch(node, maker)


def refuse(editor: Editor, found: _PrologueMatch) -> str | None:
    """See the cases above; every reader must take the Pointwise, or it is computed anyway."""
    value = found.pointwise.output
    if editor.is_output(value):
        return f"%{value.name} is an output of the graph"
    for reader in editor.readers(value):
        reason = _refuse_reader(reader, value)
        if reason is not None:
            return reason
    return _refuse_operands(editor, found.pointwise)


def _refuse_reader(reader: Node, value: Value) -> str | None:
    op = reader.op
    if (
        not isinstance(op, Conv2d)
        or reader.inputs.count(value) > 1
        or reader.inputs[0] is not value
    ):
        return f"%{value.name} is also read by {op.family}"
    if op.prologue != e.IDENTITY:
        return "the convolution has a prologue already"
    if reader.inputs[1].shape[2:] != (1, 1):
        return "the window is larger than 1x1"
    if any(op.padding):
        return "the convolution pads"
    if op.groups != 1:
        return f"the convolution has {op.groups} groups"
    return None


def _refuse_operands(editor: Editor, pointwise: Node) -> str | None:
    image = _image(editor, pointwise)
    if image is None:
        return "no single operand is the feature map"
    n, c = image.shape[:2]
    for value in pointwise.inputs:
        if value is image:
            continue
        if value.dtype is not image.dtype:
            return f"%{value.name} has another element type"
        if value.rank != 4 and editor.constant(value) is None:
            return f"%{value.name} has {value.rank} axes"
        shape = (1,) * (4 - value.rank) + value.shape
        if shape[0] not in (1, n) or shape[1] not in (1, c) or shape[2:] != (1, 1):
            return f"%{value.name} is not per channel"
    return None


def _image(editor: Editor, pointwise: Node) -> Value | None:
    """The operand that the convolution would load."""
    result = pointwise.output
    tensors = [v for v in pointwise.inputs if editor.constant(v) is None and v.type == result.type]
    return tensors[0] if len(tensors) == 1 else None


def rewrite(editor: Editor, found: _PrologueMatch) -> None:
    """Load the feature map itself."""
    pointwise, convolution = found.pointwise, found.convolution
    image = _image(editor, pointwise)
    assert image is not None
    assert isinstance(pointwise.op, Pointwise)
    assert isinstance(convolution.op, Conv2d)
    operands = [value for value in pointwise.inputs if value is not image]
    places = {value: i for i, value in enumerate(operands, start=1)}
    put = {i: e.arg(places.get(value, 0)) for i, value in enumerate(pointwise.inputs)}
    op = replace(
        convolution.op,
        prologue=e.substitute(pointwise.op.expr, put),
        n_prologue=len(operands),
    )
    inputs = (image, convolution.inputs[1], *(_with_axes(editor, value) for value in operands))
    editor.replace(convolution, op, (*inputs, *convolution.inputs[2:]))


def _with_axes(editor: Editor, value: Value) -> Value:
    array = editor.constant(value)
    if array is None or array.ndim == 4:
        return value
    return editor.add_constant(array.reshape((1,) * (4 - array.ndim) + array.shape), value.name)


PASS = Pass("fuse_prologue", (Rule(match, refuse, rewrite),), after=("fuse_pointwise",))
