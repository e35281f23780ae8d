"""A depthwise convolution and the 1x1 convolution of its result.

    Conv2d(Conv2d(x, w1), w2)  ->  SeparableConv2d(x, w1, w2)

With any epilogues, and with the store of the second. Which is faster, two steps or one, is a matter
of estimates or of what was measured, as between kernels, and of how the operands are stored. So
this only finds what may be fused, and why other depthwise convolutions stay steps of their own;
layout decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from saccade.backends.cpu.fusions.match import is_depthwise, is_pointwise
from saccade.backends.cpu.fusions.separable import SeparableConv2d
from saccade.ir import Graph, Node
from saccade.ir.derived import derived
from saccade.layout import Pair, Pairs, Passed, Shapes
from saccade.opdefs import Conv2d

__all__ = ["separable_pairs"]

_ALIKE = ("conv2d.depthwise", "conv2d.direct")
_CACHED = Passed(SeparableConv2d.__name__, "what lies between stays in the L2 caches")


def separable_pairs(graph: Graph, shapes: Shapes, least: int) -> Pairs:
    """The pairs that may be one step, and why other depthwise convolutions are not half of one.

    Args:
        graph: The model.
        shapes: Of every value.
        least: Bytes of the intermediate below which a pair stays two steps.
    """
    pairs, apart = _pairs(graph)
    small = {first: _CACHED for first in pairs if _nbytes(first, shapes) < least}
    large = {first: pair for first, pair in pairs.items() if first not in small}
    return Pairs(large, {**apart, **small})


def _nbytes(first: Node, shapes: Shapes) -> int:
    return prod(shapes[first.output]) * first.output.dtype.itemsize


@derived
def _pairs(graph: Graph) -> tuple[Mapping[Node, Pair], Mapping[Node, Passed]]:
    """By depthwise convolution: the pairs that may be fused, and why others may not."""
    uses, pairs, apart = graph.uses(), {}, {}
    for node in graph.nodes:
        if not is_depthwise(node, graph):
            continue
        readers = uses[node.output]
        reason = _refusal(node, readers, graph)
        if reason is None:
            pairs[node] = Pair(node, readers[0], _fused(node, readers[0]), _ALIKE)
        else:
            apart[node] = Passed(SeparableConv2d.__name__, reason)
    return pairs, apart


def _refusal(node: Node, readers: Sequence[Node], graph: Graph) -> str | None:
    """Why the readers of a depthwise convolution's result cannot do without that value."""
    if node.output in graph.outputs:
        return "the caller gets what lies between"
    if len(readers) != 1:
        return f"what lies between is read {len(readers)} times"
    if readers[0].inputs[0] != node.output or not is_pointwise(readers[0], graph):
        return "what lies between is not read by a plain 1x1 convolution"
    return None


def _fused(depthwise: Node, pointwise: Node) -> Node:
    assert isinstance(depthwise.op, Conv2d) and isinstance(pointwise.op, Conv2d)
    own, others = depthwise.inputs[2:], pointwise.inputs[2:]
    op = SeparableConv2d(depthwise.op, pointwise.op, len(own), depthwise.output.dtype)
    inputs = (*depthwise.inputs[:2], pointwise.inputs[1], *own, *others)
    return Node(op, inputs, pointwise.outputs, pointwise.name)
