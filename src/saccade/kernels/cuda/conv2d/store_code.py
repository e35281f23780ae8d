"""Where elements of a result go: plain, or channels as pixels (DepthToSpace)."""

import triton
import triton.language as tl


@triton.jit
def places(
    n, k, p, q, channels, y_n, y_k, y_p, y_q,
    UNIT: tl.constexpr, BLOCK: tl.constexpr, CRD: tl.constexpr,
):  # fmt: skip
    """Elements from the result's first to those of rows (n, p, q) and channels k.

    `channels` counts those of the result; UNIT says that they are neighbours, BLOCK is the edge of
    the block of pixels that channels become, CRD their order.
    """
    step = 1 if UNIT else y_k
    if BLOCK == 1:
        return (n * y_n + p * y_p + q * y_q)[:, None] + (k * step)[None, :]
    pixel = k % (BLOCK * BLOCK) if CRD else k // channels
    channel = k // (BLOCK * BLOCK) if CRD else k % channels
    corner = n * y_n + p * (BLOCK * y_p) + q * (BLOCK * y_q)
    within = pixel // BLOCK * y_p + pixel % BLOCK * y_q + channel * step
    return corner[:, None] + within[None, :]
