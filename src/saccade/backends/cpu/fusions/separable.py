"""A depthwise convolution and the 1x1 convolution of its result, as one operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from saccade.ir.dtype import DType
from saccade.ir.op import Array, Op, TensorType, Work
from saccade.opdefs._conv_pair import pair_reference, pair_work
from saccade.opdefs._rules import expect
from saccade.opdefs.conv import Conv2d

__all__ = ["SeparableConv2d"]


@dataclass(frozen=True)
class SeparableConv2d(Op):
    """`pointwise(depthwise(x))`; the feature map between them is an eliminated intermediate.

    Operands: x [N, C, H, W], the weights of `depthwise` [C, 1, R, S], those of `pointwise`
    [K, C, 1, 1], then the epilogue operands of `depthwise`, then the epilogue and store operands of
    `pointwise`.

    Attributes:
        depthwise: A convolution with a group for each of the C channels.
        pointwise: A convolution with one tap, stride 1, no padding and one group.
        n_depthwise: How many epilogue operands `depthwise` has.
        between: What the feature map between them may be rounded to.
    """

    contracts: ClassVar[bool] = True

    depthwise: Conv2d
    pointwise: Conv2d
    n_depthwise: int
    between: DType = DType.F32

    def _infer_between(self, inputs: Sequence[TensorType]) -> TensorType:
        least = 3 + self.n_depthwise
        expect(self, len(inputs) >= least, f"takes {least} operands or more, got {len(inputs)}")
        expect(self, self.between.is_float, f"{self.between.value} between the convolutions")
        (middle,) = self.depthwise.infer([*inputs[:2], *inputs[3:least]])
        return middle

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        middle, weights = self._infer_between(inputs), inputs[2]
        one = weights.shape[2:] == (1, 1) and self.pointwise.groups == 1
        plain = self.pointwise.stride == (1, 1) and not any(self.pointwise.padding)
        expect(self, one and plain, "the second window is not 1x1 with stride 1")
        expect(self, middle.shape[1] == self.depthwise.groups, "not one filter for each channel")
        return self.pointwise.infer([middle, weights, *inputs[3 + self.n_depthwise :]])

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        return pair_reference(self.depthwise, self.pointwise, self.n_depthwise, inputs)

    def work(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Work:
        return pair_work(self.depthwise, self.pointwise, self.n_depthwise, inputs, outputs)
