"""The best elements of rows: a search for the last one of them, and their ranks.

Temporaries, for each row:

    counts [blocks, 256]    elements of a block that have the digits found so far, by the next one;
                            two of them, as those of a digit are read while the next one's come
    state [digits + 1, 2]   in front of each digit: the digits found, and how many of the best have
                            those; behind the last one the last key of the best, and how many
                            elements that are equal to it are among them
    ties [blocks, 2]        elements of a block that are better than that key, or equal
    keys, found [best]      keys and places of the best, in the order of the row

Keys are integers that rise with what an element is worth; digits are of keys without a sign.
COUNTED: only the first `number` elements of a row are there, and blocks beyond them have no part.
"""

import triton
import triton.language as tl

from saccade.kernels.cuda.reduce.arg_code import ordered
from saccade.kernels.cuda.reduce.axis_loops_code import place


@triton.jit
def _keys(x, at, mask, LARGEST: tl.constexpr, WIDE: tl.constexpr):
    """Of elements at offsets from x; NaN is larger than all numbers."""
    key = ordered(tl.load(x + at, mask=mask, other=0), LARGEST=True)
    key = key.to(tl.int64) if WIDE else key.to(tl.int32)
    return key if LARGEST else ~key


@triton.jit
def _unsigned(key, WIDE: tl.constexpr):
    """A key whose bits rise with it."""
    least: tl.constexpr = -0x7FFFFFFFFFFFFFFF - 1 if WIDE else -0x7FFFFFFF - 1
    return key ^ tl.full((), least, tl.int64 if WIDE else tl.int32)


@triton.jit
def _start(state, best, DIGIT: tl.constexpr):
    """Before the first digit nothing is known, and all of the best are looked for."""
    known = tl.program_id(0).to(tl.int64) * 0
    if DIGIT > 0:
        known = tl.load(state)
        wanted = tl.load(state + 1)
    else:
        wanted = known + best
    return known, wanted


@triton.jit
def _there(number, size, best, share, COUNTED: tl.constexpr):
    """How many elements of a row there are, how many of the best, and of how many programs."""
    if COUNTED:
        size = tl.minimum(size, tl.load(number)).to(tl.int32)
        best = tl.minimum(best, size)
    return size, best, tl.cdiv(size, share)


@triton.jit
def _next(
    counts, state, row, part, best, blocks, used, DIGIT: tl.constexpr, DIGITS: tl.constexpr,
):  # fmt: skip
    """The digits that are known in front of DIGIT, and how many of the best have them.

    Each program finds out itself; the row's first one notes it for the next launch.
    """
    mine = state + row * (2 * (DIGITS + 1))
    if DIGIT == 0:
        known, wanted = _start(mine, best, DIGIT=0)
    else:
        known, wanted = _start(mine + 2 * (DIGIT - 1), best, DIGIT=DIGIT - 1)
        SOME: tl.constexpr = 16  # whose loads are under way at the same time
        digit = tl.arange(0, 256)
        several = tl.zeros((SOME, 256), tl.int32)
        for start in range(0, used, SOME):
            block = start + tl.arange(0, SOME)
            at = ((row * blocks + block) * 256)[:, None] + digit[None, :]
            several += tl.load(counts + at, mask=(block < used)[:, None], other=0)
        sums = tl.sum(several, 0)
        better = tl.sum(sums, 0) - tl.cumsum(sums, 0)  # of higher digits
        here = (better < wanted) & (better + sums >= wanted)
        found = tl.sum(tl.where(here, digit, 0), 0).to(tl.int64)
        known += found << (8 * (DIGITS - DIGIT))
        wanted -= tl.sum(tl.where(here, better, 0), 0)
    if part == 0:
        tl.store(mine + 2 * DIGIT, known)
        tl.store(mine + 2 * DIGIT + 1, wanted)
    return known, wanted


@triton.jit
def digits(
    x, number, state, counts, to, extra,
    size, best, blocks, share, k1, k2, x_k0, x_k1, x_k2, x_r,
    LARGEST: tl.constexpr, WIDE: tl.constexpr, KEPT: tl.constexpr, BLOCK: tl.constexpr,
    COUNTED: tl.constexpr, DIGIT: tl.constexpr,
):  # fmt: skip
    """Elements of a row's share by their next digit."""
    DIGITS: tl.constexpr = 8 if WIDE else 4
    SHIFT: tl.constexpr = 8 * (DIGITS - 1 - DIGIT)
    row = tl.program_id(0) // blocks
    part = tl.program_id(0) % blocks
    size, best, used = _there(number, size, best, share, COUNTED)
    if part < used:
        known, _ = _next(counts, state, row, part, best, blocks, used, DIGIT=DIGIT, DIGITS=DIGITS)
        line = x + place(row, k1, k2, x_k0, x_k1, x_k2, AXES=KEPT, UNIT=False)
        found = tl.zeros((256,), tl.int32)
        for start in range(part * share, tl.minimum(part * share + share, size), BLOCK):
            at = start + tl.arange(0, BLOCK)
            mask = at < size
            key = _unsigned(_keys(line, at * x_r, mask, LARGEST=LARGEST, WIDE=WIDE), WIDE=WIDE)
            if DIGIT > 0:
                high: tl.constexpr = (1 << (8 * DIGIT)) - 1  # bits that are no copies of a sign
                upper = ((known >> (SHIFT + 8)) & high).to(key.dtype)
                mask = mask & (((key >> (SHIFT + 8)) & high) == upper)
            found += tl.histogram(((key >> SHIFT) & 255).to(tl.int32), 256, mask=mask)
        tl.store(to + tl.program_id(0) * 256 + tl.arange(0, 256), found)


@triton.jit
def ties(
    x, number, state, counts, ties, extra,
    size, best, blocks, share, k1, k2, x_k0, x_k1, x_k2, x_r,
    LARGEST: tl.constexpr, WIDE: tl.constexpr, KEPT: tl.constexpr, BLOCK: tl.constexpr,
    COUNTED: tl.constexpr, DIGIT: tl.constexpr,
):  # fmt: skip
    """How many elements of a row's share are better than the last of the best, or equal."""
    row = tl.program_id(0) // blocks
    part = tl.program_id(0) % blocks
    size, best, used = _there(number, size, best, share, COUNTED)
    if part < used:
        known, _ = _next(counts, state, row, part, best, blocks, used, DIGIT=DIGIT, DIGITS=DIGIT)
        line = x + place(row, k1, k2, x_k0, x_k1, x_k2, AXES=KEPT, UNIT=False)
        better = tl.zeros((BLOCK,), tl.int32)
        equal = tl.zeros((BLOCK,), tl.int32)
        for start in range(part * share, tl.minimum(part * share + share, size), BLOCK):
            at = start + tl.arange(0, BLOCK)
            key = _keys(line, at * x_r, at < size, LARGEST=LARGEST, WIDE=WIDE)
            last = _unsigned(known.to(key.dtype), WIDE=WIDE)
            better += ((key > last) & (at < size)).to(tl.int32)
            equal += ((key == last) & (at < size)).to(tl.int32)
        tl.store(ties + 2 * tl.program_id(0), tl.sum(better, 0))
        tl.store(ties + 2 * tl.program_id(0) + 1, tl.sum(equal, 0))


@triton.jit
def gather(
    x, number, state, ties, keys, found, extra,
    size, best, blocks, share, k1, k2, x_k0, x_k1, x_k2, x_r,
    LARGEST: tl.constexpr, WIDE: tl.constexpr, KEPT: tl.constexpr, BLOCK: tl.constexpr,
    COUNTED: tl.constexpr,
):  # fmt: skip
    """The best of a row's share, behind those of the shares before."""
    DIGITS: tl.constexpr = 8 if WIDE else 4
    row = tl.program_id(0) // blocks
    part = tl.program_id(0) % blocks
    ranked = keys + row * best
    placed = found + row * best
    size, best, used = _there(number, size, best, share, COUNTED)
    if part < used:
        mine = state + row * (2 * (DIGITS + 1)) + 2 * DIGITS
        known = tl.load(mine)
        wanted = tl.load(mine + 1).to(tl.int32)
        lane = tl.arange(0, 128)
        better_before = tl.zeros((128,), tl.int32)
        equal_before = tl.zeros((128,), tl.int32)
        for start in range(0, part, 128):
            at = 2 * (row * blocks + start + lane)
            before = start + lane < part
            better_before += tl.load(ties + at, mask=before, other=0)
            equal_before += tl.load(ties + at + 1, mask=before, other=0)
        better = tl.sum(better_before, 0)
        equal = tl.sum(equal_before, 0)
        line = x + place(row, k1, k2, x_k0, x_k1, x_k2, AXES=KEPT, UNIT=False)
        for start in range(part * share, tl.minimum(part * share + share, size), BLOCK):
            at = start + tl.arange(0, BLOCK)
            key = _keys(line, at * x_r, at < size, LARGEST=LARGEST, WIDE=WIDE)
            last = _unsigned(known.to(key.dtype), WIDE=WIDE)
            is_better = ((key > last) & (at < size)).to(tl.int32)
            is_equal = ((key == last) & (at < size)).to(tl.int32)
            # Most blocks have none of the best, and sums along them take longest.
            if (tl.max(is_better, 0) > 0) | ((equal < wanted) & (tl.max(is_equal, 0) > 0)):
                # Before each element; of those that are equal so many count as there is room for.
                betters = better + tl.cumsum(is_better, 0) - is_better
                equals = equal + tl.cumsum(is_equal, 0) - is_equal
                to = betters + tl.minimum(equals, wanted)
                taken = (is_better > 0) | ((is_equal > 0) & (equals < wanted))
                tl.store(ranked + to, key, mask=taken)
                tl.store(placed + to, at, mask=taken)
                better += tl.sum(is_better, 0)
                equal += tl.sum(is_equal, 0)


@triton.jit
def _others(
    line, ranked, start, size, x_r,
    LARGEST: tl.constexpr, WIDE: tl.constexpr, SEARCHED: tl.constexpr, OTHERS: tl.constexpr,
):  # fmt: skip
    """Keys of elements from there on; of those that are not there the least."""
    at = start + tl.arange(0, OTHERS)
    if SEARCHED:
        keys = tl.load(ranked + at, mask=at < size, other=0)
    else:
        keys = _keys(line, at * x_r, at < size, LARGEST=LARGEST, WIDE=WIDE)
    least: tl.constexpr = -0x7FFFFFFFFFFFFFFF - 1 if WIDE else -0x7FFFFFFF - 1
    return tl.where(at < size, keys, least)


@triton.jit
def rank(
    x, number, keys, found, values, places, extra,
    size, best, k1, k2, x_k0, x_k1, x_k2, x_r, v_k0, v_k1, v_k2, v_r, p_k0, p_k1, p_k2, p_r,
    LARGEST: tl.constexpr, WIDE: tl.constexpr, KEPT: tl.constexpr, SEARCHED: tl.constexpr,
    BLOCK: tl.constexpr, OTHERS: tl.constexpr, COUNTED: tl.constexpr,
):  # fmt: skip
    """BLOCK elements of a row go where they belong; SEARCHED: out of those found, else of x."""
    blocks = tl.cdiv(size, BLOCK)
    row = tl.program_id(0) // blocks
    at = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    line = x + place(row, k1, k2, x_k0, x_k1, x_k2, AXES=KEPT, UNIT=False)
    v_row = place(row, k1, k2, v_k0, v_k1, v_k2, AXES=KEPT, UNIT=False)
    p_row = place(row, k1, k2, p_k0, p_k1, p_k2, AXES=KEPT, UNIT=False)
    ranked = keys + row * size
    placed = found + row * size
    if COUNTED:
        size = tl.minimum(size, tl.load(number)).to(tl.int32)
        rest = (at >= size) & (at < best)
        tl.store(values + v_row + at * v_r, tl.load(line), mask=rest)
        tl.store(places + p_row + at * p_r, tl.zeros((BLOCK,), tl.int64), mask=rest)
    there = at < size
    if SEARCHED:
        mine = tl.load(ranked + at, mask=there, other=0)
        origin = tl.load(placed + at, mask=there, other=0)
    else:
        mine = _keys(line, at * x_r, there, LARGEST=LARGEST, WIDE=WIDE)
        origin = at
    # Of equal ones the earlier come first: which they are is asked beside the element alone.
    begin = tl.program_id(0) % blocks * BLOCK
    near = tl.minimum(begin, size) // OTHERS * OTHERS
    far = tl.cdiv(begin + BLOCK, OTHERS) * OTHERS
    before = tl.zeros((BLOCK, OTHERS), tl.int32)
    for start in range(0, near, OTHERS):
        theirs = _others(line, ranked, start, size, x_r, LARGEST, WIDE, SEARCHED, OTHERS)
        before += (theirs[None, :] >= mine[:, None]).to(tl.int32)
    for start in range(near, tl.minimum(far, size), OTHERS):
        theirs = _others(line, ranked, start, size, x_r, LARGEST, WIDE, SEARCHED, OTHERS)
        other = start + tl.arange(0, OTHERS)
        earlier = other[None, :] < at[:, None]
        first = (theirs[None, :] > mine[:, None]) | ((theirs[None, :] == mine[:, None]) & earlier)
        before += first.to(tl.int32)
    for start in range(far, size, OTHERS):
        theirs = _others(line, ranked, start, size, x_r, LARGEST, WIDE, SEARCHED, OTHERS)
        before += (theirs[None, :] > mine[:, None]).to(tl.int32)
    to = tl.sum(before, 1)
    wanted = there & (to < best)
    value = tl.load(line + origin * x_r, mask=wanted, other=0)
    tl.store(values + v_row + to * v_r, value, mask=wanted)
    tl.store(places + p_row + to * p_r, origin.to(tl.int64), mask=wanted)
