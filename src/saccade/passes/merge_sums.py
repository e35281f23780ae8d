"""Two constants that are added around a reshape become one.

    View(x + c) + d   ->   View(x) + (c + d)          c, d constants, the last axes left as they are

so that what reads a sum of scores, relative positions and a mask, as shifted windows have it, meets
one sum. Computed in float64, stored in the constants' type. Must not touch: values that others read
too; reshapes of axes along which c varies; constants whose sum would be large, or overflows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from saccade.ir import Array, Node, Value
from saccade.ir import expr as e
from saccade.ir.compose_maps import is_view
from saccade.opdefs import Move, Pointwise
from saccade.passes._editor import Editor
from saccade.passes._pass import Pass, Rule

__all__ = ["PASS"]

_SUM = e.apply("add", e.arg(0), e.arg(1))
_LARGEST = 1 << 22  # elements of a constant that is made


@dataclass(frozen=True, slots=True)
class _Added:
    """A Pointwise that adds a constant: to what, and which."""

    node: Node
    value: Value
    constant: Array


@dataclass(frozen=True, slots=True)
class _TwoSums:
    first: _Added
    view: Node
    then: _Added


def _added(editor: Editor, node: Node | None) -> _Added | None:
    if node is None or not isinstance(node.op, Pointwise) or node.op.expr != _SUM:
        return None
    for value, other in (node.inputs, reversed(node.inputs)):
        array = editor.constant(other)
        whole = value.shape == node.output.shape and value.dtype is node.output.dtype
        if array is not None and whole and value.dtype.is_float and other.dtype is value.dtype:
            return _Added(node, value, array)
    return None


def match(editor: Editor, node: Node) -> _TwoSums | None:
    """A constant added to a reshape of what a constant was added to."""
    then = _added(editor, node)
    view = None if then is None else editor.producer(then.value)
    if then is None or view is None or not isinstance(view.op, Move) or not is_view(view.op.map):
        return None
    first = _added(editor, editor.producer(view.inputs[0]))
    return None if first is None else _TwoSums(first, view, then)


def refuse(editor: Editor, found: _TwoSums) -> str | None:
    """See the cases above."""
    for node in (found.first.node, found.view):
        if not editor.single_use(node.output):
            return f"%{node.output.name} is also read elsewhere"
    kept = _kept(found)
    if kept is None:
        return "the reshape changes axes along which the first constant varies"
    size = np.prod(np.broadcast_shapes(kept, found.then.constant.shape), dtype=float)
    if size > _LARGEST:
        return f"together they would have {size:.0f} elements"
    # A large number in the place of -inf would become that, and rows of nothing else NaN.
    constants = found.first.constant, found.then.constant
    finite = all(np.isfinite(array).all() for array in constants)
    overflows = finite and not np.isfinite(_total(found, kept)).all()
    return "their sum overflows" if overflows else None


def _kept(found: _TwoSums) -> tuple[int, ...] | None:
    """The first constant's shape behind the reshape, without its leading ones."""
    shape = found.first.constant.shape
    while shape and shape[0] == 1:
        shape = shape[1:]
    before, after = found.view.inputs[0].shape, found.view.output.shape
    count = len(shape)
    return shape if before[len(before) - count :] == after[len(after) - count :] else None


def _total(found: _TwoSums, kept: tuple[int, ...]) -> Array:
    then = found.then.constant
    total = found.first.constant.astype(np.float64).reshape(kept) + then.astype(np.float64)
    with np.errstate(over="ignore"):
        return np.asarray(total, then.dtype)


def rewrite(editor: Editor, found: _TwoSums) -> None:
    """Reshape, then add both."""
    kept = _kept(found)
    assert kept is not None
    constant = editor.add_constant(_total(found, kept), found.then.node.output.name)
    moved = editor.emit(found.then.node, found.view.op, (found.first.value,))
    editor.replace(
        found.then.node, Pointwise(_SUM, found.then.node.output.dtype), (moved, constant)
    )


PASS = Pass("merge_sums", (Rule(match, refuse, rewrite),), after=("compose_moves",))
