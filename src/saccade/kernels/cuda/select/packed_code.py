"""Places of lists that are packed one behind the other."""

import triton
import triton.language as tl


@triton.jit
def packed(sizes, places, total, extra, rows, LISTS: tl.constexpr, BLOCK: tl.constexpr):
    """A program has BLOCK of the places; `extra` is the room of each list."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    place = tl.zeros((BLOCK,), tl.int32)
    at = tl.program_id(0) * 0  # where the list begins among the places, and in its array
    start = at
    for i in tl.static_range(LISTS):
        room = extra[i]
        size = tl.load(sizes + i)
        # As 64 bits: a number may be anything, room is less than 2^31.
        size = tl.minimum(tl.maximum(size, 0), room).to(tl.int32)
        mine = (row >= at) & (row < at + size)
        place = tl.where(mine, start + row - at, place)
        at += size
        start += room
    tl.store(places + row, place.to(tl.int64), mask=row < rows)
    if tl.program_id(0) == 0:
        tl.store(total, at.to(tl.int64))
