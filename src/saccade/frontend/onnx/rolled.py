"""A body as a program of its own, run once for each turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from saccade.frontend.onnx.apart import most_apart
from saccade.frontend.onnx.bodies import as_type
from saccade.frontend.onnx.call import OnnxNode, Operand
from saccade.frontend.onnx.intervals import interval_of
from saccade.frontend.onnx.listed import Result, Rows, TensorList
from saccade.frontend.onnx.moves import broadcast_map, move, reshaped, spell
from saccade.frontend.onnx.open_axes import close, reopened, room_of
from saccade.frontend.onnx.parts import Captured, Part, captured
from saccade.frontend.onnx.refusal import Refusal
from saccade.ir import Dim, DType, Value
from saccade.ir.counts import multiple_of
from saccade.ir.expr import apply, arg, const
from saccade.opdefs import Gather, Loop, Pointwise
from saccade.opdefs.intervals import any_of

__all__ = ["Rolled", "Scanned", "rolled"]

_INTEGERS = (DType.I32, DType.I64)
_QUICK = 16  # steps of counters in a turn
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
        anew: Which of the carried values no turn reads: each makes them anew.
    """

    size: Dim | None
    turns: Operand | None
    going: Operand | None
    carried: Sequence[Result]
    scanned: Sequence[Scanned] = ()
    anew: Sequence[int] = ()


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
    build.carried[number] = 0, _turns(call, loop)
    asked = build.value(f"{call.name}/going", DType.BOOL, ())
    initial = [
        as_type(call, value, value.dtype.arithmetic)
        for value in (call.as_value(v) for v in loop.carried if not isinstance(v, TensorList))
    ]
    formals = [build.value(f"{call.name}/carried", v.dtype, v.shape) for v in initial]
    build.carried.update(_counters(call, loop, initial, formals))
    held, longer, quick = False, set[int](), dict[Value, float]()
    # Once more where a turn does otherwise: what follows from what they were taken for is wrong.
    while not held:
        part = Part(build)
        with part:
            inputs = _inputs(call, loop, number, formals)
            outputs = turn(inputs if loop.going is None else [number, asked, *inputs])
            if any(value is None for value in outputs):
                return None
            made = _made(call, loop, inputs, [v for v in outputs if v is not None])
            held = _stay(call, loop, formals, made.kept, quick)
        if _surely_turns(call, loop):
            held &= not _lengthened(call, initial, formals, made.kept, longer)
    _take_shapes(call, loop, initial, formals, made.kept)
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


def _counters(
    call: OnnxNode, loop: Rolled, initial: Sequence[Value], formals: Sequence[Value]
) -> dict[Value, tuple[float, float]]:
    """Between which numbers carried integers stay if they are what counters are.

    None becomes less than what it begins with, or larger by more than one in a turn.
    """
    turns = _turns(call, loop)
    begins = ((f, interval_of(call.build, v)) for f, v in zip(formals, initial, strict=True))
    return {
        f: (low, high + turns)
        for f, (low, high) in begins
        if f.dtype in _INTEGERS and any_of(f.dtype) != (low, high)
    }


def _turns(call: OnnxNode, loop: Rolled) -> int:
    most = call.build.limits.turns
    return min(loop.size, most) if isinstance(loop.size, int) else most


def _stay(
    call: OnnxNode,
    loop: Rolled,
    formals: Sequence[Value],
    kept: Sequence[Value],
    quick: dict[Value, float],
) -> bool:
    """Whether a turn leaves counters what they were taken for; those that it does not are none.

    Some count by more than one in a turn, which is tried for each of them once.
    """
    build, held, turns = call.build, True, _turns(call, loop)
    for formal, value in zip(formals, kept, strict=True):
        if formal not in build.carried:
            continue
        (low, high), (least, most) = build.carried[formal], interval_of(build, value)
        if least < low:
            del build.carried[formal]
            held = False
            continue
        step = most_apart(build, value, formal)
        if most <= high or step <= 1 or (formal in quick and step <= quick[formal]):
            continue
        held = False
        if formal in quick or step > _QUICK:
            build.carried[formal] = low, any_of(formal.dtype)[1]
        else:
            quick[formal] = step
            build.carried[formal] = low, high + (step - 1) * turns
    return held


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


def _take_shapes(
    call: OnnxNode, loop: Rolled, initial: list[Value], formals: list[Value], kept: Sequence[Value]
) -> None:
    """Begin with zeros where no turn reads what it begins with, in whatever shape turns make."""
    if not loop.anew or not _surely_turns(call, loop):
        return
    tensors = [k for k, v in enumerate(loop.carried) if not isinstance(v, TensorList)]
    for k, made in enumerate(kept):
        if tensors[k] in loop.anew and formals[k].shape != made.shape:
            zero = call.build.constant(np.zeros((), made.dtype.numpy), call.name)
            initial[k] = move(call, zero, broadcast_map((), made.shape))
            formals[k] = call.build.value(f"{call.name}/carried", made.dtype, made.shape)


def _lengthened(
    call: OnnxNode,
    initial: list[Value],
    formals: list[Value],
    kept: Sequence[Value],
    longer: set[int],
) -> bool:
    """Begin single elements with as many axes as turns give them, once; whether any has others.

    As Paddle's exporter carries them: what reads them broadcasts either.
    """
    build = call.build
    differing = [
        k
        for k, (formal, made) in enumerate(zip(formals, kept, strict=True))
        if k not in longer
        and formal.shape != made.shape
        and all(size == 1 for size in (*formal.shape, *made.shape))
    ]
    for k in differing:
        old, shape = formals[k], kept[k].shape
        initial[k] = reshaped(call, initial[k], shape)
        formals[k] = build.value(f"{call.name}/carried", old.dtype, shape)
        if old in build.carried:
            build.carried[formals[k]] = build.carried[old]
    longer.update(differing)
    return bool(differing)


def _surely_turns(call: OnnxNode, loop: Rolled) -> bool:
    """Whether there is a turn whatever the data are."""
    some = loop.turns is None or (isinstance(loop.size, int) and loop.size > 0)
    return some and _is_true(call, loop.going)


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
