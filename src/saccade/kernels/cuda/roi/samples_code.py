"""Bilinear samples along one axis of a box, as `opdefs._roi_numpy` has them.

Boxes may be anything: what is not finite has no samples. Those outside the image count as zeros,
and only as many of them are visited as rounding may have put there, so that a loop is never longer
than about twice the image.
"""

import triton
import triton.language as tl

from saccade.kernels.cuda.roi.box_code import quotient

MOST = tl.constexpr(1 << 20)


@triton.jit
def grid_of(
    low, high, there,
    BINS: tl.constexpr, SCALE: tl.constexpr, RATIO: tl.constexpr, ALIGNED: tl.constexpr,
    DOUBLE: tl.constexpr,
):  # fmt: skip
    """Where the first bin begins, how large bins are, and how many samples they have."""
    offset: tl.constexpr = 0.5 if ALIGNED else 0.0
    start = low * SCALE - offset
    extent = high * SCALE - offset - start
    if not ALIGNED:
        extent = tl.where(extent < 1, 1.0, extent)
    size = (extent * 0 + BINS) if BINS > 0 else (extent * 0 + 1)
    step = quotient(extent, size, DOUBLE)
    finite = there & (tl.abs(extent) < float("inf"))
    if RATIO > 0:
        count = tl.where(finite, RATIO, 0)
    else:
        count = tl.where(finite, tl.minimum(tl.maximum(tl.ceil(step), 0.0), MOST), 0.0).to(tl.int32)
    return start, step, count


@triton.jit
def visited(start, step, count, bins, size, BINS: tl.constexpr, RATIO: tl.constexpr):
    """First and one past the last sample of bins that may lie inside an axis of `size` pixels."""
    first = bins * 0
    last = first + count
    if RATIO <= 0:
        MARGIN: tl.constexpr = BINS + 2.0  # of which rounding takes less than half
        rate = count / step  # samples to a pixel
        near = (-1 - (start + bins * step)) * rate - MARGIN
        far = (size - (start + bins * step)) * rate + MARGIN
        first = tl.where(near > 0, tl.minimum(near, count), 0).to(tl.int32)
        last = tl.where(far < count, tl.maximum(far, 0), count).to(tl.int32)
    return first, last


@triton.jit
def sample(start, step, count, bins, number, size, DOUBLE: tl.constexpr):
    """Of one sample of each bin: whether it lies inside, its two pixels and their weights."""
    at = number.to(start.dtype) + 0.5
    place = start + bins * step + quotient(at * step, (tl.maximum(count, 1) + at * 0), DOUBLE)
    inside = (place >= -1) & (place <= tl.where(size > 0, size, -2))
    place = tl.where(inside, tl.maximum(place, 0), 0)
    end = tl.maximum(size - 1, 0)
    below = tl.minimum(place.to(tl.int32), end)
    above = tl.minimum(below + 1, end)
    upper = tl.where(below >= size - 1, 0, place - below)
    return inside, below, above, 1 - upper, upper
