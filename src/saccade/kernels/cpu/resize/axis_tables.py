"""What the ways to resize have in common: what they refuse, tables of both axes, sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.backends.cpu.codegen.values import Vec
from saccade.kernels.base import Operand, Packed, Packing
from saccade.kernels.cpu.base import CpuCall
from saccade.kernels.cpu.pointwise.vector_elements import FLOATS
from saccade.kernels.cpu.resize.pack_axes import TAPS
from saccade.opdefs.resize import Resize

__all__ = ["ResizeAxis", "axis", "refusal", "weighted"]


@dataclass(frozen=True, slots=True)
class ResizeAxis:
    """One axis of the image.

    Attributes:
        taps: How many elements of the operand each position of the result sums.
        indices: Where they are, int32 [after, taps], not decreasing.
        weights: Float32 [after, taps].
        before: Extent of the operand.
        after: Extent of the result.
    """

    taps: int
    indices: Packed
    weights: Packed
    before: int
    after: int

    def operands(self, name: str) -> dict[str, Operand]:
        """The tables of the axis that the code calls so."""
        return {f"{name}_at": self.indices, f"{name}_weights": self.weights}


def _scale(op: Resize, before: int, after: int, number: int) -> float:
    return (after / before if before else 1.0) if op.scales is None else op.scales[number]


def _stays(call: CpuCall, number: int) -> bool:
    before, after = call.inputs[0].shape[number], call.outputs[0].shape[number]
    return before == after and _scale(call.op, before, after, number) == 1


def refusal(call: CpuCall) -> str | None:
    """Why no way to resize channels-last images can take the call."""
    x = call.inputs[0]
    if x.dtype not in FLOATS:
        return f"elements of type {x.dtype.value}"
    if len(x.shape) != 4:
        return f"{len(x.shape)} axes"
    if not (_stays(call, 0) and _stays(call, 1)):
        return "a resized batch or channels"
    if not x.channels_last:
        return "a planar operand"
    return None


def axis(call: CpuCall, number: int) -> ResizeAxis:
    """Axis 2 (rows) or 3 (columns)."""
    op: Resize = call.op
    before, after = call.inputs[0].shape[number], call.outputs[0].shape[number]
    scale = _scale(op, before, after, number)
    # Where the size stays the same there is one tap a position, whatever the mode.
    mode, kind = ("nearest", "asymmetric") if _stays(call, number) else (op.mode, op.coordinate)
    taps = TAPS[mode]
    indices = Packing(
        "axis_indices", (mode, kind, op.nearest, before, after, scale), (), 4 * after * taps
    )
    weights = Packing(
        "axis_weights", (mode, kind, before, after, scale, op.cubic_a, op.exclude_outside), (),
        4 * after * taps,
    )  # fmt: skip
    return ResizeAxis(taps, Packed(indices), Packed(weights), before, after)


def weighted(k: KernelBuilder, values: Sequence[Vec], weights: Sequence[Vec]) -> Vec:
    """The sum of the values times their weights, in their order; a single one weighs 1."""
    if len(values) == 1:
        return values[0]
    total = values[0] * weights[0]
    for value, weight in zip(values[1:], weights[1:], strict=True):
        total = k.fma(value, weight, total)
    return total
