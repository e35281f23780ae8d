"""Loop and Scan: bodies as often as they run, or one program that runs once for each turn.

A few turns whose number is known leave no loop: bodies become part of the graph around them. Where
data decide how many there are, and where there would be too many nodes, the body is a program of
its own (`opdefs.Loop`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from saccade.frontend.onnx.bodies import DEPENDS, Bodies
from saccade.frontend.onnx.call import OnnxNode, Operand
from saccade.frontend.onnx.growing import growing, rolled_growing
from saccade.frontend.onnx.idle import anew, handed, idle, without
from saccade.frontend.onnx.importers.sequences import stacked
from saccade.frontend.onnx.listed import Item, Result, TensorList
from saccade.frontend.onnx.moves import move, reshaped, slice_map, transpose_map
from saccade.frontend.onnx.refusal import Refusal
from saccade.frontend.onnx.rolled import Rolled, Scanned, rolled
from saccade.frontend.onnx.survey import Survey
from saccade.ir import Dim, DType, Value
from saccade.ir.counts import depends

if TYPE_CHECKING:
    import onnx_ir

__all__ = ["LoopNodes"]

_MOST_TURNS = 1024
_MOST_NODES = 16384
"""Of all turns of a body together: a graph of more would take too long to plan."""
_FEW_NODES = 1024
"""Up to here bodies become part of the graph before anything else is tried."""
_SCAN_WITHOUT_BATCHES = 9


@dataclass(frozen=True, slots=True)
class _Count:
    """How many turns a loop makes at most.

    Attributes:
        size: As far as it is known: a number, or a size that a step finds out; None if data say it.
        tensor: The operand that says it; None if nothing does.
    """

    size: Dim | None
    tensor: Operand | None


class LoopNodes(Bodies):
    """What a lowering does with Loop, Scan and SequenceMap."""

    def _loop(self, call: OnnxNode) -> Sequence[Result | None]:
        body, count = self._body(call, "body"), _turns_of(call)
        carried = [_given(call, index) for index in range(2, len(call.given))]
        if len(body.outputs) < 1 + len(carried):
            raise call.broken(f"carries {len(carried)} values of {len(body.outputs)}")
        if self.inlined and count.size is None and len(body.outputs) > 1 + len(carried):
            # As Range is written: one plan for each length is better than a loop with a bound.
            raise Refusal(DEPENDS)
        going = call.operand(1) if call.has(1) else self.build.constant(np.asarray(True), "going")
        most = count.size if isinstance(count.size, int) else None
        # One that is as long as data say is never unrolled; one without a number may be short.
        short = count.tensor is None or most is not None
        few = most is None or most * len(body) <= _FEW_NODES
        loop = Rolled(count.size, count.tensor, going, carried)
        try:
            if short and few:
                return self._unrolled(call, body, most, going, carried)
            return self._rolled(call, body, loop)
        except Refusal as refusal:
            if not short:
                raise
            try:
                if few:
                    return self._rolled(call, body, loop)
                return self._unrolled(call, body, most, going, carried)
            except Refusal as second:
                # Why it cannot be a program of its own is what could be helped.
                raise (second if few else refusal) from None

    def _unrolled(
        self,
        call: OnnxNode,
        body: onnx_ir.Graph,
        most: int | None,
        first: Operand,
        carried: Sequence[Result],
    ) -> Sequence[Result | None]:
        going, turn = self._known_truth(first), 0
        held: list[Result | None] = list(carried)
        gathered: list[list[Operand]] = [[] for _ in body.outputs[1 + len(held) :]]
        while going and (most is None or turn < most):
            _check_turns(body, turn + 1)
            number = self.build.constant(np.asarray(turn, np.int64), "turn")
            inputs = [number, self.build.constant(np.asarray(True), "going"), *_there(held)]
            next_, *results = self._turn(call, body, inputs)
            if any(value is None for value in (next_, *results)):
                return [None] * len(call.node.outputs)
            going = self._known_truth(_tensor(next_))
            held, each = list(results[: len(held)]), results[len(held) :]
            for values, value in zip(gathered, each, strict=True):
                values.append(_tensor(value))
            turn += 1
        if any(not values for values in gathered):
            raise Refusal("gathers what no turn of it gives")
        return [*held, *(stacked(call, values, 0) for values in gathered)]

    def _known_truth(self, condition: Operand) -> bool:
        array = self.build.constants.get(condition) if isinstance(condition, Value) else None
        if array is None or array.size != 1:
            raise Refusal(DEPENDS)
        return bool(array.item())

    def _rolled(self, call: OnnxNode, body: onnx_ir.Graph, loop: Rolled) -> Sequence[Result | None]:
        nodes, outer = len(self.refused), self.survey
        # What a body lacks may be there once its turns are known: the node is what is refused.
        self.survey = Survey()
        try:
            found = self._by_turns(call, body, loop)
            rows = self.survey.table({})
        finally:
            self.survey = outer
            del self.refused[nodes:]
        if found is None or rows:
            first = next((f": {row.operator}: {row.reason}" for row in rows), "")
            raise Refusal(f"{DEPENDS}, with a body that cannot be run{first}")
        return found

    def _by_turns(self, call: OnnxNode, body: onnx_ir.Graph, loop: Rolled) -> list[Result] | None:
        def turn(inputs: Sequence[Result]) -> list[Result | None]:
            return self._turn(call, body, inputs)

        if loop.going is None:
            return rolled(call, loop, turn)
        count = len(loop.carried)
        loop = replace(loop, anew=anew(body, count))
        apart = idle(call, body, count) | handed(body, count)
        grown = [k for k in growing(body, loop.carried) if k not in apart]
        loop, shorter, whole = without(loop, turn, apart)
        grown = [k - sum(other < k for other in apart) for k in grown]
        if grown:
            results = rolled_growing(call, loop, shorter, grown)
        else:
            results = rolled(call, loop, shorter)
        return None if results is None else whole(results)

    # -- Scan ------------------------------------------------------------------------------------

    def _scan(self, call: OnnxNode) -> Sequence[Result | None]:
        body, count = self._body(call, "body"), call.integer("num_scan_inputs", 0)
        batches = call.opset < _SCAN_WITHOUT_BATCHES
        if batches and call.has(0):
            raise Refusal("Scan of operator set 8 with lengths of sequences")
        operands = range(int(batches), len(call.given))
        states = len(operands) - count
        if not 1 <= count <= len(operands) or len(body.outputs) < states:
            raise call.broken(f"scans {count} of {len(operands)} inputs")
        values = [call.operand(index) for index in operands]
        if batches:
            return self._scan_batches(call, body, values, states)
        return self._scanned(call, body, values, states)

    def _scan_batches(
        self, call: OnnxNode, body: onnx_ir.Graph, operands: Sequence[Operand], states: int
    ) -> Sequence[Result | None]:
        """Each image of a batch for itself, as before operator set 9."""
        values = [call.as_value(operand) for operand in operands]
        sizes = {value.shape[0] if value.rank > 1 else None for value in values[states:]}
        (size, *others) = sizes
        if others or not isinstance(size, int) or not size:
            raise Refusal("scans a batch that varies")
        _check_turns(body, size)
        found = [
            self._scanned(call, body, [_slice(call, value, 0, at) for value in values], states)
            for at in range(size)
        ]
        if any(value is None for results in found for value in results):
            return [None] * len(call.node.outputs)
        return [stacked(call, list(map(_tensor, each)), 0) for each in zip(*found, strict=True)]

    def _scanned(
        self, call: OnnxNode, body: onnx_ir.Graph, operands: Sequence[Operand], states: int
    ) -> Sequence[Result | None]:
        carried = list(operands[:states])
        values = [call.as_value(operand) for operand in operands[states:]]
        made, count = len(body.outputs) - states, len(values)
        given = _each(call, "scan_input_axes", count)
        axes = tuple(call.axis(a, x.rank) for a, x in zip(given, values, strict=True))
        old = call.opset < _SCAN_WITHOUT_BATCHES
        backwards = _each(call, "directions" if old else "scan_input_directions", count)
        (length, *others) = {x.shape[axis] for x, axis in zip(values, axes, strict=True)}
        if others or not (isinstance(length, int) or depends(length, self.build.counts)):
            raise Refusal("scans an axis that varies")
        scanned = [
            Scanned(x, axis, backwards=bool(back))
            for x, axis, back in zip(values, axes, backwards, strict=True)
        ]
        reverse, at = (
            _each(call, "scan_output_directions", made),
            _each(call, "scan_output_axes", made),
        )
        if isinstance(length, int) and length > 0 and length * len(body) <= _FEW_NODES:
            return self._scan_unrolled(call, body, carried, scanned, length, reverse, at)
        loop = Rolled(length, None, None, carried, tuple(scanned))
        results = self._rolled(call, body, loop)
        if any(result is None for result in results):
            return results
        rows = [
            _placed(call, call.as_value(_tensor(x)), axis, backwards=bool(back))
            for x, axis, back in zip(results[states:], at, reverse, strict=True)
        ]
        return [*results[:states], *rows]

    def _scan_unrolled(
        self,
        call: OnnxNode,
        body: onnx_ir.Graph,
        carried: Sequence[Operand],
        scanned: Sequence[Scanned],
        length: int,
        reverse: Sequence[int],
        at: Sequence[int],
    ) -> Sequence[Result | None]:
        held = list(carried)
        gathered: list[list[Operand]] = [[] for _ in reverse]
        for turn in range(length):
            slices = [
                _slice(call, one.value, one.axis, length - 1 - turn if one.backwards else turn)
                for one in scanned
            ]
            results = self._turn(call, body, [*held, *slices])
            if any(value is None for value in results):
                return [None] * len(call.node.outputs)
            there = list(map(_tensor, results))
            held = there[: len(held)]
            for values, value in zip(gathered, there[len(held) :], strict=True):
                values.append(value)
        for values, back in zip(gathered, reverse, strict=True):
            if back:
                values.reverse()
        rows = (stacked(call, values, axis) for values, axis in zip(gathered, at, strict=True))
        return [*held, *rows]

    # -- SequenceMap -----------------------------------------------------------------------------

    def _sequence_map(self, call: OnnxNode) -> Sequence[Result | None]:
        body, first = self._body(call, "body"), call.listed(0)
        count = len(first.tensors())
        _check_turns(body, count)
        lists = [
            given.tensors() if isinstance(given, TensorList) else [given] * count
            for given in (_given(call, index) for index in range(len(call.given)))
        ]
        if any(len(one) != count for one in lists):
            raise call.broken("sequences of different lengths")
        gathered: list[list[Item]] = [[] for _ in body.outputs]
        for inputs in zip(*lists, strict=True):
            results = self._turn(call, body, inputs)
            if any(value is None for value in results):
                return [None] * len(call.node.outputs)
            for items, value in zip(gathered, results, strict=True):
                items.append(_tensor(value))
        return [TensorList(tuple(items), _dtype(items)) for items in gathered]


def _turns_of(call: OnnxNode) -> _Count:
    """How many turns the first operand of a Loop allows."""
    if not call.has(0):
        return _Count(None, None)
    operand, content = call.operand(0), call.content(0)
    if content is None:
        return _Count(None, operand)
    elements = call.dims(0, "the number of turns")
    if len(elements) != 1:
        raise call.broken(f"{len(elements)} numbers of turns")
    (size,) = elements
    if isinstance(size, int):
        return _Count(max(size, 0), operand)
    if not depends(size, call.build.counts):
        raise Refusal("the number of turns must not depend on the size of the input")
    return _Count(size, operand)


def _given(call: OnnxNode, index: int) -> Result:
    found = call.given[index]
    if found is None:
        raise Refusal("carries an optional value that is not there")
    return found


def _there(values: Sequence[Result | None]) -> list[Result]:
    found = [value for value in values if value is not None]
    assert len(found) == len(values), "looked at by the caller"
    return found


def _tensor(value: Result | None) -> Operand:
    assert value is not None, "looked at by the caller"
    if isinstance(value, TensorList):
        raise Refusal("a body gives a sequence where a tensor is expected")
    return value


def _dtype(items: Sequence[Item]) -> DType | None:
    return next((item.dtype for item in items if not hasattr(item, "value")), None)


def _check_turns(body: onnx_ir.Graph, turns: int) -> None:
    if turns > _MOST_TURNS or turns * len(body) > _MOST_NODES:
        raise Refusal(
            f"runs {turns} times or more over {len(body)} nodes, which is too long to unroll"
        )


def _each(call: OnnxNode, name: str, count: int) -> tuple[int, ...]:
    """One number for each of several values, 0 if none is given."""
    given = call.integers(name) or (0,) * count
    if len(given) != count:
        raise call.broken(f"{name} {list(given)} for {count} values")
    return given


def _slice(call: OnnxNode, x: Value, axis: int, at: int) -> Value:
    """What lies at one place of an axis, without the axis."""
    if x.rank == 1:
        return reshaped(call, move(call, x, slice_map(x.shape, {0: (at, 1, 1)})), ())
    return move(call, x, slice_map(x.shape, {axis: (at, 1, 1)}, (axis,)))


def _placed(call: OnnxNode, x: Value, axis: int, *, backwards: bool) -> Value:
    """What a scan gathered along its first axis, where it is to be, in the order it is to have."""
    size = x.shape[0]
    if backwards:
        if not isinstance(size, int):
            raise Refusal("gathers from the end of an axis whose size depends on data")
        x = move(call, x, slice_map(x.shape, {0: (max(size - 1, 0), size, -1)}))
    at = call.axis(axis, x.rank)
    return move(call, x, transpose_map(x.shape, [*range(1, at + 1), 0, *range(at + 1, x.rank)]))
