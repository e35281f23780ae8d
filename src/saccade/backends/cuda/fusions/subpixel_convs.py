"""A sub-pixel convolution and the convolution of its image: the end of a super-resolution network.

    Conv2d(Conv2d(x, w) stored as pixels, w2)  ->  Conv2dSubPixel(x, w, w2)

With any epilogues. The image between is the largest of its network; which is faster is a matter of
estimates: layout decides.

Left alone, with the reason: an image that anyone else reads or the caller gets; what reads it
otherwise than as the image of a convolution; groups, prologues and a store behind; sums that are to
be exact; weights that are no constants.
"""

from __future__ import annotations

from collections.abc import Sequence

from saccade.backends.cuda.fusions.conv_subpixel import Conv2dSubPixel
from saccade.backends.cuda.fusions.point_convs import conv_pairs
from saccade.ir import Graph, Node
from saccade.ir.derived import derived
from saccade.ir.expr import IDENTITY
from saccade.layout import Pair, Pairs, Passed
from saccade.opdefs import Conv2d, DepthToSpaceStore

__all__ = ["subpixel_pairs"]


@derived
def subpixel_pairs(graph: Graph) -> Pairs:
    """Sub-pixel convolutions that may be one step with what reads their image, and `conv_pairs`."""
    pairs = conv_pairs(graph)
    uses, joint, apart = graph.uses(), dict(pairs.joint), dict(pairs.apart)
    taken = {node for pair in joint.values() for node in (pair.first, pair.second)}
    for node in graph.nodes:
        op = node.op
        if not isinstance(op, Conv2d) or not isinstance(op.store, DepthToSpaceStore):
            continue
        readers = uses[node.output]
        reason = _refusal(node, readers, graph)
        if reason is None and (node in taken or readers[0] in taken):
            reason = "one of them is half of another pair"
        if reason is None:
            joint[node] = Pair(node, readers[0], _both(node, readers[0]))
            taken |= {node, readers[0]}
            apart.pop(node, None)
        else:
            apart[node] = Passed(Conv2dSubPixel.__name__, reason)
    return Pairs(joint, apart)


def _refusal(node: Node, readers: Sequence[Node], graph: Graph) -> str | None:
    if node.output in graph.outputs:
        return "the caller gets the image between"
    if len(readers) != 1:
        return f"the image between is read {len(readers)} times"
    reader = readers[0]
    if not isinstance(reader.op, Conv2d) or node.output in reader.inputs[1:]:
        return "the image between is not read by a convolution of it"
    for one in (node, reader):
        op = one.op
        assert isinstance(op, Conv2d)
        if op.groups != 1 or op.prologue != IDENTITY:
            return "groups or a prologue"
        if op.integral:
            return "sums are to be exact"
        if one.inputs[1] not in graph.constants:
            return "weights are no constant"
    return "a store behind" if reader.op.store is not None else None


def _both(first: Node, second: Node) -> Node:
    assert isinstance(first.op, Conv2d) and isinstance(second.op, Conv2d)
    own = first.inputs[2:]
    inputs = (*first.inputs[:2], second.inputs[1], *own, *second.inputs[2:])
    op = Conv2dSubPixel(first.op, second.op, len(own))
    return Node(op, inputs, second.outputs, second.name)
