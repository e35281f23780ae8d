"""A 1x1 convolution and the depthwise convolution of its result, where that exceeds the caches.

    Conv2d(Conv2d(x, w1), w2)  ->  ExpandDepthwise(x, w1, w2)

The result of the first is the largest value of a mobile network. Fused, a few rows of it at a time
stay in a core's L2 cache; as a value of its own all of it is written and read. Whether that pays
depends on sizes.

Left alone: first results that anyone else reads, that the caller gets or that have a store map;
epilogues of the first convolution with operands that vary by pixel or image; prologues.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from saccade.backends.cpu.fusions.expand import ExpandDepthwise
from saccade.backends.cpu.fusions.match import is_depthwise, is_plain_pointwise
from saccade.ir import Graph, Node
from saccade.ir.derived import derived
from saccade.layout import Pair, Shapes, Taken
from saccade.opdefs import Conv2d

__all__ = ["fuse_expand"]


def fuse_expand(graph: Graph, shapes: Shapes, taken: Taken, beyond: int) -> Graph:
    """The graph with these pairs fused.

    Args:
        graph: The model.
        shapes: Of every value.
        taken: Whether a kernel takes a node.
        beyond: Bytes of one image of the intermediate from which on a pair is fused.
    """
    chosen = frozenset(
        pair
        for pair in _pairs(graph)
        if _image_bytes(pair, shapes) > beyond and taken(pair.both, shapes)
    )
    return _rewritten(graph, chosen) if chosen else graph


def _image_bytes(pair: Pair, shapes: Shapes) -> int:
    between = pair.first.output
    return prod(shapes[between][1:]) * between.dtype.itemsize


@derived
def _rewritten(graph: Graph, pairs: frozenset[Pair]) -> Graph:
    gone = {pair.first for pair in pairs}
    instead = {pair.second: pair.both for pair in pairs}
    return replace(
        graph, nodes=tuple(instead.get(node, node) for node in graph.nodes if node not in gone)
    )


@derived
def _pairs(graph: Graph) -> tuple[Pair, ...]:
    """Pairs that may be fused, whatever their sizes."""
    producers, uses = graph.producers(), graph.uses()
    found = []
    for node in graph.nodes:
        maker = producers.get(node.inputs[0]) if node.inputs else None
        if maker is None or len(uses[node.inputs[0]]) > 1 or node.inputs[0] in graph.outputs:
            continue
        if is_depthwise(node, graph) and is_plain_pointwise(maker, graph):
            found.append(Pair(maker, node, _fused(maker, node)))
    return tuple(found)


def _fused(expand: Node, depthwise: Node) -> Node:
    assert isinstance(expand.op, Conv2d) and isinstance(depthwise.op, Conv2d)
    own, others = expand.inputs[2:], depthwise.inputs[2:]
    op = ExpandDepthwise(expand.op, depthwise.op, len(own))
    inputs = (*expand.inputs[:2], depthwise.inputs[1], *own, *others)
    return Node(op, inputs, depthwise.outputs, depthwise.name)
