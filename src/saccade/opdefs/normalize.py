"""Normalisations whose statistics come from the input itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from saccade.ir.op import Array, Op, TensorType, Work
from saccade.opdefs._rules import (
    expect,
    expect_axis,
    expect_broadcastable,
    expect_count,
    expect_float,
    expect_rank,
    expect_same_dtype,
    static_count,
    tensor_bytes,
    text,
    unify,
)
from saccade.opdefs.expr_numpy import accumulator

__all__ = ["GroupNorm", "LayerNorm", "LocalResponseNorm", "LpNormalize"]


def _standardise(x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    mean = x.mean(axis=axes, keepdims=True, dtype=x.dtype)
    centred = x - mean
    variance = np.mean(centred * centred, axis=axes, keepdims=True, dtype=x.dtype)
    return np.asarray(centred / np.sqrt(variance + x.dtype.type(epsilon)))


@dataclass(frozen=True)
class LayerNorm(Op):
    """`(x - mean) / sqrt(variance + epsilon) · scale + bias` over the axes from `axis` on.

    ONNX LayerNormalization 17. Operands: x, scale, and bias or not; both broadcastable to x.

    Attributes:
        axis: First normalised axis, counted from 0.
        epsilon: Added to the variance.
    """

    axis: int
    epsilon: float = 1e-5

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(self, inputs, 2, 3)
        x = inputs[0]
        expect_float(self, x, "x")
        expect_same_dtype(self, inputs)
        expect_axis(self, self.axis, len(x.shape))
        for operand, name in zip(inputs[1:], ("scale", "bias"), strict=False):
            expect_broadcastable(self, operand.shape, x.shape, name)
        return (x,)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        dtype = inputs[0].dtype
        x, scale, *bias = (a.astype(accumulator(dtype), copy=False) for a in inputs)
        result = _standardise(x, tuple(range(self.axis, x.ndim)), self.epsilon) * scale
        for operand in bias:
            result = result + operand
        return (result.astype(dtype, copy=False),)

    def work(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Work:
        operations = 5 + len(inputs)  # sum, centre, square and sum, scale by deviation and operands
        flops = operations * static_count(inputs[0].shape)
        return Work(flops, tensor_bytes((*inputs, *outputs)))


@dataclass(frozen=True)
class GroupNorm(Op):
    """Normalises groups of channels of each image, then scales each channel.

    ONNX GroupNormalization 21; with one channel a group InstanceNormalization.

    Operands: x [N, C, …], scale [C], bias [C].

    Attributes:
        groups: Number of groups; C of them normalise each channel by itself.
        epsilon: Added to the variance.
    """

    groups: int
    epsilon: float = 1e-5

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(self, inputs, 3)
        x = inputs[0]
        expect_float(self, x, "x")
        expect_same_dtype(self, inputs)
        expect(self, len(x.shape) >= 2, f"x must have 2 axes or more, is {text(x.shape)}")
        for operand, name in zip(inputs[1:], ("scale", "bias"), strict=True):
            expect_rank(self, operand, 1, name)
            unify(self, x.shape[1], operand.shape[0], f"channels of x and {name}")
        if isinstance(x.shape[1], int):
            fits = self.groups >= 1 and x.shape[1] % self.groups == 0
            expect(self, fits, f"{x.shape[1]} channels in {self.groups} groups")
        return (x,)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        dtype = inputs[0].dtype
        x, scale, bias = (a.astype(accumulator(dtype), copy=False) for a in inputs)
        n, c = x.shape[:2]
        inner = int(np.prod(x.shape[2:], dtype=np.int64))
        grouped = x.reshape(n, self.groups, c // self.groups, inner)
        result = _standardise(grouped, (2, 3), self.epsilon).reshape(n, c, inner)
        result = result * scale[:, None] + bias[:, None]
        return (result.reshape(x.shape).astype(dtype, copy=False),)

    def work(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Work:
        return Work(8 * static_count(inputs[0].shape), tensor_bytes((*inputs, *outputs)))


@dataclass(frozen=True)
class LocalResponseNorm(Op):
    """`x / (bias + alpha/size · Σ x²)^beta` over `size` channels around each.

    ONNX LRN 13. Operands: x [N, C, …].

    Attributes:
        size: Number of channels summed; of an even number one more lies after than before.
        alpha: Scale of the sum.
        beta: Exponent.
        bias: Added to the sum.
    """

    size: int
    alpha: float = 1e-4
    beta: float = 0.75
    bias: float = 1.0

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(self, inputs, 1)
        x = inputs[0]
        expect_float(self, x, "x")
        expect(self, len(x.shape) >= 2, f"x must have 2 axes or more, is {text(x.shape)}")
        expect(self, self.size >= 1, f"size is {self.size}")
        return (x,)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        dtype = inputs[0].dtype
        x = inputs[0].astype(accumulator(dtype), copy=False)
        before, after = (self.size - 1) // 2, self.size // 2
        squares, total = x * x, np.zeros_like(x)
        for c in range(x.shape[1]):
            total[:, c] = squares[:, max(0, c - before) : c + after + 1].sum(axis=1, dtype=x.dtype)
        scale = x.dtype.type(self.alpha / self.size)
        result = x / np.power(x.dtype.type(self.bias) + scale * total, x.dtype.type(self.beta))
        return (result.astype(dtype, copy=False),)

    def work(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Work:
        operations = self.size + 5
        return Work(operations * static_count(inputs[0].shape), tensor_bytes((*inputs, *outputs)))


@dataclass(frozen=True)
class LpNormalize(Op):
    """Every element over the p-norm of its row; ONNX LpNormalization 1 and 22. Operands: x.

    A row of zeros stays one.

    Attributes:
        axis: Along which rows lie, counted from 0.
        p: 1 (sum of magnitudes) or 2 (root of the sum of squares).
    """

    axis: int
    p: int = 2

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(self, inputs, 1)
        expect_float(self, inputs[0], "x")
        expect_axis(self, self.axis, len(inputs[0].shape))
        expect(self, self.p in (1, 2), f"p is {self.p}, neither 1 nor 2")
        return (inputs[0],)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        dtype = inputs[0].dtype
        x = inputs[0].astype(accumulator(dtype), copy=False)
        if self.p == 1:
            norm = np.abs(x).sum(self.axis, keepdims=True, dtype=x.dtype)
        else:
            norm = np.sqrt((x * x).sum(self.axis, keepdims=True, dtype=x.dtype))
        result = x / np.where(norm == 0, x.dtype.type(1), norm)
        return (result.astype(dtype, copy=False),)

    def work(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Work:
        return Work(3 * static_count(inputs[0].shape), tensor_bytes((*inputs, *outputs)))
