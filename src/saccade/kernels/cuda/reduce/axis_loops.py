"""The axes of a reduction as at most three loops each: those that are kept, those that are reduced.

Code counts the kept elements (rows) and the reduced ones through, each along three axes, outermost
first. Axes are ordered by the operand's strides and merged where all views let them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import gcd, prod

from saccade.kernels.base import View

__all__ = ["MOST_AXES", "AxisLoops", "axis_loops", "common_step", "padded", "power_above"]

MOST_AXES = 3


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


def padded(channels: int, pitch: int, step: int) -> int:
    """How many channels of a pixel loads may reach: whole vectors of `step`, if pixels have them.

    What lies between the channels and the next pixel is read, and never used. Vectors begin at
    multiples of their size: none that has an element of the operand leaves its memory.
    """
    whole = -(-channels // step) * step
    return whole if whole <= pitch else channels


def power_above(n: int) -> int:
    """The smallest power of two that is not below n, at least 1."""
    return 1 << max(0, n - 1).bit_length()
