"""Interpolation along one axis, of any number of neighbours (ONNX Resize 19, axis by axis).

What `Resize` does not: filters as wide as the pixels of a smaller result, regions of an image, any
axis of operands of any rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from saccade.ir.dim import Dim
from saccade.ir.op import Array, Op, TensorType, Work
from saccade.opdefs._resample_numpy import AxisRule, AxisTables, axis_tables, resample
from saccade.opdefs._rules import (
    expect,
    expect_axis,
    expect_count,
    expect_float,
    static_count,
    tensor_bytes,
    text,
)
from saccade.opdefs.expr_numpy import accumulator

__all__ = ["Resample"]

_COORDINATES = (
    "half_pixel",
    "pytorch_half_pixel",
    "half_pixel_symmetric",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
)
_NEAREST = ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")


@dataclass(frozen=True)
class Resample(Op):
    """`y[…, p, …] = Σ_j weights[p, j] · x[…, first[p] + j, …]` along one axis.

    Operands: x, floating point.

    Attributes:
        axis: Which, counted from 0.
        size: Of the result along it.
        scale: Result over operand, which positions are made with; None: the ratio of sizes.
        mode, coordinate, nearest, cubic_a, exclude_outside: As of `Resize`; the coordinate may be
            "tf_crop_and_resize", too: from the begin of a region to its end.
        region: Begin and end of the region, in lengths of the axis less one element.
        antialias: Whether filters are as wide as an element of the result where that is wider than
            one of the operand; their weights always sum to 1.
        fill: What positions outside the operand are, with "tf_crop_and_resize".
    """

    axis: int
    size: Dim
    scale: float | None = None
    mode: str = "linear"
    coordinate: str = "half_pixel"
    nearest: str = "round_prefer_floor"
    cubic_a: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False
    region: tuple[float, float] = (0.0, 1.0)
    fill: float = 0.0

    _dim_fields = frozenset({"size"})

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(self, inputs, 1)
        (x,) = inputs
        expect_float(self, x, "x")
        expect_axis(self, self.axis, len(x.shape))
        expect(self, self.mode in ("nearest", "linear", "cubic"), f"mode {self.mode!r}")
        expect(self, self.coordinate in _COORDINATES, f"coordinate {self.coordinate!r}")
        expect(self, self.nearest in _NEAREST, f"nearest {self.nearest!r}")
        expect(self, self.scale is None or self.scale > 0, f"scale {self.scale} must be positive")
        before = x.shape[self.axis]
        known = not isinstance(self.size, int) or self.size >= 0
        expect(self, known, f"size {self.size} is negative")
        expect(self, before != 0 or self.size == 0, f"cannot make {self.size} out of none")
        emptied = self.size == 0 and isinstance(before, int) and before > 0
        expect(self, not emptied, f"size 0 leaves nothing of {text(x.shape)}")
        shape = (*x.shape[: self.axis], self.size, *x.shape[self.axis + 1 :])
        return (TensorType(x.dtype, shape),)

    def rule(self, before: int, after: int) -> AxisRule:
        """How positions are made for an axis of these sizes."""
        scale = self.scale or (after / before if before and after else 1.0)
        return AxisRule(
            self.mode, self.coordinate, self.nearest, scale, self.region, self.cubic_a,
            self.exclude_outside, self.antialias,
        )  # fmt: skip

    def _tables(self, before: int) -> AxisTables:
        after = static_count((self.size,))
        return axis_tables(self.rule(before, after), before, after)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        x = inputs[0].astype(accumulator(inputs[0].dtype), copy=False)
        tables = self._tables(x.shape[self.axis])
        return (resample(x, self.axis, tables, self.fill).astype(inputs[0].dtype),)

    def work(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Work:
        before = static_count((inputs[0].shape[self.axis],))
        taps = int(self._tables(before).length.sum()) if self.mode != "nearest" else 0
        lines = static_count(outputs[0].shape) // max(1, static_count((self.size,)))
        return Work(2 * taps * lines, tensor_bytes((*inputs, *outputs)))
