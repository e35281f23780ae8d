"""Networks of register shuffles: square transposes, interleaving and its inverse.

Vectors hold integers of the element's size: what moves is bits, NaN payloads included.
"""

from __future__ import annotations

from collections.abc import Sequence

from saccade.codegen.language import Kernel
from saccade.codegen.values import Vec

__all__ = ["deinterleave", "interleave", "transpose"]


def transpose(k: Kernel, rows: Sequence[Vec]) -> list[Vec]:
    """The transpose of a square of `len(rows)` (a power of two) rows of as many lanes.

    Each stage swaps the off-diagonal blocks of all squares of one size, so there are log2(n)
    stages of n shuffles.
    """
    n = len(rows)
    result = list(rows)
    half = n // 2
    while half:
        low = [lane if not lane & half else n + lane - half for lane in range(n)]
        high = [lane + half if not lane & half else n + lane for lane in range(n)]
        for i in range(n):
            if not i & half:
                a, b = result[i], result[i + half]
                result[i] = k.shuffle(a, b, low)
                result[i + half] = k.shuffle(a, b, high)
        half //= 2
    return result


def interleave(k: Kernel, parts: Sequence[Vec]) -> list[Vec]:
    """`a0 b0 … a1 b1 …` from the vectors a, b, …: as many vectors as came in."""
    count, lanes = len(parts), parts[0].lanes
    sources = [
        [(p % count, p // count) for p in range(o * lanes, (o + 1) * lanes)] for o in range(count)
    ]
    return [_gather(k, parts, source) for source in sources]


def deinterleave(k: Kernel, parts: Sequence[Vec]) -> list[Vec]:
    """The inverse of `interleave`."""
    count, lanes = len(parts), parts[0].lanes
    sources = [[divmod(lane * count + o, lanes) for lane in range(lanes)] for o in range(count)]
    return [_gather(k, parts, source) for source in sources]


def _gather(k: Kernel, parts: Sequence[Vec], source: Sequence[tuple[int, int]]) -> Vec:
    """A vector whose lanes come from `(part, lane)` each, folded in part by part."""
    lanes = parts[0].lanes
    first, second = parts[0], parts[1] if len(parts) > 1 else parts[0]
    order = [lane + (lanes if part == 1 else 0) if part < 2 else 0 for part, lane in source]
    result = k.shuffle(first, second, order)
    for index in range(2, len(parts)):
        if any(part == index for part, _ in source):
            order = [lanes + lane if part == index else i for i, (part, lane) in enumerate(source)]
            result = k.shuffle(result, parts[index], order)
    return result
