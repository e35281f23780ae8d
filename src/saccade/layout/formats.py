"""Which values are stored channels-last by rule, and where another storage could pay.

Operators over feature maps (convolutions, pools, resizing) want rank-4 values channels-last,
whatever their other operands are: for a value that only they touch there is nothing to choose.
Operators that do not care take over what they are connected to. What is left are values that are
connected both to operators over feature maps and to something that may want them row-major (the
caller, a reshape, a product over the last axis): those are open, and searched for given sizes. The
rest, such as the heads of an attention, is row-major. Sizes play no part here, so this is decided
once per graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from saccade.ir import Graph, IndexMap, Node, Op, Value
from saccade.ir.derived import derived
from saccade.opdefs import (
    Concat,
    Conv2d,
    ConvTranspose2d,
    DeformConv,
    GridSample,
    GroupNorm,
    LocalResponseNorm,
    LpNormalize,
    Move,
    Pad,
    Pointwise,
    Pool2d,
    Reduce,
    Resize,
    RoiAlign,
    RoiPool,
    SizeConstant,
    Softmax,
    WeightedSamples,
)

__all__ = ["INDIFFERENT", "SPATIAL", "Fills", "Formats", "Preferred", "formats"]

SPATIAL: tuple[type[Op], ...] = (
    Conv2d, ConvTranspose2d, DeformConv, GridSample, Pool2d, Resize, RoiAlign, RoiPool, GroupNorm,
    LocalResponseNorm, WeightedSamples,
)  # fmt: skip
INDIFFERENT: tuple[type[Op], ...] = (Pointwise, Concat, Pad, Reduce, Softmax, LpNormalize)

Fills: TypeAlias = Callable[[Op, Sequence[Sequence[int]]], bool]
"""Whether kernels for an operator whose operands have these shapes fill the pixels they write."""


def _fills_none(op: Op, shapes: Sequence[Sequence[int]]) -> bool:
    del op, shapes
    return False


@dataclass(frozen=True, slots=True)
class Preferred:
    """How a device's kernels like the rank-4 values that operators read and write.

    Attributes:
        channels_last: Operators that want them channels-last, whatever the other operands are.
        indifferent: Operators that take over the order of what they are connected to.
        fills: Which operators' kernels write pixels of channels-last results to multiples of 16
            bytes, with zeros behind the last channel (`View.zeros`).
        apart: Operators whose kernels write elements that lie apart in no more time than the copy
            takes that they would need otherwise: stacked results are written in place.
    """

    channels_last: tuple[type[Op], ...] = SPATIAL
    indifferent: tuple[type[Op], ...] = INDIFFERENT
    fills: Fills = _fills_none
    apart: tuple[type[Op], ...] = ()


@dataclass(frozen=True, slots=True)
class Formats:
    """Storage by rule.

    Attributes:
        nhwc: Rank-4 values that are channels-last by rule; never constants, which kernels pack,
            nor what only the caller reads: it is written to the caller's memory, row-major.
        open: Rank-4 values for which another storage may be cheaper.
    """

    nhwc: frozenset[Value]
    open: frozenset[Value]


@derived
def formats(graph: Graph, preferred: Preferred) -> Formats:
    """Storage by rule, as a device prefers it, and what is worth a search."""
    last, indifferent = preferred.channels_last, preferred.indifferent
    wanted = {v for n in graph.nodes if isinstance(n.op, last) for v in _feature_maps(graph, n)}
    nhwc = set(wanted)
    ties = [_feature_maps(graph, n) for n in graph.nodes if isinstance(n.op, indifferent)]
    _grow(nhwc, ties)
    # Views follow their operand in either order: they connect values, but ask for no order.
    ties += [_feature_maps(graph, n) for n in graph.nodes if _is_tie(n)]
    # What is connected to one kind alone leaves nothing to choose.
    near, far = set(wanted), _elsewhere(graph, (*last, *indifferent))
    _grow(near, ties)
    _grow(far, ties)
    uses = graph.uses()
    nhwc -= {v for v in graph.outputs if not uses[v]}
    return Formats(frozenset(nhwc), frozenset(near & far))


def _grow(chosen: set[Value], ties: Iterable[set[Value]]) -> None:
    """Add whatever is tied to a chosen value."""
    ties = list(ties)
    grown = True
    while grown:
        grown = False
        for near in ties:
            if not near <= chosen and near & chosen:
                chosen |= near
                grown = True


def _elsewhere(graph: Graph, known: tuple[type[Op], ...]) -> set[Value]:
    """Values that an operator other than the known ones touches, or one of these along rows."""
    found = {v for v in (*graph.inputs, *graph.outputs) if v.rank == 4}
    for node in graph.nodes:
        op = node.op
        rows = (isinstance(op, Softmax) and op.axis != 1) or (
            isinstance(op, Reduce) and not {2, 3} <= set(op.axes)
        )
        # What follows from sizes is made in any order.
        apart = not isinstance(op, (*known, SizeConstant)) and not _is_tie(node)
        if rows or apart:
            found |= _feature_maps(graph, node)
    return found - set(graph.constants)


def _is_tie(node: Node) -> bool:
    """Whether a movement is a view of its operand however that is stored: slices, mostly."""
    return isinstance(node.op, Move) and node.inputs[0].rank == 4 and _keeps_axes(node.op.map)


def _keeps_axes(index_map: IndexMap) -> bool:
    if any(len(group) > 1 for group in index_map.in_factors) or any(
        len(axis) > 1 for axis in index_map.out_axes
    ):
        return False
    at, source = 0, []
    for group in index_map.in_factors:
        source.append(at if group else None)
        at += len(group)
    steps = [(axis[0].source, axis[0].step) if axis else (None, 1) for axis in index_map.out_axes]
    # A flip is copied (`views.moved`), and so connects nothing.
    return len(steps) == 4 and all(
        found in (own, None) and step > 0 for (found, step), own in zip(steps, source, strict=True)
    )


def _feature_maps(graph: Graph, node: Node) -> set[Value]:
    # Constants have no order to choose: kernels pack them, and computed weights likewise. Places of
    # a grid lie as they come.
    values = [*node.inputs, *node.outputs]
    if isinstance(node.op, Conv2d | ConvTranspose2d | GridSample):
        del values[1]
    if isinstance(node.op, WeightedSamples):
        values = [*node.inputs[: node.op.levels]]
    return {v for v in values if v.rank == 4 and v not in graph.constants}
