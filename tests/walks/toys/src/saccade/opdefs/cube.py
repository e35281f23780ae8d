"""Third powers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from saccade.ir.op import Array, Op, TensorType, Work
from saccade.opdefs._rules import expect_count, expect_float, static_count, tensor_bytes

__all__ = ["Cube"]


@dataclass(frozen=True)
class Cube(Op):
    """`scale · x³` of every element. Operands: x, floating point.

    Attributes:
        scale: A finite number.
    """

    scale: float = 1.0

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(self, inputs, 1)
        expect_float(self, inputs[0], "x")
        return (inputs[0],)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        (x,) = inputs
        return (np.asarray(x.dtype.type(self.scale) * x * x * x),)

    def work(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Work:
        return Work(3 * static_count(outputs[0].shape), tensor_bytes((*inputs, *outputs)))
