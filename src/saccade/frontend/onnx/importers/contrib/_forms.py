"""What importers of other domains have in common: no table of ONNX's says what a node may have."""

from __future__ import annotations

from dataclasses import replace

from saccade.frontend.onnx.call import OnnxNode, Operand
from saccade.frontend.onnx.moves import move, transpose_map
from saccade.frontend.onnx.refusal import Refusal
from saccade.ir import Value

__all__ = [
    "as_standard",
    "channels_first",
    "channels_last",
    "only",
    "optional",
]

_SETS = 17
"""The operator set whose importers the nodes of other domains are given to."""


def only(call: OnnxNode, *attributes: str, inputs: int) -> None:
    """Refuse what an importer does not know of.

    Args:
        call: The node.
        attributes: Names that it may have.
        inputs: How many it may have.

    Raises:
        Refusal: With the first name, or the first input.
    """
    for name in call.node.attributes:
        if name not in attributes:
            raise Refusal(f"attribute {name!r}")
    for index in range(inputs, len(call.operands)):
        if call.has(index):
            raise Refusal(f"its input {index}")


def as_standard(call: OnnxNode, *operands: Operand | None) -> OnnxNode:
    """The node as one of the standard's with these operands; its own ones if there are none."""
    return replace(call, operands=operands or call.operands, opset=_SETS)


def optional(call: OnnxNode, index: int) -> Value | None:
    """An operand, or None where it is left out."""
    return call.value(index) if call.has(index) else None


def channels_first(call: OnnxNode, x: Value) -> Value:
    """[N, …, C] as [N, C, …]."""
    if x.rank < 3:
        raise call.broken(f"channels last of {x.rank} axes")
    return move(call, x, transpose_map(x.shape, (0, x.rank - 1, *range(1, x.rank - 1))))


def channels_last(call: OnnxNode, x: Value) -> Value:
    """[N, C, …] as [N, …, C]."""
    return move(call, x, transpose_map(x.shape, (0, *range(2, x.rank), 1)))
