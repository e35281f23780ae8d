"""Which values are stored channels-last.

Operators over pictures (convolutions, pools, resizing) want rank-4 values channels-last; everything
that is connected to them through operators that do not care follows. The rest, such as the heads of
an attention, stays row-major. Sizes play no part, so this is decided once per graph.
"""

from __future__ import annotations

from saccade.ir import Graph, Node, Value
from saccade.opdefs import (
    Concat,
    Conv2d,
    ConvTranspose2d,
    GroupNorm,
    LocalResponseNorm,
    Pad,
    Pointwise,
    Pool2d,
    Reduce,
    Resize,
    Softmax,
)

__all__ = ["channels_last_values"]

SPATIAL = (Conv2d, ConvTranspose2d, Pool2d, Resize, GroupNorm, LocalResponseNorm)
INDIFFERENT = (Pointwise, Concat, Pad, Reduce, Softmax)


def channels_last_values(graph: Graph) -> frozenset[Value]:
    """Rank-4 values to store channels-last; never constants, which kernels pack."""
    chosen: set[Value] = set()
    for node in graph.nodes:
        if isinstance(node.op, SPATIAL):
            chosen.update(_pictures(graph, node))
    grown = True
    while grown:
        grown = False
        for node in graph.nodes:
            if isinstance(node.op, INDIFFERENT):
                near = _pictures(graph, node)
                if not near <= chosen and near & chosen:
                    chosen |= near
                    grown = True
    return frozenset(chosen)


def _pictures(graph: Graph, node: Node) -> set[Value]:
    return {v for v in (*node.inputs, *node.outputs) if v.rank == 4 and v not in graph.constants}
