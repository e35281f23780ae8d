"""Boxes of images, as data that may be anything: which image, and its corners."""

import triton
import triton.language as tl


@triton.jit
def widened(value, DOUBLE: tl.constexpr):
    """In float64 or float32."""
    if value.dtype.is_bf16():
        value = value.to(tl.float32)
    return value.to(tl.float64) if DOUBLE else value.to(tl.float32)


@triton.jit
def far(number, stride):
    """Elements before an image or a box, of which there may be more than 2^31."""
    return number.to(tl.int64) * stride


@triton.jit
def quotient(a, b, DOUBLE: tl.constexpr):
    """Rounded as IEEE 754 has it."""
    if DOUBLE:
        return a / b
    else:  # noqa: RET505 - what follows a return is compiled, too
        return tl.div_rn(a, b)


@triton.jit
def image_of(boxes, images, box, mask, n, b_row, i_row, SPLIT: tl.constexpr, DOUBLE: tl.constexpr):
    """Whether boxes name one of the n images, and its number; 0 where they do not."""
    if SPLIT:
        named = tl.load(images + box * i_row, mask=mask, other=0)
    else:
        named = widened(tl.load(boxes + box * b_row, mask=mask, other=0), DOUBLE)
    there = (named >= 0) & (named < n)
    return there, tl.where(there, named, 0).to(tl.int32)


@triton.jit
def corners_of(boxes, box, b_row, b_step, SPLIT: tl.constexpr, DOUBLE: tl.constexpr):
    """x1, y1, x2, y2 of a box."""
    at = boxes + box * b_row + (0 if SPLIT else b_step)
    return (
        widened(tl.load(at), DOUBLE), widened(tl.load(at + b_step), DOUBLE),
        widened(tl.load(at + 2 * b_step), DOUBLE), widened(tl.load(at + 3 * b_step), DOUBLE),
    )  # fmt: skip


@triton.jit
def report_bad(
    boxes, images, bad, count, n, b_row, i_row,
    SPLIT: tl.constexpr, DOUBLE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Stores how many boxes name an image that is not there."""
    found = tl.zeros((BLOCK,), tl.int32)
    for start in range(0, count, BLOCK):
        box = start + tl.arange(0, BLOCK)
        mask = box < count
        there, _ = image_of(boxes, images, box, mask, n, b_row, i_row, SPLIT, DOUBLE)
        found += (mask & ~there).to(tl.int32)
    tl.store(bad, tl.sum(found, 0))


@triton.jit
def blocks_of(count, c, bins: tl.constexpr, BB: tl.constexpr, BC: tl.constexpr):
    """Of results [boxes, channels, bins]: how many there are."""
    return count * ((bins + BB - 1) // BB) * tl.cdiv(c, BC)


@triton.jit
def block_of_bins(number, count, bins: tl.constexpr, BB: tl.constexpr, BC: tl.constexpr):
    """The box, the bins and the channels of a block of results [boxes, channels, bins].

    Some channels of all boxes come first: boxes overlap, and so much of their images stays in the
    L2 cache.
    """
    parts: tl.constexpr = (bins + BB - 1) // BB
    at = number % (count * parts)
    some = at % parts * BB + tl.arange(0, BB)
    return at // parts, some, number // (count * parts) * BC + tl.arange(0, BC)
