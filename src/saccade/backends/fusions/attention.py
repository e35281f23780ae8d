"""Scaled dot-product attention as one operator: the scores are an eliminated intermediate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from saccade.ir import DType
from saccade.ir.expr import IDENTITY, Expr
from saccade.ir.op import Array, Op, TensorType, Work
from saccade.opdefs import MatMul, Softmax
from saccade.opdefs._rules import (
    expect,
    expect_broadcastable,
    expect_count,
    expect_epilogue,
    expect_float,
    expect_same_dtype,
    static_count,
    tensor_bytes,
)
from saccade.opdefs._taps import expr_flops
from saccade.opdefs.expr_numpy import finish

__all__ = ["Attention"]


@dataclass(frozen=True)
class Attention(Op):
    """`softmax(scale · q kᵀ + mask) v` for [..., L, D], [..., S, D] and [..., S, E].

    Leading axes are batches and heads, and broadcast. Operands: q, k, v, and a mask or not, which
    broadcasts to the scores [..., L, S]. Dao et al., FlashAttention (2022), for how no kernel has
    to store them.

    Attributes:
        scale: What scores are multiplied by.
        transpose_k: k is stored [..., D, S].
        order: Axes of [..., L, E] in the order in which the result has them; none leave it as is.
        hidden: Whether rows whose weights are NaN, as where each key is masked by -inf, have zeros
            for weights.
        epilogue: Of each result.
    """

    contracts: ClassVar[bool] = True

    scale: float = 1.0
    transpose_k: bool = False
    order: tuple[int, ...] = ()
    hidden: bool = False
    epilogue: Expr = IDENTITY

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(self, inputs, 3, 4)
        # There may be no mask.
        for operand, name in zip(inputs, ("q", "k", "v", "the mask"), strict=False):
            expect_float(self, operand, name)
        expect_same_dtype(self, inputs)
        scores, result = self._types(inputs)
        expect_epilogue(self, self.epilogue, (), result)
        for mask in inputs[3:]:
            expect_broadcastable(self, mask.shape, scores.shape, "the mask")
        if not self.order:
            return (result,)
        whole = sorted(self.order) == list(range(len(result.shape)))
        expect(self, whole, f"order {self.order} is not one of {len(result.shape)} axes")
        return (TensorType(result.dtype, tuple(result.shape[i] for i in self.order)),)

    def _types(self, inputs: Sequence[TensorType]) -> tuple[TensorType, TensorType]:
        """Of the scores, and of the result before its axes are ordered."""
        (scores,) = MatMul(transpose_b=not self.transpose_k).infer(inputs[:2])
        (result,) = MatMul().infer([scores, inputs[2]])
        return scores, result

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        dtype = inputs[0].dtype
        # As kernels have it: 16 bits are widened, and only the result is rounded.
        wide = [a.astype(np.result_type(dtype, np.float32), copy=False) for a in inputs]
        (scores,) = MatMul(transpose_b=not self.transpose_k).reference(*wide[:2])
        scores = scores * scores.dtype.type(self.scale)
        for mask in wide[3:]:
            scores = scores + mask
        (weights,) = Softmax(scores.ndim - 1).reference(scores)
        if self.hidden:
            weights = np.where(np.isnan(weights), weights.dtype.type(0), weights)
        (result,) = MatMul().reference(weights, wide[2])
        result = finish(self.epilogue, result, (), result.dtype)
        ordered = result.transpose(self.order) if self.order else result
        return (np.ascontiguousarray(ordered, dtype=dtype).reshape(ordered.shape),)

    def work(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Work:
        # Some may be stored in bfloat16; all are computed in the same type.
        plain = [TensorType(DType.F32, one.shape) for one in inputs]
        scores, result = self._types(plain)
        each = 1 + (len(inputs) - 3)  # scale and mask
        flops = MatMul(transpose_b=not self.transpose_k).work(plain[:2], [scores]).flops
        flops += each * static_count(scores.shape)
        flops += Softmax(len(scores.shape) - 1).work([scores], [scores]).flops
        flops += MatMul().work([scores, plain[2]], [result]).flops
        flops += expr_flops(self.epilogue) * static_count(result.shape)
        return Work(flops, tensor_bytes((*inputs, *outputs)))
