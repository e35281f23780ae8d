"""Where each value lives: buffers, and views into them.

Concats are made by who produces their operands (`joints`). Moves whose result is a view of what is
stored cost nothing. Graph inputs and outputs live in the caller's memory, row-major; so does a
value whose view a graph output is. Pixels of other channels-last values are padded to 16 bytes
where their producer's kernels fill the padding (`Preferred.fills`).
"""

from __future__ import annotations

from collections.abc import Mapping

from saccade.ir import Graph, IndexMap, Node, Op, Value
from saccade.ir.derived import derived
from saccade.kernels.base import Packing
from saccade.kernels.size_constant import SIZE_CONSTANT
from saccade.layout.buffers import BufferBuilder
from saccade.layout.formats import Fills, Preferred
from saccade.layout.joints import Joints
from saccade.layout.types import Buffer, BufferKind, Stored
from saccade.layout.views import aligned, channels_last, fits_last, moved, row_major
from saccade.opdefs import BitCast, Concat, Move, SizeConstant

__all__ = ["place"]

_ALIGN = 64
"""Bytes at whose multiples results begin that follow from sizes."""


def place(
    graph: Graph,
    shapes: Mapping[Value, tuple[int, ...]],
    ops: Mapping[Node, Op],
    nhwc: frozenset[Value],
    preferred: Preferred,
) -> BufferBuilder:
    """A place for every value.

    Args:
        graph: What to place.
        shapes: Every value's shape.
        ops: Its operators, bound.
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
    for node in graph.nodes:
        if isinstance(node.op, SizeConstant):
            _hold(node, ops[node], places, shapes, nhwc)
    maps = {node: op.map for node, op in ops.items() if isinstance(op, Move)}
    producers = graph.producers()
    for i, value in enumerate(graph.outputs):
        # Others live elsewhere, and are copied to the caller at the end.
        if value not in places.stored and value not in nhwc:
            view = row_major(value.dtype, shapes[value])
            places.stored[value] = places.new(BufferKind.OUTPUT, value.name, view, i)
    for value in graph.outputs:
        _place_source(value, places, shapes, maps, producers, nhwc)
    # The last ones first: Concats before them find their place as a part of a longer one's.
    joints = Joints(places, shapes, maps, producers, nhwc, preferred.apart)
    for node in reversed(graph.nodes):
        if isinstance(node.op, Concat):
            joints.place(node, node.op.axis)
    for node in graph.nodes:
        for value in node.outputs:
            if value not in places.stored:
                within = _view_of_move(node, places, maps, nhwc)
                within = within or _view_of_bits(node, places, nhwc)
                places.stored[value] = within or places.own(value, shapes, nhwc)
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


def _hold(
    node: Node,
    op: Op,
    places: BufferBuilder,
    shapes: Mapping[Value, tuple[int, ...]],
    nhwc: frozenset[Value],
) -> None:
    """Let the results be a constant of the plan, each in the order that its readers like."""
    assert isinstance(op, SizeConstant)
    views, held, end = [], [], 0
    for value in node.outputs:
        last = value in nhwc
        view = (channels_last if last else row_major)(value.dtype, shapes[value])
        axes = (0, 2, 3, 1) if last else tuple(range(value.rank))
        views.append((end, view))
        held.append((end, value.dtype.value, axes))
        end += -(-view.size * value.dtype.itemsize // _ALIGN) * _ALIGN
    how = op.text, op.sizes, tuple(held), end
    made = Packing(SIZE_CONSTANT, how, (), end), tuple(v.name for v in node.inputs)
    places.buffers.append(Buffer(BufferKind.CONSTANT, node.outputs[0].name, end, made=made))
    for value, (at, view) in zip(node.outputs, views, strict=True):
        places.stored[value] = Stored(len(places.buffers) - 1, at, view)


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
