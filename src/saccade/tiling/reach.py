"""What of its image each part of a network's result depends on, and the tiles that follow.

Each axis of the image is followed through the graph by itself: every value that depends on the
image has one axis that runs along it, at a scale. A part of the result is followed back: what it
reads of each value, with what lies around the image where it looks there. A tile is an image by
itself whose result, in that part, is the whole image's: it holds all that is read, the borders that
are looked at are the image's own, and every value in it lies on pixels that it has in the whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from math import lcm
from typing import NamedTuple

from saccade.errors import ModelError, OptionError
from saccade.ir import Graph, Node, Value
from saccade.ir.dim import Dim, evaluate, symbols_of
from saccade.tiling.reads import Chain, Interval, interval_read, scale_of
from saccade.tiling.rules import RULES, AlongCall

__all__ = ["Reach", "Tile"]

_SMALL = "they are smaller than what the model looks at around each pixel"


class Tile(NamedTuple):
    """A tile along one axis.

    Attributes:
        first: First pixel of the image in the tile.
        stop: Behind its last one.
        out_first: First pixel of the result that the tile gives.
        out_stop: Behind its last one.
        scale: Pixels of the result for each of the image.
    """

    first: int
    stop: int
    out_first: int
    out_stop: int
    scale: Fraction

    @property
    def inner(self) -> slice:
        """Where the pixels that it gives lie in its own result."""
        shift = int(self.first * self.scale)
        return slice(self.out_first - shift, self.out_stop - shift)


class Reach:
    """What each part of a result depends on, of a graph from one image to one other.

    Args:
        graph: After all passes.

    Attributes:
        axes: Of the input, that run along the image: rows, columns.

    Raises:
        OptionError: If its input is no image of any height and width, or it has several inputs or
            results.
    """

    def __init__(self, graph: Graph) -> None:
        if len(graph.inputs) != 1 or len(graph.results) != 1 or graph.counts:
            raise OptionError("tiles need a model from one image to one other")
        (self._image,) = graph.inputs
        self._graph = graph
        shape = self._image.shape
        self.axes = tuple(i for i, dim in enumerate(shape) if i > len(shape) - 4 and _is_free(dim))
        names = frozenset().union(*(symbols_of(shape[axis]) for axis in self.axes))
        self._fixed = frozenset().union(*map(symbols_of, shape)) - names
        if len(self.axes) != 2 or len(names) != 2:
            raise OptionError("tiles need a model whose image may have any height and width")

    def tiles(self, shape: Sequence[int], axis: int, edge: int) -> tuple[Tile, ...]:
        """Tiles along an axis, whose results side by side are that of the whole image.

        Args:
            shape: Of the whole input.
            axis: 0 for rows, 1 for columns.
            edge: Pixels of a tile along it, at most; more by a network's stride at the last.

        Raises:
            OptionError: If there are none, with the reason.
        """
        # Along the other axis any size does: it decides nothing here.
        whole = self._trail(shape, axis)
        if min(whole.sizes.values()) < 0:
            raise OptionError("the image is smaller than what the model takes")
        tiles, overlap = self._cut(whole, shape, axis, edge)
        # As many of even size, so that none is there for a few pixels.
        size, count = whole.sizes[self._image], len(tiles)
        even = -(-(size + (count - 1) * overlap) // (count * whole.step)) * whole.step
        if count == 1 or even >= edge:
            return tiles
        with suppress(OptionError):  # they may be a little too small then
            again, _ = self._cut(whole, shape, axis, even)
            return again if len(again) == count else tiles
        return tiles

    def _cut(
        self, whole: _Trail, shape: Sequence[int], axis: int, edge: int
    ) -> tuple[tuple[Tile, ...], int]:
        """Tiles that are as large as they may be, and by how much neighbours overlap at most."""
        step, size = whole.step, whole.sizes[self._image]
        edge = max(edge // step, 1) * step
        if size <= edge:  # one tile, even where the model leaves nothing of it
            return (Tile(0, size, 0, whole.result, whole.scale),), 0
        if whole.result == 0:
            raise OptionError(f"tiles of {edge} pixels: {_SMALL}")
        parts: dict[int, _Trail] = {}
        tiles: list[Tile] = []
        done = overlap = 0
        while done < whole.result:
            first = whole.begin(done) // step * step
            overlap = max(overlap, tiles[-1].stop - first if tiles else 0)
            last = first + edge >= size
            if last:
                first, stop = max((size - edge) // step, 0) * step, size
            else:
                stop = first + edge
            if stop - first not in parts:
                smaller = _with(shape, self.axes[axis], stop - first)
                parts[stop - first] = self._trail(smaller, axis)
            holds = partial(whole.holds, parts[stop - first], first, done)
            end = whole.result if last else _furthest(holds, done, whole.result)
            reason = holds(max(end, done + 1))
            if reason is not None:
                raise OptionError(f"tiles of {edge} pixels: {reason}")
            tiles.append(Tile(first, stop, done, end, whole.scale))
            done = end
        return tuple(tiles), overlap

    def result_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Shape of the result for an input's shape."""
        sizes = self._sizes(shape)
        return tuple(evaluate(dim, sizes) for dim in self._graph.results[0].shape)

    def result_axes(self, shape: Sequence[int]) -> tuple[int, int]:
        """Axes of the result that run along rows and columns of the image.

        Raises:
            OptionError: If there are none, with the reason.
        """
        rows, columns = (self._trail(shape, axis).axis for axis in (0, 1))
        if rows == columns:
            raise OptionError("the result is no image")
        return rows, columns

    def _sizes(self, shape: Sequence[int]) -> dict[str, int]:
        given: dict[str, int] = {}
        for dim, size in zip(self._image.shape, shape, strict=True):
            given |= dict.fromkeys(symbols_of(dim), size)
        return self._graph.with_bounds(given)

    def _trail(self, shape: Sequence[int], axis: int) -> _Trail:
        return _followed(self._graph, self._sizes(shape), self.axes[axis], self._fixed)


@dataclass(frozen=True, slots=True)
class _NodeReads:
    """A node along one axis: its result, and how it reads each operand that runs along it."""

    name: str
    result: Value
    operands: tuple[tuple[Value, Chain], ...]


@dataclass(frozen=True)
class _Trail:
    """An axis of an image of one size, through the graph.

    Attributes:
        image: The input.
        out: The result.
        reads: Of the nodes that depend on the image, in order.
        sizes: Of the values that do, along the axis.
        scales: Elements of each for a pixel of the image.
        axis: Of the result, that runs along it.
    """

    image: Value
    out: Value
    reads: tuple[_NodeReads, ...]
    sizes: Mapping[Value, int]
    scales: Mapping[Value, Fraction]
    axis: int

    @property
    def result(self) -> int:
        """Size of the result."""
        return self.sizes[self.out]

    @property
    def scale(self) -> Fraction:
        """Of the result."""
        return self.scales[self.out]

    @property
    def step(self) -> int:
        """At multiples of so many pixels begin whole elements of every value."""
        return lcm(*(scale.denominator for scale in self.scales.values()))

    def read(self, first: int, stop: int) -> dict[Value, Interval]:
        """What a part of the result reads of each value."""
        found = {self.out: Interval(first, stop - 1)}
        for node in reversed(self.reads):
            if node.result not in found:
                continue
            for operand, chain in node.operands:
                interval = interval_read(chain, found[node.result], self.sizes[operand])
                known = found.get(operand)
                found[operand] = interval if known is None else interval.joined(known)
        return found

    def begin(self, out_first: int) -> int:
        """The first pixel of a part that gives the result from one of its elements on."""
        # A value may begin with less than its operand: where something is cut off the image.
        read = self.read(out_first, out_first + 1).items()
        return max(min(int(one.first / self.scales[value]) for value, one in read), 0)

    def holds(self, part: _Trail, first: int, out_first: int, out_stop: int) -> str | None:
        """Why a part of the image, from a pixel on, does not give a part of the result; or None."""
        for ours, theirs in zip(self.reads, part.reads, strict=True):
            if ours != theirs:
                return f"{ours.name} works otherwise on parts of the image"
        for value, interval in self.read(out_first, out_stop).items():
            start = int(first * self.scales[value])
            end = start + part.sizes[value]
            if interval.first < start or interval.last >= end:
                return _SMALL
            if (interval.at_start and start) or (interval.at_end and end != self.sizes[value]):
                return "they do not reach the image's border"
        return None


def _followed(graph: Graph, sizes: Mapping[str, int], axis: int, fixed: frozenset[str]) -> _Trail:
    """The trail of an axis of the image.

    Raises:
        OptionError: Where a node cannot be followed, with its name and the reason.
    """
    (image,) = graph.inputs
    places, scales = {image: axis}, {image: Fraction(1)}
    reads: list[_NodeReads] = []
    for node in graph.nodes:
        if not any(value in places for value in node.inputs):
            _expect_constant(node, fixed)
            continue
        try:
            place, read = _one(node, sizes, places, fixed)
        except (OptionError, ModelError) as error:
            name = node.name or node.op.title
            raise OptionError(f"{name} ({node.op.family}) {error}") from None
        found = {scales[value] * scale_of(chain) for value, chain in read.operands}
        if len(found) != 1:
            raise OptionError(f"{node.name} ({node.op.family}) mixes values of several scales")
        places[node.output], (scales[node.output],) = place, found
        reads.append(read)
    (out,) = graph.results
    if out not in places:
        raise OptionError("the result does not depend on the image")
    along = {value: evaluate(value.shape[place], sizes) for value, place in places.items()}
    return _Trail(image, out, tuple(reads), along, scales, places[out])


def _one(
    node: Node, sizes: Mapping[str, int], places: Mapping[Value, int], fixed: frozenset[str]
) -> tuple[int, _NodeReads]:
    """The axis of a node's result along the image, and what it reads."""
    rule = RULES.get(type(node.op))
    if rule is None or len(node.outputs) != 1:
        raise OptionError("may look at the whole image")
    call = AlongCall(
        node.op.bind(sizes),
        node.op,
        tuple(_shape(value, sizes) for value in node.inputs),
        _shape(node.output, sizes),
        tuple(places.get(value) for value in node.inputs),
        fixed,
    )
    along = rule(call)
    operands = tuple(
        (value, chain)
        for value, chain in zip(node.inputs, along.chains, strict=True)
        if chain is not None
    )
    return along.axis, _NodeReads(node.name, node.output, operands)


def _shape(value: Value, sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(evaluate(dim, sizes) for dim in value.shape)


def _expect_constant(node: Node, fixed: frozenset[str]) -> None:
    """A value that does not depend on the image must not be of its size."""
    for value in node.outputs:
        if any(symbols_of(dim) - fixed for dim in value.shape):
            raise OptionError(f"{node.name} ({node.op.family}) depends on the image's size")


def _is_free(dim: Dim) -> bool:
    """Whether a dim of an input may have any size."""
    return not isinstance(dim, int)


def _with(shape: Sequence[int], axis: int, size: int) -> tuple[int, ...]:
    return (*shape[:axis], size, *shape[axis + 1 :])


def _furthest(holds: partial[str | None], least: int, most: int) -> int:
    """The largest end of a part, beyond `least`, for which nothing is wrong; `least` if none is."""
    low, high = least, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) is None else (low, middle - 1)
    return low
