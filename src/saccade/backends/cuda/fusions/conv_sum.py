"""The sum of two convolutions as one operator: the first one's result is never stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from saccade.ir.expr import IDENTITY
from saccade.ir.op import Array, Op, TensorType, Work
from saccade.opdefs import Conv2d
from saccade.opdefs._rules import expect, static_count, tensor_bytes, unify
from saccade.opdefs._taps import expr_flops
from saccade.opdefs.expr_numpy import accumulator, finish

__all__ = ["Conv2dSum"]


@dataclass(frozen=True)
class Conv2dSum(Op):
    """`epilogue(first(x, w) + second(x2, w2))`: the end of a residual block with a projection.

    Operands: x [N, C, H, W], w [K, C, R, S], x2 [N, C2, H2, W2], w2 [K, C2, 1, 1], then the
    epilogue operands (broadcastable to [N, K, P, Q]). He et al., Deep residual learning (2016).

    Attributes:
        first: A convolution of one group without prologue and store; its epilogue is the whole's,
            and `$0` there is the sum of both.
        second: A plain one with one tap and no padding.
    """

    contracts: ClassVar[bool] = True

    first: Conv2d
    second: Conv2d

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect(self, len(inputs) >= 4, f"takes 4 operands or more, got {len(inputs)}")
        plain = self.first.groups == 1 and self.first.prologue == IDENTITY
        expect(self, plain and self.first.store is None, "the first convolution is not plain")
        expect(self, self.second == Conv2d(stride=self.second.stride), "the second is not plain")
        expect(self, inputs[3].shape[2:] == (1, 1), "the second window is not 1x1")
        (result,) = self.first.infer([*inputs[:2], *inputs[4:]])
        (other,) = self.second.infer(inputs[2:4])
        for have, want in zip(other.shape, result.shape, strict=True):
            unify(self, want, have, "a dim of the two sums")
        return (result,)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        dtype = inputs[0].dtype
        # As kernels have it: sums are kept in the accumulator's type, only the result is rounded.
        wide = [operand.astype(accumulator(dtype), copy=False) for operand in inputs[:4]]
        (sums,) = replace(self.first, epilogue=IDENTITY).reference(*wide[:2])
        (others,) = self.second.reference(*wide[2:])
        return (finish(self.first.epilogue, sums + others, inputs[4:], dtype),)

    def work(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Work:
        # Some may be stored in bfloat16; all are computed in the same type.
        plain = [TensorType(one.dtype.arithmetic, one.shape) for one in inputs]
        flops = replace(self.first, epilogue=IDENTITY).work(plain[:2], outputs).flops
        flops += self.second.work(plain[2:4], outputs).flops
        each = 1 + expr_flops(self.first.epilogue)
        return Work(
            flops + each * static_count(outputs[0].shape), tensor_bytes((*inputs, *outputs))
        )
