"""Reductions and scans along axes (ONNX Reduce*, ArgMax, ArgMin, Softmax, LogSoftmax, CumSum)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from saccade.ir.dim import Dim
from saccade.ir.dtype import DType
from saccade.ir.expr import IDENTITY, Expr
from saccade.ir.op import Array, Op, TensorType, Work
from saccade.opdefs import _reduce_numpy
from saccade.opdefs._rules import (
    expect,
    expect_axis,
    expect_count,
    expect_epilogue,
    expect_float,
    static_count,
    tensor_bytes,
)
from saccade.opdefs._taps import expr_flops
from saccade.opdefs.expr_numpy import accumulator, finish

__all__ = ["ArgReduce", "CumSum", "Reduce", "Softmax"]

_OPERATIONS = {
    "sum": 1,
    "mean": 1,
    "max": 1,
    "min": 1,
    "prod": 1,
    "l1": 2,
    "l2": 2,
    "sum_square": 2,
    "log_sum": 1,
    "log_sum_exp": 2,
}
"""Kinds of reduction and operations per element."""


def _reduced(shape: tuple[Dim, ...], axes: tuple[int, ...], keepdims: bool) -> tuple[Dim, ...]:
    if keepdims:
        return tuple(1 if axis in axes else dim for axis, dim in enumerate(shape))
    return tuple(dim for axis, dim in enumerate(shape) if axis not in axes)


@dataclass(frozen=True)
class Reduce(Op):
    """One number for all elements along the axes.

    Operands: x, then epilogue operands (broadcastable to the result). Over no elements a sum is 0,
    a product 1, a maximum the least and a minimum the largest value of the type (infinite for
    floats). Integer means truncate.

    Attributes:
        kind: "sum", "mean", "max", "min", "prod", "l1", "l2", "sum_square", "log_sum" or
            "log_sum_exp".
        axes: Reduced axes, sorted, counted from 0.
        keepdims: Whether they stay as axes of 1.
        epilogue: Applied to every result `$0`; `$1…` are the epilogue operands.
    """

    kind: str
    axes: tuple[int, ...]
    keepdims: bool = True
    epilogue: Expr = IDENTITY

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect(self, len(inputs) >= 1, "takes an operand")
        x = inputs[0]
        expect(self, self.kind in _OPERATIONS, f"kind {self.kind!r}")
        ordered = self.axes == tuple(sorted(set(self.axes)))
        expect(self, ordered, f"axes {self.axes} are not sorted and distinct")
        for axis in self.axes:
            expect_axis(self, axis, len(x.shape))
        if self.kind.startswith("log"):
            expect_float(self, x, "x")
        if self.kind not in ("max", "min"):
            expect(self, x.dtype is not DType.BOOL, "x is bool")
        result = TensorType(x.dtype, _reduced(x.shape, self.axes, self.keepdims))
        expect_epilogue(self, self.epilogue, inputs[1:], result)
        return (result,)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        x = inputs[0].astype(accumulator(inputs[0].dtype), copy=False)
        result = _reduce_numpy.reduce(self.kind, x, self.axes, self.keepdims)
        return (finish(self.epilogue, result, inputs[1:], inputs[0].dtype),)

    def work(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Work:
        flops = _OPERATIONS[self.kind] * static_count(inputs[0].shape)
        flops += expr_flops(self.epilogue) * static_count(outputs[0].shape)
        return Work(flops, tensor_bytes((*inputs, *outputs)))


@dataclass(frozen=True)
class ArgReduce(Op):
    """Where along an axis the largest or smallest element stands, as int64.

    Operands: x; where `counted` is set int64 [1], how many elements along the axis are true: the
    others are not looked at, and of none the place may be any within the axis.

    Attributes:
        kind: "argmax" or "argmin".
        axis: The reduced axis, counted from 0.
        keepdims: Whether it stays as an axis of 1.
        select_last: Of equal elements the last, not the first.
        counted: Whether there is a number of elements.
    """

    kind: str
    axis: int
    keepdims: bool = True
    select_last: bool = False
    counted: bool = False

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(self, inputs, 1 + self.counted)
        if self.counted:
            number = inputs[1] == TensorType(DType.I64, (1,))
            expect(self, number, "a number of elements must be int64 [1]")
        shape = inputs[0].shape
        expect(self, self.kind in ("argmax", "argmin"), f"kind {self.kind!r}")
        expect_axis(self, self.axis, len(shape))
        expect(self, shape[self.axis] != 0, f"axis {self.axis} is empty")
        return (TensorType(DType.I64, _reduced(shape, (self.axis,), self.keepdims)),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        x = inputs[0]
        if self.counted:
            true = min(max(1, int(inputs[1][0])), x.shape[self.axis])
            x = np.take(x, range(true), self.axis)
        x = np.flip(x, self.axis) if self.select_last else x
        find = np.argmax if self.kind == "argmax" else np.argmin
        at = np.asarray(find(x, axis=self.axis, keepdims=self.keepdims), dtype=np.int64)
        return (x.shape[self.axis] - 1 - at if self.select_last else at,)

    def work(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Work:
        return Work(static_count(inputs[0].shape), tensor_bytes((*inputs, *outputs)))


@dataclass(frozen=True)
class Softmax(Op):
    """`exp(x) / Σ exp(x)` along an axis, or its logarithm, safe from overflow. Operands: x.

    Attributes:
        axis: The axis, counted from 0.
        log: Whether to give the logarithm.
    """

    axis: int
    log: bool = False

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(self, inputs, 1)
        expect_float(self, inputs[0], "x")
        expect_axis(self, self.axis, len(inputs[0].shape))
        return (inputs[0],)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        x = inputs[0].astype(accumulator(inputs[0].dtype), copy=False)
        result = _reduce_numpy.softmax(x, self.axis, self.log)
        return (result.astype(inputs[0].dtype, copy=False),)

    def work(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Work:
        return Work(5 * static_count(inputs[0].shape), tensor_bytes((*inputs, *outputs)))


@dataclass(frozen=True)
class CumSum(Op):
    """Running sums, or products, along an axis. Operands: x.

    Attributes:
        axis: The axis, counted from 0.
        exclusive: Whether a sum leaves out its own element.
        reverse: Whether sums run from the end.
        product: Whether elements are multiplied, not added.
    """

    axis: int
    exclusive: bool = False
    reverse: bool = False
    product: bool = False

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(self, inputs, 1)
        expect(self, inputs[0].dtype is not DType.BOOL, "x is bool")
        expect_axis(self, self.axis, len(inputs[0].shape))
        return (inputs[0],)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        dtype = inputs[0].dtype
        x = np.moveaxis(inputs[0].astype(accumulator(dtype)), self.axis, -1)
        x = x[..., ::-1] if self.reverse else x
        run = np.cumprod if self.product else np.cumsum
        sums = run(x, axis=-1, dtype=x.dtype)
        if self.exclusive:
            first = np.full((*x.shape[:-1], min(1, x.shape[-1])), self.product, x.dtype)
            sums = np.concatenate([first, sums[..., :-1]], axis=-1)
        sums = sums[..., ::-1] if self.reverse else sums
        return (np.ascontiguousarray(np.moveaxis(sums, -1, self.axis), dtype=dtype),)

    def work(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Work:
        return Work(static_count(inputs[0].shape), tensor_bytes((*inputs, *outputs)))
