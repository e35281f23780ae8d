"""`Pad` by copies: the operand into the middle, then slab by slab what is around it.

A constant fills each slab from one packed element. The other modes copy within the result, axis by
axis, so that the slabs of an axis repeat what those of earlier axes have filled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from saccade.kernels.base import In, Launch, Operand, Out, Packed, Packing
from saccade.kernels.cpu.base import CpuCall, CpuKernel, single_variant
from saccade.kernels.cpu.movement.copy import copy_cost, refuse_views
from saccade.kernels.cpu.movement.copy_code import CopyConfig, copy_launch, emit_copy
from saccade.opdefs.movement import Pad

__all__ = ["PAD"]


def supports(call: CpuCall) -> str | None:
    """Why this kernel cannot take the call."""
    # Reflection leaves out the border itself.
    least = {"reflect": 1, "wrap": 0}.get(call.op.mode)
    if least is not None:
        for n, pair in zip(call.inputs[0].shape, call.op.pads, strict=True):
            if max(pair) > n - least:
                return f"{call.op.mode} of more elements than there are"
    return refuse_views(call)


class _Slabs:
    """Phases of one call."""

    def __init__(self, call: CpuCall) -> None:
        self.call, self.out = call, call.outputs[0]
        self.shape: Sequence[int] = call.inputs[0].shape
        self.pads: Sequence[tuple[int, int]] = call.op.pads

    def _copy(
        self,
        sizes: Sequence[int],
        source: Operand,
        strides: Sequence[int],
        starts: tuple[int, int],
    ) -> Launch:
        call = self.call
        return copy_launch(
            sizes, self.out.strides, strides, self.out.dtype.itemsize, (Out(0), source),
            starts=starts, lanes=call.target.lanes, threads=call.threads,
        )  # fmt: skip

    def interior(self) -> Launch:
        start = sum(b * s for (b, _), s in zip(self.pads, self.out.strides, strict=True))
        return self._copy(self.shape, In(0), self.call.inputs[0].strides, (start, 0))

    def slabs(self) -> Iterator[Launch]:
        """Around the middle."""
        constant = self.call.op.mode == "constant"
        for axis, (n, pair) in enumerate(zip(self.shape, self.pads, strict=True)):
            for side, count in enumerate(pair):
                if count == 0:
                    continue
                sizes, base = self._across(axis, constant)
                sizes[axis] = count
                to = base + (0 if side == 0 else pair[0] + n) * self.out.strides[axis]
                if 0 in sizes:
                    continue
                if constant:
                    yield self._fill(sizes, to)
                else:
                    first, step = self._origin(axis, side)
                    strides = list(self.out.strides)
                    # Step 0 repeats the edge, -1 goes back from it.
                    strides[axis] *= step
                    start = base + first * self.out.strides[axis]
                    yield self._copy(sizes, Out(0), strides, (to, start))

    def _across(self, axis: int, constant: bool) -> tuple[list[int], int]:
        """Extent and first element of a slab along the other axes.

        Constant slabs are disjoint: earlier axes without their pads, later ones with. Others repeat
        what is there: earlier axes with their pads, later ones without.
        """
        sizes, start = [], 0
        for other, (n, (before, after)) in enumerate(zip(self.shape, self.pads, strict=True)):
            with_pads = (other > axis) == constant
            sizes.append(before + n + after if with_pads else n)
            if other != axis and not with_pads:
                start += before * self.out.strides[other]
        return sizes, start

    def _fill(self, sizes: Sequence[int], to: int) -> Launch:
        dtype = self.out.dtype
        packing = Packing("one_element", (self.call.op.value, dtype.value), (), dtype.itemsize)
        return self._copy(sizes, Packed(packing), (0,) * len(sizes), (to, 0))

    def _origin(self, axis: int, side: int) -> tuple[int, int]:
        """First position along the axis that a slab repeats, and the step from there."""
        (before, _), n = self.pads[axis], self.shape[axis]
        if self.call.op.mode == "edge":
            return (before, 0) if side == 0 else (before + n - 1, 0)
        if self.call.op.mode == "wrap":
            return (n, 1) if side == 0 else (before, 1)
        return (2 * before, -1) if side == 0 else (before + n - 2, -1)


def launch(call: CpuCall) -> tuple[Launch, ...]:
    """The middle, then one phase per slab."""
    slabs = _Slabs(call)
    return (slabs.interior(), *slabs.slabs())


def cost(call: CpuCall) -> float:
    """Microseconds, by bytes moved."""
    slabs: int = sum(count > 0 for pair in call.op.pads for count in pair)
    out = call.outputs[0]
    return copy_cost(call, "rows", out.size, out.dtype.itemsize) * (1 + 0.1 * slabs)


PAD = CpuKernel(
    "movement.pad", (Pad,), CopyConfig, supports, single_variant(launch, cost), emit_copy
)
