"""Squeeze-and-excite blocks: sums of a feature map where it is made, and the gates that follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from saccade.backends.cpu.fusions.expand import ExpandDepthwise
from saccade.ir.dim import Dim
from saccade.ir.op import Array, Op, TensorType, Work
from saccade.opdefs._rules import expect, expect_rank, static_count, tensor_bytes
from saccade.opdefs.conv import Conv2d

__all__ = ["Excite", "RowSums"]


@dataclass(frozen=True)
class RowSums(Op):
    """A convolution's result [N, K, P, Q], and the sums of its rows [N, K, P, 1].

    Operands: those of the convolution. Sums are of what it computes, before that is rounded to
    where it is stored.

    Attributes:
        conv: The convolution, without a store map.
    """

    conv: Conv2d | ExpandDepthwise

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        last = self.conv.depthwise if isinstance(self.conv, ExpandDepthwise) else self.conv
        expect(self, last.store is None, "the convolution has a store map")
        (y,) = self.conv.infer(inputs)
        return y, TensorType(y.dtype, (*y.shape[:3], 1))

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        (y,) = self.conv.reference(*inputs)
        return y, y.sum(axis=3, keepdims=True, dtype=y.dtype)

    def work(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Work:
        conv = self.conv.work(inputs, outputs[:1])
        added = static_count(outputs[0].shape)
        return Work(conv.flops + added, conv.bytes + tensor_bytes(outputs[1:]))


@dataclass(frozen=True)
class Excite(Op):
    """`excite(squeeze(Σ x / count))`: the gates of channels. What lies between is eliminated.

    Operands: x [N, C, P, Q], the weights of `squeeze` [K, C, 1, 1], those of `excite`
    [M, K, 1, 1], then the epilogue operands of `squeeze`, then those of `excite`. The result is
    [N, M, 1, 1].

    Attributes:
        count: What the sum over all pixels of x is divided by.
        squeeze: A convolution with one tap, no padding and one group.
        excite: Another one.
        n_squeeze: How many epilogue operands `squeeze` has.
    """

    count: Dim
    squeeze: Conv2d
    excite: Conv2d
    n_squeeze: int

    _dim_fields = frozenset({"count"})

    def _means(self, inputs: Sequence[TensorType]) -> TensorType:
        least = 3 + self.n_squeeze
        expect(self, len(inputs) >= least, f"takes {least} operands or more, got {len(inputs)}")
        if isinstance(self.count, int):
            expect(self, self.count >= 1, f"divides by {self.count}")
        expect_rank(self, inputs[0], 4, "x")
        return TensorType(inputs[0].dtype, (*inputs[0].shape[:2], 1, 1))

    def _hidden(self, inputs: Sequence[TensorType]) -> TensorType:
        means, end = self._means(inputs), 3 + self.n_squeeze
        for conv, w in ((self.squeeze, inputs[1]), (self.excite, inputs[2])):
            one = w.shape[2:] == (1, 1) and conv.groups == 1 and conv.stride == (1, 1)
            expect(self, one and not any(conv.padding), "a window is not 1x1")
        (hidden,) = self.squeeze.infer([means, inputs[1], *inputs[3:end]])
        return hidden

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        hidden = self._hidden(inputs)
        return self.excite.infer([hidden, inputs[2], *inputs[3 + self.n_squeeze :]])

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        end = 3 + self.n_squeeze
        x = inputs[0]
        sums = x.sum(axis=(2, 3), keepdims=True, dtype=np.result_type(x.dtype, np.float32))
        means = (sums / static_count((self.count,))).astype(x.dtype)
        (hidden,) = self.squeeze.reference(means, inputs[1], *inputs[3:end])
        return self.excite.reference(hidden, inputs[2], *inputs[end:])

    def work(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Work:
        # Some may be stored in bfloat16; all are computed in the same type.
        plain = [TensorType(one.dtype.arithmetic, one.shape) for one in inputs]
        means, hidden, end = self._means(plain), self._hidden(plain), 3 + self.n_squeeze
        first = self.squeeze.work([means, plain[1], *plain[3:end]], [hidden])
        second = self.excite.work([hidden, plain[2], *plain[end:]], outputs)
        flops = static_count(inputs[0].shape) + first.flops + second.flops
        return Work(flops, tensor_bytes((*inputs, *outputs)))
