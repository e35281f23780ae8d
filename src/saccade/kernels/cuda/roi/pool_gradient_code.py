"""RoiPoolGradient: a program has some pixels and channels, and adds what points there."""

import triton
import triton.language as tl

from saccade.kernels.cuda.roi.box_code import far, image_of, report_bad, widened
from saccade.kernels.cuda.roi.tables_code import overlaps, range_of


@triton.jit
def pointed(
    places, boxes, images, bin_rows, bin_columns, extents, owners, bad, extra,
    n, count, b_row, b_step, i_row, c, h, w, a_k, a_p, a_q,
    P: tl.constexpr, Q: tl.constexpr, REPORT: tl.constexpr, EXACT: tl.constexpr,
    BB: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Where the channels of each bin point: its rows and columns, [count, P · Q], and the box's.

    A program has one box. Those of no image belong to the first.
    """
    pid = tl.program_id(0)
    if REPORT:  # noqa: SIM102 - decided when compiling
        if pid == count:
            report_bad(boxes, images, bad, count, n, b_row, i_row, False, EXACT, 256)
    if pid < count:
        _, image = image_of(boxes, images, pid, pid < count, n, b_row, i_row, False, EXACT)
        tl.store(owners + pid, image)
        top, left = h, w
        bottom, right = h * 0, w * 0
        wide = tl.maximum(w, 1)
        for b0 in range(0, P * Q, BB):
            bins = b0 + tl.arange(0, BB)
            known = bins < P * Q
            at = places + pid * a_k + (bins // Q * a_p + bins % Q * a_q)[:, None]
            first_row = tl.zeros((BB, BC), tl.int32) + h
            first_column = tl.zeros((BB, BC), tl.int32) + w
            last_row = tl.zeros((BB, BC), tl.int32)
            last_column = tl.zeros((BB, BC), tl.int32)
            for c0 in range(0, c, BC):
                channel = c0 + tl.arange(0, BC)
                mask = known[:, None] & (channel < c)[None, :]
                place = tl.load(at + channel[None, :], mask=mask, other=-1)
                inside = (place >= 0) & (place < h * w)
                row = place // wide
                column = place - row * wide
                first_row = tl.where(inside, tl.minimum(first_row, row), first_row)
                last_row = tl.where(inside, tl.maximum(last_row, row + 1), last_row)
                first_column = tl.where(inside, tl.minimum(first_column, column), first_column)
                last_column = tl.where(inside, tl.maximum(last_column, column + 1), last_column)
            low, high = tl.min(first_row, 1), tl.max(last_row, 1)
            tl.store(bin_rows + pid * (P * Q) + bins, range_of(low, high), mask=known)
            top, bottom = tl.minimum(top, tl.min(low, 0)), tl.maximum(bottom, tl.max(high, 0))
            low, high = tl.min(first_column, 1), tl.max(last_column, 1)
            tl.store(bin_columns + pid * (P * Q) + bins, range_of(low, high), mask=known)
            left, right = tl.minimum(left, tl.min(low, 0)), tl.maximum(right, tl.max(high, 0))
        tl.store(extents + pid, range_of(top, bottom))
        tl.store(extents + count + pid, range_of(left, right))


@triton.jit
def spread(
    grad, places, bin_rows, bin_columns, lists, begins, numbers, y, extra,
    c, h, w, down, along, g_k, g_p, g_q, a_k, a_p, a_q, y_n, y_c, y_h, y_w,
    P: tl.constexpr, Q: tl.constexpr, UNIT: tl.constexpr, WIDE: tl.constexpr,
    DOUBLE: tl.constexpr, SIDE_H: tl.constexpr, SIDE_W: tl.constexpr, TH: tl.constexpr,
    TW: tl.constexpr, BC: tl.constexpr, BB: tl.constexpr,
):  # fmt: skip
    """The bins of the listed boxes that point to the program's pixels, in their order."""
    pid = tl.program_id(0)
    blocks = tl.cdiv(c, BC)
    wide = tl.cdiv(w, TW)
    high = tl.cdiv(h, TH)
    tile = pid // blocks
    left = tile % wide * TW
    top = tile // wide % high * TH
    image = tile // (wide * high)
    square = image * (down * along) + top // SIDE_H * along + left // SIDE_W
    channel = (pid % blocks * BC + tl.arange(0, BC))[None, None, :]
    row = (top + tl.arange(0, TH))[:, None, None]
    column = (left + tl.arange(0, TW))[None, :, None]
    own = tl.where((row < h) & (column < w), row * w + column, -1)
    number = tl.load(numbers + square)
    entries = lists + tl.load(begins + square)
    KIND: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    NONE: tl.constexpr = P * Q
    acc = tl.zeros((TH, TW, BC), KIND)
    for i in range(number):
        box = tl.load(entries + i)
        for b0 in range(0, P * Q, BB):
            bins = b0 + tl.arange(0, BB)
            own_bins = box * (P * Q) + bins
            rows = tl.load(bin_rows + own_bins, mask=bins < P * Q, other=0)
            columns = tl.load(bin_columns + own_bins, mask=bins < P * Q, other=0)
            hit = overlaps(rows, top, top + TH) & overlaps(columns, left, left + TW)
            one = tl.min(tl.where(hit, bins, NONE), 0)
            while one < NONE:
                p = one // Q
                q = one % Q
                at = box * a_k + p * a_p + q * a_q + channel
                place = tl.load(places + at, mask=channel < c, other=-2)
                at = box * g_k + p * g_p + q * g_q + channel
                value = widened(tl.load(grad + at, mask=channel < c, other=0), DOUBLE)
                one = tl.min(tl.where(hit & (bins > one), bins, NONE), 0)
                acc = tl.where(place == own, acc + value, acc)
    at = row * y_h + column * (1 if WIDE else y_w) + channel * (1 if UNIT else y_c)
    mask = (row < h) & (column < w) & (channel < c)
    tl.store(y + far(image, y_n) + at, acc.to(y.dtype.element_ty), mask=mask)
