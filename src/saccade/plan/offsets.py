"""Offsets in the arena: buffers whose lifetimes overlap never share a byte.

Invariant of the result: for any two blocks with overlapping lifetimes, or that have to be apart,
their byte ranges are disjoint. Blocks are placed one after the other into the tightest gap that
holds them (best fit); several orders are tried, and the first that comes near the lower bound, the
largest sum of simultaneously live bytes, is taken, or else the best.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Sequence
from typing import NamedTuple

from saccade.limits import Deadline

__all__ = ["LiveBlock", "assign_offsets", "live_bytes"]

_NEAR, _NEAR_APART = 1.02, 1.15
"""Of the largest sum: no other order can do much better. Blocks that are apart may need more."""


class LiveBlock(NamedTuple):
    """Bytes needed from step `first` to step `last`, both included."""

    nbytes: int
    first: int
    last: int

    @classmethod
    def aligned(cls, nbytes: int, first: int, last: int, alignment: int) -> LiveBlock:
        """With its size rounded up to a multiple, so that whatever comes behind it is aligned."""
        return cls(-(-nbytes // alignment) * alignment, first, last)


def live_bytes(blocks: Sequence[LiveBlock]) -> int:
    """The largest sum of bytes that are live at once."""
    changes: dict[int, int] = {}
    for block in blocks:
        changes[block.first] = changes.get(block.first, 0) + block.nbytes
        changes[block.last + 1] = changes.get(block.last + 1, 0) - block.nbytes
    peak = total = 0
    for step in sorted(changes):
        total += changes[step]
        peak = max(peak, total)
    return peak


# Which one packs best depends on the graph: by size, size times lifetime, start or lifetime.
_ORDERS: tuple[Callable[[LiveBlock], tuple[int, ...]], ...] = (
    lambda b: (-b.nbytes, b.first),
    lambda b: (-b.nbytes * (b.last - b.first + 1), b.first),
    lambda b: (b.first, -b.nbytes),
    lambda b: (-(b.last - b.first), -b.nbytes),
)


def assign_offsets(
    blocks: Sequence[LiveBlock], deadline: Deadline | None = None, apart: Sequence[int] = ()
) -> tuple[list[int], int]:
    """Offset of each block, and the size of the arena.

    Args:
        blocks: What has to lie somewhere; offsets are sums of their sizes.
        deadline: Asked for every block: where many live at once, the time grows with their square.
        apart: For each block a bit for every other one that it shares no byte with, though they
            live at different times; none for no such blocks.

    Raises:
        PlanError: After the deadline.
    """
    bound, near = live_bytes(blocks), _NEAR_APART if any(apart) else _NEAR
    best: tuple[list[int], int] | None = None
    for order in _ORDERS:
        ranked = sorted(range(len(blocks)), key=lambda i: order(blocks[i]))
        offsets, size = _place(blocks, ranked, deadline, apart)
        if best is None or size < best[1]:
            best = offsets, size
        if best[1] <= bound * near:
            break
    return best or ([], 0)


_Placed = tuple[int, int, int, int, int]
"""Start and end of a block, the first and last step that it lives at, its number."""


def _place(
    blocks: Sequence[LiveBlock],
    order: Sequence[int],
    deadline: Deadline | None,
    apart: Sequence[int],
) -> tuple[list[int], int]:
    offsets = [0] * len(blocks)
    placed: list[_Placed] = []  # sorted by start
    size = 0
    for i in order:
        if deadline is not None:
            deadline.check()
        block = blocks[i]
        need = block.nbytes
        # What has no elements needs a place all the same.
        at = _best_gap(placed, block, apart[i] if apart else 0) if need else 0
        offsets[i] = at
        if need:
            insort(placed, (at, at + need, block.first, block.last, i))
            size = max(size, at + need)
    return offsets, size


def _best_gap(placed: Sequence[_Placed], block: LiveBlock, apart: int) -> int:
    need, first, last = block
    best, best_gap, cursor = -1, 0, 0
    for start, end, begin, finish, number in placed:
        # Never in use together: these may share bytes.
        if (finish < first or begin > last) and not apart >> number & 1:
            continue
        gap = start - cursor
        if gap >= need and (best < 0 or gap < best_gap):
            best, best_gap = cursor, gap
        # Blocks of different times may overlap, so that ends do not ascend with starts.
        cursor = max(cursor, end)
    return best if best >= 0 else cursor
