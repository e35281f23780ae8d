"""Buffers of a layout while values are placed in them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from saccade.ir import Value
from saccade.kernels.base import View
from saccade.layout.types import Buffer, BufferKind, Stored
from saccade.layout.views import channels_last, padded, row_major

__all__ = ["BufferBuilder"]


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

    def own(
        self, value: Value, shapes: Mapping[Value, tuple[int, ...]], nhwc: Collection[Value]
    ) -> Stored:
        """A buffer of the arena for a value, in the order that it is stored in."""
        if value in self.filled:
            view = padded(value.dtype, shapes[value], zeros=True)
        else:
            dense = channels_last if value in nhwc else row_major
            view = dense(value.dtype, shapes[value])
        return self.new(BufferKind.ARENA, value.name, view)
