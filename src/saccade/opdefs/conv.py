"""Convolutions over images, with what is fused into their loads and stores.

`y[n,k,p,q] = Σ_c,r,s x'[n, c, p·stride + r·dilation - pad, …] · w[k,c,r,s]`, x' being zero outside
the image (ONNX Conv, ConvTranspose).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from saccade.ir.dim import Dim, add, floordiv, mul, sub
from saccade.ir.expr import IDENTITY, Expr
from saccade.ir.op import Array, Op, TensorType, Work
from saccade.opdefs import _conv_numpy
from saccade.opdefs._rules import (
    differ,
    expect,
    expect_broadcastable,
    expect_epilogue,
    expect_float,
    expect_rank,
    expect_same_dtype,
    refuse,
    static_count,
    tensor_bytes,
    text,
    unify,
)
from saccade.opdefs._store_maps import DepthToSpaceStore, InterleaveStore, StoreMap
from saccade.opdefs._taps import AxisWindows, expr_flops

__all__ = ["Conv2d", "ConvTranspose2d"]


def _expect_window(op: Conv2d | ConvTranspose2d) -> None:
    expect(
        op, min(op.stride) >= 1 and min(op.dilation) >= 1, "stride and dilation must be positive"
    )
    expect(op, min(op.padding) >= 0, f"padding {op.padding} is negative; crop instead")
    expect(op, op.groups >= 1, f"groups is {op.groups}")


def _taps(op: Conv2d | ConvTranspose2d, taps: int, axis: int) -> AxisWindows:
    return AxisWindows(taps, op.stride[axis], op.padding[axis], op.dilation[axis])


@dataclass(frozen=True)
class Conv2d(Op):
    """Convolution.

    Operands: x [N, C, H, W], w [K, C/groups, R, S], then `n_prologue` prologue operands
    ([1, C, 1, 1] or [N, C, 1, 1]), then epilogue operands (broadcastable to [N, K, P, Q]), then the
    operands of the store map.

    Attributes:
        stride: Distance of windows, rows then columns.
        padding: Zeros around the image: top, left, bottom, right; none negative.
        dilation: Distance of taps.
        groups: Groups of channels.
        prologue: Applied to every loaded element `$0`, before the zero padding (which stays 0).
        n_prologue: How many operands `$1…` the prologue has.
        epilogue: Applied to every sum `$0`; `$1…` are the epilogue operands.
        store: Where the result's elements go; None leaves [N, K, P, Q].
        finite: Whether all weights are known to be finite, or taken to be: products with zero may
            be left out or added. Where not, padding is a Pad's (`passes/keep_infinities.py`).
        integral: Whether all products and sums are integers that float32 holds, and are to be
            exact: no algorithm may compute with fractions of them.
    """

    contracts: ClassVar[bool] = True

    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    prologue: Expr = IDENTITY
    n_prologue: int = 0
    epilogue: Expr = IDENTITY
    store: StoreMap | None = None
    finite: bool = True
    integral: bool = False

    @property
    def n_store(self) -> int:
        """How many of the last operands belong to the store map."""
        return self.store.parts - 1 if isinstance(self.store, InterleaveStore) else 0

    def sum_shape(self, x: tuple[Dim, ...], w: tuple[Dim, ...]) -> tuple[Dim, ...]:
        """[N, K, P, Q], the shape before the store map, of operands that fit."""
        return (x[0], w[0], *(self._windows(x[2 + axis], w[2 + axis], axis) for axis in (0, 1)))

    def _windows(self, size: Dim, taps: Dim, axis: int) -> Dim:
        around = self.padding[axis] + self.padding[axis + 2]
        if isinstance(size, int) and isinstance(taps, int):
            # Planning asks for every layer: the same without the arithmetic of dims.
            room = size + around - (taps - 1) * self.dilation[axis] - 1
            if room >= 0:
                return room // self.stride[axis] + 1
        reach = add(mul(sub(taps, 1), self.dilation[axis]), 1)
        span = sub(add(size, around), reach)
        if isinstance(span, int) and span < 0:
            where = "rows" if axis == 0 else "columns"
            refuse(self, f"{size} {where} and padding are less than the window of {reach}")
        return add(floordiv(span, self.stride[axis]), 1)

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        least = 2 + self.n_prologue + self.n_store
        expect(self, len(inputs) >= least, f"takes {least} operands or more, got {len(inputs)}")
        x, w = inputs[:2]
        _expect_window(self)
        for operand, name in ((x, "x"), (w, "w")):
            expect_rank(self, operand, 4, name)
            expect_float(self, operand, name)
        expect_same_dtype(self, (x, w))
        unify(self, x.shape[1], mul(w.shape[1], self.groups), "the number of input channels")
        if isinstance(w.shape[0], int):
            fits = w.shape[0] % self.groups == 0
            expect(self, fits, f"{w.shape[0]} channels in {self.groups} groups")
        self._expect_prologue(x, inputs[2 : 2 + self.n_prologue])
        result = TensorType(x.dtype, self.sum_shape(x.shape, w.shape))
        end = len(inputs) - self.n_store
        expect_epilogue(self, self.epilogue, inputs[2 + self.n_prologue : end], result)
        return (TensorType(x.dtype, self._stored(result, inputs[end:])),)

    def _expect_prologue(self, x: TensorType, operands: Sequence[TensorType]) -> None:
        enough = self.prologue.operands <= 1 + len(operands)
        expect(self, enough, f"prologue {self.prologue} lacks operands: {len(operands)} given")
        target = (x.shape[0], x.shape[1], 1, 1)
        name = "an operand of what is fused before it"
        for operand in operands:
            expect_same_dtype(self, (x, operand))
            expect_rank(self, operand, 4, name)
            expect_broadcastable(self, operand.shape, target, name)
            full = not differ(operand.shape[1], x.shape[1])
            expect(self, full, f"{name} {text(operand.shape)} does not name every channel")

    def _stored(self, result: TensorType, operands: Sequence[TensorType]) -> tuple[Dim, ...]:
        n, k, p, q = result.shape
        if isinstance(self.store, DepthToSpaceStore):
            area = self.store.block**2
            expect(self, self.store.mode in ("DCR", "CRD"), f"store mode {self.store.mode!r}")
            fits = not isinstance(k, int) or k % area == 0
            expect(self, fits, f"{k} channels do not make blocks of {area} pixels")
            return n, floordiv(k, area), mul(p, self.store.block), mul(q, self.store.block)
        if isinstance(self.store, InterleaveStore):
            inside = 0 <= self.store.position < self.store.parts
            expect(self, inside, f"part {self.store.position} of {self.store.parts}")
            for operand in operands:
                expect_same_dtype(self, (result, operand))
                expect_rank(self, operand, 4, "a part")
                for have, want in zip(operand.shape, result.shape, strict=True):
                    unify(self, want, have, "a dim of the parts")
            return n, mul(k, self.store.parts), p, q
        return result.shape

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        return (_conv_numpy.conv2d(self, inputs),)

    def work(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Work:
        x, w = inputs[0].shape, inputs[1].shape
        sums = self.sum_shape(x, w)
        macs = static_count((sums[0], *w[:2]))
        for axis in (0, 1):
            windows = _taps(self, static_count((w[2 + axis],)), axis)
            macs *= windows.total(static_count((x[2 + axis],)), static_count((sums[2 + axis],)))
        flops = 2 * macs + expr_flops(self.prologue) * static_count(x)
        flops += expr_flops(self.epilogue) * static_count(sums)
        return Work(flops, tensor_bytes((*inputs, *outputs)))


@dataclass(frozen=True)
class ConvTranspose2d(Op):
    """Transposed convolution: the gradient of a convolution with respect to its input.

    Operands: x [N, C, H, W], w [C, K/groups, R, S], then epilogue operands (broadcastable to
    [N, K, P, Q]).

    Attributes:
        stride: Distance of the pixels of x in the result.
        padding: Rows and columns cut off the result: top, left, bottom, right.
        output_padding: Rows and columns added at the bottom and the right.
        dilation: Distance of taps.
        groups: Groups of channels.
        epilogue: Applied to every sum `$0`; `$1…` are the epilogue operands.
        finite: As for `Conv2d`; there is no padding, and no product beside those of x.
    """

    contracts: ClassVar[bool] = True

    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    output_padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    epilogue: Expr = IDENTITY
    finite: bool = True

    def _size(self, size: Dim, taps: Dim, axis: int) -> Dim:
        reach = add(mul(sub(taps, 1), self.dilation[axis]), 1 + self.output_padding[axis])
        spread = add(mul(sub(size, 1), self.stride[axis]), reach)
        result = sub(spread, self.padding[axis] + self.padding[axis + 2])
        if isinstance(result, int):
            expect(self, result >= 0, f"padding {self.padding} cuts off more than there is")
        return result

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect(self, len(inputs) >= 2, f"takes 2 operands or more, got {len(inputs)}")
        x, w = inputs[:2]
        _expect_window(self)
        expect(self, min(self.output_padding) >= 0, "output padding is negative")
        for operand, name in ((x, "x"), (w, "w")):
            expect_rank(self, operand, 4, name)
            expect_float(self, operand, name)
        expect_same_dtype(self, (x, w))
        channels = unify(self, x.shape[1], w.shape[0], "the number of input channels")
        if isinstance(channels, int):
            fits = channels % self.groups == 0
            expect(self, fits, f"{channels} channels in {self.groups} groups")
        k = mul(w.shape[1], self.groups)
        sizes = (self._size(x.shape[2 + axis], w.shape[2 + axis], axis) for axis in (0, 1))
        result = TensorType(x.dtype, (x.shape[0], k, *sizes))
        expect_epilogue(self, self.epilogue, inputs[2:], result)
        return (result,)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        return (_conv_numpy.conv_transpose2d(self, inputs),)

    def work(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Work:
        x, w, y = inputs[0].shape, inputs[1].shape, outputs[0].shape
        macs = static_count((x[0], *w[:2]))
        for axis in (0, 1):
            windows = _taps(self, static_count((w[2 + axis],)), axis)
            macs *= windows.total(static_count((y[2 + axis],)), static_count((x[2 + axis],)))
        flops = 2 * macs + expr_flops(self.epilogue) * static_count(y)
        return Work(flops, tensor_bytes((*inputs, *outputs)))
