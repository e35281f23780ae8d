"""Index maps: the whole data-movement family as one value.

An `IndexMap` says which input element each output element is. The input axes are split into factors
(row-major inside an axis); the output is a list of factors, each running over one input factor
(`start + step · i`) or over nothing (a broadcast); consecutive output factors merge into the output
axes. Transpose, Reshape, Slice, Expand, Tile, Flip, DepthToSpace, SpaceToDepth, channel shuffle and
nearest Resize by an integer are all of this form, and so are their compositions, as long as the
factors refine each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from saccade.ir.dim import Dim, add, mul, product, sub

__all__ = ["Factor", "IndexMap", "transpose_map"]


@dataclass(frozen=True, slots=True)
class Factor:
    """One output factor.

    Attributes:
        size: Extent in the output.
        source: Index into the flattened list of input factors; None repeats (broadcast).
        start: First index within the input factor.
        step: Distance between consecutive indices; negative flips.
    """

    size: Dim
    source: int | None
    start: Dim = 0
    step: int = 1


@dataclass(frozen=True, slots=True)
class IndexMap:
    """A movement of elements.

    Attributes:
        in_factors: For each input axis, the sizes of its factors, outermost first; their product is
            the axis (none make an axis of 1).
        factors: Output factors, outermost first. An input factor named by none is read at index 0
            only and has size 1. No input factor is named twice.
        out_groups: For each output axis, how many consecutive output factors it merges (0 makes an
            axis of 1).
    """

    in_factors: tuple[tuple[Dim, ...], ...]
    factors: tuple[Factor, ...]
    out_groups: tuple[int, ...]

    @property
    def in_shape(self) -> tuple[Dim, ...]:
        """Shape of the input."""
        return tuple(product(group) for group in self.in_factors)

    def is_inside(self, factor: Factor) -> bool:
        """Whether an output factor is known to stay inside of what it reads, for all sizes.

        A slice that begins so many elements before the end does not, where there may be fewer.
        """
        if factor.source is None:
            return True
        sizes = [size for group in self.in_factors for size in group]
        last = add(factor.start, mul(sub(factor.size, 1), factor.step))
        low, high = (factor.start, last) if factor.step > 0 else (last, factor.start)
        room = sub(sub(sizes[factor.source], 1), high)
        return isinstance(low, int) and low >= 0 and isinstance(room, int) and room >= 0

    @property
    def out_axes(self) -> tuple[tuple[Factor, ...], ...]:
        """Output factors, grouped by output axis."""
        axes, at = [], 0
        for count in self.out_groups:
            axes.append(self.factors[at : at + count])
            at += count
        return tuple(axes)

    @property
    def out_shape(self) -> tuple[Dim, ...]:
        """Shape of the output."""
        return tuple(product(f.size for f in axis) for axis in self.out_axes)


def transpose_map(shape: Sequence[Dim], order: Sequence[int]) -> IndexMap:
    """Axis `order[i]` becomes axis i."""
    return IndexMap(
        tuple((size,) for size in shape),
        tuple(Factor(shape[axis], axis) for axis in order),
        (1,) * len(shape),
    )
