"""Networks of register shuffles: transposes, interleaving and its inverse.

Vectors hold integers of the element's size: what moves is bits, NaN payloads included.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.backends.cpu.codegen.values import Vec

__all__ = ["deinterleave", "interleave", "transpose", "turn"]


def transpose(k: KernelBuilder, rows: Sequence[Vec]) -> Iterator[Vec]:
    """The transposes of the squares that `len(rows)` rows (a power of two) are made of.

    Rows hold one square or several side by side. Each stage swaps the off-diagonal blocks of all
    squares of one size, so there are log2(n) stages of n shuffles; after each, both halves of the
    rows go on by themselves, the first to its end.
    """
    if len(rows) == 1:
        yield from rows
        return
    lanes, half = rows[0].lanes, len(rows) // 2
    low = [lane if not lane & half else lanes + lane - half for lane in range(lanes)]
    high = [lane + half if not lane & half else lanes + lane for lane in range(lanes)]
    pairs = list(zip(rows[:half], rows[half:], strict=True))
    halves = [(k.shuffle(a, b, low), k.shuffle(a, b, high)) for a, b in pairs]
    yield from transpose(k, [first for first, _ in halves])
    yield from transpose(k, [second for _, second in halves])


def turn(k: KernelBuilder, rows: Sequence[Vec]) -> Iterator[Vec]:
    """The transpose of a rectangle, both of whose sides are powers of two, row by row.

    Of a wide one, the squares that it consists of are transposed side by side and cut apart; of a
    high one they are first put side by side. Rows come as soon as they are done: whoever stores
    them at once keeps fewer of them in registers.
    """
    count, lanes = len(rows), rows[0].lanes
    if count > lanes:
        yield from transpose(k, [k.concat(rows[i::lanes]) for i in range(lanes)])
        return
    transposed = transpose(k, rows)
    if count == lanes:
        yield from transposed
        return
    parts = list(transposed)
    for start in range(0, lanes, count):
        yield from (k.shuffle(v, v, range(start, start + count)) for v in parts)


def interleave(k: KernelBuilder, parts: Sequence[Vec]) -> list[Vec]:
    """`a0 b0 … a1 b1 …` from the vectors a, b, …: as many vectors as came in."""
    count, lanes = len(parts), parts[0].lanes
    sources = [
        [(p % count, p // count) for p in range(o * lanes, (o + 1) * lanes)] for o in range(count)
    ]
    return [_gather(k, parts, source) for source in sources]


def deinterleave(k: KernelBuilder, parts: Sequence[Vec]) -> list[Vec]:
    """The inverse of `interleave`."""
    count, lanes = len(parts), parts[0].lanes
    sources = [[divmod(lane * count + o, lanes) for lane in range(lanes)] for o in range(count)]
    return [_gather(k, parts, source) for source in sources]


def _gather(k: KernelBuilder, parts: Sequence[Vec], source: Sequence[tuple[int, int]]) -> Vec:
    """A vector whose lanes come from `(part, lane)` each, folded in part by part."""
    lanes = parts[0].lanes
    first, second = parts[0], parts[1] if len(parts) > 1 else parts[0]
    order = [lane + (lanes if part == 1 else 0) if part < 2 else 0 for part, lane in source]
    # Lanes of later parts hold anything until these are folded in.
    result = k.shuffle(first, second, order)
    for index in range(2, len(parts)):
        if any(part == index for part, _ in source):
            order = [lanes + lane if part == index else i for i, (part, lane) in enumerate(source)]
            result = k.shuffle(result, parts[index], order)
    return result
