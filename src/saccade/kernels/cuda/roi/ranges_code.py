"""Boxes rounded to pixels, as `opdefs._ranges_numpy` has them: the pixels of bins on an axis."""

import triton
import triton.language as tl

from saccade.kernels.cuda.roi.box_code import quotient


@triton.jit
def _rounded(value, DOUBLE: tl.constexpr):
    """Halves away from zero; what is below a half stays below it. `value` is finite."""
    below: tl.constexpr = 0.49999999999999994 if DOUBLE else 0.4999999701976776
    inner = tl.minimum(tl.maximum(value, -1073741824.0), 1073741824.0)
    return (inner + tl.where(value < 0, -below, below)).to(tl.int64)


@triton.jit
def pixels_of(
    low, high, usable, bins, size,
    BINS: tl.constexpr, INCLUSIVE: tl.constexpr, DOUBLE: tl.constexpr,
):  # fmt: skip
    """First and one past the last pixel of each bin, cut at the image.

    Args:
        low, high: Scaled corners.
        usable: Whether all of the box's are finite; else its bins have no pixels.
        bins: Numbers of bins.
        size: Pixels of the image.
        INCLUSIVE: See `bin_ranges`.
    """
    start = _rounded(tl.where(usable, low, 0.0), DOUBLE)
    end = _rounded(tl.where(usable, high, 0.0), DOUBLE)
    extent = tl.maximum(end - start + (1 if INCLUSIVE else 0), 1).to(low.dtype)
    step = quotient(extent, extent * 0 + (BINS if BINS > 0 else 1), DOUBLE)
    limit = size if INCLUSIVE else tl.maximum(size - 1, 0)
    first = tl.floor(bins * step).to(tl.int64) + start
    last = tl.ceil((bins + 1) * step).to(tl.int64) + start
    first = tl.minimum(tl.maximum(first, 0), limit).to(tl.int32)
    last = tl.minimum(tl.maximum(last, 0), limit).to(tl.int32)
    return first, tl.where(usable, last, first)


@triton.jit
def scaled(corners, SCALE: tl.constexpr):
    """Scaled corners and whether all of them are finite."""
    x1 = corners[0] * SCALE
    y1 = corners[1] * SCALE
    x2 = corners[2] * SCALE
    y2 = corners[3] * SCALE
    most: tl.constexpr = float("inf")
    finite = (tl.abs(x1) < most) & (tl.abs(y1) < most) & (tl.abs(x2) < most) & (tl.abs(y2) < most)
    return x1, y1, x2, y2, finite
