"""The inner loop of convolutions and matrix products: a tile of sums that stays in registers.

`sums[i][j] += rows[i][c] · weights[c][j]` for pixels i and vectors of channels j: for every c
the vectors are loaded once and every pixel's element is broadcast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llvmlite import ir

from saccade.codegen.language import Kernel, Ptr, Var
from saccade.codegen.values import Int, IntLike, Mask, Vec

__all__ = ["Reduction", "accumulate", "anchored", "zero_sums"]

Sums = list[list[Var]]


@dataclass(frozen=True, slots=True)
class Reduction:
    """How the loop over c is written.

    Attributes:
        unroll: Elements of one trip.
        shape: `once` (exactly `unroll` elements), `whole` (a multiple of them) or `tail` (any).
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
    weights: Ptr,
    *,
    step: IntLike | Sequence[Int],
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
        weights: The first vectors.
        step: Distance of a pixel's elements, for all pixels or for each.
        pitch: Distance of the vectors of neighbouring elements.
        count: Elements to sum.
        reduction: How to unroll.
        masks: For each vector, which lanes may be read; all when None.
    """
    masks = masks or [None] * len(sums[0])
    steps = [step] * len(rows) if isinstance(step, (int, Int)) else step

    def trip(c: IntLike, unroll: int) -> None:
        for u in range(unroll):
            panel = weights + (c + u) * pitch
            vectors = [panel.vec(j * k.lanes, mask) for j, mask in enumerate(masks)]
            for row, distance, tile in zip(rows, steps, sums, strict=True):
                _row(k, tile, row.splat((c + u) * distance), vectors)

    if reduction.shape == "once":
        trip(0, reduction.unroll)
        return
    # Checked code does not unroll: its checks would take seconds to compile.
    unroll = 1 if k.checked else reduction.unroll
    main = count if reduction.shape == "whole" else count // unroll * unroll
    with k.range(0, main, unroll) as c:
        trip(c, unroll)
    if reduction.shape == "tail" and unroll > 1:
        with k.range(main, count) as c:
            trip(c, 1)


def _row(k: Kernel, sums: list[Var], element: Vec, vectors: list[Vec]) -> None:
    for total, vector in zip(sums, vectors, strict=True):
        total.set(k.fma(element, vector, total.get()))
    _hold(k)


def _hold(k: Kernel) -> None:
    """Keep loads on their side: elements hoisted from later rows would push sums out."""
    nothing = ir.FunctionType(ir.VoidType(), [])
    k.b.asm(nothing, "", "~{memory}", [], side_effect=True)
