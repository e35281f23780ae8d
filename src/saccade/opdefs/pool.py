"""Pooling over windows of images (ONNX MaxPool and AveragePool, operator versions 22)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from saccade.ir.dim import Dim, add, ceildiv, floordiv, minimum, sub
from saccade.ir.dtype import DType
from saccade.ir.expr import IDENTITY, Expr
from saccade.ir.op import Array, Op, TensorType, Work
from saccade.opdefs._rules import (
    expect,
    expect_epilogue,
    expect_float,
    expect_rank,
    static_count,
    tensor_bytes,
)
from saccade.opdefs._taps import AxisWindows, expr_flops
from saccade.opdefs.expr_numpy import accumulator, finish

__all__ = ["Pool2d"]


@dataclass(frozen=True)
class Pool2d(Op):
    """Largest element or mean of every window.

    Operands: x [N, C, H, W], then epilogue operands (broadcastable to the result [N, C, P, Q]).

    Attributes:
        kind: "max" (padding never wins) or "average".
        kernel: Taps of the window, rows then columns.
        stride: Distance of windows.
        padding: Around the image: top, left, bottom, right.
        dilation: Distance of taps.
        ceil_mode: Keep the last window that starts on the image or its top or left padding, even
            where it ends beyond the bottom or right padding.
        count_include_pad: Whether a mean divides by the taps in the padding too; never by taps
            beyond it.
        epilogue: Applied to every result `$0`; `$1…` are the epilogue operands.
    """

    kind: str
    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    ceil_mode: bool = False
    count_include_pad: bool = False
    epilogue: Expr = IDENTITY

    @property
    def extent(self) -> tuple[int, int]:
        """Rows and columns from a window's first tap to its last."""
        (r, s), (dr, ds) = self.kernel, self.dilation
        return (r - 1) * dr + 1, (s - 1) * ds + 1

    def _windows(self, size: Dim, axis: int) -> Dim:
        before, after = self.padding[axis], self.padding[axis + 2]
        span = sub(add(size, before + after), self.extent[axis])
        if isinstance(span, int):
            where = "rows" if axis == 0 else "columns"
            reach = self.extent[axis]
            expect(
                self, span >= 0, f"{size} {where} and padding are less than the window of {reach}"
            )
        if not self.ceil_mode:
            return add(floordiv(span, self.stride[axis]), 1)
        starting = floordiv(add(size, before - 1), self.stride[axis])
        return add(minimum(ceildiv(span, self.stride[axis]), starting), 1)

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect(self, len(inputs) >= 1, "takes an operand")
        x = inputs[0]
        expect(self, self.kind in ("max", "average"), f"kind {self.kind!r}")
        expect_rank(self, x, 4, "x")
        expect(self, x.dtype is not DType.BOOL, "x is bool")
        if self.kind == "average":
            expect_float(self, x, "x")
        positive = min(*self.kernel, *self.stride, *self.dilation) >= 1
        expect(self, positive, "kernel, stride and dilation must be positive")
        expect(self, min(self.padding) >= 0, f"padding {self.padding} is negative")
        inside = all(p < e for p, e in zip(self.padding, self.extent * 2, strict=True))
        expect(self, inside, f"padding {self.padding} holds whole windows of {self.extent}")
        sizes = (self._windows(x.shape[2 + axis], axis) for axis in (0, 1))
        result = TensorType(x.dtype, (*x.shape[:2], *sizes))
        expect_epilogue(self, self.epilogue, inputs[1:], result)
        return (result,)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        x = inputs[0]
        (out,) = self.infer([TensorType(DType.of(a.dtype), a.shape) for a in inputs])
        p, q = (static_count((d,)) for d in out.shape[2:])
        wide = accumulator(x.dtype)
        lowest = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
        empty = lowest if self.kind == "max" else 0
        padded = self._padded(x.astype(wide), (p, q), empty)
        result = np.full((*x.shape[:2], p, q), empty, wide)
        combine = np.maximum if self.kind == "max" else np.add
        for r in range(self.kernel[0]):
            rows = slice(r * self.dilation[0], None, self.stride[0])
            for s in range(self.kernel[1]):
                columns = slice(s * self.dilation[1], None, self.stride[1])
                combine(result, padded[:, :, rows, columns][:, :, :p, :q], out=result)
        if self.kind == "average":
            counts = np.outer(self._divisors(x.shape[2], p, 0), self._divisors(x.shape[3], q, 1))
            with np.errstate(invalid="ignore"):
                result = result / counts.astype(wide)
        return (finish(self.epilogue, result, inputs[1:], x.dtype),)

    def _padded(self, x: Array, windows: tuple[int, int], value: float) -> Array:
        """The image with its padding, and as much more at the end as the last windows reach."""
        widths = [(0, 0), (0, 0)]
        for axis, count in enumerate(windows):
            end = (count - 1) * self.stride[axis] + self.extent[axis]
            before, after = self.padding[axis], self.padding[axis + 2]
            widths.append((before, max(after, end - before - x.shape[2 + axis])))
        return np.pad(x, widths, constant_values=value)

    def _divisors(self, size: int, windows: int, axis: int) -> Array:
        before, after = self.padding[axis], self.padding[axis + 2]
        if self.count_include_pad:
            return self._taps(axis, 0).valid(before + size + after, windows)
        return self._taps(axis, before).valid(size, windows)

    def _taps(self, axis: int, pad: int) -> AxisWindows:
        return AxisWindows(self.kernel[axis], self.stride[axis], pad, self.dilation[axis])

    def work(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Work:
        x, y = inputs[0].shape, outputs[0].shape
        taps = static_count(x[:2])
        for axis in (0, 1):
            windows = self._taps(axis, self.padding[axis])
            taps *= windows.total(static_count((x[2 + axis],)), static_count((y[2 + axis],)))
        flops = taps + expr_flops(self.epilogue) * static_count(y)
        return Work(flops, tensor_bytes((*inputs, *outputs)))
