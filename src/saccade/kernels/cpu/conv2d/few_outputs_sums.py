"""Horizontal sums of several vectors as one vector: lane i is the sum of vector i."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from saccade.backends.cpu.codegen.language import KernelBuilder
    from saccade.backends.cpu.codegen.values import Vec

__all__ = ["transpose_sums"]

QUAD = 4  # lanes of 128 bits, within which shuffles are cheap


def transpose_sums(k: KernelBuilder, vectors: Sequence[Vec]) -> Vec:
    """`[Σ vectors[0], Σ vectors[1], …]`.

    Args:
        k: Builder.
        vectors: 4 or 8 vectors, no more than a vector has lanes, which are 4 or more.

    Returns:
        A vector with as many lanes as there are vectors. The order of the additions depends on the
        number of lanes alone, so that every sum is the same function of its vector.
    """
    quads = [_quad(k, vectors[i : i + QUAD]) for i in range(0, len(vectors), QUAD)]
    parts = vectors[0].lanes // QUAD
    while parts > 1:
        half = parts // 2
        if len(quads) > 1:
            pairs = zip(quads[::2], quads[1::2], strict=True)
            quads = [_fold(k, a, b, parts) for a, b in pairs]
        else:
            quads = [_fold(k, quads[0], None, parts)]
        parts = half
    (total,) = quads
    return total


def _quad(k: KernelBuilder, v: Sequence[Vec]) -> Vec:
    """Sums of four vectors: every 128 bits hold one part of each of the four sums."""
    lanes = v[0].lanes
    first, second = _interleave(k, v[0], v[1]), _interleave(k, v[2], v[3])

    def order(offset: int) -> list[int]:
        found = []
        for base in range(0, lanes, QUAD):
            pair = [base + offset, base + offset + 1]
            found += pair + [lanes + i for i in pair]
        return found

    return k.shuffle(first, second, order(0)) + k.shuffle(first, second, order(2))


def _interleave(k: KernelBuilder, a: Vec, b: Vec) -> Vec:
    """Within 128 bits: [a0+a2, b0+b2, a1+a3, b1+b3]."""
    lanes = a.lanes

    def order(offset: int) -> list[int]:
        bases = range(0, lanes, QUAD)
        return [base + offset + i + side for base in bases for i in range(2) for side in (0, lanes)]

    return k.shuffle(a, b, order(0)) + k.shuffle(a, b, order(2))


def _fold(k: KernelBuilder, a: Vec, b: Vec | None, parts: int) -> Vec:
    """Halve the parts: the first half of each group of 128-bit parts plus the second."""
    lanes, half = a.lanes, parts // 2
    groups = lanes // (parts * QUAD)
    starts = [
        side * lanes + g * parts * QUAD
        for side in range(1 if b is None else 2)
        for g in range(groups)
    ]

    def order(offset: int) -> list[int]:
        return [
            s + (offset + i) * QUAD + j for s in starts for i in range(half) for j in range(QUAD)
        ]

    other = a if b is None else b
    return k.shuffle(a, other, order(0)) + k.shuffle(a, other, order(half))
