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
    widened,
)
from saccade.kernels.cuda.roi.ranges_code import pixels_of, scaled


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
        box, bins, channel = block_of_bins(count, c, P * Q, BB, BC)
        p = bins // Q
        q = bins % Q
        there, image = image_of(boxes, images, box, box < count, n, b_row, i_row, False, EXACT)
        x1, y1, x2, y2, finite = scaled(corners_of(boxes, box, b_row, b_step, False, EXACT), SCALE)
        top, bottom = pixels_of(y1, y2, there & finite, p, h, P, True, EXACT)
        left, right = pixels_of(x1, x2, there & finite, q, w, Q, True, EXACT)
        exist = bins < P * Q
        down = tl.max(tl.where(exist, bottom - top, 0), 0)
        along = tl.max(tl.where(exist, right - left, 0), 0)
        channel_mask = over_channels(channel < c, LAST)
        pixels = x + far(image, x_n) + over_channels(channel * (1 if LAST else x_c), LAST)
        LEAST: tl.constexpr = -3.4028234663852886e38
        acc = tl.zeros((BB, BC) if LAST else (BC, BB), tl.float64 if DOUBLE else tl.float32) + LEAST
        found = tl.zeros((BB, BC) if LAST else (BC, BB), tl.int32) - 1
        for i in range(down):
            row = top + i
            inside = exist & (row < bottom)
            for j in range(along):
                column = left + j
                mask = over_bins(inside & (column < right), LAST) & channel_mask
                at = over_bins(row * x_h + column * x_w, LAST)
                value = widened(tl.load(pixels + at, mask=mask, other=float("-inf")), DOUBLE)
                above = value > acc  # the first of equal ones stays; NaN is above none
                acc = tl.where(above, value, acc)
                if PLACES:
                    found = tl.where(above, over_bins(row * w + column, LAST), found)
        empty = over_bins((bottom <= top) | (right <= left), LAST)
        acc = tl.where(empty, 0.0, acc)
        mask = over_bins(exist, LAST) & channel_mask
        place = over_bins(bins if JOINED else p * y_p + q * y_q, LAST)
        offset = place + over_channels(channel * (1 if UNIT else y_c), LAST)
        tl.store(y + far(box, y_k) + offset, acc.to(y.dtype.element_ty), mask=mask)
        if PLACES:
            place = over_bins(bins if AT_JOINED else p * at_p + q * at_q, LAST)
            offset = place + over_channels(channel * (1 if AT_UNIT else at_c), LAST)
            tl.store(places + far(box, at_k) + offset, found, mask=mask)
