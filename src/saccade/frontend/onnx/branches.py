"""If: the branch that is taken where the condition is known; else both, or one at run time.

Of a condition that is computed both branches are, and each result is chosen, unless that would take
long: then each branch becomes a program of its own. Results of different sizes have room for the
larger one, and a size of their own, which is found out like any other (`ir/counts.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TypeGuard

from saccade.errors import ModelError
from saccade.frontend.onnx.bodies import DEPENDS, Bodies, as_type
from saccade.frontend.onnx.call import OnnxNode, Operand
from saccade.frontend.onnx.importers._elementwise import pointwise
from saccade.frontend.onnx.listed import Result, TensorList
from saccade.frontend.onnx.moves import reshaped, spell
from saccade.frontend.onnx.open_axes import close, is_open, reopened, room_of
from saccade.frontend.onnx.parts import Part, captured, costly
from saccade.frontend.onnx.refusal import Refusal
from saccade.ir import Dim, DType, Value
from saccade.ir.expr import apply, arg, const
from saccade.opdefs import Branch, Pad, Pointwise

__all__ = ["BranchNodes"]

_BRANCHES = ("then_branch", "else_branch")


class BranchNodes(Bodies):
    """What a lowering does with If."""

    def _if(self, call: OnnxNode) -> Sequence[Result | None]:
        condition = call.operand(0)
        array = self.build.constants.get(condition) if isinstance(condition, Value) else None
        if array is not None and array.size == 1:
            # The other branch is never looked at: it may hold what cannot be run.
            return self._turn(call, self._body(call, _BRANCHES[not array.item()]), [])
        parts, sides = (Part(self.build), Part(self.build)), []
        try:
            for part, name in zip(parts, _BRANCHES, strict=True):
                with part:
                    sides.append(self._turn(call, self._body(call, name), []))
        # A branch that is not taken need not fit.
        except ModelError as error:
            raise Refusal(f"{DEPENDS}, and a branch that does not fit: {error}") from None
        if len(sides[0]) != len(sides[1]):
            raise call.broken("branches differ in their outputs")
        _as_many_axes(call, parts, sides)
        pairs = list(zip(*sides, strict=True))
        if any(costly(part.nodes) for part in parts):
            return _branched(call, parts, pairs)
        for part in parts:
            part.merge()
        chosen = reshaped(call, call.value(0), ())
        return [_chosen(call, chosen, *pair) for pair in pairs]


_Side = Result | None


def _as_many_axes(
    call: OnnxNode, parts: Sequence[Part], sides: Sequence[list[Result | None]]
) -> None:
    """Give single elements as many axes as the other branch does, if only nodes read them.

    Paddle's exporter has the one branch give a scalar and the other one a list of one: what reads
    them broadcasts either.
    """
    for i, (output, pair) in enumerate(
        zip(call.node.outputs, zip(*sides, strict=True), strict=False)
    ):
        single = [x for x in pair if _is_one_element(x)]
        if output.is_graph_output() or len(single) < len(pair):
            continue
        longest = max((x.shape for x in single), key=len)
        for x, part, side in zip(single, parts, sides, strict=True):
            if x.shape != longest:
                with part:
                    side[i] = reshaped(call, call.as_value(x), longest)


def _is_one_element(x: Result | None) -> TypeGuard[Operand]:
    return x is not None and not isinstance(x, TensorList) and all(size == 1 for size in x.shape)


def _tensors(call: OnnxNode, yes: _Side, no: _Side) -> tuple[Operand, Operand] | None:
    """Both results as tensors of one type; None if one is behind a node that is refused."""
    if yes is None or no is None:
        return None
    if isinstance(yes, TensorList) or isinstance(no, TensorList):
        raise Refusal(f"{DEPENDS}, with branches that give sequences")
    if yes in call.build.held or no in call.build.held:
        raise Refusal(f"{DEPENDS}, with branches that give what no memory holds")
    if yes.dtype is not no.dtype:
        raise Refusal(f"{DEPENDS}, with branches of different types")
    return yes, no


def _chosen(call: OnnxNode, condition: Value, yes: _Side, no: _Side) -> Value | None:
    """The one or the other, as the condition says; both are computed."""
    pair = _tensors(call, yes, no)
    if pair is None:
        return None
    one, other = map(call.as_value, pair)
    choose = partial(pointwise, call, partial(apply, "where"))
    if one.shape == other.shape:
        return choose([condition, one, other], one.dtype)
    # "Nothing, or what was found": as many as were found, or none.
    for nothing, found, taken in ((one, other, False), (other, one, True)):
        axis = _emptied(nothing, found)
        if axis is not None and is_open(call, found.shape[axis]):
            return _fewer(call, found, axis, condition, taken=taken)
    room = _room(call, one.shape, other.shape)
    x = choose([condition, *(_padded(call, side, room) for side in (one, other))], one.dtype)
    for axis, sizes in enumerate(zip(one.shape, other.shape, strict=True)):
        if sizes[0] != sizes[1]:
            x = reopened(call, x, axis, _size(call, condition, *sizes))
    return x


def _size(call: OnnxNode, condition: Value, yes: Dim, no: Dim) -> Dim:
    """The one size or the other, as the condition says."""
    build, key = call.build, (condition, yes, no)
    if key not in build.chosen:
        expr = apply("where", arg(0), arg(1), arg(2))
        sides = (build.sized(size, call.name) for size in (yes, no))
        count = call.emit(Pointwise(expr, DType.I64), reshaped(call, condition, (1,)), *sides)
        build.chosen[key] = rows = build.symbol("chosen")
        build.counted(rows, max(room_of(call, yes), room_of(call, no)), count)
    return build.chosen[key]


def _fewer(call: OnnxNode, x: Value, axis: int, condition: Value, *, taken: bool) -> Value:
    """What was found along an axis, or nothing of it, as the condition says."""
    build, size = call.build, x.shape[axis]
    key = (condition, size, 0) if taken else (condition, 0, size)
    if key not in build.chosen:
        chosen = apply("where", arg(0), arg(1), const(0))
        if not taken:
            chosen = apply("where", arg(0), const(0), arg(1))
        true = build.sized(size, call.name)
        count = call.emit(Pointwise(chosen, DType.I64), reshaped(call, condition, (1,)), true)
        build.chosen[key] = rows = build.symbol("chosen")
        build.counted(rows, room_of(call, size), count)
    return reopened(call, x, axis, build.chosen[key])


def _room(call: OnnxNode, yes: Sequence[Dim], no: Sequence[Dim]) -> tuple[Dim, ...]:
    """A shape with room for either.

    Raises:
        Refusal: If they differ in more than sizes, or in sizes of the model's inputs.
    """
    if len(yes) != len(no):
        raise Refusal(f"{DEPENDS}, with branches that give {spell(yes)} and {spell(no)}")
    try:
        return tuple(
            a if a == b else max(room_of(call, a), room_of(call, b))
            for a, b in zip(yes, no, strict=True)
        )
    except Refusal:
        raise Refusal(
            f"{DEPENDS}, with branches of different shapes, {spell(yes)} and {spell(no)}"
        ) from None


def _padded(call: OnnxNode, x: Value, room: Sequence[Dim]) -> Value:
    """A value with room for more along some axes."""
    pads: list[tuple[Dim, Dim]] = []
    for axis, size in enumerate(room):
        if x.shape[axis] == size:
            pads.append((0, 0))
            continue
        x = close(call, x, axis)
        here = x.shape[axis]
        assert isinstance(here, int) and isinstance(size, int), "from `room_of`"
        pads.append((0, size - here))
    return x if all(pair == (0, 0) for pair in pads) else call.emit(Pad(tuple(pads)), x)


def _emptied(nothing: Value, found: Value) -> int | None:
    """The only axis that differs, without elements in the one of two values."""
    if nothing.rank != found.rank:
        return None
    pairs = zip(nothing.shape, found.shape, strict=True)
    differing = [axis for axis, (n, f) in enumerate(pairs) if n != f]
    return differing[0] if len(differing) == 1 and nothing.shape[differing[0]] == 0 else None


def _branched(
    call: OnnxNode, parts: tuple[Part, Part], pairs: Sequence[tuple[_Side, _Side]]
) -> Sequence[Value | None]:
    """The results of one branch at run time, each branch a program of its own."""
    build = call.build
    found = [_tensors(call, *pair) for pair in pairs]
    sides = [pair for pair in found if pair is not None]
    if len(sides) < len(found):
        return [None] * len(found)
    values = [_entered(call, part, [p[i] for p in sides]) for i, part in enumerate(parts)]
    with parts[0], parts[1]:  # so that what either finds out is known
        rooms = [_room(call, a.shape, b.shape) for a, b in zip(*values, strict=True)]
        # Of each two sizes that differ the branch says its own.
        sizes = {
            pair: max(room_of(call, size) for size in pair)
            for a, b in zip(*values, strict=True)
            for pair in zip(a.shape, b.shape, strict=True)
            if pair[0] != pair[1]
        }
    graphs = []
    for side, part in enumerate(parts):
        with part:
            given = [
                as_type(call, _padded(call, x, room), x.dtype.arithmetic)
                for x, room in zip(values[side], rooms, strict=True)
            ]
            given += [build.sized(pair[side], call.name) for pair in sizes]
            graphs.append(part.graph([], given))
    inside = captured(graphs)
    condition = reshaped(call, call.value(0), (1,))
    op = Branch(inside.bodies, len(inside.constants), call.name)
    operands = [condition, *inside.values, *inside.constants]
    results = build.emit(op, operands, call.name, closing=True)
    symbols = {}
    for (pair, bound), count in zip(sizes.items(), results[len(rooms) :], strict=True):
        symbols[pair] = rows = build.symbol("chosen")
        build.counted(rows, bound, count)
    return [
        _reopened(call, as_type(call, x, a.dtype), a.shape, b.shape, symbols)
        for x, a, b in zip(results, *values, strict=False)
    ]


def _entered(call: OnnxNode, part: Part, sides: Sequence[Operand]) -> list[Value]:
    with part:
        return [call.as_value(side) for side in sides]


def _reopened(
    call: OnnxNode,
    x: Value,
    yes: Sequence[Dim],
    no: Sequence[Dim],
    symbols: dict[tuple[Dim, Dim], Dim],
) -> Value:
    for axis, pair in enumerate(zip(yes, no, strict=True)):
        if pair in symbols:
            x = reopened(call, x, axis, symbols[pair])
    return x
