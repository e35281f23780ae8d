"""If, Loop and Scan as plain nodes: the branch that is taken, and bodies as often as they run.

A condition, a number of turns or a length that is known leaves no control flow: bodies become part
of the graph around them, and everything is planned as one. Of a condition that is computed both
branches are, where what they give has the same shapes, and each result is chosen.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from saccade.errors import ModelError
from saccade.frontend.onnx.call import OnnxNode, Operand
from saccade.frontend.onnx.importers._elementwise import pointwise
from saccade.frontend.onnx.moves import move, reshaped, slice_map
from saccade.frontend.onnx.open_axes import is_open, reopened, room_of
from saccade.frontend.onnx.refusal import Refusal
from saccade.ir import Dim, DType, Value
from saccade.ir.expr import apply, arg, const
from saccade.opdefs import Concat, Pointwise

if TYPE_CHECKING:
    import onnx_ir

    from saccade.frontend.onnx.builder import Builder

__all__ = ["ControlFlow"]


_DEPENDS = "control flow that depends on data"
_MOST_TURNS = 1024
_MOST_NODES = 16384
"""Of all turns of a body together: a graph of more would take too long to plan."""


class ControlFlow(ABC):
    """What a lowering does with nodes that have bodies.

    Attributes:
        build: The graph under construction.
        found: What each ONNX value became.
        lost: Values behind nodes that are refused.
    """

    def __init__(self, build: Builder) -> None:
        self.build = build
        self.found: dict[onnx_ir.Value, Operand] = {}
        self.lost: set[onnx_ir.Value] = set()
        self._chosen_sizes: dict[tuple[Value, Dim, bool], Dim] = {}

    @abstractmethod
    def _nodes(self, graph: onnx_ir.Graph) -> None:
        """Import the nodes of a graph or a body, in place."""

    def _controlled(self, call: OnnxNode) -> None:
        """Import a node that has bodies.

        Raises:
            Refusal: If what it does depends on data.
        """
        importer = {"If": self._if, "Loop": self._loop, "Scan": self._scan}[call.node.op_type]
        results = importer(call)
        if len(results) < len(call.node.outputs):
            raise call.broken(f"{len(results)} results for {len(call.node.outputs)} outputs")
        for value, result in zip(call.node.outputs, results, strict=False):
            if result is None:
                self.lost.add(value)
            else:
                self.found[value] = result

    def _body(self, call: OnnxNode, name: str) -> onnx_ir.Graph:
        attribute = call.node.attributes.get(name)
        if attribute is None or attribute.type.name != "GRAPH":
            raise call.broken(f"lacks its {name}")
        graph: onnx_ir.Graph = attribute.value
        return graph

    def _turn(
        self, call: OnnxNode, body: onnx_ir.Graph, inputs: Sequence[Operand]
    ) -> list[Operand | None]:
        """The outputs of a body, None where one is behind a node that is refused."""
        if len(body.inputs) != len(inputs):
            raise call.broken(f"{len(inputs)} values for a body of {len(body.inputs)} inputs")
        for formal, operand in zip(body.inputs, inputs, strict=True):
            self.found[formal] = operand
        self._nodes(body)
        return [self.found.get(value) for value in self._made(body.outputs)]

    def _made(self, outputs: Iterable[onnx_ir.Value]) -> Iterable[onnx_ir.Value]:
        for value in outputs:
            if value not in self.found and value not in self.lost:
                raise ModelError(f"nothing makes the output {value.name!r} of a body")
            yield value

    # -- If --------------------------------------------------------------------------------------

    def _if(self, call: OnnxNode) -> Sequence[Operand | None]:
        condition = call.operand(0)
        array = self.build.constants.get(condition) if isinstance(condition, Value) else None
        if array is not None and array.size == 1:
            # The other branch is never looked at: it may hold what cannot be run.
            return self._turn(call, self._body(call, _BRANCHES[not array.item()]), [])
        try:
            sides = [self._turn(call, self._body(call, name), []) for name in _BRANCHES]
        # A branch that is not taken need not fit.
        except ModelError as error:
            raise Refusal(f"{_DEPENDS}, and a branch that does not fit: {error}") from None
        if len(sides[0]) != len(sides[1]):
            raise call.broken("branches differ in their outputs")
        chosen = reshaped(call, call.value(0), ())
        return [self._chosen(call, chosen, *pair) for pair in zip(*sides, strict=True)]

    def _chosen(
        self, call: OnnxNode, condition: Value, yes: Operand | None, no: Operand | None
    ) -> Operand | None:
        """The one or the other, as the condition says."""
        if yes is None or no is None:
            return None
        if yes in self.build.held or no in self.build.held:
            raise Refusal(f"{_DEPENDS}, with branches that give what no memory holds")
        if not isinstance(yes, Value) or not isinstance(no, Value) or yes.dtype is not no.dtype:
            raise Refusal(f"{_DEPENDS}, with branches of different types")
        if yes.shape == no.shape:
            return pointwise(call, partial(apply, "where"), [condition, yes, no], yes.dtype)
        # "Nothing, or what was found": as many as were found, or none.
        for nothing, found, taken in ((yes, no, False), (no, yes, True)):
            axis = _emptied(nothing, found)
            if axis is not None and is_open(call, found.shape[axis]):
                return self._fewer(call, found, axis, condition, taken=taken)
        raise Refusal(f"{_DEPENDS}, with branches of different shapes")

    def _fewer(
        self, call: OnnxNode, x: Value, axis: int, condition: Value, *, taken: bool
    ) -> Value:
        """What was found along an axis, or nothing of it, as the condition says."""
        build, size = self.build, x.shape[axis]
        key = condition, size, taken
        if key not in self._chosen_sizes:
            chosen = apply("where", arg(0), arg(1), const(0))
            if not taken:
                chosen = apply("where", arg(0), const(0), arg(1))
            true = build.sized(size, call.name)
            count = call.emit(Pointwise(chosen, DType.I64), reshaped(call, condition, (1,)), true)
            self._chosen_sizes[key] = rows = build.symbol("chosen")
            build.counted(rows, room_of(call, size), count)
        return reopened(call, x, axis, self._chosen_sizes[key])

    # -- Loop ------------------------------------------------------------------------------------

    def _loop(self, call: OnnxNode) -> Sequence[Operand | None]:
        body = self._body(call, "body")
        turns = call.integers_of(0, "the number of turns") if call.has(0) else (_MOST_TURNS + 1,)
        going = self._known_truth(call.operand(1)) if call.has(1) else True
        carried: list[Operand | None] = [call.operand(i) for i in range(2, len(call.operands))]
        gathered: list[list[Operand | None]] = [[] for _ in body.outputs[1 + len(carried) :]]
        turn = 0
        while going and turn < turns[0]:
            self._check_turns(body, turn + 1)
            number = self.build.constant(np.asarray(turn, np.int64), "turn")
            inputs = [number, self.build.constant(np.asarray(True), "going"), *carried]
            if any(value is None for value in inputs):
                return [None] * len(call.node.outputs)
            next_, *results = self._turn(call, body, [v for v in inputs if v is not None])
            going = next_ is not None and self._known_truth(next_)
            carried, each = results[: len(carried)], results[len(carried) :]
            for values, value in zip(gathered, each, strict=True):
                values.append(value)
            turn += 1
        if any(not values for values in gathered):
            raise Refusal("gathers what no turn of it gives")
        return [*carried, *(self._stacked(call, values, 0) for values in gathered)]

    def _known_truth(self, condition: Operand) -> bool:
        array = self.build.constants.get(condition) if isinstance(condition, Value) else None
        if array is None or array.size != 1:
            raise Refusal(_DEPENDS)
        return bool(array.item())

    def _check_turns(self, body: onnx_ir.Graph, turns: int) -> None:
        if turns > _MOST_TURNS or turns * len(body) > _MOST_NODES:
            raise Refusal(
                f"runs {turns} times or more over {len(body)} nodes, which is too long to unroll"
            )

    # -- Scan ------------------------------------------------------------------------------------

    def _scan(self, call: OnnxNode) -> Sequence[Operand | None]:
        if call.opset < _SCAN_WITHOUT_BATCHES:
            raise Refusal("Scan of operator set 8")
        body, count = self._body(call, "body"), call.integer("num_scan_inputs", 0)
        states = len(call.operands) - count
        if not 1 <= count <= len(call.operands) or len(body.outputs) < states:
            raise call.broken(f"scans {count} of {len(call.operands)} inputs")
        carried: list[Operand | None] = [call.operand(i) for i in range(states)]
        scanned = [call.value(i) for i in range(states, len(call.operands))]
        made = len(body.outputs) - states
        axes = _each(call, "scan_input_axes", count)
        axes = tuple(call.axis(a, x.rank) for a, x in zip(axes, scanned, strict=True))
        backwards = _each(call, "scan_input_directions", count)
        lengths = {x.shape[axis] for x, axis in zip(scanned, axes, strict=True)}
        length = lengths.pop()
        if lengths or not isinstance(length, int):
            raise Refusal("scans an axis that varies")
        if length == 0:
            raise Refusal("scans nothing")
        self._check_turns(body, length)
        gathered: list[list[Operand | None]] = [[] for _ in range(made)]
        for turn in range(length):
            slices = [
                _slice(call, x, axis, length - 1 - turn if back else turn)
                for x, axis, back in zip(scanned, axes, backwards, strict=True)
            ]
            if any(value is None for value in carried):
                return [None] * len(call.node.outputs)
            results = self._turn(call, body, [*(v for v in carried if v is not None), *slices])
            carried = results[:states]
            for values, value in zip(gathered, results[states:], strict=True):
                values.append(value)
        for values, back in zip(gathered, _each(call, "scan_output_directions", made), strict=True):
            if back:
                values.reverse()
        at = _each(call, "scan_output_axes", made)
        stacked = (self._stacked(call, values, a) for values, a in zip(gathered, at, strict=True))
        return [*carried, *stacked]

    def _stacked(
        self, call: OnnxNode, values: Sequence[Operand | None], axis: int
    ) -> Operand | None:
        """Values of all turns side by side along a new axis."""
        parts = []
        for operand in values:
            if operand is None:
                return None
            if operand in self.build.held:
                raise Refusal("gathers what no memory holds")
            value = operand
            if not isinstance(value, Value):
                found = self.build.found(value, call.name)
                if found is None:
                    raise Refusal("gathers symbolic sizes")
                value = found
            at = call.axis(axis, value.rank + 1)
            parts.append(reshaped(call, value, (*value.shape[:at], 1, *value.shape[at:])))
        return call.emit(Concat(axis=call.axis(axis, parts[0].rank)), *parts)


def _emptied(nothing: Value, found: Value) -> int | None:
    """The only axis that differs, without elements in the one of two values."""
    if nothing.rank != found.rank:
        return None
    pairs = zip(nothing.shape, found.shape, strict=True)
    differing = [axis for axis, (n, f) in enumerate(pairs) if n != f]
    return differing[0] if len(differing) == 1 and nothing.shape[differing[0]] == 0 else None


_BRANCHES = ("then_branch", "else_branch")
_SCAN_WITHOUT_BATCHES = 9


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
