"""Matrix products with NumPy's broadcasting of the leading axes (ONNX MatMul, Gemm)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from saccade.ir.dim import Dim
from saccade.ir.dtype import DType
from saccade.ir.expr import IDENTITY, Expr
from saccade.ir.op import Array, Op, TensorType, Work
from saccade.opdefs._rules import (
    broadcast,
    expect,
    expect_epilogue,
    expect_same_dtype,
    static_count,
    tensor_bytes,
    text,
    unify,
)
from saccade.opdefs._taps import expr_flops
from saccade.opdefs.expr_numpy import accumulator, finish

__all__ = ["MatMul"]


@dataclass(frozen=True)
class MatMul(Op):
    """Matrix product: [..., M, K] times [..., K, N] gives [..., M, N].

    Operands: a, b (each of rank 2 or more), then epilogue operands (broadcastable to the result).

    Attributes:
        transpose_a: a is stored [..., K, M].
        transpose_b: b is stored [..., N, K].
        epilogue: Applied to every sum `$0`; `$1…` are the epilogue operands.
    """

    contracts: ClassVar[bool] = True

    transpose_a: bool = False
    transpose_b: bool = False
    epilogue: Expr = IDENTITY

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect(self, len(inputs) >= 2, f"takes 2 operands or more, got {len(inputs)}")
        a, b = inputs[:2]
        expect_same_dtype(self, (a, b))
        expect(self, a.dtype is not DType.BOOL, "operands are bool")
        for operand, name in ((a, "a"), (b, "b")):
            matrix = len(operand.shape) >= 2
            expect(self, matrix, f"{name} must have 2 axes or more, is {text(operand.shape)}")
        rows, inner_a = _matrix(a.shape, self.transpose_a)
        inner_b, columns = _matrix(b.shape, self.transpose_b)
        unify(self, inner_a, inner_b, "the summed dim")
        batch = broadcast(self, (a.shape[:-2], b.shape[:-2]))
        result = TensorType(a.dtype, (*batch, rows, columns))
        expect_epilogue(self, self.epilogue, inputs[2:], result)
        return (result,)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        a, b = (_wide(operand) for operand in inputs[:2])
        a = a.swapaxes(-1, -2) if self.transpose_a else a
        b = b.swapaxes(-1, -2) if self.transpose_b else b
        return (finish(self.epilogue, np.matmul(a, b), inputs[2:], inputs[0].dtype),)

    def work(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Work:
        results = static_count(outputs[0].shape)
        inner = static_count((_matrix(inputs[0].shape, self.transpose_a)[1],))
        flops = (2 * inner + expr_flops(self.epilogue)) * results
        return Work(flops, tensor_bytes((*inputs, *outputs)))


def _matrix(shape: tuple[Dim, ...], transposed: bool) -> tuple[Dim, Dim]:
    rows, columns = shape[-2:]
    return (columns, rows) if transposed else (rows, columns)


def _wide(operand: Array) -> Array:
    return operand.astype(accumulator(operand.dtype), copy=False)
