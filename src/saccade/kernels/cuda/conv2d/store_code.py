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
    PARTS: tl.constexpr, POSITION: tl.constexpr, EPILOGUE: tl.constexpr, OTHERS: tl.constexpr,
):  # fmt: skip
    """Store a block of sums [rows, channels] from channel `start` to `end`, after its epilogue.

    With two parts each program stores both, side by side in whole runs; with more, one after the
    other, which leaves joining them to the L2 cache.
    """
    k = start + tl.arange(0, acc.shape[1])
    # Packed weights may have brought the channels of a pixel together: `k` counts columns.
    named = k % channels * (BLOCK * BLOCK) + k // channels if CRD == "packed" else k
    acc = EPILOGUE(acc, n, named, p, q, row_mask, k < end, extra)
    element = y.dtype.element_ty
    mask = row_mask[:, None] & (k < end)[None, :]
    if PARTS == 1:
        place = places(n, k, p, q, channels, y_n, y_k, y_p, y_q, UNIT, BLOCK, CRD)
        tl.store(y + place, acc.to(element), mask=mask)
    else:
        others = OTHERS(acc, n, k, p, q, row_mask, k < end, extra)
        if PARTS == 2:
            first = acc if POSITION == 0 else others[0]
            second = others[0] if POSITION == 0 else acc
            both = tl.interleave(first.to(element), second.to(element))
            wide = start * 2 + tl.arange(0, 2 * acc.shape[1])
            place = places(n, wide, p, q, channels, y_n, y_k, y_p, y_q, UNIT, 1, "")
            tl.store(y + place, both, mask=row_mask[:, None] & (wide < end * 2)[None, :])
        else:
            first = places(n, k * PARTS, p, q, channels, y_n, y_k, y_p, y_q, UNIT, 1, "")
            step = 1 if UNIT else y_k
            tl.store(y + first + POSITION * step, acc.to(element), mask=mask)
            for i in tl.static_range(PARTS - 1):
                other = others[i].to(element)
                tl.store(y + first + (i if i < POSITION else i + 1) * step, other, mask=mask)
