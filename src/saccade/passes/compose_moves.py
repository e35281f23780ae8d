"""Movements one after the other become one movement.

    Move(Move(x, A), B)              ->  Move(x, A then B)           see ir/compose_maps
    Move(x, identity)                ->  x
    Pointwise(Move(x))               ->  Move(Pointwise(x))          numbers only beside x; of a
                                                                     reshape that keeps the last
                                                                     axis, vectors along it as well
    Concat(…, x[a:b], x[b:c], …)     ->  Concat(…, x[a:c], …)        of which the whole is x

The last brings a Pointwise to the operator that can compute it as its epilogue, or two movements
together. Must not touch: a movement that others read too (it would be done twice; but a pure
reshape costs nothing, and movements that share its elements out move no more without it), a
movement that the convolution before it can do while it stores, a Pointwise over fewer or repeated
elements, maps without a common refinement, a part of a slice that only small sizes reach out of the
operand: the plan has to see that, whatever of it is read in the end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

from saccade.ir import Dim, IndexMap, Node, Value
from saccade.ir.compose_maps import canonical, compose, is_identity, is_view
from saccade.ir.dim import add, product, sub
from saccade.opdefs import Concat, Conv2d, Move, Pointwise
from saccade.passes._editor import Editor
from saccade.passes._operands import Fusible
from saccade.passes._pass import Pass, Rule
from saccade.passes._store_maps import as_depth_to_space, is_shuffle

__all__ = ["PASS"]


@dataclass(frozen=True, slots=True)
class _MovePair:
    first: Node
    then: Node


@lru_cache(maxsize=1024)
def _composed(first: IndexMap, then: IndexMap) -> IndexMap | str:
    if _cut_again(first, then):
        return "part of a slice that may reach out of its operand"
    return compose(first, then)


def _cut_again(first: IndexMap, then: IndexMap) -> bool:
    """Whether `then` leaves out some of what `first` is not known to find inside, for all sizes."""
    takers = {f.source: f.size for f in then.factors if f.source is not None}
    at = 0
    for written, read in zip(first.out_axes, then.in_factors, strict=False):
        if not all(map(first.is_inside, written)):
            whole = (takers.get(at + i, 1) == size for i, size in enumerate(read))
            if not all(whole):
                return True
        at += len(read)
    return False


def _map(node: Node) -> IndexMap:
    assert isinstance(node.op, Move)
    return node.op.map


def match_identity(_editor: Editor, node: Node) -> Node | None:
    """A movement to the same place."""
    return node if isinstance(node.op, Move) and is_identity(node.op.map) else None


def refuse_identity(_editor: Editor, node: Node) -> str | None:
    """Shapes that are equal but not written alike, which later comparisons would not see."""
    if node.inputs[0].shape != node.output.shape:
        return "the shapes are written differently"
    return None


def rewrite_identity(editor: Editor, node: Node) -> None:
    """Read the operand instead."""
    editor.alias(node.output, node.inputs[0])


def match_pair(editor: Editor, node: Node) -> _MovePair | None:
    """A movement of a movement."""
    first = editor.producer(node.inputs[0]) if isinstance(node.op, Move) else None
    return _MovePair(first, node) if first is not None and isinstance(first.op, Move) else None


def refuse_pair(editor: Editor, found: _MovePair) -> str | None:
    """See the cases above."""
    first = found.first
    if not (editor.single_use(first.output) or is_view(_map(first)) or _shared(editor, first)):
        return "the movement in front of it is also read elsewhere"
    if _stores(editor, first):
        return "the movement in front of it belongs to the store of a convolution"
    composed = _composed(_map(first), _map(found.then))
    return composed if isinstance(composed, str) else None


def _shared(editor: Editor, first: Node) -> bool:
    """Whether movements share its elements out among them, and all can do without it."""
    # Each element is moved at most once without the first movement, if the readers take no more
    # elements in all than it gives.
    total: Dim = 0
    for reader in editor.readers(first.output):
        if not isinstance(reader.op, Move) or isinstance(_composed(_map(first), _map(reader)), str):
            return False
        total = add(total, product(reader.output.shape))
    spare = sub(product(first.output.shape), total)
    return _not_negative(spare) and not editor.is_output(first.output)


def _not_negative(dim: Dim) -> bool:
    if isinstance(dim, int):
        return dim >= 0
    return dim.constant >= 0 and all(count > 0 for _, count in dim.terms)


def _stores(editor: Editor, node: Node) -> bool:
    source = editor.producer(node.inputs[0])
    if source is None or not editor.single_use(node.inputs[0]):
        return False
    # A movement that a convolution can do while it stores costs nothing: composed with another
    # one it would have to run.
    if as_depth_to_space(_map(node)) is not None:
        return _convolved(editor, node.inputs[0])
    if not isinstance(source.op, Concat) or source.op.axis != 1:
        return False
    parts = source.inputs
    return is_shuffle(_map(node), len(parts)) and any(_convolved(editor, v) for v in parts)


def _convolved(editor: Editor, value: Value, depth: int = 4) -> bool:
    """Whether a convolution may produce the value once its epilogue is fused."""
    maker = editor.producer(value)
    if maker is None or depth == 0:
        return False
    if isinstance(maker.op, Pointwise):
        return any(_convolved(editor, v, depth - 1) for v in maker.inputs)
    return isinstance(maker.op, Conv2d)


def rewrite_pair(editor: Editor, found: _MovePair) -> None:
    """Move once."""
    composed = _composed(_map(found.first), _map(found.then))
    assert isinstance(composed, IndexMap)
    editor.replace(found.then, Move(composed), found.first.inputs)


def match_hoist(editor: Editor, node: Node) -> _MovePair | None:
    """A Pointwise with no tensor beside the moved one, where swapping the two helps."""
    if not isinstance(node.op, Pointwise):
        return None
    varying = [value for value in node.inputs if editor.constant(value) is None]
    move = editor.producer(varying[0]) if len(varying) == 1 else None
    if move is None or not isinstance(move.op, Move):
        return None
    if len(node.inputs) > 1 and not _keeps_vectors(editor, node, move):
        return None
    source = editor.producer(move.inputs[0])
    # It pays where the operator before can take the Pointwise as its epilogue, or where two
    # movements meet once it is out of the way.
    fuses = (
        source is not None
        and isinstance(source.op, Fusible)
        and editor.single_use(source.output)
        and node.output.dtype is varying[0].dtype
    )
    meets = any(isinstance(reader.op, Move) for reader in editor.readers(node.output))
    return _MovePair(move, node) if fuses or meets else None


def _keeps_vectors(editor: Editor, node: Node, move: Node) -> bool:
    """Whether constants are vectors along a last axis that is the same in front of the movement."""
    x, y = move.inputs[0], move.output
    if y.shape != node.output.shape or not x.shape or not y.shape or x.shape[-1] != y.shape[-1]:
        return False
    beside = [array for v in node.inputs if (array := editor.constant(v)) is not None]
    flat = all(array.size == (array.shape[-1] if array.ndim else 1) for array in beside)
    return flat and is_view(_map(move))


def refuse_hoist(editor: Editor, found: _MovePair) -> str | None:
    """Movements that others read, or that drop or repeat elements."""
    if not editor.single_use(found.first.output):
        return "the movement in front of it is also read elsewhere"
    form = canonical(_map(found.first))
    if any(f.source is None for f in form.factors):
        return "the movement repeats elements"
    if product(form.out_shape) != product(form.in_shape):
        return "the movement drops elements"
    return None


def rewrite_hoist(editor: Editor, found: _MovePair) -> None:
    """Compute first, then move."""
    moved = found.first.output
    operands = [
        found.first.inputs[0] if value is moved else _vector(editor, value)
        for value in found.then.inputs
    ]
    value = editor.emit(found.then, found.then.op, operands)
    editor.replace(found.then, found.first.op, (value,))


def _vector(editor: Editor, value: Value) -> Value:
    """A constant that varies along its last axis alone, without the others."""
    array = editor.constant(value)
    assert array is not None
    return value if array.ndim < 2 else editor.add_constant(array.reshape(-1), value.name)


@dataclass(frozen=True, slots=True)
class _JointParts:
    """Operands `at` and behind of a Concat, which are a movement of one value."""

    concat: Node
    at: int
    source: Value
    map: IndexMap


def match_joined(editor: Editor, node: Node) -> _JointParts | None:
    """Parts of one value, one behind the other."""
    if not isinstance(node.op, Concat):
        return None
    for at, (left, right) in enumerate(pairwise(node.inputs)):
        parts = [editor.producer(left), editor.producer(right)]
        first, second = (p if p and isinstance(p.op, Move) else None for p in parts)
        if first and second and first.inputs == second.inputs:
            joined = _joined(_map(first), _map(second), node.op.axis)
            if joined is not None:
                return _JointParts(node, at, first.inputs[0], joined)
    return None


def _joined(left: IndexMap, right: IndexMap, axis: int) -> IndexMap | None:
    """Both movements' elements one behind the other along an axis, if that is one movement."""
    if left.in_factors != right.in_factors or left.out_groups != right.out_groups:
        return None
    if left.out_groups[axis] != 1:
        return None
    at = sum(left.out_groups[:axis])
    a, b = left.factors[at], right.factors[at]
    others = left.factors[:at] + left.factors[at + 1 :]
    if a.source is None or (a.source, a.step, b.step) != (b.source, 1, 1):
        return None
    if others != right.factors[:at] + right.factors[at + 1 :] or b.start != add(a.start, a.size):
        return None
    both = replace(a, size=add(a.size, b.size))
    return replace(left, factors=(*left.factors[:at], both, *left.factors[at + 1 :]))


def refuse_joined(_editor: Editor, found: _JointParts) -> str | None:
    """Parts that are not known to lie inside of the operand."""
    axis = found.concat.op.axis if isinstance(found.concat.op, Concat) else 0
    if not all(map(found.map.is_inside, found.map.out_axes[axis])):
        return "part of a slice that may reach out of its operand"
    return None


def rewrite_joined(editor: Editor, found: _JointParts) -> None:
    """Take both at once."""
    concat, at = found.concat, found.at
    if len(concat.inputs) == 2:
        editor.replace(concat, Move(found.map), (found.source,))
        return
    value = editor.emit(concat, Move(found.map), (found.source,))
    editor.replace(concat, concat.op, (*concat.inputs[:at], value, *concat.inputs[at + 2 :]))


PASS = Pass(
    "compose_moves",
    (
        Rule(match_identity, refuse_identity, rewrite_identity),
        Rule(match_pair, refuse_pair, rewrite_pair),
        Rule(match_hoist, refuse_hoist, rewrite_hoist),
        Rule(match_pair, refuse_pair, rewrite_pair),
        Rule(match_joined, refuse_joined, rewrite_joined),
        Rule(match_identity, refuse_identity, rewrite_identity),
    ),
    after=("normalise_operands",),
)
