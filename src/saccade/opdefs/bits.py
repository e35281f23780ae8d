"""Bits read as another element type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from saccade.ir.dtype import DType
from saccade.ir.op import Array, Op, TensorType, Work
from saccade.opdefs._rules import expect, expect_count, tensor_bytes

__all__ = ["BitCast"]


@dataclass(frozen=True)
class BitCast(Op):
    """The only operand's bits, element by element, as elements of another type (ONNX BitCast).

    Attributes:
        dtype: Element type of the result: as many bits, and no bool, whose bytes are 0 or 1.
    """

    dtype: DType

    bitwise: ClassVar[bool] = True

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(self, inputs, 1)
        (x,) = inputs
        alike = x.dtype.bits == self.dtype.bits
        expect(self, alike, f"{self.dtype.value} has not as many bits as {x.dtype.value}")
        expect(self, self.dtype is not DType.BOOL, "bits are read as bool")
        return (TensorType(self.dtype, x.shape),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        (x,) = inputs
        # Results are the caller's own, and no views.
        return (x.copy(order="C").view(self.dtype.numpy),)

    def work(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Work:
        return Work(0, tensor_bytes((*inputs, *outputs)))
