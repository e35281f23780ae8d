"""Deformable convolution, versions 1 and 2 (ONNX DeformConv 19 and 22), and its gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from saccade.ir.dim import Dim, add, floordiv, mul, sub
from saccade.ir.dtype import DType
from saccade.ir.op import Array, Op, TensorType, Work
from saccade.opdefs._deform_numpy import DeformSamples, grouped
from saccade.opdefs._rules import (
    expect,
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

__all__ = ["DeformConv", "DeformConvGradient", "DeformGeometry"]

_PER_SAMPLE = 12  # operations to sample an element, or to spread its gradient


@dataclass(frozen=True)
class DeformGeometry(Op):
    """What forward and backward share.

    Attributes:
        stride: Distance of windows, rows then columns.
        padding: Around the image: top, left, bottom, right.
        dilation: Distance of taps.
        groups: Groups of channels that are convolved by themselves.
        offset_groups: Groups of channels that have offsets of their own.
    """

    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    offset_groups: int = 1

    def results(self, x: TensorType, weight: TensorType) -> tuple[Dim, Dim]:
        """Rows and columns of the result."""
        sizes = []
        for axis in (0, 1):
            taps = weight.shape[2 + axis]
            assert isinstance(taps, int)
            reach = (taps - 1) * self.dilation[axis] + 1
            span = sub(add(x.shape[2 + axis], self.padding[axis] + self.padding[axis + 2]), reach)
            sizes.append(add(floordiv(span, self.stride[axis]), 1))
        return sizes[0], sizes[1]

    def _check(
        self, x: TensorType, weight: TensorType, offset: TensorType, mask: TensorType | None
    ) -> tuple[Dim, ...]:
        """The result's shape."""
        for operand, name in ((x, "x"), (weight, "the weights"), (offset, "offset")):
            expect_rank(self, operand, 4, name)
            expect_float(self, operand, name)
        expect_same_dtype(self, (x, weight))
        positive = min(*self.stride, *self.dilation, self.groups, self.offset_groups) >= 1
        expect(self, positive, "strides, dilations and groups must be positive")
        taps = weight.shape[2:]
        known = all(isinstance(t, int) and t >= 1 for t in taps)
        expect(self, known, f"the window {text(taps)} is not known")
        outputs = weight.shape[0]
        assert isinstance(outputs, int)
        total = mul(weight.shape[1], self.groups)
        channels = unify(self, x.shape[1], total, "the number of channels")
        expect(self, outputs % self.groups == 0, f"{outputs} channels in {self.groups} groups")
        shared = isinstance(channels, int) and channels % self.offset_groups == 0
        expect(self, shared, f"{channels} channels in {self.offset_groups} offset groups")
        size, count = self.results(x, weight), self.offset_groups * static_count(taps)
        self._check_plan(offset, "offset", (x.shape[0], 2 * count, *size))
        if mask is not None:
            expect_float(self, mask, "mask")
            self._check_plan(mask, "mask", (x.shape[0], count, *size))
        return (x.shape[0], outputs, *size)

    def _check_plan(self, operand: TensorType, name: str, wanted: tuple[Dim, ...]) -> None:
        expect_rank(self, operand, 4, name)
        for axis, (have, want) in enumerate(zip(operand.shape, wanted, strict=True)):
            unify(self, have, want, f"axis {axis} of {name}")

    def samples(self, x: Array, weight: Array, offset: Array, mask: Array | None) -> DeformSamples:
        """Where x is sampled, in the precision of its sums."""
        wide = accumulator(x.dtype)
        padding = (self.padding[0], self.padding[1])
        steps = (self.stride, padding, self.dilation)
        size, kernel = (x.shape[2], x.shape[3]), (weight.shape[2], weight.shape[3])
        factors = None if mask is None else mask.astype(wide)
        return DeformSamples.of(offset.astype(wide), factors, size, kernel, steps)

    def _products(self, weight: Array, columns: Array) -> Array:
        """[N, C, taps, P, Q] times the weights."""
        g = self.groups
        flat = grouped(weight.reshape(*weight.shape[:2], -1), g, 0)
        parts = grouped(columns, g, 1)
        result: Array = np.einsum("gock,ngckpq->ngopq", flat, parts, optimize=True)
        return result.reshape(columns.shape[0], weight.shape[0], *columns.shape[3:])


@dataclass(frozen=True)
class DeformConv(DeformGeometry):
    """Convolution of samples between the pixels, at places that are given for each.

    `y[n, o, p, q] = bias[o] + Σ w[o, c, i, j] · mask · x[n, c, row, column]`, where row and column
    are those of tap (i, j) plus an offset, and x between pixels is interpolated from four of them.
    What lies outside is 0.

    Operands: x [N, C, H, W], weights [O, C/groups, kh, kw], offset [N, 2·G·kh·kw, P, Q] with
    channels (offset group, tap, row or column), then the bias [O] and the mask [N, G·kh·kw, P, Q]
    where there are.

    Attributes:
        bias: Whether there is one.
        mask: Whether there is one; else it is 1.
    """

    bias: bool = False
    mask: bool = False

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(self, inputs, 3 + self.bias + self.mask)
        x, weight, offset, *rest = inputs
        shape = self._check(x, weight, offset, rest[-1] if self.mask else None)
        if self.bias:
            expect_rank(self, rest[0], 1, "bias")
            unify(self, rest[0].shape[0], shape[1], "the bias")
            expect_same_dtype(self, (x, rest[0]))
        return (TensorType(x.dtype, shape),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        x, weight, offset, *rest = inputs
        wide = accumulator(x.dtype)
        samples = self.samples(x, weight, offset, rest[-1] if self.mask else None)
        y = self._products(weight.astype(wide), samples.columns(x.astype(wide)))
        if self.bias:
            y = y + rest[0].astype(wide)[:, None, None]
        return (y.astype(x.dtype),)

    def work(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Work:
        x, weight = inputs[:2]
        taps, results = static_count(weight.shape[2:]), static_count(outputs[0].shape)
        pixels = static_count((outputs[0].shape[0], *outputs[0].shape[2:]))
        samples = taps * pixels * static_count((x.shape[1],))
        flops = 2 * taps * results * static_count((weight.shape[1],)) + _PER_SAMPLE * samples
        return Work(flops, tensor_bytes((*inputs, *outputs)))


@dataclass(frozen=True)
class DeformConvGradient(DeformGeometry):
    """Gradients of `DeformConv`, those that are wanted, in the order of `WANTED`.

    Operands: the result's gradient [N, O, P, Q], x, weights, offset, and the mask where there is
    one. A sample's derivative by its place is that of the cell below and to the right of it.

    Attributes:
        mask: Whether there is one.
        wanted: Names among `WANTED`.
    """

    mask: bool = False
    wanted: tuple[str, ...] = ()

    WANTED = ("x", "weight", "offset", "bias", "mask")

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(self, inputs, 4 + self.mask)
        grad, x, weight, offset, *rest = inputs
        shape = self._check(x, weight, offset, rest[0] if self.mask else None)
        expect_same_dtype(self, (grad, x))
        for have, want in zip(grad.shape, shape, strict=True):
            unify(self, have, want, "the result's gradient")
        ordered = tuple(name for name in self.WANTED if name in self.wanted)
        expect(self, ordered == self.wanted, f"gradients {self.wanted}")
        expect(self, self.mask or "mask" not in self.wanted, "there is no mask")
        bias = TensorType(x.dtype, (weight.shape[0],))
        types = dict(zip(self.WANTED, (x, weight, offset, bias, *rest), strict=False))
        return tuple(types[name] for name in self.wanted)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        wide = accumulator(inputs[1].dtype)
        grad, x, weight = (a.astype(wide) for a in inputs[:3])
        offset, mask = inputs[3], inputs[4] if self.mask else None
        samples = self.samples(inputs[1], weight, offset, mask)
        g = self.groups
        parts, flat = grouped(grad, g, 1), grouped(weight.reshape(*weight.shape[:2], -1), g, 0)
        gradient = np.einsum("gock,ngopq->ngckpq", flat, parts, optimize=True)
        gradient = gradient.reshape(x.shape[0], x.shape[1], *gradient.shape[3:])
        down, right, plain = samples.slopes(x, gradient)
        columns = grouped(samples.columns(x), g, 1)
        found = {
            "x": samples.scatter(gradient, (x.shape[2], x.shape[3])),
            "weight": np.einsum("ngopq,ngckpq->gock", parts, columns, optimize=True),
            "offset": np.stack([down, right], 3),
            "bias": grad.sum((0, 2, 3)),
            "mask": plain,
        }
        types = [TensorType(DType.of(a.dtype), a.shape) for a in inputs]
        return tuple(
            found[name].reshape(t.shape).astype(t.dtype.numpy)
            for name, t in zip(self.wanted, self.infer(types), strict=True)
        )

    def work(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Work:
        grad, x, weight = inputs[:3]
        taps = static_count(weight.shape[2:])
        pixels = static_count((grad.shape[0], *grad.shape[2:]))
        samples = taps * pixels * static_count((x.shape[1],))
        product = 2 * taps * static_count(grad.shape) * static_count((weight.shape[1],))
        columns = bool({"x", "offset", "mask"} & set(self.wanted))
        spread = _PER_SAMPLE * samples
        flops = (columns + ("weight" in self.wanted)) * (product + spread)
        return Work(flops, tensor_bytes((*inputs, *outputs)))
