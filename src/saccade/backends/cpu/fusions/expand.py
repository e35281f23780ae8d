"""A 1x1 convolution and the depthwise convolution of its result, as one operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from saccade.ir.op import Array, Op, TensorType, Work
from saccade.opdefs._conv_pair import pair_reference, pair_work
from saccade.opdefs._rules import expect
from saccade.opdefs.conv import Conv2d

__all__ = ["ExpandDepthwise"]


@dataclass(frozen=True)
class ExpandDepthwise(Op):
    """`depthwise(expand(x))`; the wide feature map between them is an eliminated intermediate.

    Operands: x [N, C, H, W], the weights of `expand` [K, C, 1, 1], those of `depthwise`
    [K, 1, R, S], then the epilogue operands of `expand`, then those of `depthwise`.

    Attributes:
        expand: A convolution with one tap, no padding and one group.
        depthwise: A convolution with a group for each of the K channels.
        n_expand: How many epilogue operands `expand` has.
    """

    contracts: ClassVar[bool] = True

    expand: Conv2d
    depthwise: Conv2d
    n_expand: int

    def _infer_wide(self, inputs: Sequence[TensorType]) -> TensorType:
        least = 3 + self.n_expand
        expect(self, len(inputs) >= least, f"takes {least} operands or more, got {len(inputs)}")
        (wide,) = self.expand.infer([*inputs[:2], *inputs[3:least]])
        return wide

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        wide = self._infer_wide(inputs)
        one = inputs[1].shape[2:] == (1, 1) and self.expand.groups == 1
        expect(self, one and not any(self.expand.padding), "the first window is not 1x1")
        expect(self, wide.shape[1] == self.depthwise.groups, "not one group for each channel")
        return self.depthwise.infer([wide, inputs[2], *inputs[3 + self.n_expand :]])

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        return pair_reference(self.expand, self.depthwise, self.n_expand, inputs)

    def work(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Work:
        return pair_work(self.expand, self.depthwise, self.n_expand, inputs, outputs)
