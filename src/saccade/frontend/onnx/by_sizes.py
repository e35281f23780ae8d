"""Numbers that sizes of the inputs decide, by arithmetic that dims do not have (`ir.computed`)."""

from __future__ import annotations

from dataclasses import replace
from math import floor
from typing import NamedTuple

import numpy as np

from saccade.errors import PlanError
from saccade.frontend.onnx.builder import Builder
from saccade.frontend.onnx.intervals import highest, interval_of
from saccade.ir import BodyOp, Dim, Node, Value
from saccade.ir.computed import ComputedSize, computed_size
from saccade.ir.counts import depends
from saccade.ir.dim import product, symbols_of

__all__ = ["computed", "is_of_sizes", "most_of_value"]

_SHORT = 16
"""Elements of a tensor of sizes."""
_STEPS = 256
"""Values between sizes of inputs and one that is computed from them."""
_ANY_SIZE = 224
"""Of an input, to see whether sizes bound something."""


class _Part(NamedTuple):
    """What decides a value.

    Attributes:
        nodes: Each after those that it reads.
        sizes: What these begin with, and the sizes that it holds.
    """

    nodes: list[Node]
    sizes: dict[Value, Dim]


def is_of_sizes(build: Builder, value: Value) -> bool:
    """Whether sizes of inputs alone decide a value, by a few steps on short tensors."""
    return _behind(build, value) is not None


def computed(build: Builder, value: Value, place: int) -> Dim | None:
    """A new symbol for an element of a value that sizes of inputs decide; None of another one."""
    part = _behind(build, value)
    if part is None:
        return None
    size, found = _computed(build, value, place, part, "computed")
    build.computed.append(found)
    return size


def most_of_value(build: Builder, value: Value) -> Dim | None:
    """What no element of a value exceeds: a number, or a symbol that sizes of inputs decide."""
    high = interval_of(build, value)[1]
    if high <= build.limits.elements:
        return max(floor(high), 0)
    most = highest(build, value, lambda x: _is_short(x) and is_of_sizes(build, x))
    part = None if most is None else _behind(build, most)
    if most is None or part is None:
        return None
    size, found = _computed(build, most, 0, part, "most")
    if _tried(build, found) > build.limits.elements:
        return None
    build.computed.append(found)
    return size


def _computed(
    build: Builder, value: Value, place: int, part: _Part, label: str
) -> tuple[Dim, ComputedSize]:
    size = build.symbol(label)
    (name,) = symbols_of(size)
    graph = replace(build.part(part.nodes, {}, [value]), inputs=tuple(part.sizes))
    return size, computed_size(name, graph, place, tuple(part.sizes.values()))


def _tried(build: Builder, size: ComputedSize) -> int:
    """A size for inputs of some sizes; the largest number there is where it would be none."""
    needed, before = set(size.symbols), list[ComputedSize]()
    for one in reversed(build.computed):
        if one.symbol in needed:
            needed |= one.symbols
            before.append(one)
    sizes = dict.fromkeys(needed, _ANY_SIZE)
    try:
        for one in reversed(before):
            sizes[one.symbol] = one.value(sizes)
        return size.value(sizes)
    except PlanError:
        return int(np.iinfo(np.int64).max)


def _is_short(value: Value) -> bool:
    length = product(value.shape)
    return isinstance(length, int) and length <= _SHORT


def _behind(build: Builder, value: Value) -> _Part | None:
    """What decides a value, if sizes of inputs do; None of any other one."""
    held = {x: size for size, x in build.sizes.items() if not depends(size, build.counts)}
    nodes: dict[Node, None] = {}
    sizes: dict[Value, Dim] = {}
    left, seen = [value], set[Value]()
    while left:
        x = left[-1]
        maker = build.makers.get(x)
        if x in seen:  # as is all that it is made of
            left.pop()
            if maker is not None and x not in sizes:
                nodes.setdefault(maker)
            continue
        seen.add(x)
        if x in build.constants:
            if not _is_short(x):
                return None
            continue
        if x in held:
            sizes[x] = held[x]
            continue
        if maker is None or isinstance(maker.op, BodyOp) or len(seen) > _STEPS:
            return None
        if any(depends(dim, build.counts) for dim in x.shape):
            return None
        left += maker.inputs
    return _Part(list(nodes), sizes)
