"""Between which numbers the elements of a value lie, as far as what makes it tells.

A box that is clipped to its image says how large a mask is at most that is enlarged to it. What is
found holds for all elements together, whatever the data are, NaN aside; where products, or the
model's inputs, make a value, nothing is known of it. Where sizes of the inputs decide (an image of
any size), the same is looked at again for each of them (`opdefs.Highest`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from graphlib import TopologicalSorter

import numpy as np

from saccade.frontend.onnx.builder import Builder
from saccade.ir import Graph, Node, Value
from saccade.ir.body import embed
from saccade.opdefs import Concat, Highest, Pad, Pointwise
from saccade.opdefs.intervals import Interval, any_of, interval_through, of_array, telling

__all__ = ["highest", "interval_of"]

_MOST = 1 << 12
"""Values behind one that are looked at."""
_NEAR = 256
"""The same where they are looked at again for each size of the inputs."""


def interval_of(build: Builder, value: Value) -> Interval:
    """Least and largest element that there could be, infinite where nothing tells."""
    looked = _Intervals(build)
    waiting = [value]
    # Not by recursion: there may be thousands of nodes one behind the other.
    while waiting:
        last = waiting[-1]
        left = [x for x in _behind(build, last) if x not in looked.found]
        if left and len(looked.found) + len(waiting) < _MOST:
            waiting += left
            continue
        looked.found[last] = looked.look(last)
        waiting.pop()
    return looked.found[value]


def _behind(build: Builder, value: Value) -> Sequence[Value]:
    """The values that one is between the ends of, or computed from in a way that tells."""
    maker = build.makers.get(value)
    counts = (count for _, count in build.counts.values())
    if maker is None or build.is_known(value) or any(value is count for count in counts):
        return ()
    place = maker.outputs.index(value)
    operands = telling(maker.op, [x.type for x in maker.inputs], place)
    return [maker.inputs[i] for i in operands]


class _Intervals:
    """What was found of the values behind one.

    Args:
        build: The graph under construction, which knows what makes each of them.

    Attributes:
        found: By value.
    """

    def __init__(self, build: Builder) -> None:
        self._build = build
        self.found: dict[Value, Interval] = {}
        self._counts = {value: count.bound for count, value in build.counts.values()}

    def look(self, value: Value) -> Interval:
        """Of a value, once those behind it were looked at."""
        array = self._build.array(value)
        if array is not None:
            return of_array(array)
        if value in self._counts:
            bound = self._counts[value]
            return 0, bound if isinstance(bound, int) else np.inf
        maker, behind = self._build.makers.get(value), _behind(self._build, value)
        if maker is None:
            return any_of(value.dtype)
        parts = [self.found.get(x, any_of(x.dtype)) for x in behind]
        return interval_through(maker.op, [x.type for x in maker.inputs], value.dtype, parts)


def highest(build: Builder, value: Value, by_sizes: Callable[[Value], bool]) -> Value | None:
    """The largest whole number that an element could be, for each size of the inputs: int64 [1].

    Nobody is to compute it in a run; it is for sizes that are computed before (`ir.computed`).

    Args:
        build: The graph under construction.
        value: The value.
        by_sizes: Whether sizes of the inputs alone decide another one.

    Returns:
        None if no size decides.
    """
    known: dict[Value, Value] = {}
    unknown, inside = list[Value](), list[Value]()
    counts = {held: count.bound for count, held in build.counts.values()}
    left, seen = [value], {value}
    while left:
        x = left.pop(0)
        array, bound = build.array(x), counts.get(x)
        if array is not None or isinstance(bound, int):
            ends = of_array(array) if array is not None else (0, bound)
            known[x] = build.constant(np.asarray(ends, np.float64), "ends")
        elif by_sizes(x):
            known[x] = x
        elif not (behind := _tells(build, x)) or len(seen) > _NEAR:
            unknown.append(x)
        else:
            inside.append(x)
            left += [y for y in behind if y not in seen]
            seen.update(behind)
    if not any(x is held for x, held in known.items()):
        return None
    return _emitted(build, value, known, unknown, inside)


def _tells(build: Builder, value: Value) -> Sequence[Value]:
    """As `_behind`, without what has a number of its own."""
    maker = build.makers.get(value)
    return () if maker is None or isinstance(maker.op, Pad) else _behind(build, value)


def _emitted(
    build: Builder,
    value: Value,
    known: dict[Value, Value],
    unknown: Sequence[Value],
    inside: Sequence[Value],
) -> Value:
    """The node that looks at all of these."""
    # Shapes do not matter, and may be of sizes that only a run finds.
    one = {x: Value(x.name, x.dtype, (1,)) for x in (*known, *unknown, *inside)}
    behind = {x: _behind(build, x) for x in inside}
    nodes = tuple(
        _plain(build.makers[x], [one[y] for y in behind[x]], one[x])
        for x in TopologicalSorter(behind).static_order()
        if x in behind
    )
    ends = tuple(one[x] for x in (*known, *unknown))
    op = Highest(embed(Graph(ends, (one[value],), nodes), {}), len(known))
    return build.emit(op, [*known.values()], value.name)[0]


def _plain(node: Node, behind: Sequence[Value], to: Value) -> Node:
    """A node that says the same of what lies between which numbers."""
    op = node.op if isinstance(node.op, Pointwise) else Concat(axis=0)
    return Node(op, tuple(behind), (to,), node.name)
