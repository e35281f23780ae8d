"""Between which numbers the elements of a value lie, as far as what makes it tells.

A box that is clipped to its image says how large a mask is at most that is enlarged to it. What is
found holds for all elements together, whatever the data are, NaN aside; where products, or the
model's inputs, make a value, nothing is known of it. Where sizes of the inputs decide (an image of
any size), the same is looked at again for each of them (`opdefs.Highest`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
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
_ANY_SIZE: Interval = (1, 2)
"""What sizes decide, to see what could follow from them."""


def interval_of(build: Builder, value: Value) -> Interval:
    """Least and largest element that there could be, infinite where nothing tells."""
    looked = _Intervals(build)
    waiting = [value]
    # Not by recursion: there may be thousands of nodes one behind the other.
    while waiting:
        last = waiting[-1]
        left = [x for x in looked.behind(last) if x not in looked.found]
        if left and len(looked.found) + len(waiting) < _MOST:
            waiting += left
            continue
        looked.found[last] = looked.look(last)
        waiting.pop()
    return looked.found[value]


class _Intervals:
    """What was found of the values behind one.

    Args:
        build: The graph under construction, which knows what makes each of them.

    Attributes:
        found: By value.
        counts: Numbers that steps find out, and their bounds.
    """

    def __init__(self, build: Builder) -> None:
        self._build = build
        self.found: dict[Value, Interval] = {}
        self.counts = {value: count.bound for count, value in build.counts.values()}

    def behind(self, value: Value) -> Sequence[Value]:
        """The values that one is between the ends of, or computed from in a way that tells."""
        maker = self._build.makers.get(value)
        if maker is None or value in self.counts or self._build.is_known(value):
            return ()
        place = maker.outputs.index(value)
        operands = telling(maker.op, [x.type for x in maker.inputs], place)
        return [maker.inputs[i] for i in operands]

    def look(self, value: Value) -> Interval:
        """Of a value, once those behind it were looked at."""
        array = self._build.array(value)
        if array is not None:
            return of_array(array)
        if value in self.counts:
            bound = self.counts[value]
            return 0, bound if isinstance(bound, int) else np.inf
        maker = self._build.makers.get(value)
        if maker is None:
            return self._build.carried.get(value, any_of(value.dtype))
        parts = [self.found.get(x, any_of(x.dtype)) for x in self.behind(value)]
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
    looked = _Intervals(build)
    known, behind = _near(build, looked, value, by_sizes)
    looked.found = {x: _ANY_SIZE if ends is None else ends for x, ends in known.items()}
    order = [x for x in TopologicalSorter(behind).static_order() if x in behind]
    for x in order:
        looked.found[x] = looked.look(x)
    # What tells nothing, whatever the sizes, need not be asked again.
    told = {x for x in behind if looked.found[x] != any_of(x.dtype)}
    kept, left = set[Value](), [value]
    while left:
        x = left.pop()
        kept.add(x)
        left += [y for y in behind[x] if y in told and y not in kept] if x in told else []
    nodes = [x for x in order if x in kept & told]
    if value not in nodes:
        return None
    return _emitted(build, value, {x: behind[x] for x in nodes}, known)


def _near(
    build: Builder, looked: _Intervals, value: Value, by_sizes: Callable[[Value], bool]
) -> tuple[dict[Value, Interval | None], dict[Value, Sequence[Value]]]:
    """What is known behind a value, None where sizes decide it, and what tells of the others."""
    known: dict[Value, Interval | None] = {}
    inside: dict[Value, Sequence[Value]] = {}
    waiting, seen = deque([value]), {value}
    while waiting:
        x = waiting.popleft()
        maker = build.makers.get(x)
        if build.is_known(x) or isinstance(looked.counts.get(x), int):
            known[x] = looked.look(x)
        elif by_sizes(x):
            known[x] = None
        elif x in looked.counts:
            continue  # of a bound that is asked about elsewhere
        elif maker is not None and not isinstance(maker.op, Pad) and len(seen) <= _NEAR:
            inside[x] = looked.behind(x)
            waiting += [y for y in inside[x] if y not in seen]
            seen.update(inside[x])
    return known, inside


def _emitted(
    build: Builder,
    value: Value,
    behind: Mapping[Value, Sequence[Value]],
    known: Mapping[Value, Interval | None],
) -> Value:
    """The node that looks at these values, of which each comes after those behind it."""
    read = dict.fromkeys(y for parts in behind.values() for y in parts if y not in behind)
    operands = [x for x in read if x in known]
    # Shapes do not matter, and may be of sizes that only a run finds.
    one = {x: Value(x.name, x.dtype, (1,)) for x in (*read, *behind)}
    nodes = tuple(
        _plain(build.makers[x], [one[y] for y in parts], one[x]) for x, parts in behind.items()
    )
    ends = tuple(one[x] for x in (*operands, *(x for x in read if x not in known)))
    op = Highest(embed(Graph(ends, (one[value],), nodes), {}), len(operands))
    given = [
        x if (ends_of := known[x]) is None else build.constant(np.asarray(ends_of), "ends")
        for x in operands
    ]
    return build.emit(op, given, value.name)[0]


def _plain(node: Node, behind: Sequence[Value], to: Value) -> Node:
    """A node that says the same of what lies between which numbers."""
    op = node.op if isinstance(node.op, Pointwise) else Concat(axis=0)
    return Node(op, tuple(behind), (to,), node.name)
