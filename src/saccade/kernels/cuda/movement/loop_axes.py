"""Axes that operands of any strides are walked along, collapsed, and what such walks refuse."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from saccade.kernels.base import View

__all__ = ["LoopAxes", "collapsed", "division", "power_dividing", "refuse_walk"]

_MOST = 2**31 - 2**16  # elements: what int32 holds, less a block that begins at the last one


@dataclass(frozen=True, slots=True)
class LoopAxes:
    """Axes, outermost first (at least one).

    Attributes:
        sizes: Extent of each axis.
        strides: For each operand, elements between neighbours along each axis.
    """

    sizes: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]

    @property
    def count(self) -> int:
        """How many places there are."""
        total = 1
        for n in self.sizes:
            total *= n
        return total


def refuse_walk(out: View, others: Iterable[View]) -> str | None:
    """Why the elements of these cannot be walked, or None."""
    if any(max(view.size, view.extent) >= _MOST for view in (out, *others)):
        return "2^31 elements or more"
    if out.zeros:
        return "a result with zeros behind its channels"
    if out.size and any(s == 0 and n > 1 for n, s in zip(out.shape, out.strides, strict=True)):
        return "the result repeats elements"
    return None


def collapsed(
    sizes: Sequence[int],
    strides: Sequence[Sequence[int]],
    alone: Sequence[bool] = (),
    *,
    ones: bool = False,
) -> tuple[LoopAxes, tuple[int, ...]]:
    """Axes in the first operand's memory order, without those of one element, merged.

    Args:
        sizes: Extent of each axis.
        strides: For each operand, its stride along each axis.
        alone: For each axis, whether it is kept as it is; none are by default.
        ones: Whether axes of one element stay, too, so that what merges depends on no size.

    Returns:
        The axes; for each which of the given ones it is (of merged ones the innermost, -1 where
        there was none).
    """
    alone = alone or (False,) * len(sizes)
    if 0 in sizes:
        return LoopAxes((0,), ((1,),) * len(strides)), (-1,)
    kept = [a for a, n in enumerate(sizes) if ones or n != 1 or alone[a]]
    kept.sort(key=lambda a: tuple(-abs(s[a]) for s in strides))
    merged: list[tuple[int, int]] = []  # size and innermost axis
    for axis in kept:
        if merged and not alone[axis] and not alone[merged[-1][1]]:
            size, before = merged[-1]
            if all(s[before] == sizes[axis] * s[axis] for s in strides):
                merged[-1] = (size * sizes[axis], axis)
                continue
        merged.append((sizes[axis], axis))
    if not merged:
        return LoopAxes((1,), ((1,),) * len(strides)), (-1,)
    found = tuple(axis for _, axis in merged)
    steps = tuple(tuple(s[a] for a in found) for s in strides)
    return LoopAxes(tuple(size for size, _ in merged), steps), found


def division(divisor: int) -> tuple[int, int]:
    """A factor and a shift: `umulhi(2 n, factor) >> shift` is `n // divisor` for 0 ≤ n < 2^31.

    The factor has 32 bits; as the integer of a launch it is negative from 2^31 on. After Granlund
    and Montgomery, "Division by invariant integers using multiplication".

    Args:
        divisor: At least 1.
    """
    bits = (divisor - 1).bit_length()
    factor = -(-(1 << (31 + bits)) // divisor)
    return factor - (1 << 32 if factor >= 1 << 31 else 0), bits


def power_dividing(numbers: Iterable[int], most: int) -> int:
    """The largest power of two up to `most` (one itself) that divides all of them."""
    found = most
    for number in numbers:
        while number % found:
            found //= 2
    return found
