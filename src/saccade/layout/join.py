"""Two operators become one step where what lies between them is better nobody's value.

    Conv2d(Conv2d(x, w1), w2)  ->  ExpandDepthwise(x, w1, w2)

A 1x1 convolution that widens a picture and the depthwise convolution of the result: the wide
picture is the largest value of a mobile network. A few rows at a time it never leaves a core's
second cache; whole it may. Whether that pays depends on sizes, so it is decided here and not by a
pass. Left alone: wide pictures that anyone else reads, that the caller gets, that the second caches
of a team hold or that are stored anywhere but plainly; epilogues of the first convolution with
operands that vary from pixel to pixel or picture to picture; prologues.

    Conv2d(Conv2d(x, w1), w2)  ->  SeparableConv2d(x, w1, w2)

A depthwise convolution and the 1x1 convolution of the result, with any epilogues and store. Which
is faster, two steps or one, is a matter of estimates or of what was measured, as between kernels,
and of how the operands are stored: `assign` decides when it comes to them. `separable_pairs` finds
what may be joined, and why other depthwise convolutions stay alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

from saccade.ir import Graph, Node, Value
from saccade.ir.derived import derived
from saccade.ir.expr import IDENTITY
from saccade.kernels.base import Call
from saccade.layout.views import channels_last, row_major
from saccade.opdefs import Conv2d, ExpandDepthwise, SeparableConv2d

if TYPE_CHECKING:
    from saccade.backend import Backend

__all__ = ["Pair", "is_plain_product", "is_taken", "joined", "made", "separable_pairs"]

_NOMINAL_THREADS = 2  # what is chosen must not depend on the width of the team

Shapes = Mapping[Value, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Pair:
    """A convolution, the one that reads its result, and the node that does both."""

    first: Node
    second: Node
    both: Node


def joined(graph: Graph, shapes: Shapes, backend: Backend, threads: int) -> Graph:
    """The graph with every pair joined that is worth it and that a kernel takes."""
    chosen = frozenset(
        pair
        for pair in _expanding(graph)
        if _is_large(shapes[pair.first.output], pair, backend)
        and is_taken(graph, pair.both, shapes, backend, threads)
    )
    return _rewritten(graph, chosen) if chosen else graph


@derived
def made(graph: Graph) -> tuple[Node, ...]:
    """The nodes that may take the place of two."""
    pairs = (*_expanding(graph), *separable_pairs(graph)[0].values())
    return tuple(pair.both for pair in pairs)


@derived
def _rewritten(graph: Graph, pairs: frozenset[Pair]) -> Graph:
    gone = {pair.first for pair in pairs}
    instead = {pair.second: pair.both for pair in pairs}
    return replace(
        graph, nodes=tuple(instead.get(node, node) for node in graph.nodes if node not in gone)
    )


def _is_large(shape: tuple[int, ...], pair: Pair, backend: Backend) -> bool:
    """Whether one wide picture exceeds the second caches of a team."""
    itemsize = pair.first.output.dtype.itemsize
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


@derived
def _expanding(graph: Graph) -> tuple[Pair, ...]:
    """Pairs that may be joined, whatever their sizes."""
    producers, uses = graph.producers(), graph.uses()
    found = []
    for node in graph.nodes:
        maker = producers.get(node.inputs[0]) if node.inputs else None
        if maker is None or len(uses[node.inputs[0]]) > 1 or node.inputs[0] in graph.outputs:
            continue
        if _is_depthwise(node, graph) and is_plain_product(maker, graph):
            found.append(Pair(maker, node, _expanded(maker, node)))
    return tuple(found)


def _is_depthwise(node: Node, graph: Graph) -> bool:
    op = node.op
    if not isinstance(op, Conv2d) or op.prologue != IDENTITY:
        return False
    weights = node.inputs[1]
    return weights.shape[:2] == (op.groups, 1) and op.store is None and weights in graph.constants


def is_plain_product(node: Node, graph: Graph) -> bool:
    """Whether it is a 1x1 convolution of whole pictures whose operands vary by channel alone."""
    if not _is_pointwise(node, graph):
        return False
    assert isinstance(node.op, Conv2d)
    return node.op.store is None and all(_per_channel(value, graph) for value in node.inputs[2:])


def _is_pointwise(node: Node, graph: Graph) -> bool:
    """Whether it is a 1x1 convolution of whole pictures."""
    op = node.op
    if not isinstance(op, Conv2d) or node.inputs[1].shape[2:] != (1, 1):
        return False
    plain = (op.stride, op.padding, op.groups) == ((1, 1), (0, 0, 0, 0), 1)
    return plain and op.prologue == IDENTITY and node.inputs[1] in graph.constants


def _per_channel(value: Value, graph: Graph) -> bool:
    shape = (1,) * (4 - value.rank) + value.shape
    return value in graph.constants and shape[0] == 1 and shape[2:] == (1, 1)


def _expanded(expand: Node, depthwise: Node) -> Node:
    assert isinstance(expand.op, Conv2d) and isinstance(depthwise.op, Conv2d)
    own, others = expand.inputs[2:], depthwise.inputs[2:]
    op = ExpandDepthwise(expand.op, depthwise.op, len(own))
    inputs = (*expand.inputs[:2], depthwise.inputs[1], *own, *others)
    return Node(op, inputs, depthwise.outputs, depthwise.name)


@derived
def separable_pairs(graph: Graph) -> tuple[Mapping[Node, Pair], Mapping[Node, str]]:
    """By depthwise convolution: the pairs that may be joined, and why others may not."""
    uses, pairs, refused = graph.uses(), {}, {}
    for node in graph.nodes:
        if not _is_depthwise(node, graph):
            continue
        readers = uses[node.output]
        reason = _refusal(node, readers, graph)
        if reason is None:
            pairs[node] = Pair(node, readers[0], _separable(node, readers[0]))
        else:
            refused[node] = reason
    return pairs, refused


def _refusal(node: Node, readers: Sequence[Node], graph: Graph) -> str | None:
    """Why the readers of a depthwise convolution's result cannot do without that value."""
    if node.output in graph.outputs:
        return "the caller gets what lies between"
    if len(readers) != 1:
        return f"what lies between is read {len(readers)} times"
    if readers[0].inputs[0] != node.output or not _is_pointwise(readers[0], graph):
        return "what lies between is not read by a plain 1x1 convolution"
    return None


def _separable(depthwise: Node, pointwise: Node) -> Node:
    assert isinstance(depthwise.op, Conv2d) and isinstance(pointwise.op, Conv2d)
    own, others = depthwise.inputs[2:], pointwise.inputs[2:]
    op = SeparableConv2d(depthwise.op, pointwise.op, len(own), depthwise.output.dtype)
    inputs = (*depthwise.inputs[:2], pointwise.inputs[1], *own, *others)
    return Node(op, inputs, pointwise.outputs, pointwise.name)
