"""Where elements of several lists are that lie one behind the other, each with room to spare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from saccade.ir.dim import Dim
from saccade.ir.dtype import DType
from saccade.ir.op import Array, Op, TensorType, Work
from saccade.opdefs._rules import expect, expect_count, static_count, tensor_bytes

__all__ = ["PackedPlaces"]


@dataclass(frozen=True)
class PackedPlaces(Op):
    """The places of all elements of several lists, the first list's first.

    Operand: how many elements each list has, int64 [lists]; numbers beyond the list's room count
    as that. Results, int64: places [rows], zeros behind them, in an array where each list begins
    behind the room of the one before; their number [1].

    Attributes:
        rows: Extent for the places: a symbol of its own, whose bound is all room together.
        room: Of each list.
    """

    rows: Dim
    room: tuple[int, ...]

    _dim_fields = frozenset({"rows"})

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(self, inputs, 1)
        sizes = inputs[0]
        expect(self, sizes.dtype is DType.I64, f"sizes are {sizes.dtype.value}")
        each = sizes.shape == (len(self.room),)
        expect(self, each, f"sizes {list(sizes.shape)} of {len(self.room)} lists")
        expect(self, min(self.room, default=0) >= 0, f"room {list(self.room)}")
        return TensorType(DType.I64, (self.rows,)), TensorType(DType.I64, (1,))

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        (sizes,) = inputs
        starts = np.cumsum([0, *self.room])
        found = [
            np.arange(start, start + min(max(int(size), 0), room))
            for start, size, room in zip(starts[:-1], sizes, self.room, strict=True)
        ]
        places = np.zeros(static_count((self.rows,)), np.int64)
        count = sum(map(len, found))
        places[:count] = np.concatenate(found)[:count] if found else 0
        return places, np.array([count], np.int64)

    def work(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Work:
        return Work(static_count(outputs[0].shape), tensor_bytes((*inputs, *outputs)))
