"""Norms over axes, and what flows back through them (PyTorch's `linalg.vector_norm`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from saccade.ir.dtype import DType
from saccade.ir.op import Array, Op, TensorType, Work
from saccade.opdefs._rules import (
    expect,
    expect_axis,
    expect_count,
    expect_float,
    static_count,
    tensor_bytes,
)
from saccade.opdefs.expr_numpy import accumulator

__all__ = ["TiedNorm", "VectorNorm", "VectorNormGrad"]

_INF = float("inf")


@dataclass(frozen=True)
class VectorNorm(Op):
    """`(Σ |x|^p)^(1/p)` over the axes. Operands: x.

    The number of elements other than 0 for p = 0, the largest magnitude for p = ∞, the smallest for
    p = -∞ (NaN where there is one). Over no elements 0, or ∞ where p is negative. Nothing is
    scaled: powers overflow and underflow.

    Attributes:
        p: A number.
        axes: Reduced axes, sorted, counted from 0.
        keepdims: Whether they stay as axes of 1.
        dtype: Element type of the result, which sums are kept in if it is float64.
    """

    p: float
    axes: tuple[int, ...]
    keepdims: bool
    dtype: DType

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(self, inputs, 1)
        x = inputs[0]
        _check(self, x)
        gone = self.axes
        if self.keepdims:
            shape = tuple(1 if axis in gone else dim for axis, dim in enumerate(x.shape))
        else:
            shape = tuple(dim for axis, dim in enumerate(x.shape) if axis not in gone)
        return (TensorType(self.dtype, shape),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        dtype = self.dtype.numpy
        wide = np.result_type(accumulator(inputs[0].dtype), accumulator(dtype))
        size = np.abs(inputs[0].astype(wide))
        axes, keep = self.axes, self.keepdims
        with np.errstate(all="ignore"):
            if self.p == 0:
                found = np.sum(size != 0, axes, keepdims=keep)
            elif abs(self.p) == _INF:
                extreme, start = (np.max, 0.0) if self.p > 0 else (np.min, _INF)
                found = extreme(size, axes, keepdims=keep, initial=start)
            else:
                found = np.sum(size**self.p, axes, keepdims=keep) ** (1 / self.p)
        return (np.asarray(found, dtype),)

    def work(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Work:
        return Work(2 * static_count(inputs[0].shape), tensor_bytes((*inputs, *outputs)))


@dataclass(frozen=True)
class TiedNorm(Op):
    """A norm that is a magnitude of x, and how many there are of it. Operands: x.

    Results: the norm, as `VectorNorm` has it, and the number of magnitudes that equal it (int32, of
    the same shape; 0 where the norm is NaN).

    Attributes:
        p: ∞ or -∞.
        axes: Reduced axes, sorted, counted from 0; one element or more lies along them.
        keepdims: Whether they stay as axes of 1.
        dtype: Element type of the norm: float64 or float32, no narrower than x.
    """

    p: float
    axes: tuple[int, ...]
    keepdims: bool
    dtype: DType

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect(self, abs(self.p) == _INF, f"a norm of {self.p:g} is no magnitude")
        (norm,) = self._norm.infer(inputs)
        wide = (DType.F32, DType.F64)
        fine = self.dtype in wide and self.dtype.itemsize >= inputs[0].dtype.itemsize
        expect(self, fine, f"magnitudes of {inputs[0].dtype} as {self.dtype}")
        return norm, TensorType(DType.I32, norm.shape)

    @property
    def _norm(self) -> VectorNorm:
        return VectorNorm(self.p, self.axes, self.keepdims, self.dtype)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        (norm,), (x,) = self._norm.reference(*inputs), inputs
        held = norm if self.keepdims else np.expand_dims(norm, self.axes)
        tied = np.abs(x.astype(norm.dtype)) == held
        return norm, np.asarray(np.sum(tied, self.axes, keepdims=self.keepdims), np.int32)

    def work(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Work:
        return Work(3 * static_count(inputs[0].shape), tensor_bytes((*inputs, *outputs)))


@dataclass(frozen=True)
class VectorNormGrad(Op):
    """What flows back to x from a norm over the axes.

    Operands: grad and norm, both of the result's shape and type, and x between them; grad may have
    x's type where that has 16 bits. For p = ±∞ perhaps the ties (`TiedNorm`), or they are counted.
    Results: of x's shape and type, with g and n for what stands in grad and norm where x went:

        p = 1             sgn(x) · g
        p = 2             x · (g / n), 0 where n = 0
        p = ±∞            sgn(x) · (g / ties) where |x| = n, else 0; so many magnitudes equal n
        p < 1             sgn(x) |x|^(p-1) · (g · n^(1-p)), 0 where x = 0
        others            sgn(x) |x|^(p-1) · (g / n^(p-1)), 0 where n = 0

    sgn(NaN) is 0, as in PyTorch.

    Attributes:
        p: A number but 0.
        axes: Axes that the norm went over, sorted, counted from 0.
        keepdims: Whether they stayed as axes of 1.
    """

    p: float
    axes: tuple[int, ...]
    keepdims: bool

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(self, inputs, 3, 4)
        expect(self, self.p != 0, "a count of elements has no gradient")
        grad, x, norm, *ties = inputs
        _check(self, x)
        forward = VectorNorm(self.p, self.axes, self.keepdims, norm.dtype)
        expect(self, forward.infer([x]) == (norm,), "x and norm do not fit each other")
        halves = norm.dtype is DType.F32 and x.dtype in (DType.F16, DType.BF16)
        fine = grad.dtype is norm.dtype or (halves and grad.dtype is x.dtype)
        expect(self, fine and grad.shape == norm.shape, "grad and norm differ in shape or type")
        if ties:
            expect(self, abs(self.p) == _INF, f"a norm of {self.p:g} has no ties")
            expect(self, ties == [TensorType(DType.I32, norm.shape)], "ties are not int32 as norm")
        return (x,)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        dtype = inputs[1].dtype
        wide = np.result_type(*(accumulator(a.dtype) for a in inputs[:3]))
        grad, x, norm, *ties = (a.astype(wide) for a in inputs)
        if not self.keepdims:
            grad, norm, *ties = (np.expand_dims(a, self.axes) for a in (grad, norm, *ties))
        with np.errstate(all="ignore"):
            return (np.asarray(self._gradient(grad, x, norm, *ties), dtype),)

    def _gradient(self, g: Array, x: Array, n: Array, ties: Array | None = None) -> Array:
        p, sign = self.p, np.where(x > 0, 1.0, np.where(x < 0, -1.0, 0.0)).astype(x.dtype)
        if p == 1:
            return np.asarray(sign * g)
        if p == 2:
            return np.asarray(x * np.where(n == 0, g * 0, g / n))
        if abs(p) == _INF:
            tied = np.abs(x) == n
            if ties is None:
                ties = np.sum(tied, self.axes, keepdims=True).astype(x.dtype)
            return np.asarray(sign * tied * (g / np.maximum(ties, 1)))
        if p < 1:
            power = np.where(x == 0, 0, sign * np.abs(x) ** (p - 1)).astype(x.dtype)
            return np.asarray(power * (g * n ** (1 - p)))
        factor = np.where(n == 0, 0, g / n ** (p - 1)).astype(x.dtype)
        return np.asarray(sign * np.abs(x) ** (p - 1) * factor)

    def work(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Work:
        return Work(3 * static_count(inputs[1].shape), tensor_bytes((*inputs, *outputs)))


def _check(op: VectorNorm | VectorNormGrad, x: TensorType) -> None:
    expect_float(op, x, "x")
    for axis in op.axes:
        expect_axis(op, axis, len(x.shape))
    expect(op, op.axes == tuple(sorted(set(op.axes))), f"axes {op.axes} are not sorted, distinct")
