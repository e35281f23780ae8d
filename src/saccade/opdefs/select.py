"""Elements by rank or by value: the largest ones, those that are not zero, each one once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from saccade.ir.dim import Dim
from saccade.ir.dtype import DType
from saccade.ir.op import Array, Op, TensorType, Work
from saccade.opdefs._rules import (
    expect,
    expect_axis,
    expect_count,
    static_count,
    tensor_bytes,
)

__all__ = ["NonZero", "TopK", "Unique"]


@dataclass(frozen=True)
class TopK(Op):
    """The largest or smallest elements along an axis, and where they were (ONNX TopK).

    Operands: x; where `counted` is set int64 [1], how many elements along the axis are true: the
    first ones, no others are looked at. Results: values, in x's type, and their int64 indices; both
    have `k` elements along the axis, the best first. Equal elements keep their order, both zeros
    are equal, and NaN is larger than all numbers. Where fewer are true, the first element stands
    behind them.

    Attributes:
        k: How many.
        axis: Along which, counted from 0.
        largest: Whether the largest ones; else the smallest.
        counted: Whether there is a number of elements.
    """

    k: Dim
    axis: int
    largest: bool = True
    counted: bool = False

    _dim_fields = frozenset({"k"})

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(self, inputs, 1 + self.counted)
        x = inputs[0]
        expect_axis(self, self.axis, len(x.shape))
        expect(self, x.dtype is not DType.BOOL, "x is bool")
        if self.counted:
            number = inputs[1] == TensorType(DType.I64, (1,))
            expect(self, number, "a number of elements must be int64 [1]")
        size = x.shape[self.axis]
        if isinstance(size, int) and isinstance(self.k, int):
            expect(self, 0 <= self.k <= size, f"{self.k} of {size} elements")
        shape = (*x.shape[: self.axis], self.k, *x.shape[self.axis + 1 :])
        return TensorType(x.dtype, shape), TensorType(DType.I64, shape)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        x, k = inputs[0], static_count((self.k,))
        if self.counted:
            return self._of_first(x, min(int(inputs[1][0]), x.shape[self.axis]), k)
        size = x.shape[self.axis]
        if self.largest:
            # A stable order of the reversed axis, read backwards: equal ones keep theirs.
            backwards = np.argsort(np.flip(x, self.axis), axis=self.axis, kind="stable")
            order = size - 1 - np.flip(backwards, self.axis)
        else:
            order = np.argsort(x, axis=self.axis, kind="stable")
        places = np.take(order, np.arange(k), axis=self.axis).astype(np.int64)
        return np.take_along_axis(x, places, self.axis), places

    def _of_first(self, x: Array, true: int, k: int) -> tuple[Array, ...]:
        """The results where so many elements along the axis are true."""
        found = min(k, true)
        best = replace(self, k=found, counted=False)
        _, places = best.reference(np.take(x, np.arange(true), axis=self.axis))
        rest = [(0, k - found if axis == self.axis else 0) for axis in range(x.ndim)]
        places = np.pad(places, rest)
        return np.take_along_axis(x, places, self.axis), places

    def work(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Work:
        # Each element is compared at least once.
        return Work(static_count(inputs[0].shape), tensor_bytes((*inputs, *outputs)))


@dataclass(frozen=True)
class NonZero(Op):
    """Where elements are not zero (ONNX NonZero), NaN among them.

    Operand: x of one axis or more. Results, int64: places [rank, rows], row-major, zeros behind
    them; their number [1].

    Attributes:
        rows: Extent for what is found: a symbol of its own, whose bound is x's number of elements.
    """

    rows: Dim

    _dim_fields = frozenset({"rows"})

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(self, inputs, 1)
        expect(self, len(inputs[0].shape) >= 1, "x has no axes")
        places = TensorType(DType.I64, (len(inputs[0].shape), self.rows))
        return places, TensorType(DType.I64, (1,))

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        (x,) = inputs
        found = np.array(np.nonzero(x), np.int64)
        places = np.zeros((x.ndim, static_count((self.rows,))), np.int64)
        places[:, : found.shape[1]] = found
        return places, np.array([found.shape[1]], np.int64)

    def work(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Work:
        return Work(static_count(inputs[0].shape), tensor_bytes((*inputs, *outputs)))


@dataclass(frozen=True)
class Unique(Op):
    """The different slices along an axis (ONNX Unique).

    Operand: x of one axis or more. Results: each slice once, zeros behind them; where each comes
    first, [rows]; which of them each of x's slices is, [size]; how often each comes, [rows]; their
    number, [1]; all but the first int64.

    Attributes:
        rows: Extent for what is found: a symbol of its own, whose bound is the axis's size.
        axis: Along which, counted from 0.
        ordered: Whether by their elements, the first one first; else in the order in which they
            come.
    """

    rows: Dim
    axis: int = 0
    ordered: bool = True

    _dim_fields = frozenset({"rows"})

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(self, inputs, 1)
        x = inputs[0]
        expect_axis(self, self.axis, len(x.shape))
        shape = (*x.shape[: self.axis], self.rows, *x.shape[self.axis + 1 :])
        rows = TensorType(DType.I64, (self.rows,))
        inverse = TensorType(DType.I64, (x.shape[self.axis],))
        return TensorType(x.dtype, shape), rows, inverse, rows, TensorType(DType.I64, (1,))

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        (x,) = inputs
        _, first, inverse, counts = np.unique(
            x, return_index=True, return_inverse=True, return_counts=True, axis=self.axis
        )
        inverse = inverse.reshape(-1)
        if not self.ordered:
            order = np.argsort(first, kind="stable")
            first, counts = first[order], counts[order]
            inverse = np.argsort(order, kind="stable")[inverse]
        room, count = static_count((self.rows,)), len(first)
        slices = np.zeros((*x.shape[: self.axis], room, *x.shape[self.axis + 1 :]), x.dtype)
        np.moveaxis(slices, self.axis, 0)[:count] = np.moveaxis(x, self.axis, 0)[first]
        rows = np.zeros((2, room), np.int64)
        rows[0, :count], rows[1, :count] = first, counts
        return slices, rows[0], inverse.astype(np.int64), rows[1], np.array([count], np.int64)

    def work(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Work:
        return Work(static_count(inputs[0].shape), tensor_bytes((*inputs, *outputs)))
