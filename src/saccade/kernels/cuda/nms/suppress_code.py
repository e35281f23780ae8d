"""Suppression of boxes, strip by strip of their order; see `suppress`.

A problem is one class of one image, or all boxes of `Nms`. Temporaries, for each problem:

    ranked [count]          boxes by falling score
    corners [5, count]      x1, y1, x2, y2 and area, in that order
    kinds [count]           their groups
    taken [1]               how many boxes take part
    pairs [STRIP/32, STRIP] of the strip in hand: bit b of word w of box i says that box 32·w + b
                            drops it if it stays; only words of boxes before it are there
    dropped [count]         whether a box of an earlier strip dropped the box
    counts [strips + 1]     how many boxes of earlier strips stay; the first one is not written
    kept [5, ROOM]          corners of those of the strip before that stay
    kept_kinds [ROOM]       their groups; it is as many as the longest strip has
    words [STRIP/32]        which boxes of the strip in hand stay, in parts that are resolved
    blocks [count/BLOCK]    how many boxes of each block take part, where these are listed first
    listed, levels [count]  those that do, and their scores
"""

import triton
import triton.language as tl


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
    corners, kinds, pairs, start, word, count, first, n,
    STRIP: tl.constexpr, ROWS: tl.constexpr, THRESHOLD: tl.constexpr, DOUBLE: tl.constexpr,
    GROUPED: tl.constexpr,
):  # fmt: skip
    """One word for ROWS boxes of the strip, from box `start` of it on."""
    if start + ROWS > word * 32:
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
        tl.store(pairs + word * STRIP + row, bits)


@triton.jit
def _drop(
    corners, kinds, kept, kept_kinds, dropped, row, count, strip, first, n, stayed,
    ROOM: tl.constexpr, OTHERS: tl.constexpr, THRESHOLD: tl.constexpr, DOUBLE: tl.constexpr,
    GROUPED: tl.constexpr, ORDERED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Which of later boxes are dropped by those of the strip before that stay."""
    there = row < n
    if ORDERED:
        there &= tl.load(kinds + row, mask=there, other=0) == tl.load(kinds + first - 1)
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
            u1, v1, u2, v2, size = _load_box(kept, at, ROOM, known)
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
    count, strip, strips, first, most, lanes,
    STRIP: tl.constexpr, ROOM: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    OTHERS: tl.constexpr, THRESHOLD: tl.constexpr, DOUBLE: tl.constexpr, GROUPED: tl.constexpr,
    ORDERED: tl.constexpr,
):  # fmt: skip
    """Pairs within a strip, and from there on what the strip before it drops.

    Each problem has `lanes` programs. From the first on they divide words of ROWS boxes of the
    strip, from the last on BLOCK boxes each of those that may be dropped; ORDERED: of the last
    group.
    """
    problem = tl.program_id(0) // lanes
    lane = tl.program_id(0) % lanes
    n = tl.load(taken + problem)
    known = counts + problem * (strips + 1) + strip
    stored = tl.load(known, mask=strip > 0, other=0)
    boxes = corners + problem * 5 * count
    if (first < n) & (stored < most):
        blocks = tl.cdiv(tl.minimum(n - first, STRIP), ROWS)
        words = blocks * (ROWS // 32)
        for part in range(lane, blocks * words, lanes):
            _pairs_of(
                boxes, kinds + problem * count, pairs + problem * (STRIP * (STRIP // 32)),
                part // words * ROWS, part % words, count, first, n, STRIP, ROWS, THRESHOLD, DOUBLE,
                GROUPED,
            )  # fmt: skip
        if strip > 0:
            stayed = stored - tl.load(known - 1, mask=strip > 1, other=0)
            at = first + (lanes - 1 - lane) * BLOCK
            if ORDERED:
                while _goes_on(kinds, at, n, first):
                    _drop(
                        boxes, kinds, kept, kept_kinds, dropped, at + tl.arange(0, BLOCK), count,
                        strip, first, n, stayed, ROOM, OTHERS, THRESHOLD, DOUBLE, GROUPED, ORDERED,
                        BLOCK,
                    )  # fmt: skip
                    at += lanes * BLOCK
            else:
                for row in range(at, n, lanes * BLOCK):
                    _drop(
                        boxes, kinds + problem * count, kept + problem * 5 * ROOM,
                        kept_kinds + problem * ROOM, dropped + problem * count,
                        row + tl.arange(0, BLOCK), count, strip, first, n, stayed, ROOM, OTHERS,
                        THRESHOLD, DOUBLE, GROUPED, ORDERED, BLOCK,
                    )  # fmt: skip


@triton.jit
def _packed(stays, WORDS: tl.constexpr):
    return tl.sum(tl.reshape(stays, (WORDS, 32)) << tl.arange(0, 32)[None, :], 1)


@triton.jit
def _dropped_by(bits, stays):
    """Whether one of the boxes of these words that stay drops the box of a row."""
    return tl.max(((bits & stays[None, :]) != 0).to(tl.int32), 1)


@triton.jit
def _resolve_part(
    ranked, corners, kinds, pairs, kept, kept_kinds, dropped, words, place,
    problem, count, strip, strips, first, n, most, step, part, before, rank,
    STRIP: tl.constexpr, ROOM: tl.constexpr, PART: tl.constexpr, GROUPED: tl.constexpr,
):  # fmt: skip
    """Which boxes of a part stay: how many may, and how many there are.

    A box stays unless one before it stays and drops it. That has one solution, which repeating the
    rule for all boxes at once reaches from any start: each time, boxes are settled for good that
    only depend on settled ones, so as often as chains of droppings are long.
    """
    WORDS: tl.constexpr = STRIP // 32
    OWN: tl.constexpr = PART // 32
    own = tl.arange(0, PART)
    word = tl.arange(0, OWN)
    at = part * PART + own
    there = first + at < n
    row = problem * count + first + at
    theirs = pairs + problem * (STRIP * WORDS)
    # Nothing was dropped before the first strip.
    hit = tl.load(dropped + row, mask=there & (first + at > at), other=0).to(tl.int32)
    if PART < STRIP:
        SOME: tl.constexpr = min(OWN, 8)  # whose loads are under way at the same time
        for start in range(0, part * OWN, SOME):
            for other in tl.static_range(SOME):
                stayed = tl.load(words + problem * WORDS + start + other)
                hit = hit | (tl.load(theirs + (start + other) * STRIP + at, mask=there) & stayed)
        hit = (hit != 0).to(tl.int32)
    bits = tl.load(
        theirs + (part * OWN + word)[None, :] * STRIP + at[:, None],
        mask=there[:, None] & ((word * 32)[None, :] <= own[:, None]), other=0,
    )  # fmt: skip
    open_ = (there & (hit == 0)).to(tl.int32)
    stays = open_
    changed = 1
    while changed > 0:
        after = tl.where(_dropped_by(bits, _packed(stays, OWN)) > 0, 0, open_)
        changed = tl.max(after ^ stays, 0)
        stays = after
    if PART < STRIP:  # the next part reads them
        tl.store(words + problem * WORDS + part * OWN + word, _packed(stays, OWN))
        tl.debug_barrier()
    mine = rank + tl.cumsum(stays, 0) - 1
    stay = (stays > 0) & (before + mine < most)
    box = tl.load(ranked + row, mask=stay, other=0)
    tl.store(place + (before + mine) * step, box.to(place.dtype.element_ty), mask=stay)
    if strip + 1 < strips:
        from_ = corners + problem * 5 * count + first + at
        to = kept + problem * 5 * ROOM + mine
        for axis in tl.static_range(5):
            value = tl.load(from_ + axis * count, mask=stay, other=0)
            tl.store(to + axis * ROOM, value, mask=stay)
        if GROUPED:
            group = tl.load(kinds + row, mask=stay, other=0)
            tl.store(kept_kinds + problem * ROOM + mine, group, mask=stay)
    return tl.sum(stay.to(tl.int32), 0), tl.sum(stays, 0)


@triton.jit
def resolve(
    ranked, corners, kinds, taken, counts, pairs, kept, kept_kinds, dropped, words, selected,
    extra,
    count, strip, strips, first, most, pitch, step,
    STRIP: tl.constexpr, ROOM: tl.constexpr, PART: tl.constexpr, CLASSES: tl.constexpr,
    GROUPED: tl.constexpr,
):  # fmt: skip
    """Which boxes of a strip stay; one program for a problem, PART boxes at a time."""
    problem = tl.program_id(0)
    n = tl.load(taken + problem, mask=count > 0, other=0)
    known = counts + problem * (strips + 1) + strip
    before = tl.load(known, mask=strip > 0, other=0)
    stored = before
    place = selected + problem * pitch
    if (first < n) & (before < most):
        if PART == STRIP:
            stay, _ = _resolve_part(
                ranked, corners, kinds, pairs, kept, kept_kinds, dropped, words, place, problem,
                count, strip, strips, first, n, most, step, 0, before, 0, STRIP, ROOM, PART,
                GROUPED,
            )  # fmt: skip
            stored += stay
        else:
            rank = before * 0  # in the strip, of the first box that stays from here on
            for part in range(0, tl.cdiv(tl.minimum(n - first, STRIP), PART)):
                stay, stays = _resolve_part(
                    ranked, corners, kinds, pairs, kept, kept_kinds, dropped, words, place, problem,
                    count, strip, strips, first, n, most, step, part, before, rank, STRIP, ROOM,
                    PART, GROUPED,
                )  # fmt: skip
                stored += stay
                rank += stays
    tl.store(known + 1, stored)
    if not CLASSES:  # noqa: SIM102 - decided when compiling
        if strip + 1 == strips:
            for start in range(0, count, PART):
                rest = start + tl.arange(0, PART)
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
