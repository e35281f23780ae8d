"""Carried values that grow: each turn of a loop puts rows behind those that are there.

Exporters write lists that way: a carried value, `Concat`ed along its first axis with what the turn
found. Such a loop gathers what its turns find, and what was there before it stands in front.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from saccade.frontend.onnx.call import OnnxNode, Operand
from saccade.frontend.onnx.listed import Result, TensorList
from saccade.frontend.onnx.moves import broadcast_map, move, reshaped
from saccade.frontend.onnx.open_axes import concatenated, is_open
from saccade.frontend.onnx.refusal import Refusal
from saccade.frontend.onnx.rolled import Rolled, rolled
from saccade.ir import Value
from saccade.ir.dim import mul
from saccade.opdefs import Concat

if TYPE_CHECKING:
    import onnx_ir

__all__ = ["growing", "rolled_growing"]

_SAME = frozenset({"Cast", "Identity"})
"""What may stand between a carried value and the end of it."""

_Turn: TypeAlias = Callable[[Sequence[Result]], Sequence[Result | None]]


def growing(body: onnx_ir.Graph, carried: Sequence[Result]) -> tuple[int, ...]:
    """Which carried values of a loop a turn only puts rows behind.

    Args:
        body: Of the loop.
        carried: From before the first turn.
    """
    return tuple(
        index
        for index, value in enumerate(carried)
        if not isinstance(value, TensorList)
        and len(value.shape) > 0
        and _grows(body.inputs[2 + index], body.outputs[1 + index])
    )


def _grows(before: onnx_ir.Value, after: onnx_ir.Value) -> bool:
    """Whether a value is another one with rows behind it, which nothing else sees."""
    value = before
    while not value.is_graph_output():
        uses = tuple(value.uses())
        if len(uses) != 1:
            return False
        ((node, place),) = uses
        if node.domain not in ("", "ai.onnx") or place != 0:
            return False
        (value,) = node.outputs
        if node.op_type == "Concat":
            axis = node.attributes.get("axis")
            once = value is after and not value.uses()
            return once and axis is not None and axis.value == 0 and len(node.inputs) > 1
        if node.op_type not in _SAME:
            return False
    return False


def rolled_growing(
    call: OnnxNode, loop: Rolled, turn: _Turn, grown: Sequence[int]
) -> list[Result] | None:
    """As `rolled`, with carried values that grow.

    Args:
        call: The node.
        loop: Its operands.
        turn: Imports the body for its inputs.
        grown: Which of the carried values do.

    Returns:
        None if the body holds what is refused.

    Raises:
        Refusal: If a turn's rows are of no known number, and as of `rolled`.
    """
    kept = [index for index in range(len(loop.carried)) if index not in grown]
    count = len(loop.carried)
    before = {index: call.as_value(_tensor(loop.carried[index])) for index in grown}

    def without(inputs: Sequence[Result]) -> Sequence[Result | None]:
        """The body, with nothing there yet: what it gives are the turn's own rows."""
        number, asked, *rest = inputs
        carried = dict(zip(kept, rest, strict=True))
        for index, value in before.items():
            shape = (0, *(1 if is_open(call, size) else size for size in value.shape[1:]))
            nothing = call.build.constant(np.zeros((), value.dtype.numpy), call.name)
            carried[index] = move(call, nothing, broadcast_map((), shape))
        again, *results = turn([number, asked, *(carried[index] for index in range(count))])
        rows = [results[index] for index in grown]
        return [again, *(results[index] for index in kept), *results[count:], *rows]

    anew = [kept.index(k) for k in loop.anew if k in kept]
    shorter = replace(loop, carried=[loop.carried[k] for k in kept], anew=anew)
    results = rolled(call, shorter, without)
    if results is None:
        return None
    first = len(results) - len(grown)
    found = dict(zip(kept, results, strict=False))
    for index, rows in zip(grown, results[first:], strict=True):
        found[index] = _behind(call, before[index], call.as_value(_tensor(rows)))
    return [*(found[index] for index in range(count)), *results[len(kept) : first]]


def _tensor(value: Result) -> Operand:
    assert not isinstance(value, TensorList), "looked at by the caller"
    return value


def _behind(call: OnnxNode, before: Value, rows: Value) -> Value:
    """What was there before the loop, and the rows of all turns [turns, rows, …]."""
    turns, each, *rest = rows.shape
    if not isinstance(each, int):
        raise Refusal("a turn gives as many rows as data decide")
    x = reshaped(call, rows, (mul(turns, each), *rest))
    if before.shape[0] == 0:
        return x
    if is_open(call, before.shape[0], x.shape[0]):
        return concatenated(call, [before, x], 0)
    return call.emit(Concat(axis=0), before, x)
