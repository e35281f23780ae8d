"""PsRoi: a program has some channels of x, each of which is one bin of one result's channel."""

import triton
import triton.language as tl

from saccade.kernels.cuda.roi.box_code import corners_of, far, image_of, report_bad, widened
from saccade.kernels.cuda.roi.ranges_code import pixels_of, scaled
from saccade.kernels.cuda.roi.samples_code import grid_of, sample, visited


@triton.jit
def _add(acc, pixels, place, weight, use, DOUBLE: tl.constexpr):
    """One of the four pixels of a sample of each channel; one without weight may be anything."""
    weight = weight.to(tl.float64 if DOUBLE else tl.float32)
    value = tl.load(pixels + place, mask=use & (weight != 0), other=0)
    return tl.fma(widened(value, DOUBLE), weight, acc)


@triton.jit
def _align(
    pixels, corners, there, p, q, exist, h, w, x_h, x_w,
    P: tl.constexpr, Q: tl.constexpr, SCALE: tl.constexpr, RATIO: tl.constexpr,
    DOUBLE: tl.constexpr, EXACT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Means of bilinear samples; see `PsRoi.ratio` for those of no samples."""
    KIND: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    x1, y1, x2, y2 = corners
    top, tall, rows = grid_of(y1, y2, there, P, SCALE, RATIO, True, EXACT)
    left, wide, columns = grid_of(x1, x2, there, Q, SCALE, RATIO, True, EXACT)
    first_row, last_row = visited(top, tall, rows, p, h, P, RATIO)
    first_column, last_column = visited(left, wide, columns, q, w, Q, RATIO)
    down = rows if RATIO > 0 else tl.max(last_row - first_row, 0)
    along = columns if RATIO > 0 else tl.max(last_column - first_column, 0)
    acc = tl.zeros((BLOCK,), KIND)
    for i in range(down):
        row = first_row + i
        inside_y, low_y, high_y, lower_y, upper_y = sample(top, tall, rows, p, row, h, EXACT)
        inside_y = inside_y & (row < last_row) & exist
        for j in range(along):
            column = first_column + j
            inside, low, high, lower, upper = sample(left, wide, columns, q, column, w, EXACT)
            use = inside_y & inside & (column < last_column)
            acc = _add(acc, pixels, low_y * x_h + low * x_w, lower_y * lower, use, DOUBLE)
            acc = _add(acc, pixels, low_y * x_h + high * x_w, lower_y * upper, use, DOUBLE)
            acc = _add(acc, pixels, high_y * x_h + low * x_w, upper_y * lower, use, DOUBLE)
            acc = _add(acc, pixels, high_y * x_h + high * x_w, upper_y * upper, use, DOUBLE)
    acc = acc / tl.maximum(rows.to(KIND) * columns.to(KIND), 1)
    if RATIO <= 0:
        most: tl.constexpr = float("inf")
        down_by = tl.ceil(tall)
        along_by = tl.ceil(wide)
        nothing = there & (tl.abs(down_by) < most) & (tl.abs(along_by) < most)
        nothing = nothing & ((down_by == 0) | (along_by == 0))
        acc += tl.where(nothing, float("nan"), 0.0).to(KIND)
    return acc


@triton.jit
def _pool(
    pixels, corners, there, p, q, exist, h, w, x_h, x_w,
    P: tl.constexpr, Q: tl.constexpr, SCALE: tl.constexpr, DOUBLE: tl.constexpr,
    EXACT: tl.constexpr, BLOCK: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Means of pixels, 0 where there are none; so many columns of them are on their way at once."""
    KIND: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    x1, y1, x2, y2, finite = scaled(corners, SCALE)
    top, bottom = pixels_of(y1, y2, there & finite, p, h, P, False, EXACT)
    left, right = pixels_of(x1, x2, there & finite, q, w, Q, False, EXACT)
    down = tl.max(tl.where(exist, bottom - top, 0), 0)
    along = tl.max(tl.where(exist, right - left, 0), 0)
    acc = tl.zeros((BLOCK, WIDE), KIND)
    for i in range(down):
        row = top + i
        inside = (exist & (row < bottom))[:, None]
        for j in range(0, along, WIDE):
            column = left[:, None] + (j + tl.arange(0, WIDE))[None, :]
            at = (row * x_h)[:, None] + column * x_w
            value = tl.load(pixels[:, None] + at, mask=inside & (column < right[:, None]), other=0)
            acc += widened(value, DOUBLE)
    rows = tl.maximum(bottom - top, 0).to(KIND)
    columns = tl.maximum(right - left, 0).to(KIND)
    return tl.sum(acc, 1) / tl.maximum(rows * columns, 1)


@triton.jit
def pooled(
    x, boxes, images, y, mapping, bad, extra,
    n, count, b_row, b_step, i_row, c, h, w, programs, x_n, x_c, x_h, x_w, y_k, y_c, y_p, y_q,
    at_k, at_c, at_p, at_q,
    P: tl.constexpr, Q: tl.constexpr, SCALE: tl.constexpr, RATIO: tl.constexpr,
    ALIGN: tl.constexpr, MAPPING: tl.constexpr, REPORT: tl.constexpr, DOUBLE: tl.constexpr,
    EXACT: tl.constexpr, UNIT: tl.constexpr, BLOCK: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    if REPORT:  # noqa: SIM102 - decided when compiling
        if pid == programs:
            report_bad(boxes, images, bad, count, n, b_row, i_row, False, EXACT, 256)
    if pid < programs:
        blocks = tl.cdiv(c, BLOCK)
        box = pid // blocks
        own = pid % blocks * BLOCK + tl.arange(0, BLOCK)
        exist = own < c
        channel = own // (P * Q)
        p = own // Q % P
        q = own % Q
        there, image = image_of(boxes, images, box, box < count, n, b_row, i_row, False, EXACT)
        corners = corners_of(boxes, box, b_row, b_step, False, EXACT)
        pixels = x + far(image, x_n) + own * (1 if UNIT else x_c)
        if ALIGN:
            found = _align(
                pixels, corners, there, p, q, exist, h, w, x_h, x_w,
                P, Q, SCALE, RATIO, DOUBLE, EXACT, BLOCK,
            )  # fmt: skip
        else:
            found = _pool(
                pixels, corners, there, p, q, exist, h, w, x_h, x_w,
                P, Q, SCALE, DOUBLE, EXACT, BLOCK, WIDE,
            )  # fmt: skip
        place = channel * y_c + p * y_p + q * y_q
        tl.store(y + far(box, y_k) + place, found.to(y.dtype.element_ty), mask=exist)
        if MAPPING:
            place = channel * at_c + p * at_p + q * at_q
            tl.store(mapping + far(box, at_k) + place, own, mask=exist)
