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
from saccade.backends.cuda.fusions.point_convs import chain_refusal, chained, conv_pairs
from saccade.ir import Graph, Node
from saccade.ir.derived import derived
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
            joint[node] = Pair(node, readers[0], chained(Conv2dSubPixel, node, readers[0]))
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
    reason = chain_refusal(node, reader, graph)
    if reason is not None:
        return reason
    return "a store behind" if reader.op.store is not None else None
