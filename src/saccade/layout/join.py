"""Two operators become one step where what lies between them is large.

    Conv2d(Conv2d(x, w1), w2)  ->  ExpandDepthwise(x, w1, w2)

A 1x1 convolution that widens a picture and the depthwise convolution of the result: the wide
picture is the largest value of a mobile network. A few rows at a time it never leaves a core's
second cache; whole it may. Whether that pays depends on sizes, so it is decided here and not by a
pass. Left alone: wide pictures that anyone else reads, that the caller gets, that the second caches
of a team hold or that are stored anywhere but plainly; epilogues of the first convolution with
operands that vary from pixel to pixel or picture to picture; prologues.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

from saccade.ir import Graph, Node, Value
from saccade.ir.expr import IDENTITY
from saccade.kernels.base import Call
from saccade.layout.types import Backend
from saccade.layout.views import channels_last, row_major
from saccade.opdefs import Conv2d, ExpandDepthwise

__all__ = ["is_plain_product", "is_taken", "joined"]

_NOMINAL_THREADS = 2  # what is chosen must not depend on the width of the team

Shapes = Mapping[Value, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class _Pair:
    """A 1x1 convolution, the depthwise one behind it, and the node that does both."""

    expand: Node
    depthwise: Node
    both: Node


def joined(graph: Graph, shapes: Shapes, backend: Backend, threads: int) -> Graph:
    """The graph with every pair joined that is worth it and that a kernel takes."""
    chosen = frozenset(
        pair
        for pair in _pairs(graph)
        if _is_large(shapes[pair.expand.output], pair, backend)
        and is_taken(graph, pair.both, shapes, backend, threads)
    )
    return _rewritten(graph, chosen) if chosen else graph


@lru_cache(maxsize=64)
def _rewritten(graph: Graph, pairs: frozenset[_Pair]) -> Graph:
    gone = {pair.expand for pair in pairs}
    instead = {pair.depthwise: pair.both for pair in pairs}
    return replace(
        graph, nodes=tuple(instead.get(node, node) for node in graph.nodes if node not in gone)
    )


def _is_large(shape: tuple[int, ...], pair: _Pair, backend: Backend) -> bool:
    """Whether one wide picture exceeds the second caches of a team."""
    itemsize = pair.expand.output.dtype.itemsize
    return bool(backend.candidates(pair.both.op)) and (
        prod(shape[1:]) * itemsize > _NOMINAL_THREADS * backend.target.l2
    )


def is_taken(graph: Graph, node: Node, shapes: Shapes, backend: Backend, threads: int) -> bool:
    """Whether a kernel takes a node whose pictures are channels-last."""
    constant = tuple(value in graph.constants for value in node.inputs)
    ins, outs = (
        tuple(
            (channels_last if value.rank == 4 and value not in graph.constants else row_major)(
                value.dtype, shapes[value]
            )
            for value in values
        )
        for values in (node.inputs, node.outputs)
    )
    call = Call(node.op, ins, outs, constant, backend.target, threads)
    return any(kernel.supports(call) is None for kernel in backend.candidates(node.op))


@lru_cache(maxsize=64)
def _pairs(graph: Graph) -> tuple[_Pair, ...]:
    """Pairs that may be joined, whatever their sizes."""
    producers, uses = graph.producers(), graph.uses()
    found = []
    for node in graph.nodes:
        maker = producers.get(node.inputs[0]) if node.inputs else None
        if maker is None or len(uses[node.inputs[0]]) > 1 or maker.output in graph.outputs:
            continue
        if _is_depthwise(node, graph) and is_plain_product(maker, graph):
            found.append(_Pair(maker, node, _both(maker, node)))
    return tuple(found)


def _is_depthwise(node: Node, graph: Graph) -> bool:
    op = node.op
    if not isinstance(op, Conv2d) or op.groups == 1 or op.prologue != IDENTITY:
        return False
    weights = node.inputs[1]
    return weights.shape[:2] == (op.groups, 1) and op.store is None and weights in graph.constants


def is_plain_product(node: Node, graph: Graph) -> bool:
    """Whether it is a 1x1 convolution of whole pictures whose operands vary by channel alone."""
    op = node.op
    if not isinstance(op, Conv2d) or node.inputs[1].shape[2:] != (1, 1):
        return False
    plain = (op.stride, op.padding, op.groups, op.store) == ((1, 1), (0, 0, 0, 0), 1, None)
    if not plain or op.prologue != IDENTITY or node.inputs[1] not in graph.constants:
        return False
    return all(_per_channel(value, graph) for value in node.inputs[2:])


def _per_channel(value: Value, graph: Graph) -> bool:
    shape = (1,) * (4 - value.rank) + value.shape
    return value in graph.constants and shape[0] == 1 and shape[2:] == (1, 1)


def _both(expand: Node, depthwise: Node) -> Node:
    assert isinstance(expand.op, Conv2d) and isinstance(depthwise.op, Conv2d)
    own, others = expand.inputs[2:], depthwise.inputs[2:]
    op = ExpandDepthwise(expand.op, depthwise.op, len(own))
    inputs = (*expand.inputs[:2], depthwise.inputs[1], *own, *others)
    return Node(op, inputs, depthwise.outputs, depthwise.name)
