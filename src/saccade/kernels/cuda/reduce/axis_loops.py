"""The axes of a reduction as at most three loops each: those that are kept, those that are reduced.

Code counts the kept elements (rows) and the reduced ones through, each along three axes, outermost
first. Axes are ordered by the operand's strides and merged where all views let them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import gcd, prod

from saccade.ir import DType
from saccade.kernels.base import View

__all__ = [
    "MOST_AXES",
    "AxisLoops",
    "axis_loops",
    "block_of",
    "common_step",
    "pixel_step",
    "power_above",
]

MOST_AXES = 3
"""Loops that code has; axes that merge into fewer have some of one step."""


@dataclass(frozen=True, slots=True)
class AxisLoops:
    """Merged axes, outermost first, with outer axes of one element added.

    Attributes:
        sizes: Extent of each.
        strides: For each view its stride along each; 0 along axes of one element.
    """

    sizes: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]

    @property
    def count(self) -> int:
        """How many elements they go over."""
        return prod(self.sizes)

    @property
    def axes(self) -> int:
        """How many there are without those added."""
        return next((len(self.sizes) - i for i, n in enumerate(self.sizes) if n != 1), 1)

    @property
    def fits(self) -> bool:
        """Whether code can count along them."""
        return len(self.sizes) == MOST_AXES

    def unit(self, view: int) -> bool:
        """Whether neighbours along the innermost axis are neighbours in memory."""
        return self.strides[view][-1] == 1

    def integers(self, name: str, view: int) -> dict[str, int]:
        """Strides of a view as integers of a launch: `{name}0` is the outermost one."""
        return {f"{name}{i}": step for i, step in enumerate(self.strides[view])}


def axis_loops(sizes: Sequence[int], strides: Sequence[Sequence[int]]) -> AxisLoops:
    """Order, drop and merge axes.

    Args:
        sizes: Extent of each axis.
        strides: For each view its stride along each axis; the first one decides the order.
    """
    if 0 in sizes:
        sizes, strides = (0,), [(0,) for _ in strides]
    axes = [(n, *(s[i] for s in strides)) for i, n in enumerate(sizes) if n != 1]
    axes.sort(key=lambda axis: tuple(-abs(step) for step in axis[1:]))
    merged: list[tuple[int, ...]] = []
    for axis in axes:
        inner = tuple(axis[0] * step for step in axis[1:])
        if merged and merged[-1][1:] == inner:
            merged[-1] = (merged[-1][0] * axis[0], *axis[1:])
        else:
            merged.append(axis)
    missing = MOST_AXES - len(merged)
    whole = [(1, *(0 for _ in strides))] * missing + merged
    return AxisLoops(
        tuple(axis[0] for axis in whole),
        tuple(tuple(axis[1 + i] for axis in whole) for i in range(len(strides))),
    )


def common_step(numbers: Iterable[int], views: Iterable[View]) -> int:
    """How many elements at once loads may move: a power of two that divides all of the numbers.

    At most 16 bytes of the smallest element among the views.
    """
    widest = 16 // min((view.dtype.itemsize for view in views), default=16)
    return max(1, gcd(widest, *numbers))


def block_of(rows: int, columns: int, dtype: DType, each: int = 16) -> tuple[int, int, int]:
    """Rows and columns of a block, and warps: up to 4, whose threads have `each` bytes or more."""
    return rows, columns, max(1, min(4, rows * columns * dtype.itemsize // (32 * each)))


def pixel_step(channels: int, pitch: int, step: int) -> int:
    """How many channels of a pixel loads may move at once, at most `step`.

    The last vector may end between the channels and the next pixel: what it reads there is never
    used. Vectors begin at multiples of their size, so that none leaves the operand's memory.
    """
    while channels % step and -(-channels // step) * step > pitch:
        step //= 2
    return step


def power_above(n: int) -> int:
    """The smallest power of two that is not below n, at least 1."""
    return 1 << max(0, n - 1).bit_length()
