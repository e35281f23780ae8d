"""A convolution and the 1x1 convolution of its result: the end of a residual block.

    Conv2d(Conv2d(x, w), w2)  ->  Conv2dPoint(x, w, w2)

With any epilogues, and with the store of the second. Which is faster is a matter of estimates:
layout decides.

A convolution that is half of a sum already stays there. Left alone, with the reason: an
intermediate that anyone else reads or the caller gets; what reads it otherwise than as the image of
a 1x1 convolution with stride 1; groups, prologues and a store between; sums that are to be exact;
weights that are no constants.
"""

from __future__ import annotations

from collections.abc import Sequence

from saccade.backends.cuda.fusions.conv_point import Conv2dPoint
from saccade.backends.cuda.fusions.conv_subpixel import Conv2dSubPixel
from saccade.backends.cuda.fusions.sum_convs import sum_pairs
from saccade.ir import Graph, Node
from saccade.ir.derived import derived
from saccade.ir.expr import IDENTITY
from saccade.layout import Pair, Pairs, Passed
from saccade.opdefs import Conv2d

__all__ = ["chain_refusal", "chained", "conv_pairs"]


@derived
def conv_pairs(graph: Graph) -> Pairs:
    """Convolutions that may be one step with a 1x1 convolution of their result, and all sums."""
    pairs = sum_pairs(graph)
    uses, joint, apart = graph.uses(), dict(pairs.joint), dict(pairs.apart)
    taken = {node for pair in joint.values() for node in (pair.first, pair.second)}
    for node in graph.nodes:
        if not isinstance(node.op, Conv2d) or node in taken:
            continue
        readers = uses[node.output]
        reason = _refusal(node, readers, graph)
        if reason is None and readers[0] in taken:
            reason = "its reader is half of another pair"
        if reason is None:
            joint[node] = Pair(node, readers[0], chained(Conv2dPoint, node, readers[0]))
            taken |= {node, readers[0]}
        elif node not in apart:
            apart[node] = Passed(Conv2dPoint.__name__, reason)
    return Pairs(joint, apart)


def _refusal(node: Node, readers: Sequence[Node], graph: Graph) -> str | None:
    if node.output in graph.outputs:
        return "the caller gets what lies between"
    if len(readers) != 1:
        return f"what lies between is read {len(readers)} times"
    if not _is_point(readers[0]) or readers[0].inputs[0] != node.output:
        return "what lies between is not read by a plain 1x1 convolution"
    reason = chain_refusal(node, readers[0], graph)
    if reason is not None:
        return reason
    assert isinstance(node.op, Conv2d)
    return "a store between" if node.op.store is not None else None


def chain_refusal(first: Node, second: Node, graph: Graph) -> str | None:
    """Why no convolution and the one of its result are one step, whatever their windows."""
    for one in (first, second):
        op = one.op
        assert isinstance(op, Conv2d)
        if op.groups != 1 or op.prologue != IDENTITY:
            return "groups or a prologue"
        if op.integral:
            return "sums are to be exact"
        if one.inputs[1] not in graph.constants:
            return "weights are no constant"
    return None


def _is_point(node: Node) -> bool:
    op = node.op
    if not isinstance(op, Conv2d) or node.inputs[1].shape[2:] != (1, 1):
        return False
    return op.stride == (1, 1) and not any(op.padding)


def chained(kind: type[Conv2dPoint | Conv2dSubPixel], first: Node, second: Node) -> Node:
    """The node that does the work of both."""
    assert isinstance(first.op, Conv2d) and isinstance(second.op, Conv2d)
    own = first.inputs[2:]
    inputs = (*first.inputs[:2], second.inputs[1], *own, *second.inputs[2:])
    return Node(kind(first.op, second.op, len(own)), inputs, second.outputs, second.name)
