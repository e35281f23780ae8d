"""Winograd's transforms of data and of products, emitted on vectors of channels.

A row of Bᵀ for the pair ±p is `E ± p·O`: E and O apply the same coefficients to every other value.
So Bᵀ splits into groups of two rows, the ends (0 and infinity) and the pairs, that share nothing;
Aᵀ splits into even rows, which need the sums of pairs, and odd rows, which need the differences.
With stride 2 this is so for even pixels; the odd ones pass as they are, and each is added to the
result that it belongs to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from saccade.kernels.cpu.conv2d.winograd_points import WinogradTile

if TYPE_CHECKING:
    from saccade.backends.cpu.codegen.language import KernelBuilder
    from saccade.backends.cpu.codegen.values import Vec

__all__ = ["forward", "inverse"]


def _sum(k: KernelBuilder, terms: Sequence[tuple[float, Vec]]) -> Vec:
    """`Σ coefficient · value`, with as many plain additions as there can be.

    Processors add and multiply in different units, so additions come for free.
    """
    rest = sorted(terms, key=lambda term: (abs(term[0]) != 1.0, abs(term[0]), term[0] < 0))
    joined: list[tuple[float, Vec]] = []
    for factor, value in rest:
        if joined and abs(factor) == abs(joined[-1][0]) != 1.0:
            first, other = joined.pop()
            joined.append((first, other + value if factor == first else other - value))
        else:
            joined.append((factor, value))
    (factor, total), *rest = joined
    if factor != 1.0:
        total = total * factor
    for factor, value in rest:
        if abs(factor) == 1.0:
            total = total + value if factor > 0 else total - value
        else:
            total = k.fma(value, value.like(factor), total)
    return total


def _forward_group(
    k: KernelBuilder, tile: WinogradTile, group: int, d: Callable[[int], Vec]
) -> list[tuple[int, Vec]]:
    """Group 0, the ends, or a pair of rows of `Bᵀ d`, as (frequency, value)."""
    shift = 1 if tile.zero else 0
    if group == 0:
        terms = tile.product()
        found = [(1, _sum(k, [(q, d(2 * i + shift)) for i, q in enumerate(terms)]))]
        if tile.zero:
            scaled = [(q * tile.scales[0], d(2 * i)) for i, q in enumerate(terms)]
            found.insert(0, (0, _sum(k, scaled)))
        return found
    p, (plus, minus) = tile.pairs[group - 1], tile.scales[2 * group - 1 : 2 * group + 1]
    factors = [plus * q for q in tile.product(group - 1)]
    even = _sum(k, [(q, d(2 * i + 1 + shift)) for i, q in enumerate(factors)])
    odd = _sum(k, [(q * p, d(2 * i + shift)) for i, q in enumerate(factors)])
    other = even - odd if plus * minus > 0 else odd - even
    return [(2 * group, even + odd), (2 * group + 1, other)]


def forward(k: KernelBuilder, tile: WinogradTile, d: Callable[[int], Vec]) -> list[tuple[int, Vec]]:
    """`Bᵀ d`, as (frequency, value)."""
    found = []
    for group in range(len(tile.pairs) + 1):
        found += _forward_group(k, tile, group, lambda i: d(i * tile.stride))
    return found + [(f, d(2 * i + 1)) for i, f in enumerate(tile.frequencies[tile.points :])]


def inverse(k: KernelBuilder, tile: WinogradTile, v: Callable[[int], Vec]) -> list[tuple[int, Vec]]:
    """`Aᵀ v`, as (position, value), even positions first; v by frequency."""
    found = []
    for parity in (0, 1):
        rows = range(parity, tile.m, 2)
        parts: list[Vec] = []
        for i in range(len(tile.pairs) if rows else 0):
            plus, minus = v(2 * i + 2), v(2 * i + 3)
            parts.append(plus - minus if parity else plus + minus)
        for row in rows:
            terms = [(p**row, part) for p, part in zip(tile.pairs, parts, strict=True)]
            if row == 0 and tile.zero:
                terms.append((1.0, v(0)))
            if row == tile.m - 1:
                terms.append((1.0, v(1)))
            if tile.stride > 1:
                terms.append((1.0, v(tile.frequencies[tile.points + row])))
            found.append((row, _sum(k, terms)))
    return found
