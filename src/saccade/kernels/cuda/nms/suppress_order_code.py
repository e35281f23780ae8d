"""Which boxes take part in a suppression, and in which order; `suppress_code` says what is written.

Boxes that take part may be listed first, so that each is compared with no others.
"""

import triton
import triton.language as tl


@triton.jit
def _corners(
    boxes, at, step, mask, CLASSES: tl.constexpr, CENTRED: tl.constexpr, DOUBLE: tl.constexpr
):
    """x1, y1, x2, y2 of boxes, by their offsets."""
    WIDE: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    a = tl.load(boxes + at, mask=mask, other=0).to(WIDE)
    b = tl.load(boxes + at + step, mask=mask, other=0).to(WIDE)
    c = tl.load(boxes + at + 2 * step, mask=mask, other=0).to(WIDE)
    d = tl.load(boxes + at + 3 * step, mask=mask, other=0).to(WIDE)
    if CENTRED:
        return a - c * 0.5, b - d * 0.5, a + c * 0.5, b + d * 0.5
    if CLASSES:  # NaN has to spread: a box with one takes no part
        ALL: tl.constexpr = tl.PropagateNan.ALL
        return (
            tl.minimum(b, d, propagate_nan=ALL), tl.minimum(a, c, propagate_nan=ALL),
            tl.maximum(b, d, propagate_nan=ALL), tl.maximum(a, c, propagate_nan=ALL),
        )  # fmt: skip
    return a, b, c, d


@triton.jit
def _takes_part(score, there, CLASSES: tl.constexpr, BOUNDED: tl.constexpr, LEAST: tl.constexpr):
    if not CLASSES:
        return there
    if BOUNDED:
        return there & (score > LEAST)
    return there & (score == score)  # noqa: PLR0124 - no NaN


@triton.jit
def _scores_of(
    scores, problem, row, there, classes, score_image, score_class, score_row,
    BOUNDED: tl.constexpr, LEAST: tl.constexpr,
):  # fmt: skip
    """Scores of a problem's boxes of a class in float32, and which of these take part."""
    scored = scores + problem // classes * score_image + problem % classes * score_class
    score = tl.load(scored + row * score_row, mask=there, other=0).to(tl.float32)
    return score, _takes_part(score, there, True, BOUNDED, LEAST)


@triton.jit
def members(
    scores, blocks, extra,
    count, classes, score_image, score_class, score_row,
    BLOCK: tl.constexpr, BOUNDED: tl.constexpr, LEAST: tl.constexpr,
):  # fmt: skip
    """How many boxes of each block take part."""
    parts = tl.cdiv(count, BLOCK)
    problem = tl.program_id(0) // parts
    row = tl.program_id(0) % parts * BLOCK + tl.arange(0, BLOCK)
    _, part = _scores_of(
        scores, problem, row, row < count, classes, score_image, score_class, score_row, BOUNDED,
        LEAST,
    )  # fmt: skip
    tl.store(blocks + tl.program_id(0), tl.sum(part.to(tl.int32), 0))


@triton.jit
def gather(
    scores, blocks, listed, levels, taken, extra,
    count, classes, score_image, score_class, score_row,
    BLOCK: tl.constexpr, BOUNDED: tl.constexpr, LEAST: tl.constexpr,
):  # fmt: skip
    """Those that take part in a list, with their scores, in the order that they come in."""
    parts = tl.cdiv(count, BLOCK)
    problem = tl.program_id(0) // parts
    block = tl.program_id(0) % parts
    row = block * BLOCK + tl.arange(0, BLOCK)
    score, part = _scores_of(
        scores, problem, row, row < count, classes, score_image, score_class, score_row, BOUNDED,
        LEAST,
    )  # fmt: skip
    earlier = tl.zeros((BLOCK,), tl.int32)
    total = tl.zeros((BLOCK,), tl.int32)
    for start in range(0, parts, BLOCK):
        at = start + tl.arange(0, BLOCK)
        have = tl.load(blocks + problem * parts + at, mask=at < parts, other=0)
        earlier += tl.where(at < block, have, 0)
        total += have
    place = problem * count + tl.sum(earlier, 0) + tl.cumsum(part.to(tl.int32), 0) - 1
    tl.store(listed + place, row, mask=part)
    tl.store(levels + place, score, mask=part)
    if block == 0:
        tl.store(taken + problem, tl.sum(total, 0))


@triton.jit
def _place_boxes(
    boxes, ranked, corners, problem, row, rank, mask, count, at, box_step,
    CLASSES: tl.constexpr, CENTRED: tl.constexpr, DOUBLE: tl.constexpr,
):  # fmt: skip
    """Write boxes to their places in the order."""
    tl.store(ranked + problem * count + rank, row, mask=mask)
    x1, y1, x2, y2 = _corners(boxes, at, box_step, mask, CLASSES, CENTRED, DOUBLE)
    place = corners + problem * 5 * count + rank
    tl.store(place, x1, mask=mask)
    tl.store(place + count, y1, mask=mask)
    tl.store(place + 2 * count, x2, mask=mask)
    tl.store(place + 3 * count, y2, mask=mask)
    tl.store(place + 4 * count, (x2 - x1) * (y2 - y1), mask=mask)


@triton.jit
def order_listed(
    boxes, listed, levels, ranked, corners, taken, extra,
    count, classes, box_image, box_row, box_step, lanes,
    BLOCK: tl.constexpr, OTHERS: tl.constexpr, CENTRED: tl.constexpr, DOUBLE: tl.constexpr,
):  # fmt: skip
    """As `order`, of boxes that are listed: blocks of them for `lanes` programs a problem."""
    problem = tl.program_id(0) // lanes
    n = tl.load(taken + problem)
    for begin in range(tl.program_id(0) % lanes * BLOCK, n, lanes * BLOCK):
        slot = begin + tl.arange(0, BLOCK)
        there = slot < n
        row = tl.load(listed + problem * count + slot, mask=there, other=0)
        mine = tl.load(levels + problem * count + slot, mask=there, other=0)
        before = tl.zeros((BLOCK, OTHERS), tl.int32)
        # Of equal ones the earlier come first: which they are is asked beside the box alone.
        near = begin // OTHERS * OTHERS
        far = tl.cdiv(begin + BLOCK, OTHERS) * OTHERS
        for start in range(0, near, OTHERS):
            theirs = tl.load(levels + problem * count + start + tl.arange(0, OTHERS))
            before += (theirs[None, :] >= mine[:, None]).to(tl.int32)
        for start in range(near, tl.minimum(far, n), OTHERS):
            other = start + tl.arange(0, OTHERS)
            inside = other < n
            theirs = tl.load(levels + problem * count + other, mask=inside, other=0)
            first = theirs[None, :] > mine[:, None]
            first = first | ((theirs[None, :] == mine[:, None]) & (other[None, :] < slot[:, None]))
            before += (first & inside[None, :]).to(tl.int32)
        for start in range(far, n, OTHERS):
            other = start + tl.arange(0, OTHERS)
            # No score is less than those that are not there.
            theirs = tl.load(levels + problem * count + other, mask=other < n, other=float("-inf"))
            before += (theirs[None, :] > mine[:, None]).to(tl.int32)
        at = problem // classes * box_image + row * box_row
        _place_boxes(
            boxes, ranked, corners, problem, row, tl.sum(before, 1), there, count, at, box_step,
            True, CENTRED, DOUBLE,
        )  # fmt: skip


@triton.jit
def order(
    boxes, scores, groups, ranked, corners, kinds, taken, dropped, extra,
    count, classes, box_image, box_row, box_step, score_image, score_class, score_row, group_row,
    BLOCK: tl.constexpr, OTHERS: tl.constexpr, CLASSES: tl.constexpr, CENTRED: tl.constexpr,
    BOUNDED: tl.constexpr, LEAST: tl.constexpr, DOUBLE: tl.constexpr,
    DOUBLE_SCORES: tl.constexpr, GROUPED: tl.constexpr, ORDERED: tl.constexpr,
):  # fmt: skip
    """Each box's place in the order: how many come before it. A program has BLOCK boxes."""
    SCORE: tl.constexpr = tl.float64 if DOUBLE_SCORES else tl.float32
    blocks = tl.cdiv(count, BLOCK)
    problem = tl.program_id(0) // blocks
    block = tl.program_id(0) % blocks
    image = problem // classes
    scored = scores + image * score_image + problem % classes * score_class
    row = block * BLOCK + tl.arange(0, BLOCK)
    there = row < count
    mine = tl.load(scored + row * score_row, mask=there, other=0).to(SCORE)
    part = _takes_part(mine, there, CLASSES, BOUNDED, LEAST)
    if (tl.max(part.to(tl.int32), 0) > 0) | (block == 0):
        unknown = mine != mine  # noqa: PLR0124 - NaN
        before = tl.zeros((BLOCK, OTHERS), tl.int32)
        some = tl.zeros((OTHERS,), tl.int32)
        for start in range(0, 0 if ORDERED else count, OTHERS):
            other = start + tl.arange(0, OTHERS)
            inside = other < count
            theirs = tl.load(scored + other * score_row, mask=inside, other=0).to(SCORE)
            counted = _takes_part(theirs, inside, CLASSES, BOUNDED, LEAST)
            some += counted.to(tl.int32)
            earlier = other[None, :] < row[:, None]
            first = theirs[None, :] > mine[:, None]
            first = first | ((theirs[None, :] == mine[:, None]) & earlier)
            if not CLASSES:  # NaN comes before all others
                lost = (theirs != theirs)[None, :]  # noqa: PLR0124
                first = first | (lost & (earlier | ~unknown[:, None]))
            before += (first & counted[None, :]).to(tl.int32)
        rank = row if ORDERED else tl.sum(before, 1)
        at = image * box_image + row * box_row
        _place_boxes(
            boxes, ranked, corners, problem, row, rank, part, count, at, box_step, CLASSES, CENTRED,
            DOUBLE,
        )  # fmt: skip
        if GROUPED:
            group = tl.load(groups + row * group_row, mask=part, other=0)
            tl.store(kinds + problem * count + rank, group, mask=part)
        if ORDERED:  # later only boxes are looked at that some of their group come before
            tl.store(dropped + row, tl.zeros((BLOCK,), tl.int8), mask=part)
        if block == 0:
            tl.store(taken + problem, count if ORDERED else tl.sum(some, 0))
