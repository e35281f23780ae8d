"""What gradients of operators over boxes find out first.

    axes       what every row and every column of an image counts in every bin of a box
    listed     the boxes that reach a square of an image, in the order of their numbers
    to_last    bins times channels with channels as neighbours

A range is one integer, `low | high << 16`, and 0 where it is empty.
"""

import triton
import triton.language as tl

from saccade.kernels.cuda.roi.box_code import corners_of, image_of, report_bad
from saccade.kernels.cuda.roi.ranges_code import pixels_of, scaled
from saccade.kernels.cuda.roi.samples_code import grid_of, sample, visited


@triton.jit
def range_of(low, high):
    return tl.where(low < high, low | (high << 16), 0)


@triton.jit
def _sampled(
    grid, bins, line, size, factor,
    BINS: tl.constexpr, RATIO: tl.constexpr, EXACT: tl.constexpr, KIND: tl.constexpr,
    BP: tl.constexpr, BL: tl.constexpr,
):  # fmt: skip
    """The weights of the forward kernel's samples, summed for each bin and pixel: [BP, BL]."""
    start, step, samples = grid
    first, last = visited(start, step, samples, bins, size, BINS, RATIO)
    count = samples if RATIO > 0 else tl.max(last - first, 0)
    weights = tl.zeros((BP, BL), KIND)
    for i in range(count):
        number = first + i
        inside, low, high, lower, upper = sample(start, step, samples, bins, number, size, EXACT)
        use = (inside & (number < last) & (bins < BINS))[:, None]
        below = use & (low[:, None] == line[None, :])
        above = use & (high[:, None] == line[None, :])
        weights += tl.where(below, lower[:, None], 0.0).to(KIND)
        weights += tl.where(above, upper[:, None], 0.0).to(KIND)
    return weights * factor


@triton.jit
def _covered(
    low, high, usable, bins, line, size,
    BINS: tl.constexpr, EXACT: tl.constexpr, KIND: tl.constexpr,
):  # fmt: skip
    """One part of each pixel of a bin: [bins, lines]."""
    first, last = pixels_of(low, high, usable, bins, size, BINS, False, EXACT)
    share = 1.0 / tl.maximum(last - first, 1).to(KIND)
    inside = (line[None, :] >= first[:, None]) & (line[None, :] < last[:, None])
    return tl.where(inside & (bins < BINS)[:, None], share[:, None], 0.0).to(KIND)


@triton.jit
def _reached(some, bands, box, count, bins, line, pitch, p0, BINS: tl.constexpr,
             BP: tl.constexpr, BL: tl.constexpr, BAND: tl.constexpr):  # fmt: skip
    """Store which bins reach each band of lines."""
    NB: tl.constexpr = BL // BAND
    near = tl.max(tl.reshape(some.to(tl.int32), (BP, NB, BAND)), 2) > 0
    low = tl.min(tl.where(near, bins[:, None], BINS), 0)
    high = tl.max(tl.where(near, bins[:, None] + 1, 0), 0)
    band = tl.min(line, 0) // BAND + tl.arange(0, NB)
    at = bands + band * count + box
    known = band * BAND < pitch
    if BINS > BP:  # beside what these very threads stored for the bins before
        old = tl.load(at, mask=known & (p0 > 0), other=0)
        low = tl.minimum(low, tl.where(old != 0, old & 0xFFFF, BINS))
        high = tl.maximum(high, old >> 16)
    tl.store(at, range_of(low, high), mask=known)


@triton.jit
def _axis(
    low, high, usable, grid, factor, table, bands, spans, extents, box, count, size, pitch,
    BINS: tl.constexpr, RATIO: tl.constexpr, POOL: tl.constexpr, EXACT: tl.constexpr,
    KIND: tl.constexpr, BP: tl.constexpr, BL: tl.constexpr, BAND: tl.constexpr,
):  # fmt: skip
    """Store weights [box, bin, line], bins of bands, lines of bins, and the box's lines."""
    top = size
    bottom = size * 0
    for p0 in range(0, BINS, BP):
        if BINS > BP:
            tl.debug_barrier()  # bins of bands are read again
        bins = p0 + tl.arange(0, BP)
        least = tl.zeros((BP,), tl.int32) + size
        most = tl.zeros((BP,), tl.int32)
        place = (box * BINS + bins) * pitch
        for l0 in range(0, pitch, BL):
            line = l0 + tl.arange(0, BL)
            if POOL:
                weights = _covered(low, high, usable, bins, line, size, BINS, EXACT, KIND)
            else:
                weights = _sampled(grid, bins, line, size, factor, BINS, RATIO, EXACT, KIND, BP, BL)
            mask = (bins < BINS)[:, None] & (line < pitch)[None, :]
            tl.store(table + place[:, None] + line[None, :], weights, mask=mask)
            some = weights != 0
            _reached(some, bands, box, count, bins, line, pitch, p0, BINS, BP, BL, BAND)
            least = tl.minimum(least, tl.min(tl.where(some, line[None, :], size), 1))
            most = tl.maximum(most, tl.max(tl.where(some, line[None, :] + 1, 0), 1))
        tl.store(spans + bins * count + box, range_of(least, most), mask=bins < BINS)
        top = tl.minimum(top, tl.min(least, 0))
        bottom = tl.maximum(bottom, tl.max(most, 0))
    tl.store(extents + box, range_of(top, bottom))


@triton.jit
def axes(
    boxes, images, rows, columns, row_bands, column_bands, row_spans, column_spans, extents,
    owners, bad, extra,
    n, count, b_row, b_step, i_row, h, w, row_pitch, column_pitch,
    P: tl.constexpr, Q: tl.constexpr, SCALE: tl.constexpr, RATIO: tl.constexpr,
    ALIGNED: tl.constexpr, POOL: tl.constexpr, REPORT: tl.constexpr, SPLIT: tl.constexpr,
    EXACT: tl.constexpr, DOUBLE: tl.constexpr, BP: tl.constexpr, BQ: tl.constexpr,
    BL: tl.constexpr, BAND_H: tl.constexpr, BAND_W: tl.constexpr,
):  # fmt: skip
    """A program has one axis of one box; `extents` is [2, count], `owners` the images, or -1."""
    pid = tl.program_id(0)
    KIND: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    if REPORT:  # noqa: SIM102 - decided when compiling
        if pid == 2 * count:
            report_bad(boxes, images, bad, count, n, b_row, i_row, SPLIT, EXACT, 256)
    if pid < 2 * count:
        box = pid // 2
        there, image = image_of(boxes, images, box, box < count, n, b_row, i_row, SPLIT, EXACT)
        corners = corners_of(boxes, box, b_row, b_step, SPLIT, EXACT)
        if POOL:
            x1, y1, x2, y2, finite = scaled(corners, SCALE)
            usable = there & finite
            down = (x1, x1, 0)
            along = (x1, x1, 0)
            factor = 1.0
        else:
            x1, y1, x2, y2 = corners
            usable = there
            down = grid_of(y1, y2, there, P, SCALE, RATIO, ALIGNED, EXACT)
            along = grid_of(x1, x2, there, Q, SCALE, RATIO, ALIGNED, EXACT)
            samples = down[2].to(KIND) * along[2].to(KIND)
            factor = 1.0 / tl.maximum(samples, 1.0)
        if pid % 2 == 0:
            tl.store(owners + box, tl.where(there, image, -1))
            _axis(
                y1, y2, usable, down, factor, rows, row_bands, row_spans, extents,
                box, count, h, row_pitch, P, RATIO, POOL, EXACT, KIND, BP, BL, BAND_H,
            )  # fmt: skip
        else:
            _axis(
                x1, x2, usable, along, 1.0, columns, column_bands, column_spans, extents + count,
                box, count, w, column_pitch, Q, RATIO, POOL, EXACT, KIND, BQ, BL, BAND_W,
            )  # fmt: skip


@triton.jit
def overlaps(range_, low, high):
    """Whether a range has some of low … high - 1."""
    return ((range_ & 0xFFFF) < high) & ((range_ >> 16) > low)


@triton.jit
def listed(
    extents, owners, lists, begins, numbers, extra,
    count, down, along,
    SIDE_H: tl.constexpr, SIDE_W: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A program has one square of SIDE_H x SIDE_W pixels of one image.

    `lists` is [down · along, count]: in a square's row, the boxes of each image have as many places
    as there are boxes of it, those of the first image first.
    """
    pid = tl.program_id(0)
    image = pid // (down * along)
    square = pid % (down * along)
    top = square // along * SIDE_H
    left = square % along * SIDE_W
    before = tl.zeros((BLOCK,), tl.int32)
    for start in range(0, count, BLOCK):
        box = start + tl.arange(0, BLOCK)
        owner = tl.load(owners + box, mask=box < count, other=-1)
        before += ((owner >= 0) & (owner < image)).to(tl.int32)
    first = tl.sum(before, 0)
    found = first * 0
    for start in range(0, count, BLOCK):
        box = start + tl.arange(0, BLOCK)
        mask = box < count
        owner = tl.load(owners + box, mask=mask, other=-1)
        mine = mask & (owner == image)
        rows = tl.load(extents + box, mask=mine, other=0)
        columns = tl.load(extents + count + box, mask=mine, other=0)
        hit = overlaps(rows, top, top + SIDE_H) & overlaps(columns, left, left + SIDE_W)
        hit = (hit & mine).to(tl.int32)
        rank = tl.cumsum(hit, 0) - 1
        tl.store(lists + square * count + first + found + rank, box, mask=hit > 0)
        found += tl.sum(hit, 0)
    tl.store(begins + pid, square * count + first)
    tl.store(numbers + pid, found)


@triton.jit
def to_last(
    x, y, extra,
    c, bins, q, blocks, parts, x_k, x_c, x_p, x_q,
    JOINED: tl.constexpr, BB: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """[K, C, P, Q] to [K, P, Q, C]: BC channels times BB bins of a box in a program."""
    pid = tl.program_id(0)
    box = pid // (blocks * parts)
    number = pid // blocks % parts * BB + tl.arange(0, BB)
    channel = pid % blocks * BC + tl.arange(0, BC)
    place = number * x_q if JOINED else number // q * x_p + number % q * x_q
    mask = (channel < c)[:, None] & (number < bins)[None, :]
    value = tl.load(x + box * x_k + channel[:, None] * x_c + place[None, :], mask=mask, other=0)
    at = (box * bins + number)[None, :] * c + channel[:, None]
    tl.store(y + at, value, mask=mask)
