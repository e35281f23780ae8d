"""Carried values that need not be carried: nobody reads them, or no turn changes them.

Paddle's exporter carries all variables of a loop, also those that every turn makes anew. What they
are before the first turn stands for something of another shape, and no program could hold both. It
carries all weights, too, which would be copied from turn to turn, and be no constants.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from saccade.frontend.onnx.call import OnnxNode
from saccade.frontend.onnx.listed import Result
from saccade.frontend.onnx.rolled import Rolled

if TYPE_CHECKING:
    import onnx_ir

__all__ = ["anew", "handed", "idle", "without"]

_Turn: TypeAlias = Callable[[Sequence[Result]], Sequence[Result | None]]


def idle(call: OnnxNode, body: onnx_ir.Graph, count: int) -> frozenset[int]:
    """Which of the carried values of a loop nobody reads.

    Args:
        call: The loop.
        body: Of it.
        count: How many values it carries.
    """
    read = {k for k, v in enumerate(call.node.outputs) if v.uses() or v.is_graph_output()}
    return frozenset(anew(body, count)) - read


def anew(body: onnx_ir.Graph, count: int) -> tuple[int, ...]:
    """Which of the carried values of a loop no turn reads."""
    inputs = list(body.inputs[2:])[:count]
    return tuple(k for k, v in enumerate(inputs) if not v.uses() and not v.is_graph_output())


def handed(body: onnx_ir.Graph, count: int) -> frozenset[int]:
    """Which of the carried values of a loop every turn hands on as they are."""
    pairs = zip(body.inputs[2:], body.outputs[1:], range(count), strict=False)
    return frozenset(k for before, after, k in pairs if _source(after) is before)


def _source(value: onnx_ir.Value) -> onnx_ir.Value | None:
    """What a value is a copy of."""
    found: onnx_ir.Value | None = value
    while found is not None and (node := found.producer()) is not None:
        if node.domain not in ("", "ai.onnx") or node.op_type != "Identity":
            break
        found = node.inputs[0]
    return found


def without(
    loop: Rolled, turn: _Turn, apart: frozenset[int]
) -> tuple[Rolled, _Turn, Callable[[list[Result]], list[Result]]]:
    """The loop and its turn without some carried values, and what puts these into its results."""
    given, kept = loop.carried, [k for k in range(len(loop.carried)) if k not in apart]

    def shorter(inputs: Sequence[Result]) -> Sequence[Result | None]:
        number, asked, *rest = inputs
        carried = dict(zip(kept, rest, strict=True))
        again, *results = turn(
            [number, asked, *(carried.get(k, value) for k, value in enumerate(given))]
        )
        return [again, *(results[k] for k in kept), *results[len(given) :]]

    def whole(results: list[Result]) -> list[Result]:
        found = dict(zip(kept, results, strict=False))
        return [*(found.get(k, value) for k, value in enumerate(given)), *results[len(kept) :]]

    again = [kept.index(k) for k in loop.anew if k in kept]
    return replace(loop, carried=[given[k] for k in kept], anew=again), shorter, whole
