"""Where each value lives: buffers, and views into them.

Concats are made by their producers: an operand is placed inside the result's buffer where its
producer may write there, or what it is a view of, where the device writes elements that lie apart
(`Preferred.apart`). Moves whose result is a view of what is stored cost nothing. Graph inputs
and outputs live in the caller's memory, row-major; so does a value whose view a graph output is.
Pixels of other channels-last values are padded to 16 bytes where their producer's kernels fill the
padding (`Preferred.fills`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from saccade.ir import Graph, IndexMap, Node, Op, Value
from saccade.ir.compose_maps import is_view
from saccade.ir.derived import derived
from saccade.kernels.base import View
from saccade.layout.formats import Fills, Preferred
from saccade.layout.types import Buffer, BufferKind, Stored
from saccade.layout.views import (
    aligned,
    channels_last,
    fits_last,
    moved,
    padded,
    part,
    respaced,
    row_major,
)
from saccade.opdefs import BitCast, Concat, Move

__all__ = ["BufferBuilder", "place"]

_VIEWS = (BitCast, Concat, Move)
"""What may be no step: nothing that could write where it is told."""


@dataclass
class BufferBuilder:
    """Buffers under construction, and the place of each value.

    Attributes:
        filled: Channels-last values whose producers' kernels fill pixels (`Preferred.fills`).
        buffers: So far.
        stored: The place of each value that has one.
        notes: Remarks.
    """

    filled: frozenset[Value] = frozenset()
    buffers: list[Buffer] = field(default_factory=list)
    stored: dict[Value, Stored] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def new(self, kind: BufferKind, name: str, view: View, index: int = 0) -> Stored:
        """A buffer of its own for one view."""
        self.buffers.append(Buffer(kind, name, view.extent * view.dtype.itemsize, index))
        return Stored(len(self.buffers) - 1, 0, view)


def place(
    graph: Graph,
    shapes: Mapping[Value, tuple[int, ...]],
    maps: Mapping[Node, IndexMap],
    nhwc: frozenset[Value],
    preferred: Preferred,
) -> BufferBuilder:
    """A place for every value.

    Args:
        graph: What to place.
        shapes: Every value's shape.
        maps: The bound index map of each Move.
        nhwc: The values to store channels-last.
        preferred: How the device likes values.
    """
    places = BufferBuilder(filled=_filled(graph, shapes, nhwc, preferred.fills))
    for i, value in enumerate(graph.inputs):
        view = row_major(value.dtype, shapes[value])
        places.stored[value] = places.new(BufferKind.INPUT, value.name, view, i)
    constants = _constants(graph)  # behind the inputs, in every plan
    places.buffers += constants.buffers
    places.stored |= constants.stored
    producers = graph.producers()
    for i, value in enumerate(graph.outputs):
        # Others live elsewhere, and are copied to the caller at the end.
        if value not in places.stored and value not in nhwc:
            view = row_major(value.dtype, shapes[value])
            places.stored[value] = places.new(BufferKind.OUTPUT, value.name, view, i)
    for value in graph.outputs:
        _place_source(value, places, shapes, maps, producers, nhwc)
    # The last ones first: Concats before them find their place as a part of a longer one's.
    for node in reversed(graph.nodes):
        if isinstance(node.op, Concat):
            _place_operands(node, node.op.axis, places, shapes, producers, nhwc, preferred.apart)
    for node in graph.nodes:
        for value in node.outputs:
            if value not in places.stored:
                within = _view_of_move(node, places, maps, nhwc)
                within = within or _view_of_bits(node, places, nhwc)
                places.stored[value] = within or _own(value, places, shapes, nhwc)
    for value, stored in places.stored.items():
        view = aligned(stored.view, stored.offset)
        if view is not stored.view:
            places.stored[value] = stored._replace(view=view)
    return places


@derived
def _constants(graph: Graph) -> BufferBuilder:
    """Buffers of constants, and places that count those of the inputs."""
    found, first = BufferBuilder(), len(graph.inputs)
    for i, (value, array) in enumerate(graph.constants.items()):
        view = row_major(value.dtype, array.shape)
        own = found.new(BufferKind.CONSTANT, value.name, view, i)
        found.stored[value] = own._replace(buffer=first + own.buffer)
    return found


def _filled(
    graph: Graph,
    shapes: Mapping[Value, tuple[int, ...]],
    nhwc: frozenset[Value],
    fills: Fills,
) -> frozenset[Value]:
    return frozenset(
        value
        for node in graph.nodes
        if nhwc.issuperset(node.outputs) and fills(node.op, [shapes[v] for v in node.inputs])
        for value in node.outputs
    )


def _place_source(
    value: Value,
    places: BufferBuilder,
    shapes: Mapping[Value, tuple[int, ...]],
    maps: Mapping[Node, IndexMap],
    producers: Mapping[Value, Node],
    nhwc: frozenset[Value],
) -> None:
    """Let what a graph output is a view of, all of it, be written to the caller's memory."""
    node, stored = producers.get(value), places.stored.get(value)
    if node is None or stored is None or not isinstance(node.op, (BitCast, Move)):
        return
    source = node.inputs[0]
    # Placed by now, or an input or a constant, whose memory is given.
    if source in places.stored or source not in producers:
        return
    dense = channels_last if source in nhwc else row_major
    view = dense(source.dtype, shapes[source])
    seen = (0, view._replace(dtype=value.dtype))
    if isinstance(node.op, Move):
        # A part would leave the rest of the source without a place.
        found = moved(view, maps[node]) if view.size == stored.view.size else None
        seen = found or (-1, view)
    if seen == (0, stored.view):
        places.stored[source] = Stored(stored.buffer, 0, view)


def _own(
    value: Value,
    places: BufferBuilder,
    shapes: Mapping[Value, tuple[int, ...]],
    nhwc: frozenset[Value],
) -> Stored:
    if value in places.filled:
        view = padded(value.dtype, shapes[value], zeros=True)
    else:
        dense = channels_last if value in nhwc else row_major
        view = dense(value.dtype, shapes[value])
    return places.new(BufferKind.ARENA, value.name, view)


def _view_of_move(
    node: Node,
    places: BufferBuilder,
    maps: Mapping[Node, IndexMap],
    nhwc: frozenset[Value],
) -> Stored | None:
    if not isinstance(node.op, Move):
        return None
    source = places.stored[node.inputs[0]]
    found = moved(source.view, maps[node])
    if found is None:
        return None
    elements, view = found
    # Of an operand of other axes, which has no order of its own to choose: `search` counts a copy.
    if node.output in nhwc and len(source.view.shape) != 4 and not fits_last(view):
        return None
    return Stored(source.buffer, source.offset + elements * view.dtype.itemsize, view)


def _view_of_bits(node: Node, places: BufferBuilder, nhwc: frozenset[Value]) -> Stored | None:
    """What is stored, as elements of another type, where that is the order that is wanted."""
    if not isinstance(node.op, BitCast):
        return None
    source = places.stored[node.inputs[0]]
    if source.view.channels_last != (node.output in nhwc):
        return None
    return source._replace(view=source.view._replace(dtype=node.output.dtype))


def _place_operands(
    node: Node,
    axis: int,
    places: BufferBuilder,
    shapes: Mapping[Value, tuple[int, ...]],
    producers: Mapping[Value, Node],
    nhwc: frozenset[Value],
    apart: tuple[type[Op], ...],
) -> None:
    """Give the result a buffer and its operands the slices of it that they may be written to."""
    result = node.output
    if result not in places.stored:
        # Its operands may stand side by side already, at the front of a longer one.
        within = _common_buffer(node, axis, places)
        places.stored[result] = within or _own_joint(node, axis, places, shapes, nhwc)
    whole = places.stored[result]
    dense = whole.view.channels_last == (result in nhwc)
    at = 0
    for value in node.inputs:
        slot = _slice(whole, axis, at, shapes[value])
        at += shapes[value][axis]
        producer = producers.get(value)
        # A Concat in order finds its own operands' places in the part that it is given.
        joint = producer is not None and isinstance(producer.op, Concat)
        nested = joint and value not in places.stored and nhwc.isdisjoint((value, result))
        source = _stacked(value, producers, places, nhwc, apart)
        found = None if source is None else respaced(slot.view, shapes[source])
        if source is not None and found is not None and result not in nhwc:
            places.stored |= {source: slot._replace(view=found), value: slot}
        elif nested:
            places.stored[value] = slot
        elif value in places.stored or producer is None or isinstance(producer.op, _VIEWS):
            stored = places.stored.get(value)
            if stored is None or not stored.is_at(slot):
                places.notes.append(
                    f"{node.name or result.name}: %{value.name} is copied: "
                    f"{_why(value, places, producer)}"
                )
        elif dense and (value in nhwc) == (result in nhwc):
            places.stored[value] = slot
    if whole.view.room and not whole.view.zeros:
        _fill(node, axis, whole, places)


def _stacked(
    value: Value,
    producers: Mapping[Value, Node],
    places: BufferBuilder,
    nhwc: frozenset[Value],
    apart: tuple[type[Op], ...],
) -> Value | None:
    """What an operand is a view of, with other axes of one element, that may be written apart."""
    move = producers.get(value)
    if value in places.stored or move is None or not isinstance(move.op, Move):
        return None
    source = move.inputs[0]
    maker = producers.get(source)
    if source in places.stored or maker is None or not isinstance(maker.op, apart):
        return None
    return source if is_view(move.op.map) and nhwc.isdisjoint((value, source)) else None


def _own_joint(
    node: Node,
    axis: int,
    places: BufferBuilder,
    shapes: Mapping[Value, tuple[int, ...]],
    nhwc: frozenset[Value],
) -> Stored:
    """A buffer for the result of a Concat; padded where whoever stands last could fill it."""
    value = node.output
    if value not in nhwc or not places.filled.issuperset(_last(node, axis)):
        return _own(value, places, shapes, nhwc)
    # Zeros are promised once it is known who writes them: see `_fill`.
    return places.new(BufferKind.ARENA, value.name, padded(value.dtype, shapes[value], zeros=False))


def _last(node: Node, axis: int) -> tuple[Value, ...]:
    """The operands of a Concat that have last channels of the result."""
    # Along other axes each operand has pixels of its own, and last channels in them.
    return node.inputs[-1:] if axis == 1 else node.inputs


def _fill(node: Node, axis: int, whole: Stored, places: BufferBuilder) -> None:
    """Let the last operands of a Concat fill its pixels, where all of them are written in place."""
    last = _last(node, axis)
    slots = [places.stored.get(value) for value in last]
    # One that is copied, or made by a kernel that fills nothing, leaves the padding as it was.
    for value, slot in zip(last, slots, strict=True):
        inside = slot is not None and slot.buffer == whole.buffer
        if not inside or value not in places.filled or node.inputs.count(value) > 1:
            return
    # A slot that does not begin at 16 bytes has no room behind it (`views.part`).
    if any(slot is not None and slot.view.room != whole.view.room for slot in slots):
        return
    for value, slot in zip((node.output, *last), (whole, *slots), strict=True):
        assert slot is not None
        places.stored[value] = slot._replace(view=slot.view._replace(zeros=True))


def _why(value: Value, places: BufferBuilder, producer: Node | None) -> str:
    if producer is None:
        return "it is an input or a constant"
    if value in places.stored:
        return "it already lives elsewhere"
    return "it is a view of another value"


def _slice(whole: Stored, axis: int, at: int, shape: tuple[int, ...]) -> Stored:
    view = part(whole.view, axis, at, shape)
    return Stored(whole.buffer, whole.offset + at * view.strides[axis] * view.dtype.itemsize, view)


def _common_buffer(node: Node, axis: int, places: BufferBuilder) -> Stored | None:
    """The place of a Concat whose operands stand side by side, as in a prefix of a larger one."""
    if any(value not in places.stored for value in node.inputs):
        return None
    first = places.stored[node.inputs[0]]
    extent = 0
    for value in node.inputs:
        expected = first.offset + extent * first.view.strides[axis] * first.view.dtype.itemsize
        stored = places.stored[value]
        same = stored.buffer == first.buffer and stored.view.strides == first.view.strides
        if not same or stored.offset != expected:
            return None
        extent += stored.view.shape[axis]
    if places.buffers[first.buffer].kind is not BufferKind.ARENA:
        return None
    shape = (*first.view.shape[:axis], extent, *first.view.shape[axis + 1 :])
    return Stored(first.buffer, first.offset, View(first.view.dtype, shape, first.view.strides))
