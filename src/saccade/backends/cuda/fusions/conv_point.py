"""A convolution and the 1x1 convolution of its result, as one operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from saccade.ir.op import Array, Op, TensorType, Work
from saccade.opdefs import Conv2d
from saccade.opdefs._conv_pair import pair_reference, pair_types, pair_work
from saccade.opdefs._rules import expect

__all__ = ["Conv2dPoint"]


@dataclass(frozen=True)
class Conv2dPoint(Op):
    """`second(first(x))`; the feature map between them is never stored.

    Operands: x [N, C, H, W], the weights of `first` [M, C, R, S], those of `second` [K, M, 1, 1],
    then the epilogue operands of `first`, then those of `second`.

    Attributes:
        first: A convolution of one group without prologue and store.
        second: One with one tap, stride 1, no padding and one group, without prologue.
        n_first: How many epilogue operands `first` has.
    """

    contracts: ClassVar[bool] = True

    first: Conv2d
    second: Conv2d
    n_first: int

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        types = pair_types(self, self.first, self.second, self.n_first, inputs)
        expect(self, self.first.store is None, "the first convolution has a store")
        one = inputs[2].shape[2:] == (1, 1) and self.second.stride == (1, 1)
        expect(self, one and not any(self.second.padding), "the second window is not 1x1, stride 1")
        return types

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        return pair_reference(self.first, self.second, self.n_first, inputs)

    def work(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Work:
        return pair_work(self.first, self.second, self.n_first, inputs, outputs)
