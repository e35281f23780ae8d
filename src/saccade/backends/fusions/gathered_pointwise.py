"""Arithmetic on slices that indices name, of as many elements as there are, as one operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from saccade.ir.dtype import DType
from saccade.ir.expr import Expr
from saccade.ir.op import Array, Op, TensorType, Work
from saccade.opdefs import Gather, Pointwise
from saccade.opdefs._rules import expect, expect_axis, static_count, tensor_bytes
from saccade.opdefs._taps import expr_flops

__all__ = ["GatheredPointwise", "counted_axes"]

_NUMBER = TensorType(DType.I64, (1,))


@dataclass(frozen=True)
class GatheredPointwise(Op):
    """A `Pointwise` expression of operands some of which are read as `Gather` would give them.

    Operands: the expression's `$0…`; indices [n] (int32 or int64; negative ones count from the
    end, others beyond the axis take its last element); numbers, int64 [1] each.

    Attributes:
        expr: The expression.
        dtype: Element type of the result.
        picks: For each operand of the expression, which of its axes is read at which of the
            indices: pairs of the axis and the number of the indices, (-1, -1) for none.
        counted: Axes of the result, one for each number: so many first elements of it are true,
            all others may be anything.
    """

    expr: Expr
    dtype: DType
    picks: tuple[tuple[int, int], ...]
    counted: tuple[int, ...] = ()

    @property
    def indices(self) -> int:
        """How many of the operands are indices."""
        return 1 + max(number for _, number in self.picks)

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        count, indices = len(self.picks), self.indices
        wanted = count + indices + len(self.counted)
        expect(self, len(inputs) == wanted, f"takes {wanted} operands, got {len(inputs)}")
        for number in inputs[count + indices :]:
            expect(self, number == _NUMBER, "a number of elements must be int64 [1]")
        where = inputs[count : count + indices]
        for one in where:
            expect(self, len(one.shape) == 1, "indices have one axis")
        picked = [
            x if axis < 0 else Gather(axis).infer((x, where[number]))[0]
            for x, (axis, number) in zip(inputs, self.picks, strict=False)
        ]
        (result,) = Pointwise(self.expr, self.dtype).infer(picked)
        for axis in self.counted:
            expect_axis(self, axis, len(result.shape))
        return (result,)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        where = inputs[len(self.picks) :]
        picked = [
            x if axis < 0 else _taken(x, where[number], axis)
            for x, (axis, number) in zip(inputs, self.picks, strict=False)
        ]
        return Pointwise(self.expr, self.dtype).reference(*picked)

    def work(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Work:
        each = static_count(outputs[0].shape)
        picked = sum(axis >= 0 for axis, _ in self.picks)
        read = [x for x, (axis, _) in zip(inputs, self.picks, strict=False) if axis < 0]
        taken = picked * each * inputs[0].dtype.itemsize
        rest = tensor_bytes((*read, *inputs[len(self.picks) :], *outputs))
        return Work(expr_flops(self.expr) * each, taken + rest)


def counted_axes(op: Op) -> tuple[int, ...]:
    """Axes of an operator's result that numbers count."""
    return op.counted if isinstance(op, GatheredPointwise) else ()


def _taken(x: Array, indices: Array, axis: int) -> Array:
    size = x.shape[axis]
    return np.take(x, np.where(indices < 0, indices + size, indices), axis=axis, mode="clip")
