"""What rotates the two halves of a value is done half by half.

    Pointwise f(Concat(g(x₂), x₁), x, c…)  ->  Concat(f(g(x₂), x₁, c₁…), f(x₁, x₂, c₂…))

Rotary positions (Su et al., RoFormer, 2021) are written so: x · cos + Concat(-x₂, x₁) · sin. The
rotated copy is not made then, and what is left of the concatenation are the places of the results.
Must not touch: halves that others read, or the caller is given; parts that are anything but slices
of what the elementwise work reads beside them, one of them perhaps with work of its own; a value
that is broadcast, or changes its type; sizes that are not known.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from saccade.ir import Factor, IndexMap, Node, Value
from saccade.opdefs import Concat, Move, Pointwise
from saccade.passes._editor import Editor
from saccade.passes._merge import is_cheap
from saccade.passes._pass import Pass, Rule

__all__ = ["PASS"]

_PARTS = 2


@dataclass(frozen=True, slots=True)
class _Rotation:
    """A Pointwise and the Concat that it reads."""

    pointwise: Node
    concat: Node

    @property
    def axis(self) -> int:
        """Along which the parts stand beside each other."""
        assert isinstance(self.concat.op, Concat)
        return self.concat.op.axis


def match(editor: Editor, node: Node) -> _Rotation | None:
    """A Pointwise over two parts of what it reads as well."""
    if not isinstance(node.op, Pointwise):
        return None
    for value in node.inputs:
        maker = editor.producer(value)
        if maker is None or not isinstance(maker.op, Concat) or len(maker.inputs) != _PARTS:
            continue
        sources = {_source(editor, part) for part in maker.inputs}
        others = [other for other in node.inputs if other is not value]
        beside = {*others, *(_moved_from(editor, other) for other in others)}
        if len(sources) == 1 and None not in sources and sources <= beside:
            return _Rotation(node, maker)
    return None


def _moved_from(editor: Editor, value: Value) -> Value:
    """What a value is a view or a copy of."""
    maker = editor.producer(value)
    return maker.inputs[0] if maker is not None and isinstance(maker.op, Move) else value


def _source(editor: Editor, part: Value) -> Value | None:
    """What a part is a slice of, perhaps with cheap work behind it; None of other parts."""
    maker = editor.producer(part)
    if maker is not None and isinstance(maker.op, Pointwise):
        alone = len(maker.inputs) == 1 and editor.single_use(part) and is_cheap(maker.op.expr)
        maker = editor.producer(maker.inputs[0]) if alone else None
    return maker.inputs[0] if maker is not None and isinstance(maker.op, Move) else None


def refuse(editor: Editor, found: _Rotation) -> str | None:
    """See the cases above."""
    rotated, result = found.concat.output, found.pointwise.output
    if not editor.single_use(rotated):
        return f"%{rotated.name} is also read elsewhere"
    if rotated.type != result.type:
        return f"%{rotated.name} is broadcast or changes its type"
    if any(not isinstance(part.shape[found.axis], int) for part in found.concat.inputs):
        return f"sizes of the parts of %{rotated.name} are not known"
    return None


def rewrite(editor: Editor, found: _Rotation) -> None:
    """Compute each part by itself, and put the results beside each other."""
    node, start, parts = found.pointwise, 0, []
    for part in found.concat.inputs:
        size = part.shape[found.axis]
        assert isinstance(size, int)
        operands = [
            part if value is found.concat.output else _slice(editor, value, found, start, size)
            for value in node.inputs
        ]
        parts.append(editor.emit(node, node.op, operands, dtype=node.output.dtype))
        start += size
    editor.replace(node, found.concat.op, parts)


def _slice(editor: Editor, value: Value, found: _Rotation, start: int, size: int) -> Value:
    """A value's elements that meet a part."""
    axis = found.axis - (found.pointwise.output.rank - value.rank)
    if axis < 0 or value.shape[axis] == 1:
        return value
    array = editor.constant(value)
    if array is not None:
        part = np.take(array, range(start, start + size), axis)
        return editor.add_constant(np.ascontiguousarray(part), value.name)
    sizes = tuple(size if i == axis else dim for i, dim in enumerate(value.shape))
    factors = tuple(Factor(dim, i, start if i == axis else 0) for i, dim in enumerate(sizes))
    index_map = IndexMap(tuple((dim,) for dim in value.shape), factors, (1,) * value.rank)
    return editor.emit(found.pointwise, Move(index_map), (value,))


PASS = Pass("split_rotations", (Rule(match, refuse, rewrite),), after=("fuse_pointwise",))
