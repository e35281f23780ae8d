"""RoiPool by windows of 4x4 pixels, whose maxima are found once for all boxes."""

import triton
import triton.language as tl

from saccade.kernels.cuda.roi.align_code import over_bins, over_channels
from saccade.kernels.cuda.roi.box_code import (
    block_of_bins,
    corners_of,
    far,
    image_of,
    report_bad,
)
from saccade.kernels.cuda.roi.pool_code import kind_of, nothing_found, scanned, sides_of, stored
from saccade.kernels.cuda.roi.ranges_code import scaled


@triton.jit
def weighed(
    boxes, images, worth, bad, extra, n, count, b_row, b_step, i_row, h, w,
    P: tl.constexpr, Q: tl.constexpr, SCALE: tl.constexpr, REPORT: tl.constexpr,
    EXACT: tl.constexpr, SIDE: tl.constexpr, LEAST: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Whether bins that windows fit into have `LEAST` times the pixels of all images together."""
    if REPORT:
        report_bad(boxes, images, bad, count, n, b_row, i_row, False, EXACT, BLOCK)
    inside = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, count, BLOCK):
        box = start + tl.arange(0, BLOCK)
        known = box < count
        there, _ = image_of(boxes, images, box, known, n, b_row, i_row, False, EXACT)
        corners = corners_of(boxes, tl.minimum(box, count - 1), b_row, b_step, False, EXACT)
        x1, y1, x2, y2, finite = scaled(corners, SCALE)
        down = tl.minimum(y2 - y1 + 1, h.to(y1.dtype))
        along = tl.minimum(x2 - x1 + 1, w.to(y1.dtype))
        fits = known & there & finite & (down >= SIDE * P) & (along >= SIDE * Q)
        inside += tl.where(fits, down * along, 0.0).to(tl.float32)
    total = tl.sum(inside, 0)
    pixels = n.to(tl.float32) * h.to(tl.float32) * w.to(tl.float32)
    tl.store(worth, (total >= LEAST * pixels).to(tl.int32))


@triton.jit
def windows(
    x, worth, most, codes, extra, c, h, w, x_n, x_h, x_w,
    PLACES: tl.constexpr, DOUBLE: tl.constexpr, SIDE: tl.constexpr, TH: tl.constexpr,
    TW: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """The largest pixel of each 4x4, and the number of the first such, row by row.

    Both are [image, first row, first column, channel]. NaN is no number: -inf where there is none.
    A program goes down TH rows of windows and keeps the maxima along the last three rows.
    """
    if tl.load(worth) != 0:
        pid = tl.program_id(0)
        high = h - (SIDE - 1)
        wide = w - (SIDE - 1)
        blocks = tl.cdiv(c, BC)
        tile = pid // blocks
        across = tl.cdiv(wide, TW)
        left = tile % across * TW + tl.arange(0, TW)[:, None]
        top = tile // across % tl.cdiv(high, TH) * TH
        image = tile // (across * tl.cdiv(high, TH))
        channel = (pid % blocks * BC + tl.arange(0, BC))[None, :]
        pixels = x + far(image, x_n) + channel
        start = far(image, high * wide * c) + channel
        KIND: tl.constexpr = kind_of(x.dtype.element_ty, PLACES, DOUBLE)
        # Maxima along the row three above, two, one. Each is a value of its own to begin with: of
        # names for one value Triton would take those that are only moved for constants.
        third, third_at = tl.zeros((TW, BC), KIND), tl.zeros((TW, BC), tl.int32)
        second, second_at = tl.zeros((TW, BC), KIND), tl.zeros((TW, BC), tl.int32)
        first, first_at = tl.zeros((TW, BC), KIND), tl.zeros((TW, BC), tl.int32)
        for i in range(TH + SIDE - 1):
            row = top + i
            ends = tl.where(row < h, w, 0)  # of columns that there are
            value = tl.full((TW, BC), float("-inf"), KIND)
            at = tl.zeros((TW, BC), tl.int32)
            for j in tl.static_range(SIDE):
                mask = (left + j < ends) & (channel < c)
                place = pixels + row * x_h + (left + j) * x_w
                pixel = tl.load(place, mask=mask, other=float("-inf")).to(KIND)
                value, at = larger(value, at, pixel, tl.zeros_like(at) + j, PLACES)
            best, best_at = larger(third, third_at, second, second_at + SIDE, PLACES)
            best, best_at = larger(best, best_at, first, first_at + 2 * SIDE, PLACES)
            best, best_at = larger(best, best_at, value, at + 3 * SIDE, PLACES)
            begins = tl.where((row < h) & (row - top >= SIDE - 1), wide, 0)
            mask = (left < begins) & (channel < c)
            offset = start + ((row - (SIDE - 1)) * wide + left) * c
            tl.store(most + offset, best.to(most.dtype.element_ty), mask=mask)
            if PLACES:
                tl.store(codes + offset, best_at.to(tl.uint8), mask=mask)
            third, second, first = second, first, value
            third_at, second_at, first_at = second_at, first_at, at


@triton.jit
def larger(value, at, other, other_at, PLACES: tl.constexpr):
    """The larger of two and, if asked for, where it is: the first of equal ones; NaN is none."""
    if PLACES:
        above = other > value
        value = tl.where(above, other, value)
        at = tl.where(above, other_at, at)
    else:
        value = tl.maximum(value, other)
    return value, at


@triton.jit
def pooled(
    x, boxes, images, worth, most, codes, y, places, extra,
    n, count, b_row, b_step, i_row, c, h, w, x_n, x_h, x_w, y_k, y_c, y_p, y_q,
    at_k, at_c, at_p, at_q,
    P: tl.constexpr, Q: tl.constexpr, SCALE: tl.constexpr, PLACES: tl.constexpr,
    DOUBLE: tl.constexpr, EXACT: tl.constexpr, UNIT: tl.constexpr, JOINED: tl.constexpr,
    AT_UNIT: tl.constexpr, AT_JOINED: tl.constexpr, SIDE: tl.constexpr, BB: tl.constexpr,
    BC: tl.constexpr,
):  # fmt: skip
    """Windows side by side cover a bin; the last of a row or column overlaps that before it."""
    box, bins, channel = block_of_bins(tl.program_id(0), count, P * Q, BB, BC)
    p = bins // Q
    q = bins % Q
    there, image = image_of(boxes, images, box, box < count, n, b_row, i_row, False, EXACT)
    top, bottom, left, right = sides_of(
        boxes, box, there, p, q, h, w, b_row, b_step, P, Q, SCALE, EXACT
    )
    exist = bins < P * Q
    channel_mask = over_channels(channel < c, True)
    acc, found = nothing_found(x, BB, BC, True, PLACES, DOUBLE)
    least = tl.where(tl.load(worth) != 0, SIDE, h + 1)  # rows of a bin, for windows
    fits = exist & (bottom - top >= least) & (right - left >= SIDE)
    wide = w - (SIDE - 1)
    start = far(image, (h - (SIDE - 1)) * wide * c) + over_channels(channel, True)
    down = tl.max(tl.where(fits, tl.cdiv(bottom - top, SIDE), 0), 0)
    along = tl.max(tl.where(fits, tl.cdiv(right - left, SIDE), 0), 0)
    for i in range(down):
        row = tl.minimum(top + i * SIDE, bottom - SIDE)
        inside = fits & (top + i * SIDE < bottom)
        for j in range(along):
            column = tl.minimum(left + j * SIDE, right - SIDE)
            mask = over_bins(inside & (left + j * SIDE < right), True) & channel_mask
            at = start + over_bins((row * wide + column) * c, True)
            value = tl.load(most + at, mask=mask, other=float("-inf")).to(acc.dtype)
            if PLACES:
                code = tl.load(codes + at, mask=mask, other=0).to(tl.int32)
                place = over_bins(row * w + column, True) + code // SIDE * w + code % SIDE
                # Windows come in another order than pixels: the first equal pixel counts.
                above = (value > acc) | ((value == acc) & (place < found))
                found = tl.where(above, place, found)
                acc = tl.where(above, value, acc)
            else:
                acc = tl.maximum(acc, value)
    pixels = x + far(image, x_n) + over_channels(channel, True)
    acc, found = scanned(
        acc, found, pixels, top, bottom, left, right, exist & ~fits, channel_mask,
        x_h, x_w, w, True, PLACES,
    )  # fmt: skip
    acc = tl.where(over_bins((bottom <= top) | (right <= left), True), 0.0, acc)
    stored(
        acc, found, y, places, box, bins, p, q, channel, c,
        y_k, y_c, y_p, y_q, at_k, at_c, at_p, at_q,
        P * Q, True, PLACES, UNIT, JOINED, AT_UNIT, AT_JOINED,
    )  # fmt: skip
