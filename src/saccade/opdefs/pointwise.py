"""Element by element: arithmetic, comparisons, activations, casts, and chains of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from saccade.ir.dtype import DType
from saccade.ir.expr import Expr
from saccade.ir.op import Array, Op, TensorType, Work
from saccade.opdefs._rules import (
    broadcast,
    expect,
    expect_same_dtype,
    static_count,
    tensor_bytes,
)
from saccade.opdefs._taps import expr_flops
from saccade.opdefs.expr_numpy import cast, evaluate

__all__ = ["Pointwise"]


@dataclass(frozen=True)
class Pointwise(Op):
    """An expression of the elements of its operands, which broadcast as in NumPy.

    Operands: `$0…`, all of one element type, bools aside. Arithmetic happens in that type (in
    `dtype` where every operand is bool); the value is then cast to `dtype` as ONNX Cast does, so
    `$0` alone is a cast.

    Attributes:
        expr: The expression.
        dtype: Element type of the result.
    """

    expr: Expr
    dtype: DType

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect(self, len(inputs) >= 1, "takes an operand")
        enough = self.expr.operands <= len(inputs)
        expect(self, enough, f"{self.expr} lacks operands: {len(inputs)} given")
        expect_same_dtype(self, [t for t in inputs if t.dtype is not DType.BOOL])
        return (TensorType(self.dtype, broadcast(self, [t.shape for t in inputs])),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        plain = self.dtype.arithmetic
        default = np.dtype(np.float32) if plain is DType.BOOL else plain.numpy
        value = cast(evaluate(self.expr, inputs, default=default), self.dtype)
        shape = np.broadcast_shapes(*(a.shape for a in inputs))
        fresh = value.base is None and not any(value is a for a in inputs)
        if fresh and value.shape == shape and value.flags.c_contiguous:
            return (value,)
        return (np.array(np.broadcast_to(value, shape), order="C"),)

    def work(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Work:
        flops = expr_flops(self.expr) * static_count(outputs[0].shape)
        return Work(flops, tensor_bytes((*inputs, *outputs)))
