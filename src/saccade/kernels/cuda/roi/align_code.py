"""RoiAlign: a program has some bins of one box and some channels.

Blocks are [bins, channels] where the channels of a pixel are neighbours, else [channels, bins].
"""

import triton
import triton.language as tl

from saccade.kernels.cuda.roi.box_code import (
    block_of_bins,
    blocks_of,
    corners_of,
    far,
    image_of,
    report_bad,
    widened,
)
from saccade.kernels.cuda.roi.samples_code import grid_of, sample, visited


@triton.jit
def over_bins(value, LAST: tl.constexpr):
    return value[:, None] if LAST else value[None, :]


@triton.jit
def over_channels(value, LAST: tl.constexpr):
    return value[None, :] if LAST else value[:, None]


@triton.jit
def _corner(
    acc, pixels, place, weight, use, known, channel_mask,
    LAST: tl.constexpr, LARGEST: tl.constexpr, DOUBLE: tl.constexpr,
):  # fmt: skip
    """One of the four pixels of a sample of each bin.

    `use` says of each bin whether the sample lies inside the image, `known` whether it is one of
    the bin's; what is and lies outside counts as 0.
    """
    weight = weight.to(tl.float64 if DOUBLE else tl.float32)
    if not LARGEST:
        use = use & (weight != 0)  # whatever stands there
    mask = over_bins(use, LAST) & channel_mask
    value = widened(tl.load(pixels + over_bins(place, LAST), mask=mask, other=0), DOUBLE)
    if LARGEST:
        others = over_bins(tl.where(known, 0.0, float("-inf")).to(weight.dtype), LAST)
        weighted = tl.where(over_bins(use, LAST), value * over_bins(weight, LAST), others)
        return tl.maximum(acc, weighted, propagate_nan=tl.PropagateNan.ALL)
    else:  # noqa: RET505 - what follows a return is compiled, too
        return tl.fma(value, over_bins(weight, LAST), acc)


@triton.jit
def _aligned(
    x, boxes, images, y, block, n, count, b_row, b_step, i_row, c, h, w,
    x_n, x_c, x_h, x_w, y_k, y_c, y_p, y_q,
    P: tl.constexpr, Q: tl.constexpr, SCALE: tl.constexpr, RATIO: tl.constexpr,
    ALIGNED: tl.constexpr, LARGEST: tl.constexpr, SPLIT: tl.constexpr, DOUBLE: tl.constexpr,
    EXACT: tl.constexpr, LAST: tl.constexpr, UNIT: tl.constexpr, JOINED: tl.constexpr,
    BB: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """One block of bins and channels."""
    box, bins, channel = block_of_bins(block, count, P * Q, BB, BC)
    p = bins // Q
    q = bins % Q
    there, image = image_of(boxes, images, box, box < count, n, b_row, i_row, SPLIT, EXACT)
    x1, y1, x2, y2 = corners_of(boxes, box, b_row, b_step, SPLIT, EXACT)
    top, tall, rows = grid_of(y1, y2, there, P, SCALE, RATIO, ALIGNED, EXACT)
    left, wide, columns = grid_of(x1, x2, there, Q, SCALE, RATIO, ALIGNED, EXACT)
    first_row, last_row = visited(top, tall, rows, p, h, P, RATIO)
    first_column, last_column = visited(left, wide, columns, q, w, Q, RATIO)
    if RATIO <= 0:
        down, along = tl.max(last_row - first_row, 0), tl.max(last_column - first_column, 0)
    elif RATIO <= 4:
        # Loops of constant length are unrolled: all loads are under way at the same time.
        down, along = RATIO, RATIO
    else:
        down, along = rows, columns
    exist = bins < P * Q
    channel_mask = over_channels(channel < c, LAST)
    pixels = x + far(image, x_n) + over_channels(channel * (1 if LAST else x_c), LAST)
    KIND: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    acc = tl.zeros((BB, BC) if LAST else (BC, BB), KIND)
    if LARGEST:
        acc += float("-inf")
    for i in range(down):
        row = first_row + i
        inside_y, low_y, high_y, lower_y, upper_y = sample(top, tall, rows, p, row, h, EXACT)
        inside_y = inside_y & (row < last_row) & exist
        for j in range(along):
            column = first_column + j
            inside, low, high, lower, upper = sample(left, wide, columns, q, column, w, EXACT)
            use = inside_y & inside & (column < last_column)
            known = (row < last_row) & (column < last_column)
            acc = _corner(
                acc, pixels, low_y * x_h + low * x_w, lower_y * lower, use, known,
                channel_mask, LAST, LARGEST, DOUBLE,
            )  # fmt: skip
            acc = _corner(
                acc, pixels, low_y * x_h + high * x_w, lower_y * upper, use, known,
                channel_mask, LAST, LARGEST, DOUBLE,
            )  # fmt: skip
            acc = _corner(
                acc, pixels, high_y * x_h + low * x_w, upper_y * lower, use, known,
                channel_mask, LAST, LARGEST, DOUBLE,
            )  # fmt: skip
            acc = _corner(
                acc, pixels, high_y * x_h + high * x_w, upper_y * upper, use, known,
                channel_mask, LAST, LARGEST, DOUBLE,
            )  # fmt: skip
    if LARGEST:
        # Samples that were not visited lie outside.
        missed = (last_row - first_row < rows) | (last_column - first_column < columns)
        zero = over_bins(missed | (p * 0 + tl.minimum(rows, columns) == 0), LAST)
        acc = tl.where(zero & (acc < 0), 0.0, acc)
    else:
        acc = acc / tl.maximum(rows.to(KIND) * columns.to(KIND), 1)
    place = bins if JOINED else p * y_p + q * y_q
    offset = over_bins(place, LAST) + over_channels(channel * (1 if UNIT else y_c), LAST)
    mask = over_bins(exist, LAST) & channel_mask
    tl.store(y + far(box, y_k) + offset, acc.to(y.dtype.element_ty), mask=mask)


@triton.jit
def align(
    x, boxes, images, y, bad, number, extra,
    n, count, b_row, b_step, i_row, c, h, w, programs, x_n, x_c, x_h, x_w, y_k, y_c, y_p, y_q,
    P: tl.constexpr, Q: tl.constexpr, SCALE: tl.constexpr, RATIO: tl.constexpr,
    ALIGNED: tl.constexpr, LARGEST: tl.constexpr, REPORT: tl.constexpr, SPLIT: tl.constexpr,
    COUNTED: tl.constexpr, DOUBLE: tl.constexpr, EXACT: tl.constexpr, LAST: tl.constexpr,
    UNIT: tl.constexpr, JOINED: tl.constexpr, BB: tl.constexpr, BC: tl.constexpr,
    TURNS: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    if REPORT:  # noqa: SIM102 - decided when compiling
        if pid == programs:
            report_bad(boxes, images, bad, count, n, b_row, i_row, SPLIT, EXACT, 256)
    true = tl.load(number) if COUNTED else count
    for turn in range(TURNS):
        block = pid * TURNS + turn
        wanted = block < blocks_of(count, c, P * Q, BB, BC)
        if COUNTED:
            wanted = wanted & (block_of_bins(block, count, P * Q, BB, BC)[0] < true)
        if wanted:
            _aligned(
                x, boxes, images, y, block, n, count, b_row, b_step, i_row, c, h, w,
                x_n, x_c, x_h, x_w, y_k, y_c, y_p, y_q, P, Q, SCALE, RATIO, ALIGNED, LARGEST,
                SPLIT, DOUBLE, EXACT, LAST, UNIT, JOINED, BB, BC,
            )  # fmt: skip
