"""Samples of several images for each query and head, weighed and added up in registers."""

import triton
import triton.language as tl

from saccade.kernels.cuda.sample.grid_code import place_of

LEVEL_INTEGERS = tl.constexpr(11)
"""Integers of `extra` for each image, behind all images' and grids' pointers."""


@triton.constexpr_function
def count(points, level):
    """Of so many images, which POINTS names in order, the places of one."""
    return int(points.split()[level])


@triton.constexpr_function
def before(points, level):
    """The places of the images in front of one."""
    return sum(map(int, points.split()[:level]))


@triton.jit
def weigh_samples(
    weights, y, extra,
    rows, queries, channels, k_n, k_q, k_h, k_s, y_n, y_q, y_c,
    LEVELS: tl.constexpr, POINTS: tl.constexpr, HEADS: tl.constexpr, ALIGNED: tl.constexpr,
    X_UNIT: tl.constexpr, Y_UNIT: tl.constexpr, UNROLLED: tl.constexpr, BM: tl.constexpr,
    BC: tl.constexpr,
):  # fmt: skip
    """BM rows, which are queries' heads, times BC channels of a head."""
    blocks = tl.cdiv(channels, BC)
    row = tl.program_id(0) // blocks * BM + tl.arange(0, BM)
    channel = tl.program_id(0) % blocks * BC + tl.arange(0, BC)
    there = row < rows
    head = row % HEADS
    query = row // HEADS % queries
    image = row // HEADS // queries
    mask = there[:, None] & (channel < channels)[None, :]
    sums = tl.zeros((BM, BC), tl.float32)
    for level in tl.static_range(LEVELS):
        sums = with_level(
            sums, weights + (image * k_n + query * k_q + head * k_h), extra, image, query, head,
            channel, channels, k_s, there, mask, level, LEVELS, POINTS, ALIGNED, X_UNIT, UNROLLED,
            2 * LEVELS + level * LEVEL_INTEGERS, before(POINTS, level),
        )  # fmt: skip
    all_channels = (head * channels)[:, None] + channel[None, :]
    to = y + (image * y_n + query * y_q)[:, None] + (all_channels if Y_UNIT else all_channels * y_c)
    tl.store(to, sums.to(y.dtype.element_ty), mask=mask)


@triton.jit
def with_level(
    sums, by, extra, image, query, head, channel, channels, k_s, there, mask,
    LEVEL: tl.constexpr, LEVELS: tl.constexpr, POINTS: tl.constexpr, ALIGNED: tl.constexpr,
    X_UNIT: tl.constexpr, UNROLLED: tl.constexpr, FIRST: tl.constexpr, BEGIN: tl.constexpr,
):  # fmt: skip
    """The sums with what an image adds; FIRST: where its integers begin, BEGIN: its weights."""
    h, w = extra[FIRST], extra[FIRST + 1]
    x_n, x_c, x_h, x_w = extra[FIRST + 2], extra[FIRST + 3], extra[FIRST + 4], extra[FIRST + 5]
    g_n, g_q, g_h = extra[FIRST + 6], extra[FIRST + 7], extra[FIRST + 8]
    g_p, g_a = extra[FIRST + 9], extra[FIRST + 10]
    side = channel if X_UNIT else channel * x_c
    head_at = head * channels if X_UNIT else head * channels * x_c
    origin = extra[LEVEL] + (image * x_n + head_at)[:, None] + side[None, :]
    points = extra[LEVELS + LEVEL] + (image * g_n + query * g_q + head * g_h)
    if UNROLLED:
        for p in tl.static_range(count(POINTS, LEVEL)):
            sums += weighted(
                origin, points + p * g_p, by + (BEGIN + p) * k_s, there, mask, h, w, x_h, x_w, g_a,
                ALIGNED,
            )  # fmt: skip
    else:
        for p in range(count(POINTS, LEVEL)):
            sums += weighted(
                origin, points + p * g_p, by + (BEGIN + p) * k_s, there, mask, h, w, x_h, x_w, g_a,
                ALIGNED,
            )  # fmt: skip
    return sums


@triton.jit
def weighted(
    origin, points, weights, there, mask, h, w, x_h, x_w, g_a, ALIGNED: tl.constexpr
):  # fmt: skip
    """The pixels around a place of each row, by their shares and its weight."""
    column = tl.load(points, mask=there, other=0).to(tl.float32)
    line = tl.load(points + g_a, mask=there, other=0).to(tl.float32)
    weight = tl.load(weights, mask=there, other=0).to(tl.float32)
    at_w = place_of(column, w, MODE="linear", PADDING="zeros", ALIGNED=ALIGNED)
    at_h = place_of(line, h, MODE="linear", PADDING="zeros", ALIGNED=ALIGNED)
    left, top = tl.floor(at_w), tl.floor(at_h)
    right_share, low_share = at_w - left, at_h - top
    q, p = left.to(tl.int32), top.to(tl.int32)
    here = origin + (p * x_h + q * x_w)[:, None]
    inside_left, inside_right = (q >= 0) & (q < w), (q >= -1) & (q < w - 1)
    inside_top, inside_low = (p >= 0) & (p < h), (p >= -1) & (p < h - 1)
    top_weight, low_weight = weight * (1.0 - low_share), weight * low_share
    # What is outside is read as zero: no pixel's number, not one times zero.
    one = mask & (inside_top & inside_left)[:, None]
    two = mask & (inside_top & inside_right)[:, None]
    three = mask & (inside_low & inside_left)[:, None]
    four = mask & (inside_low & inside_right)[:, None]
    a = tl.load(here, mask=one, other=0).to(tl.float32)
    b = tl.load(here + x_w, mask=two, other=0).to(tl.float32)
    c = tl.load(here + x_h, mask=three, other=0).to(tl.float32)
    d = tl.load(here + (x_h + x_w), mask=four, other=0).to(tl.float32)
    return (
        a * (top_weight * (1.0 - right_share))[:, None]
        + b * (top_weight * right_share)[:, None]
        + c * (low_weight * (1.0 - right_share))[:, None]
        + d * (low_weight * right_share)[:, None]
    )
