"""The inner loop of convolutions and matrix products: a tile of sums that stays in registers.

`sums[i][j] += rows[i][c] · weights[c][j]` for `rows` pixels and `vectors` vectors of output channels: for every c the
vectors are loaded once and every pixel's element is broadcast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from saccade.codegen.language import Kernel, Ptr, Var
from saccade.codegen.values import Int, IntLike, Mask

__all__ = ["Reduction", "accumulate", "anchored", "zero_sums"]

Sums = list[list[Var]]


@dataclass(frozen=True, slots=True)
class Reduction:
    """How the loop over c is written.

    Attributes:
        unroll: Elements of one trip.
        shape: `once` (exactly `unroll` elements), `whole` (a multiple of them) or `tail` (any number).
    """

    unroll: int
    shape: str

    @classmethod
    def of(cls, count: int) -> Reduction:
        """For `count` elements; one shape serves many counts."""
        if count <= 4:
            return cls(count, "once")
        return cls(4, "tail" if count % 4 else "whole")


def zero_sums(k: Kernel, rows: int, vectors: int) -> Sums:
    """Fresh sums: `rows` times `vectors` vectors."""
    return [[k.var(k.zero()) for _ in range(vectors)] for _ in range(rows)]


def anchored(k: Kernel, p: Ptr) -> Ptr:
    """The same position with its offset folded into the base, so that loops carry one pointer."""
    if k.checked:
        return p
    return Ptr(k, p.name, p.element, k._address(p, 0, 1), k.int(0), None)


def accumulate(
    k: Kernel,
    sums: Sums,
    rows: Sequence[Ptr],
    step: IntLike | Sequence[Int],
    weights: Ptr,
    pitch: IntLike,
    count: Int,
    reduction: Reduction,
    masks: Sequence[Mask | None] | None = None,
) -> None:
    """Add `count` products to every sum.

    Args:
        k: Builder.
        sums: The tile.
        rows: Each pixel's first element.
        step: Distance of a pixel's elements, for all pixels or for each.
        weights: The first vectors.
        pitch: Distance of the vectors of neighbouring elements.
        count: Elements to sum.
        reduction: How to unroll.
        masks: For each vector, which lanes may be read; all when None.
    """

    steps = [step] * len(rows) if isinstance(step, (int, Int)) else step

    def trip(c: IntLike, unroll: int) -> None:
        for u in range(unroll):
            ats = [(c + u) * distance for distance in steps]
            _step(k, sums, rows, ats, weights + (c + u) * pitch, masks)

    if reduction.shape == "once":
        trip(0, reduction.unroll)
        return
    main = count if reduction.shape == "whole" else count // reduction.unroll * reduction.unroll
    with k.range(0, main, reduction.unroll) as c:
        trip(c, reduction.unroll)
    if reduction.shape == "tail":
        with k.range(main, count) as c:
            trip(c, 1)


def _step(
    k: Kernel,
    sums: Sums,
    rows: Sequence[Ptr],
    ats: Sequence[IntLike],
    weights: Ptr,
    masks: Sequence[Mask | None] | None,
) -> None:
    known = masks or [None] * len(sums[0])
    vectors = [weights.vec(j * k.lanes, mask) for j, mask in enumerate(known)]
    for row, at, tile in zip(rows, ats, sums, strict=True):
        element = row.splat(at)
        for total, vector in zip(tile, vectors, strict=True):
            total.set(k.fma(element, vector, total.get()))
