"""Places of elements that are not zero, block by block."""

import triton
import triton.language as tl


@triton.jit
def _found(x, at, size):
    """1 where an element is not zero; NaN is not."""
    value = tl.load(x + at, mask=at < size, other=0)
    return (value != 0).to(tl.int32)


@triton.jit
def count(x, counts, extra, size, BLOCK: tl.constexpr):
    """How many elements of each block."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(counts + tl.program_id(0), tl.sum(_found(x, at, size), 0))


@triton.jit
def write(
    x, counts, places, total, extra, size, rows, blocks,
    BLOCK: tl.constexpr, RANK: tl.constexpr, ALONE: tl.constexpr,
):  # fmt: skip
    """Places [RANK, rows] of a block's elements, and zeros in the block's share of the rest.

    `extra`: the operand's sizes.
    """
    program = tl.program_id(0)
    at = program * BLOCK + tl.arange(0, BLOCK)
    found = _found(x, at, size)
    if ALONE:
        first = program * 0
        every = tl.sum(found, 0)
    else:
        lane = tl.arange(0, 256)
        before = tl.zeros((256,), tl.int32)
        sums = tl.zeros((256,), tl.int32)
        for start in range(0, blocks, 256):
            have = tl.load(counts + start + lane, mask=start + lane < blocks, other=0)
            before += tl.where(start + lane < program, have, 0)
            sums += have
        first = tl.sum(before, 0)
        every = tl.sum(sums, 0)
    to = first + tl.cumsum(found, 0) - found
    mine = (found > 0) & (to < rows)
    empty = (at >= every) & (at < rows)
    rest = at
    for i in tl.static_range(RANK):
        place = rest
        if i + 1 < RANK:
            place = rest % extra[RANK - 1 - i]
            rest = rest // extra[RANK - 1 - i]
        line = places + rows * (RANK - 1 - i)
        tl.store(line + to, place.to(tl.int64), mask=mine)
        tl.store(line + at, tl.zeros((BLOCK,), tl.int64), mask=empty)
    if program == 0:
        tl.store(total, every.to(tl.int64))
