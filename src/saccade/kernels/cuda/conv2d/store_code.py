"""Where elements of a result go: plain, channels as pixels (DepthToSpace), or interleaved parts."""

import triton
import triton.language as tl


@triton.jit
def places(
    n, k, p, q, channels, y_n, y_k, y_p, y_q,
    UNIT: tl.constexpr, BLOCK: tl.constexpr, CRD: tl.constexpr,
):  # fmt: skip
    """Elements from the result's first to those of rows (n, p, q) and channels k.

    `channels` counts those of the result; UNIT says that they are neighbours, BLOCK is the edge of
    the block of pixels that channels become. CRD: those of a pixel are "apart", or "packed" side by
    side with the weights; they are side by side without it, too.
    """
    step = 1 if UNIT else y_k
    if BLOCK == 1:
        return (n * y_n + p * y_p + q * y_q)[:, None] + (k * step)[None, :]
    pixel = k % (BLOCK * BLOCK) if CRD == "apart" else k // channels
    channel = k // (BLOCK * BLOCK) if CRD == "apart" else k % channels
    corner = n * y_n + p * (BLOCK * y_p) + q * (BLOCK * y_q)
    within = pixel // BLOCK * y_p + pixel % BLOCK * y_q + channel * step
    return corner[:, None] + within[None, :]


@triton.jit
def store(
    y, acc, n, start, end, p, q, row_mask, extra, channels, y_n, y_k, y_p, y_q,
    UNIT: tl.constexpr, BLOCK: tl.constexpr, CRD: tl.constexpr,
    PARTS: tl.constexpr, POSITION: tl.constexpr, EXCESS: tl.constexpr, ROOM: tl.constexpr,
    EPILOGUE: tl.constexpr, OTHERS: tl.constexpr,
):  # fmt: skip
    """Store a block of sums [rows, channels] from channel `start` to `end`, after its epilogue.

    With two parts each program stores both, side by side in whole runs; with more, one after the
    other, which leaves joining them to the L2 cache. The last EXCESS of the channels are none:
    zeros are written to the ROOM behind the last one of the result, so that vectors are whole.
    """
    k = start + tl.arange(0, acc.shape[1])
    # Packed weights may have brought the channels of a pixel together: `k` counts columns.
    named = k % channels * (BLOCK * BLOCK) + k // channels if CRD == "packed" else k
    there = k < end - EXCESS
    if EXCESS > 0:
        # The mask for operands that may be read in the EXCESS, too: `w` in `epilogue`.
        extra = extra + (k < end,)  # noqa: RUF005 - no Triton
    acc = EPILOGUE(acc, n, named, p, q, row_mask, there, extra)
    if EXCESS > 0:
        # An epilogue may make anything of zeros, and whoever reads the pixels counts on zeros.
        acc = tl.where(there[None, :], acc, 0.0)
    element = y.dtype.element_ty
    if PARTS == 1:
        mask = row_mask[:, None] & (k < end - (EXCESS - ROOM))[None, :]
        place = places(n, k, p, q, channels, y_n, y_k, y_p, y_q, UNIT, BLOCK, CRD)
        tl.store(y + place, acc.to(element), mask=mask)
    elif PARTS == 2:
        other = OTHERS(acc, n, k, p, q, row_mask, there, extra, 0)
        if EXCESS > 0:
            other = tl.where(there[None, :], other, 0.0)
        first = acc if POSITION == 0 else other
        second = other if POSITION == 0 else acc
        both = tl.interleave(first.to(element), second.to(element))
        wide = start * 2 + tl.arange(0, 2 * acc.shape[1])
        mask = row_mask[:, None] & (wide < end * 2 - (2 * EXCESS - ROOM))[None, :]
        place = places(n, wide, p, q, channels, y_n, y_k, y_p, y_q, UNIT, 1, "")
        tl.store(y + place, both, mask=mask)
    else:
        place = places(n, k * PARTS, p, q, channels, y_n, y_k, y_p, y_q, UNIT, 1, "")
        step = 1 if UNIT else y_k
        last = end * PARTS - (PARTS * EXCESS - ROOM)
        mask = row_mask[:, None] & (k * PARTS + POSITION < last)[None, :]
        tl.store(y + place + POSITION * step, acc.to(element), mask=mask)
        for i in tl.static_range(PARTS - 1):
            other = OTHERS(acc, n, k, p, q, row_mask, there, extra, i)
            if EXCESS > 0:
                other = tl.where(there[None, :], other, 0.0)
            at = i if i < POSITION else i + 1
            mask = row_mask[:, None] & (k * PARTS + at < last)[None, :]
            tl.store(y + place + at * step, other.to(element), mask=mask)
