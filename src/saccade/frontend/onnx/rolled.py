"""A body as a program of its own, run once for each turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from saccade.frontend.onnx.bodies import as_type
from saccade.frontend.onnx.call import OnnxNode, Operand
from saccade.frontend.onnx.listed import Result, Rows, TensorList
from saccade.frontend.onnx.moves import reshaped, spell
from saccade.frontend.onnx.open_axes import close, reopened, room_of
from saccade.frontend.onnx.parts import Captured, Part, captured
from saccade.frontend.onnx.refusal import Refusal
from saccade.ir import Dim, DType, Value
from saccade.ir.counts import multiple_of
from saccade.ir.expr import apply, arg, const
from saccade.opdefs import Gather, Loop, Pointwise

__all__ = ["Rolled", "Scanned", "rolled"]

_Turn = Callable[[Sequence[Result]], Sequence[Result | None]]


@dataclass(frozen=True, slots=True)
class Scanned:
    """What a body gets slices of, one in each turn."""

    value: Value
    axis: int
    backwards: bool


@dataclass(frozen=True, slots=True)
class Rolled:
    """A loop.

    Attributes:
        size: How many turns there are at most, as far as that is known.
        turns: The tensor that says it, if there is one.
        going: Whether the first turn is made; None for a scan, whose body neither takes nor gives
            a condition, nor the number of its turn.
        carried: Values from before the first turn.
        scanned: What it takes apart.
    """

    size: Dim | None
    turns: Operand | None
    going: Operand | None
    carried: Sequence[Result]
    scanned: Sequence[Scanned] = ()


@dataclass(frozen=True, slots=True)
class _Made:
    """What a body gives.

    Attributes:
        again: Whether there is another turn.
        kept: Carried values.
        grown: Of sequences, what a turn puts into them.
        gathered: The rest.
    """

    again: Value
    kept: list[Value]
    grown: list[list[Value]]
    gathered: list[Value]


def rolled(call: OnnxNode, loop: Rolled, turn: _Turn) -> list[Result] | None:
    """The results of a loop whose body is a program of its own.

    Args:
        call: The node.
        loop: Its operands.
        turn: Imports the body for its inputs.

    Returns:
        None if the body holds what is refused.

    Raises:
        Refusal: If it carries what changes its shape from turn to turn, or gathers what has no
            shape of its own.
    """
    build = call.build
    number = build.value(f"{call.name}/turn", DType.I64, ())
    asked = build.value(f"{call.name}/going", DType.BOOL, ())
    initial = [
        as_type(call, value, value.dtype.arithmetic)
        for value in (call.as_value(v) for v in loop.carried if not isinstance(v, TensorList))
    ]
    formals = [build.value(f"{call.name}/carried", v.dtype, v.shape) for v in initial]
    part = Part(build)
    with part:
        inputs = _inputs(call, loop, number, formals)
        outputs = turn(inputs if loop.going is None else [number, asked, *inputs])
        if any(value is None for value in outputs):
            return None
        made = _made(call, loop, inputs, [v for v in outputs if v is not None])
    _check_kept(formals, made.kept)
    again = made.again
    if again is asked and _is_true(call, loop.going):
        # Exporters hand on what they were given.
        again = build.constant(np.asarray(True), "going")
    part.hoist([number, asked, *formals])
    rows = [*(value for one in made.grown for value in one), *made.gathered]
    graph = part.graph([number, asked, *formals], [again, *made.kept, *rows])
    results = _emitted(call, loop, captured([graph]), initial, again, rows)
    kept = iter(results[: len(initial)])
    gathered = iter(results[len(initial) :])
    found: list[Result] = []
    grown = iter(made.grown)
    for value in loop.carried:
        if isinstance(value, TensorList):
            fresh = tuple(Rows(next(gathered)) for _ in next(grown))
            found.append(value.with_items((*value.items, *fresh)))
        else:
            found.append(as_type(call, next(kept), value.dtype))
    return [*found, *gathered]


def _inputs(call: OnnxNode, loop: Rolled, number: Value, formals: Sequence[Value]) -> list[Result]:
    """What the body takes, in the part that it is imported into."""
    values = iter(formals)
    carried = [
        TensorList((Rows(None),), v.dtype)
        if isinstance(v, TensorList)
        else as_type(call, next(values), v.dtype)
        for v in loop.carried
    ]
    return [*carried, *(_slice(call, one, number) for one in loop.scanned)]


def _slice(call: OnnxNode, one: Scanned, number: Value) -> Value:
    """What a turn gets of a scanned value."""
    size = one.value.shape[one.axis]
    if one.backwards:
        last = reshaped(call, call.build.sized(size, call.name), ())
        backwards = apply("sub", apply("sub", arg(1), arg(0)), const(1))
        number = call.emit(Pointwise(backwards, DType.I64), number, last)
    return call.emit(Gather(axis=one.axis), close(call, one.value, one.axis), number)


def _made(
    call: OnnxNode, loop: Rolled, inputs: Sequence[Result], outputs: Sequence[Result]
) -> _Made:
    """What the body gives, in the part that it was imported into."""
    build = call.build
    if loop.going is None:
        again, rest = build.constant(np.asarray(True), "going"), list(outputs)
    else:
        again, rest = _plain(call, outputs[0]), list(outputs[1:])
    if again.dtype is not DType.BOOL:
        raise call.broken(f"its condition is {again.dtype.value}")
    made = _Made(reshaped(call, again, ()), [], [], [])
    for before, after in zip(inputs, rest[: len(loop.carried)], strict=False):
        if isinstance(before, TensorList):
            made.grown.append(_appended(call, before, after))
        else:
            made.kept.append(_plain(call, after))
    made.gathered.extend(_plain(call, value) for value in rest[len(loop.carried) :])
    return made


def _appended(call: OnnxNode, before: TensorList, after: Result) -> list[Value]:
    """What a turn put behind the end of a sequence."""
    if not isinstance(after, TensorList):
        raise call.broken("carries a sequence, and gives a tensor for it")
    if after.items[:1] != before.items:
        raise Refusal("changes a sequence other than by adding to its end, as often as data decide")
    fresh = after.with_items(after.items[1:]).tensors()
    if len(fresh) > 1:
        raise Refusal("adds several tensors to a sequence in each turn")
    return [_plain(call, value) for value in fresh]


def _plain(call: OnnxNode, value: Result) -> Value:
    """A result of the body, in the type that values have between programs."""
    if isinstance(value, TensorList):
        raise Refusal("gives a sequence where a tensor is expected")
    if value in call.build.held:
        raise Refusal("a body gives what no memory holds, as often as data decide")
    found = call.as_value(value)
    return as_type(call, found, found.dtype.arithmetic)


def _check_kept(before: Sequence[Value], after: Sequence[Value]) -> None:
    for old, new in zip(before, after, strict=True):
        if old.dtype is not new.dtype:
            raise Refusal(f"carries {old.dtype.value} and gives {new.dtype.value} for it")
        if old.shape != new.shape:
            raise Refusal(
                f"carries a value whose shape changes from {spell(old.shape)} to "
                f"{spell(new.shape)} in a turn"
            )


def _emitted(
    call: OnnxNode,
    loop: Rolled,
    inside: Captured,
    initial: Sequence[Value],
    again: Value,
    rows: Sequence[Value],
) -> list[Value]:
    """The carried values, and what was gathered, cut to the turns that were made."""
    build, limits = call.build, call.build.limits
    known = build.constants.get(again)
    always = known is not None and bool(known.item()) and _is_true(call, loop.going)
    exact = always and loop.size is not None
    if exact and isinstance(loop.size, int) and loop.size > limits.turns:
        raise Refusal(f"makes {loop.size} turns, more than {limits.turns} (Limits.turns)")
    room = _room(call, loop, exact=exact) if rows else None
    op = Loop(inside.bodies, len(inside.constants), call.name, len(initial), room, limits.turns)
    operands = (*_bounds(call, loop), *initial, *inside.values, *inside.constants)
    results = build.emit(op, operands, call.name, closing=True)
    gathered = results[len(initial) : -1]
    if not rows or (exact and room == loop.size):
        return list(results[:-1])
    size = build.symbol("turns")
    assert isinstance(room, int), "what is not exact has a number as its bound"
    build.counted(size, room, results[-1])
    return [*results[: len(initial)], *(reopened(call, x, 0, size) for x in gathered)]


def _room(call: OnnxNode, loop: Rolled, *, exact: bool) -> Dim:
    """Turns that there is room for in what is gathered."""
    size, counts = loop.size, call.build.counts
    if size is None:
        return call.build.limits.gathered
    if exact and (isinstance(size, int) or multiple_of(size, counts) is not None):
        return size
    return room_of(call, size)


def _is_true(call: OnnxNode, condition: Operand | None) -> bool:
    """Whether the first turn is made, whatever the data are."""
    if condition is None:
        return True
    known = call.build.constants.get(condition) if isinstance(condition, Value) else None
    return known is not None and known.size == 1 and bool(known.item())


def _bounds(call: OnnxNode, loop: Rolled) -> tuple[Value, Value]:
    """How many turns at most, and whether to begin, as tensors of one element."""
    build = call.build
    if loop.size is not None:
        turns = build.sized(loop.size, call.name)
    elif loop.turns is not None:
        turns = reshaped(call, as_type(call, call.as_value(loop.turns), DType.I64), (1,))
    else:
        turns = build.constant(np.asarray([np.iinfo(np.int64).max]), "turns")
    if loop.going is None:
        return turns, build.constant(np.asarray([True]), "going")
    return turns, reshaped(call, call.as_value(loop.going), (1,))
