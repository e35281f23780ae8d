"""A sub-pixel convolution and the convolution of the image that it gives, as one operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from saccade.ir.op import Array, Op, TensorType, Work
from saccade.opdefs import Conv2d, DepthToSpaceStore
from saccade.opdefs._conv_pair import pair_reference, pair_types, pair_work
from saccade.opdefs._rules import expect

__all__ = ["Conv2dSubPixel"]


@dataclass(frozen=True)
class Conv2dSubPixel(Op):
    """`second(first(x))`, where `first` stores its channels as pixels; that image is never stored.

    Operands: x [N, C, H, W], the weights of `first` [M·b·b, C, R, S], those of `second`
    [K, M, R2, S2], then the epilogue operands of `first`, then those of `second`.

    Attributes:
        first: A convolution of one group without prologue, whose store is a `DepthToSpaceStore`.
        second: One of one group without prologue and store.
        n_first: How many epilogue operands `first` has.
    """

    contracts: ClassVar[bool] = True

    first: Conv2d
    second: Conv2d
    n_first: int

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        pixels = isinstance(self.first.store, DepthToSpaceStore)
        expect(self, pixels, "the first convolution does not store channels as pixels")
        expect(self, self.second.store is None, "the second convolution has a store")
        return pair_types(self, self.first, self.second, self.n_first, inputs)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        return pair_reference(self.first, self.second, self.n_first, inputs)

    def work(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Work:
        return pair_work(self.first, self.second, self.n_first, inputs, outputs)
