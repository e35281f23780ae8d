"""Suppression of boxes, strip by strip of their order; see `suppress`.

A problem is one class of one image, or all boxes of `Nms`. Temporaries, for each problem:

    ranked [count]          boxes by falling score
    corners [5, count]      x1, y1, x2, y2 and area, in that order
    kinds [count]           their groups
    taken [1]               how many boxes take part
    pairs [STRIP, STRIP/32] of the strip in hand: bit b of word w of box i says that box 32·w + b
                            drops it if it stays; only words of boxes before it are there
    dropped [count]         whether a box of an earlier strip dropped the box
    counts [strips + 1]     how many boxes of earlier strips stay; the first one is not written
    kept [5, STRIP]         corners of those of the strip before that stay
    kept_kinds [STRIP]      their groups
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
        tl.store(ranked + problem * count + rank, row, mask=part)
        at = image * box_image + row * box_row
        x1, y1, x2, y2 = _corners(boxes, at, box_step, part, CLASSES, CENTRED, DOUBLE)
        place = corners + problem * 5 * count + rank
        tl.store(place, x1, mask=part)
        tl.store(place + count, y1, mask=part)
        tl.store(place + 2 * count, x2, mask=part)
        tl.store(place + 3 * count, y2, mask=part)
        tl.store(place + 4 * count, (x2 - x1) * (y2 - y1), mask=part)
        if GROUPED:
            group = tl.load(groups + row * group_row, mask=part, other=0)
            tl.store(kinds + problem * count + rank, group, mask=part)
        if ORDERED:  # later only boxes are looked at that some of their group come before
            tl.store(dropped + row, tl.zeros((BLOCK,), tl.int8), mask=part)
        if block == 0:
            tl.store(taken + problem, count if ORDERED else tl.sum(some, 0))


@triton.jit
def _load_box(corners, at, pitch, mask):
    return (
        tl.load(corners + at, mask=mask, other=0),
        tl.load(corners + at + pitch, mask=mask, other=0),
        tl.load(corners + at + 2 * pitch, mask=mask, other=0),
        tl.load(corners + at + 3 * pitch, mask=mask, other=0),
        tl.load(corners + at + 4 * pitch, mask=mask, other=0),
    )


@triton.jit
def _exceeds(box, other, THRESHOLD: tl.constexpr, DOUBLE: tl.constexpr):
    """Whether overlap over union exceeds the threshold, each step rounded as the reference's."""
    wide = tl.minimum(box[2], other[2]) - tl.maximum(box[0], other[0])
    high = tl.minimum(box[3], other[3]) - tl.maximum(box[1], other[1])
    overlap = tl.where(wide > 0, wide, 0.0) * tl.where(high > 0, high, 0.0)
    union = box[4] + other[4] - overlap
    if DOUBLE:
        return overlap / union > THRESHOLD
    else:  # noqa: RET505 - what follows a return is compiled, too
        return tl.div_rn(overlap, union) > THRESHOLD


@triton.jit
def _pairs_of(
    corners, kinds, pairs, part, count, first, n,
    STRIP: tl.constexpr, ROWS: tl.constexpr, THRESHOLD: tl.constexpr, DOUBLE: tl.constexpr,
    GROUPED: tl.constexpr,
):  # fmt: skip
    """One word for ROWS boxes of the strip."""
    WORDS: tl.constexpr = STRIP // 32
    word = part % WORDS
    start = part // WORDS * ROWS
    if (start + ROWS > word * 32) & (first + start < n):
        row = start + tl.arange(0, ROWS)
        there = first + row < n
        box = _load_box(corners, first + row, count, there)
        bits = tl.zeros((ROWS,), tl.int32)
        if GROUPED:
            kind = tl.load(kinds + first + row, mask=there, other=0)
        for bit in range(32):
            other = word * 32 + bit
            known = first + other < n
            near = _exceeds(box, _load_box(corners, first + other, count, known), THRESHOLD, DOUBLE)
            if GROUPED:
                near = near & (kind == tl.load(kinds + first + other, mask=known, other=0))
            bits = bits | ((near & (other < row)).to(tl.int32) << bit)
        tl.store(pairs + row * WORDS + word, bits)


@triton.jit
def _drop(
    corners, kinds, kept, kept_kinds, dropped, row, count, strip, n, stayed,
    STRIP: tl.constexpr, OTHERS: tl.constexpr, THRESHOLD: tl.constexpr, DOUBLE: tl.constexpr,
    GROUPED: tl.constexpr, ORDERED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Which of later boxes are dropped by those of the strip before that stay."""
    there = row < n
    if ORDERED:
        there &= tl.load(kinds + row, mask=there, other=0) == tl.load(kinds + strip * STRIP - 1)
    gone = tl.zeros((BLOCK,), tl.int32)
    if ORDERED or strip > 1:  # none was dropped before the first one
        gone = tl.load(dropped + row, mask=there, other=0).to(tl.int32)
    open_ = there & (gone == 0)
    if tl.max(open_.to(tl.int32), 0) > 0:
        x1, y1, x2, y2, area = _load_box(corners, row, count, open_)
        box = (x1[:, None], y1[:, None], x2[:, None], y2[:, None], area[:, None])
        if GROUPED:
            kind = tl.load(kinds + row, mask=open_, other=0)
        found = tl.zeros((BLOCK, OTHERS), tl.int32)
        for start in range(0, stayed, OTHERS):
            at = start + tl.arange(0, OTHERS)
            known = at < stayed
            u1, v1, u2, v2, size = _load_box(kept, at, STRIP, known)
            other = (u1[None, :], v1[None, :], u2[None, :], v2[None, :], size[None, :])
            near = _exceeds(box, other, THRESHOLD, DOUBLE) & known[None, :]
            if GROUPED:
                theirs = tl.load(kept_kinds + at, mask=known, other=0)
                near = near & (kind[:, None] == theirs[None, :])
            found = found | near.to(tl.int32)
        gone = gone | tl.max(found, 1)
    tl.store(dropped + row, gone.to(tl.int8), mask=there)


@triton.jit
def _goes_on(kinds, at, n, first):
    """Whether a box from there on is of the group that the strip before ends with."""
    return (at < n) & (tl.load(kinds + at, mask=at < n, other=0) == tl.load(kinds + first - 1))


@triton.jit
def compare(
    corners, kinds, taken, counts, pairs, kept, kept_kinds, dropped, extra,
    count, strip, strips, most,
    STRIP: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, OTHERS: tl.constexpr,
    THRESHOLD: tl.constexpr, DOUBLE: tl.constexpr, GROUPED: tl.constexpr, ORDERED: tl.constexpr,
    LATER: tl.constexpr,
):  # fmt: skip
    """Pairs within a strip, and from there on what the strip before it drops.

    The first programs of a problem have a word of ROWS boxes of the strip each, the others BLOCK
    boxes; ORDERED: LATER programs at most, and as many blocks as the last group goes on.
    """
    INNER: tl.constexpr = STRIP // ROWS * (STRIP // 32)
    first = strip * STRIP
    later = tl.where(strip > 0, tl.cdiv(count - first, BLOCK), 0)
    if ORDERED:
        later = tl.minimum(later, LATER)
    problem = tl.program_id(0) // (INNER + later)
    part = tl.program_id(0) % (INNER + later)
    n = tl.load(taken + problem)
    known = counts + problem * (strips + 1) + strip
    stored = tl.load(known, mask=strip > 0, other=0)
    boxes = corners + problem * 5 * count
    if (first < n) & (stored < most):
        if part < INNER:
            _pairs_of(
                boxes, kinds + problem * count, pairs + problem * (STRIP * (STRIP // 32)), part,
                count, first, n, STRIP, ROWS, THRESHOLD, DOUBLE, GROUPED,
            )  # fmt: skip
        else:
            stayed = stored - tl.load(known - 1, mask=strip > 1, other=0)
            at = first + (part - INNER) * BLOCK
            if ORDERED:
                while _goes_on(kinds, at, n, first):
                    _drop(
                        boxes, kinds, kept, kept_kinds, dropped, at + tl.arange(0, BLOCK), count,
                        strip, n, stayed, STRIP, OTHERS, THRESHOLD, DOUBLE, GROUPED, ORDERED, BLOCK,
                    )  # fmt: skip
                    at += later * BLOCK
            else:
                _drop(
                    boxes, kinds + problem * count, kept + problem * 5 * STRIP,
                    kept_kinds + problem * STRIP, dropped + problem * count,
                    at + tl.arange(0, BLOCK), count, strip, n, stayed, STRIP, OTHERS, THRESHOLD,
                    DOUBLE, GROUPED, ORDERED, BLOCK,
                )  # fmt: skip


@triton.jit
def resolve(
    ranked, corners, kinds, taken, counts, pairs, kept, kept_kinds, dropped, selected,
    extra,
    count, strip, strips, most, pitch, step,
    STRIP: tl.constexpr, CLASSES: tl.constexpr, GROUPED: tl.constexpr,
):  # fmt: skip
    """Which boxes of a strip stay; one program for a problem.

    A box stays unless one before it stays and drops it. That has one solution, which repeating the
    rule for all boxes at once reaches from any start: each time, boxes are settled for good that
    only depend on settled ones, so as often as chains of droppings are long.
    """
    WORDS: tl.constexpr = STRIP // 32
    problem = tl.program_id(0)
    n = tl.load(taken + problem, mask=count > 0, other=0)
    known = counts + problem * (strips + 1) + strip
    stored = tl.load(known, mask=strip > 0, other=0)
    first = strip * STRIP
    place = selected + problem * pitch
    if (first < n) & (stored < most):
        at = tl.arange(0, STRIP)
        word = tl.arange(0, WORDS)
        there = first + at < n
        bits = tl.load(  # four words at a time
            pairs + problem * (STRIP * WORDS) + at[:, None] * WORDS + word[None, :],
            mask=there[:, None] & ((word // 4 * 128)[None, :] <= at[:, None]), other=0,
        )  # fmt: skip
        row = problem * count + first + at
        # Nothing was dropped before the first strip.
        gone = tl.load(dropped + row, mask=there & (first + at >= STRIP), other=0)
        open_ = (there & (gone == 0)).to(tl.int32)
        stays = open_
        changed = 1
        while changed > 0:
            shifted = tl.reshape(stays, (WORDS, 32)) << tl.arange(0, 32)[None, :]
            packed = tl.sum(shifted, 1)
            hit = tl.max(((bits & packed[None, :]) != 0).to(tl.int32), 1)
            after = tl.where(hit > 0, 0, open_)
            changed = tl.max(after ^ stays, 0)
            stays = after
        rank = tl.cumsum(stays, 0) - 1
        stay = (stays > 0) & (stored + rank < most)
        box = tl.load(ranked + row, mask=stay, other=0)
        tl.store(place + (stored + rank) * step, box.to(selected.dtype.element_ty), mask=stay)
        if strip + 1 < strips:
            from_ = corners + problem * 5 * count + first + at
            to = kept + problem * 5 * STRIP + rank
            for axis in tl.static_range(5):
                value = tl.load(from_ + axis * count, mask=stay, other=0)
                tl.store(to + axis * STRIP, value, mask=stay)
            if GROUPED:
                group = tl.load(kinds + row, mask=stay, other=0)
                tl.store(kept_kinds + problem * STRIP + rank, group, mask=stay)
        stored += tl.sum(stay.to(tl.int32), 0)
    tl.store(known + 1, stored)
    if not CLASSES:  # noqa: SIM102 - decided when compiling
        if strip + 1 == strips:
            for start in range(0, count, STRIP):
                rest = start + tl.arange(0, STRIP)
                tl.store(place + rest * step, -1, mask=(rest >= stored) & (rest < count))
            tl.store(place + count * step, stored.to(tl.int64))


@triton.jit
def rows(
    counts, stays, selected, number, extra,
    problems, classes, strips, most, capacity, programs, y_row, y_step,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """(image, class, box) of what stays, problem after problem, zeros behind it, and how much."""
    program = tl.program_id(0)
    lane = tl.arange(0, BLOCK)
    before = tl.zeros((BLOCK,), tl.int32)
    total = tl.zeros((BLOCK,), tl.int32)
    for start in range(0, problems, BLOCK):
        at = start + lane
        have = tl.load(counts + at * (strips + 1) + strips, mask=at < problems, other=0)
        before += tl.where(at < program, have, 0)
        total += have
    first = tl.sum(before, 0)
    end = tl.sum(total, 0)
    mine = tl.load(counts + program * (strips + 1) + strips, mask=program < problems, other=0)
    for start in range(0, mine, BLOCK):
        at = start + lane
        mask = (at < mine) & (first + at < capacity)
        box = tl.load(stays + program * most + at, mask=mask, other=0)
        place = selected + (first + at) * y_row
        tl.store(place, tl.zeros((BLOCK,), tl.int64) + program // classes, mask=mask)
        tl.store(place + y_step, tl.zeros((BLOCK,), tl.int64) + program % classes, mask=mask)
        tl.store(place + 2 * y_step, box.to(tl.int64), mask=mask)
    for start in range(end + program * BLOCK, capacity, programs * BLOCK):
        at = start + lane
        place = selected + at * y_row
        nothing = tl.zeros((BLOCK,), tl.int64)
        tl.store(place, nothing, mask=at < capacity)
        tl.store(place + y_step, nothing, mask=at < capacity)
        tl.store(place + 2 * y_step, nothing, mask=at < capacity)
    if program == 0:
        tl.store(number, end.to(tl.int64))
