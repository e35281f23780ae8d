"""Where a deformable convolution samples, and for each pixel of x which samples have a part of it.

A sample is (offset group, tap, output pixel of some images) and numbered so; its cell is the square
of four pixels that it lies in, from the one above and left of the first image's first, -1 for none.
Tables have one number for each sample. A cell's samples are neighbours in the list of records, by
their numbers: counts and places come from atomic sums of integers, the order then from the numbers
alone, so that what is summed over records has the same bits in every run.
"""

import triton
import triton.language as tl


@triton.jit
def load_wide(pointer, mask, DOUBLE: tl.constexpr):
    """In float64 or float32, 0 for what is not there."""
    value = tl.load(pointer, mask=mask, other=0)
    if value.dtype.is_bf16():
        value = value.to(tl.float32)
    return value.to(tl.float64) if DOUBLE else value.to(tl.float32)


@triton.jit
def bucket_of(sample, cell, pixels, taps, offset_groups, image_cells):
    """The number of a sample's cell among those of all images and offset groups."""
    own = cell // image_cells * offset_groups + sample // pixels // taps
    return own * image_cells + cell % image_cells


@triton.jit
def samples(
    offset, mask, cells, below, beyond, factor, counts, arrival, extra,
    number, pixels, first_image, p, q, h, wd, offset_groups, o_n, o_c, o_p, o_q,
    m_n, m_c, m_p, m_q,
    R: tl.constexpr, S: tl.constexpr, STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr,
    DILATION_H: tl.constexpr, DILATION_W: tl.constexpr, PAD_T: tl.constexpr, PAD_L: tl.constexpr,
    MASK: tl.constexpr, LISTED: tl.constexpr, DOUBLE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The tables: cell, distance from its upper and left edge, mask; how many a cell has so far."""
    WIDE: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    sample = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = sample < number
    pixel = sample % pixels
    own = sample // pixels  # offset group and tap
    tap = own % (R * S)
    local = pixel // (p * q)
    image = first_image + local
    out_p = pixel // q % p
    out_q = pixel % q
    offsets = offset + image * o_n + out_p * o_p + out_q * o_q + 2 * own * o_c
    at_y = (out_p * STRIDE_H - PAD_T + tap // S * DILATION_H).to(WIDE)
    at_x = (out_q * STRIDE_W - PAD_L + tap % S * DILATION_W).to(WIDE)
    at_y += load_wide(offsets, there, DOUBLE)
    at_x += load_wide(offsets + o_c, there, DOUBLE)
    inside = there & (at_y >= -1) & (at_y < h) & (at_x >= -1) & (at_x < wd)
    unknown = (at_y != at_y) | (at_x != at_x)  # noqa: PLR0124 - NaN
    top = tl.floor(tl.where(inside, at_y, -1))
    left = tl.floor(tl.where(inside, at_x, -1))
    cell = (top.to(tl.int32) + 1) * (wd + 1) + left.to(tl.int32) + 1
    image_cells = (h + 1) * (wd + 1)
    cell = tl.where(inside, local * image_cells + cell, -1)
    # What is outside has no pixels; where the place is not a number, neither are the weights.
    known = inside | unknown
    tl.store(cells + sample, cell, mask=there)
    tl.store(below + sample, tl.where(known, at_y - tl.floor(at_y), 0), mask=there)
    tl.store(beyond + sample, tl.where(known, at_x - tl.floor(at_x), 0), mask=there)
    if MASK:
        masks = mask + image * m_n + out_p * m_p + out_q * m_q + own * m_c
        tl.store(factor + sample, load_wide(masks, there, DOUBLE), mask=there)
    else:
        tl.store(factor + sample, tl.full((BLOCK,), 1, WIDE), mask=there)
    if LISTED:
        bucket = bucket_of(sample, cell, pixels, R * S, offset_groups, image_cells)
        before = tl.atomic_add(counts + bucket, 1, mask=inside, sem="relaxed")
        tl.store(arrival + sample, before, mask=inside)


@triton.jit
def starts(counts, start, extra, number, BLOCK: tl.constexpr):
    """Where each cell's records begin, in any order of blocks; how many there are, at the end."""
    bucket = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = bucket < number
    count = tl.load(counts + bucket, mask=there, other=0)
    first = tl.atomic_add(counts + number, tl.sum(count, 0), sem="relaxed")
    tl.store(start + bucket, first + tl.cumsum(count, 0) - count, mask=there)


@triton.jit
def listed(
    cells, arrival, start, found, extra, number, pixels, taps, offset_groups,
    image_cells, BLOCK: tl.constexpr,
):  # fmt: skip
    """Each cell's samples, as they came."""
    sample = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = sample < number
    cell = tl.load(cells + sample, mask=there, other=-1)
    there &= cell >= 0
    bucket = bucket_of(sample, cell, pixels, taps, offset_groups, image_cells)
    place = tl.load(start + bucket, mask=there, other=0)
    place += tl.load(arrival + sample, mask=there, other=0)
    tl.store(found + place, sample, mask=there)


@triton.jit
def records(
    cells, below, beyond, factor, counts, start, found, row, weight, extra,
    number, pixels, taps, offset_groups, image_cells, buckets,
    DOUBLE: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """Each cell's samples in order: the row (pixel, tap) of the columns, weights of four pixels.

    A sample's place is how many samples of its cell have smaller numbers.
    """
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(counts + buckets)
    there = at < total
    sample = tl.load(found + at, mask=there, other=0)
    cell = tl.load(cells + sample, mask=there, other=0)
    bucket = bucket_of(sample, cell, pixels, taps, offset_groups, image_cells)
    first = tl.load(start + bucket, mask=there, other=0)
    count = tl.load(counts + bucket, mask=there, other=0)
    smaller = tl.zeros((BLOCK,), tl.int32)
    for step in range(0, tl.max(count, 0), STEP):
        other = step + tl.arange(0, STEP)
        known = other[None, :] < count[:, None]
        theirs = tl.load(found + first[:, None] + other[None, :], mask=known, other=0)
        smaller += tl.sum((known & (theirs < sample[:, None])).to(tl.int32), 1)
    place = first + smaller
    pixel = sample % pixels
    tl.store(row + place, pixel * taps + sample // pixels % taps, mask=there)
    low = load_wide(below + sample, there, DOUBLE)
    right = load_wide(beyond + sample, there, DOUBLE)
    share = load_wide(factor + sample, there, DOUBLE)
    weights = weight + place
    tl.store(weights, (1 - low) * (1 - right) * share, mask=there)
    tl.store(weights + number, (1 - low) * right * share, mask=there)
    tl.store(weights + 2 * number, low * (1 - right) * share, mask=there)
    tl.store(weights + 3 * number, low * right * share, mask=there)


@triton.jit
def gather(
    columns, counts, start, row, weight, y, extra,
    number, h, wd, offset_groups, shared, image_cells, first_image,
    first_channel, channels, y_n, y_c, y_h, y_w,
    UNIT: tl.constexpr, FLAT: tl.constexpr, DOUBLE: tl.constexpr,
    BP: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Gradient of some pixels of x: the records of the four cells around each, cell by cell.

    `columns` are [output pixel, tap, offset group, `channels`], of each offset group those from
    `first_channel` on. Images of y begin with `first_image`.
    """
    WIDE: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    blocks = tl.cdiv(channels, BC)
    pid = tl.program_id(0)
    lane = pid % blocks * BC + tl.arange(0, BC)
    known = lane < channels
    own = pid // blocks % offset_groups
    tile = pid // (blocks * offset_groups)
    tiles = tl.cdiv(h * wd, BP)
    image = tile // tiles
    pixel = tile % tiles * BP + tl.arange(0, BP)
    there = pixel < h * wd
    at_y = pixel // wd
    at_x = pixel % wd
    buckets = (image * offset_groups + own) * image_cells
    pitch = offset_groups * channels
    acc = tl.zeros((BP, BC), WIDE)
    for corner in tl.static_range(4):
        bucket = buckets + (at_y + 1 - corner // 2) * (wd + 1) + at_x + 1 - corner % 2
        begin = tl.load(start + bucket, mask=there, other=0)
        count = tl.load(counts + bucket, mask=there, other=0)
        for pair in range(0, tl.max(count, 0), 2):
            for step in tl.static_range(2):  # what the second needs is on its way with the first's
                here = pair + step < count
                at = begin + pair + step
                place = tl.load(row + at, mask=here, other=0)
                share = load_wide(weight + corner * number + at, here, DOUBLE)
                value = load_wide(
                    columns + place[:, None] * pitch + own * channels + lane[None, :],
                    here[:, None] & known[None, :], DOUBLE,
                )  # fmt: skip
                acc += value * share[:, None]
    image += first_image
    channel = (own * shared + first_channel + lane) * (1 if UNIT else y_c)
    places = pixel * y_w if FLAT else at_y * y_h + at_x * y_w
    result = acc.to(y.dtype.element_ty)
    if UNIT:
        at = (image * y_n + places)[:, None] + channel[None, :]
        tl.store(y + at, result, mask=there[:, None] & known[None, :])
    else:
        at = (image * y_n + places)[None, :] + channel[:, None]
        tl.store(y + at, tl.trans(result), mask=there[None, :] & known[:, None])
