"""Interpolation of images and other grids (ONNX Resize 19, without antialiasing)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from saccade.ir.dim import Dim
from saccade.ir.expr import IDENTITY, Expr
from saccade.ir.op import Array, Op, TensorType, Work
from saccade.opdefs import _resize_numpy
from saccade.opdefs._rules import (
    expect,
    expect_epilogue,
    expect_float,
    static_count,
    tensor_bytes,
    text,
)
from saccade.opdefs._taps import expr_flops
from saccade.opdefs.expr_numpy import accumulator, finish

__all__ = ["Resize"]

_COORDINATES = (
    "half_pixel",
    "pytorch_half_pixel",
    "half_pixel_symmetric",
    "align_corners",
    "asymmetric",
)
_NEAREST = ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")


@dataclass(frozen=True)
class Resize(Op):
    """Samples x at a grid of other sizes; axes whose size and scale do not change are left alone.

    Operands: x, then epilogue operands (broadcastable to the result).

    Attributes:
        sizes: Whole shape of the result.
        scales: Result over operand per axis, as the model gave them: coordinates use these and not
            the ratio of sizes. None: the ratio of sizes.
        mode: "nearest", "linear" or "cubic".
        coordinate: From a position in the result to one in x: "half_pixel", "pytorch_half_pixel",
            "half_pixel_symmetric", "align_corners" or "asymmetric".
        nearest: Rounding of "nearest": "floor", "ceil", "round_prefer_floor" or
            "round_prefer_ceil".
        cubic_a: The cubic kernel's parameter.
        exclude_outside: Taps outside x weigh nothing and the others are scaled up; else they read
            the edge.
        epilogue: Applied to every result `$0`; `$1…` are the epilogue operands.
    """

    sizes: tuple[Dim, ...]
    scales: tuple[float, ...] | None = None
    mode: str = "nearest"
    coordinate: str = "half_pixel"
    nearest: str = "round_prefer_floor"
    cubic_a: float = -0.75
    exclude_outside: bool = False
    epilogue: Expr = IDENTITY

    _dim_fields = frozenset({"sizes"})

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect(self, len(inputs) >= 1, "takes an operand")
        x = inputs[0]
        expect(self, self.mode in ("nearest", "linear", "cubic"), f"mode {self.mode!r}")
        expect(self, self.coordinate in _COORDINATES, f"coordinate {self.coordinate!r}")
        expect(self, self.nearest in _NEAREST, f"nearest {self.nearest!r}")
        if self.mode != "nearest":
            expect_float(self, x, "x")
        every = len(self.sizes) == len(x.shape)
        expect(self, every, f"sizes {text(self.sizes)} for x {text(x.shape)}")
        if self.scales is not None:
            expect(self, len(self.scales) == len(x.shape), f"{len(self.scales)} scales")
            expect(self, min(self.scales, default=1) > 0, f"scales {self.scales} must be positive")
        for dim, size in zip(x.shape, self.sizes, strict=True):
            known = not isinstance(size, int) or size >= 0
            expect(self, known, f"sizes {text(self.sizes)} are negative")
            expect(self, dim != 0 or size in (0, 1) or not known, f"cannot make {size} out of none")
            emptied = size == 0 and isinstance(dim, int) and dim > 0
            expect(self, not emptied, f"sizes {text(self.sizes)} leave nothing of {text(x.shape)}")
        result = TensorType(x.dtype, self.sizes)
        expect_epilogue(self, self.epilogue, inputs[1:], result)
        return (result,)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        x = inputs[0].astype(accumulator(inputs[0].dtype), copy=False)
        sizes = tuple(static_count((d,)) for d in self.sizes)
        result = _resize_numpy.resize(self, x, sizes)
        return (finish(self.epilogue, result, inputs[1:], inputs[0].dtype),)

    def work(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Work:
        results = static_count(outputs[0].shape)
        pairs = zip(inputs[0].shape, outputs[0].shape, strict=True)
        axes = sum(before != after for before, after in pairs)
        taps = {"nearest": 0, "linear": 2**axes, "cubic": 4**axes}[self.mode] if axes else 0
        flops = (2 * taps + expr_flops(self.epilogue)) * results
        return Work(flops, tensor_bytes((*inputs, *outputs)))
