"""Concats that are made by who produces their operands.

An operand is placed inside the result's buffer where its producer may write there, or what it is a
view of. Where a device had better not write elements that lie apart (`Preferred.apart`), what
stacks single elements is stored operand by operand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from saccade.ir import IndexMap, Node, Op, Value
from saccade.kernels.base import View
from saccade.layout.buffers import BufferBuilder
from saccade.layout.types import BufferKind, Stored
from saccade.layout.views import channels_last, moved, padded, part, row_major, unmoved
from saccade.opdefs import BitCast, Concat, Move

__all__ = ["Joints"]

_VIEWS = (BitCast, Concat, Move)
"""What may be no step: nothing that could write where it is told."""


@dataclass(frozen=True, slots=True)
class Joints:
    """Lets Concats be made by who produces their operands.

    Attributes:
        places: So far.
        shapes: Every value's shape.
        maps: The bound index map of each Move.
        producers: The node behind each result.
        nhwc: The values to store channels-last.
        apart: See `Preferred.apart`.
    """

    places: BufferBuilder
    shapes: Mapping[Value, tuple[int, ...]]
    maps: Mapping[Node, IndexMap]
    producers: Mapping[Value, Node]
    nhwc: frozenset[Value]
    apart: tuple[type[Op], ...]

    def place(self, node: Node, axis: int) -> None:
        """Give the result a buffer and its operands the slices that they may be written to."""
        places, nhwc, result = self.places, self.nhwc, node.output
        if result not in places.stored:
            # Single elements one behind the other: each is as fast to write as anywhere.
            stack = None if self.apart else self._stack(node, axis)
            if stack is not None:
                places.stored[result] = places.new(BufferKind.ARENA, result.name, stack)
            else:
                # Its operands may stand side by side already, at the front of a longer one.
                within = _common_buffer(node, axis, places)
                places.stored[result] = within or self._own_joint(node, axis)
        whole = places.stored[result]
        dense = whole.view.channels_last == (result in nhwc)
        at = 0
        for value in node.inputs:
            slot = _slice(whole, axis, at, self.shapes[value])
            at += self.shapes[value][axis]
            producer = self.producers.get(value)
            # A Concat in order finds its own operands' places in the part that it is given.
            joint = producer is not None and isinstance(producer.op, Concat)
            nested = joint and value not in places.stored and nhwc.isdisjoint((value, result))
            behind = None if result in nhwc else self._behind(value, slot.view)
            if behind is not None:
                source, view = behind
                places.stored |= {source: slot._replace(view=view), value: slot}
            elif nested:
                places.stored[value] = slot
            elif value in places.stored or producer is None or self._is_view(producer):
                stored = places.stored.get(value)
                if stored is None or not stored.is_at(slot):
                    places.notes.append(
                        f"{node.name or result.name}: %{value.name} is copied: "
                        f"{_why(value, places, producer)}"
                    )
            elif dense and (value in nhwc) == (result in nhwc):
                places.stored[value] = slot
        if whole.view.room and not whole.view.zeros:
            self._fill(node, axis, whole)

    def _stack(self, node: Node, axis: int) -> View | None:
        """The result with an inner axis outermost, if steps of their own make each element of it.

        None if they are not as many as operands, or the axis is as good as outermost.
        """
        result, values, nhwc = node.output, node.inputs, self.nhwc
        shape = self.shapes[result]
        if len(set(values)) != shape[axis] or shape[axis] == 1 or prod(shape[:axis]) == 1:
            return None
        rest = row_major(result.dtype, (*shape[:axis], *shape[axis + 1 :]))
        strides = (*rest.strides[:axis], rest.size, *rest.strides[axis:])
        view = View(result.dtype, shape, strides)
        for value in values:
            made = self.producers.get(value)
            if made is None or value in self.places.stored or not nhwc.isdisjoint((value, result)):
                return None
            slot = part(view, axis, 0, self.shapes[value])
            if self._is_view(made) and self._behind(value, slot) is None:
                return None
        return view

    def _is_view(self, maker: Node) -> bool:
        """Whether what makes a value may be no step, so that nothing could write where it is told.

        A movement that no row-major operand could be seen through is one.
        """
        if not isinstance(maker.op, Move):
            return isinstance(maker.op, _VIEWS)
        source = maker.inputs[0]
        dense = row_major(source.dtype, self.shapes[source])
        return source in self.nhwc or moved(dense, self.maps[maker]) is not None

    def _behind(self, value: Value, slot: View) -> tuple[Value, View] | None:
        """What a value is a view of that a step makes, and how it lies where the value has a place.

        None where the step would write elements that lie apart, and the device had better not.
        """
        move = self.producers.get(value)
        if move is None or not isinstance(move.op, Move):
            return None
        if value in self.places.stored or value in self.nhwc:
            return None
        source = move.inputs[0]
        maker = self.producers.get(source)
        if source in self.places.stored or maker is None or isinstance(maker.op, _VIEWS):
            return None
        view = unmoved(slot, self.maps[move])
        if view is None:
            return None
        last = source in self.nhwc
        dense = (channels_last if last else row_major)(source.dtype, self.shapes[source])
        pairs = zip(view.shape[1:], view.strides[1:], dense.strides[1:], strict=True)
        inside = all(n == 1 or own == other for n, own, other in pairs)
        return (source, view) if inside or (isinstance(maker.op, self.apart) and not last) else None

    def _own_joint(self, node: Node, axis: int) -> Stored:
        """A buffer for the result of a Concat; padded where whoever stands last could fill it."""
        places, value = self.places, node.output
        if value not in self.nhwc or not places.filled.issuperset(_last(node, axis)):
            return places.own(value, self.shapes, self.nhwc)
        # Zeros are promised once it is known who writes them: see `_fill`.
        view = padded(value.dtype, self.shapes[value], zeros=False)
        return places.new(BufferKind.ARENA, value.name, view)

    def _fill(self, node: Node, axis: int, whole: Stored) -> None:
        """Let the last operands fill its pixels, where all of them are written in place."""
        places, last = self.places, _last(node, axis)
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


def _last(node: Node, axis: int) -> tuple[Value, ...]:
    """The operands of a Concat that have last channels of the result."""
    # Along other axes each operand has pixels of its own, and last channels in them.
    return node.inputs[-1:] if axis == 1 else node.inputs


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
