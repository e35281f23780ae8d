"""RoiPool: a program has some bins of one box and some channels; see `align_code`."""

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
from saccade.kernels.cuda.roi.ranges_code import pixels_of, scaled


@triton.jit
def sides_of(
    boxes, box, there, p, q, h, w, b_row, b_step,
    P: tl.constexpr, Q: tl.constexpr, SCALE: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """top, bottom, left, right: the pixels of bins of a box, empty where its image is not there."""
    x1, y1, x2, y2, finite = scaled(corners_of(boxes, box, b_row, b_step, False, EXACT), SCALE)
    top, bottom = pixels_of(y1, y2, there & finite, p, h, P, True, EXACT)
    left, right = pixels_of(x1, x2, there & finite, q, w, Q, True, EXACT)
    return top, bottom, left, right


@triton.constexpr_function
def kind_of(element, places, double):
    """What pixels are compared in. Without places halves stay halves, and are not converted."""
    if double:
        return tl.float64
    return tl.float16 if element.is_fp16() and not places else tl.float32


@triton.jit
def nothing_found(
    x, BB: tl.constexpr, BC: tl.constexpr, LAST: tl.constexpr, PLACES: tl.constexpr,
    DOUBLE: tl.constexpr,
):  # fmt: skip
    """A value that no pixel counted so far exceeds, and no place."""
    KIND: tl.constexpr = kind_of(x.dtype.element_ty, PLACES, DOUBLE)
    # Which float32's least is for halves.
    LEAST: tl.constexpr = float("-inf") if KIND.is_fp16() else -3.4028234663852886e38
    acc = tl.full((BB, BC) if LAST else (BC, BB), LEAST, KIND)
    return acc, tl.zeros((BB, BC) if LAST else (BC, BB), tl.int32) - 1


@triton.jit
def scanned(
    acc, found, pixels, top, bottom, left, right, use, channel_mask, x_h, x_w, w,
    LAST: tl.constexpr, PLACES: tl.constexpr,
):  # fmt: skip
    """The largest of all pixels of the bins in use, one after the other, and where it is."""
    down = tl.max(tl.where(use, bottom - top, 0), 0)
    along = tl.max(tl.where(use, right - left, 0), 0)
    for i in range(down):
        row = top + i
        inside = use & (row < bottom)
        for j in range(along):
            column = left + j
            mask = over_bins(inside & (column < right), LAST) & channel_mask
            at = over_bins(row * x_h + column * x_w, LAST)
            value = tl.load(pixels + at, mask=mask, other=float("-inf")).to(acc.dtype)
            if PLACES:
                above = value > acc  # the first of equal ones stays; NaN is above none
                acc = tl.where(above, value, acc)
                found = tl.where(above, over_bins(row * w + column, LAST), found)
            else:
                acc = tl.maximum(acc, value)
    return acc, found


@triton.jit
def stored(
    acc, found, y, places, box, bins, p, q, channel, c,
    y_k, y_c, y_p, y_q, at_k, at_c, at_p, at_q,
    BINS: tl.constexpr, LAST: tl.constexpr, PLACES: tl.constexpr, UNIT: tl.constexpr,
    JOINED: tl.constexpr, AT_UNIT: tl.constexpr, AT_JOINED: tl.constexpr,
):  # fmt: skip
    mask = over_bins(bins < BINS, LAST) & over_channels(channel < c, LAST)
    place = over_bins(bins if JOINED else p * y_p + q * y_q, LAST)
    offset = place + over_channels(channel * (1 if UNIT else y_c), LAST)
    tl.store(y + far(box, y_k) + offset, acc.to(y.dtype.element_ty), mask=mask)
    if PLACES:
        place = over_bins(bins if AT_JOINED else p * at_p + q * at_q, LAST)
        offset = place + over_channels(channel * (1 if AT_UNIT else at_c), LAST)
        tl.store(places + far(box, at_k) + offset, found, mask=mask)


@triton.jit
def pool(
    x, boxes, images, y, places, bad, extra,
    n, count, b_row, b_step, i_row, c, h, w, programs, x_n, x_c, x_h, x_w, y_k, y_c, y_p, y_q,
    at_k, at_c, at_p, at_q,
    P: tl.constexpr, Q: tl.constexpr, SCALE: tl.constexpr, PLACES: tl.constexpr,
    REPORT: tl.constexpr, DOUBLE: tl.constexpr, EXACT: tl.constexpr, LAST: tl.constexpr,
    UNIT: tl.constexpr, JOINED: tl.constexpr, AT_UNIT: tl.constexpr, AT_JOINED: tl.constexpr,
    BB: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    if REPORT:  # noqa: SIM102 - decided when compiling
        if pid == programs:
            report_bad(boxes, images, bad, count, n, b_row, i_row, False, EXACT, 256)
    if pid < programs:
        box, bins, channel = block_of_bins(pid, count, P * Q, BB, BC)
        p = bins // Q
        q = bins % Q
        there, image = image_of(boxes, images, box, box < count, n, b_row, i_row, False, EXACT)
        top, bottom, left, right = sides_of(
            boxes, box, there, p, q, h, w, b_row, b_step, P, Q, SCALE, EXACT
        )
        channel_mask = over_channels(channel < c, LAST)
        pixels = x + far(image, x_n) + over_channels(channel * (1 if LAST else x_c), LAST)
        acc, found = nothing_found(x, BB, BC, LAST, PLACES, DOUBLE)
        acc, found = scanned(
            acc, found, pixels, top, bottom, left, right, bins < P * Q, channel_mask,
            x_h, x_w, w, LAST, PLACES,
        )  # fmt: skip
        acc = tl.where(over_bins((bottom <= top) | (right <= left), LAST), 0.0, acc)
        stored(
            acc, found, y, places, box, bins, p, q, channel, c,
            y_k, y_c, y_p, y_q, at_k, at_c, at_p, at_q,
            P * Q, LAST, PLACES, UNIT, JOINED, AT_UNIT, AT_JOINED,
        )  # fmt: skip
