"""Convolutions that fusions look for."""

from __future__ import annotations

from saccade.ir import Graph, Node, Value
from saccade.ir.expr import IDENTITY
from saccade.opdefs import Conv2d

__all__ = ["is_depthwise", "is_plain_pointwise", "is_pointwise"]


def is_depthwise(node: Node, graph: Graph) -> bool:
    """Whether it is a convolution with one constant filter per channel, no prologue, no store."""
    op = node.op
    if not isinstance(op, Conv2d) or op.prologue != IDENTITY:
        return False
    weights = node.inputs[1]
    return weights.shape[:2] == (op.groups, 1) and op.store is None and weights in graph.constants


def is_pointwise(node: Node, graph: Graph) -> bool:
    """Whether it is a dense 1x1 convolution of stride 1 with constant filters and no prologue."""
    op = node.op
    if not isinstance(op, Conv2d) or node.inputs[1].shape[2:] != (1, 1):
        return False
    plain = (op.stride, op.padding, op.groups) == ((1, 1), (0, 0, 0, 0), 1)
    return plain and op.prologue == IDENTITY and node.inputs[1] in graph.constants


def is_plain_pointwise(node: Node, graph: Graph) -> bool:
    """Whether it is such a one without a store whose epilogue's operands vary by channel alone."""
    if not is_pointwise(node, graph):
        return False
    assert isinstance(node.op, Conv2d)
    return node.op.store is None and all(_per_channel(value, graph) for value in node.inputs[2:])


def _per_channel(value: Value, graph: Graph) -> bool:
    shape = (1,) * (4 - value.rank) + value.shape
    return value in graph.constants and shape[0] == 1 and shape[2:] == (1, 1)
