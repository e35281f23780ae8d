"""Normalisation of rows: their statistics, and every element relative to these.

Rows are what is kept of all axes, elements what is normalised over. The statistics of a row are a
centre and a spread: mean and sum of squared distances from it, or 0 and the sum of magnitudes or
squares.
"""

import triton
import triton.language as tl

from saccade.kernels.cuda.reduce.axis_loops_code import place, stepped


@triton.jit
def operand(
    f, row, row_mask, k1, k2, k_steps, r, r_mask, r1, r2, r_steps,
    KINDS: tl.constexpr, KEPT: tl.constexpr, REDUCED: tl.constexpr,
):  # fmt: skip
    """[rows or 1, elements or 1] of an operand in float32.

    KINDS says of rows and of elements: "0" where it repeats along them, "1" where neighbours lie
    side by side, "s" for any other stride.
    """
    unit_k: tl.constexpr = KINDS[0] == "1"
    unit_r: tl.constexpr = KINDS[1] == "1"
    at_k = place(row, k1, k2, k_steps[0], k_steps[1], k_steps[2], AXES=KEPT, UNIT=unit_k)
    at_r = place(r, r1, r2, r_steps[0], r_steps[1], r_steps[2], AXES=REDUCED, UNIT=unit_r)
    if KINDS == "00":
        value = tl.load(f)
    elif KINDS[0] == "0":
        value = tl.load(f + at_r, mask=r_mask, other=0)[None, :]
    elif KINDS[1] == "0":
        value = tl.load(f + at_k, mask=row_mask, other=0)[:, None]
    else:
        mask = row_mask[:, None] & r_mask[None, :]
        value = tl.load(f + at_k[:, None] + at_r[None, :], mask=mask, other=0)
    return value.to(tl.float32)


@triton.jit
def magnitude(value, KIND: tl.constexpr):
    """What a norm sums."""
    return tl.abs(value) if KIND == "l1" else value * value


@triton.jit
def settled(value, mask, count, KIND: tl.constexpr):
    """Centre and spread of rows of `count` elements that are all here."""
    if KIND == "deviation":
        centre = tl.sum(tl.where(mask, value, 0.0), 1) / count
        away = tl.where(mask, value - centre[:, None], 0.0)
        spread = tl.sum(away * away, 1)
    else:
        spread = tl.sum(tl.where(mask, magnitude(value, KIND=KIND), 0.0), 1)
        centre = spread * 0
    return centre, spread


@triton.jit
def joined(centres, spreads, counts, total):
    """Mean and squared distances of [rows, groups] of so many elements each, `total` in all."""
    centre = tl.sum(tl.where(counts > 0, counts * centres, 0.0), 1) / total
    away = centres - centre[:, None]
    return centre, tl.sum(tl.where(counts > 0, spreads + counts * away * away, 0.0), 1)


@triton.jit
def normalize(
    x, y, scale, bias, partial, extra,
    rows, k1, k2, reduced, tiles, parts, r1, r2, epsilon,
    x_k0, x_k1, x_k2, x_r0, x_r1, x_r2, y_k0, y_k1, y_k2, y_r0, y_r1, y_r2,
    s_k0, s_k1, s_k2, s_r0, s_r1, s_r2, b_k0, b_k1, b_k2, b_r0, b_r1, b_r2,
    KIND: tl.constexpr, PHASE: tl.constexpr, ONCE: tl.constexpr, KEPT: tl.constexpr,
    REDUCED: tl.constexpr, UNIT: tl.constexpr, Y_UNIT: tl.constexpr, SCALE: tl.constexpr,
    BIAS: tl.constexpr, STEP: tl.constexpr, Y_STEP: tl.constexpr, BM: tl.constexpr,
    BR: tl.constexpr, BP: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """`tiles` blocks of BR elements are a part.

    PHASE is "rows" (all of a row in one program), "statistics" (of a part, left in `partial`:
    centres [parts, rows], then spreads) or "apply" (those of all parts to one part). ONCE says
    that a part is one block.
    """
    kept_step: tl.constexpr = STEP if UNIT == "kept" else 1
    reduced_step: tl.constexpr = STEP if UNIT == "reduced" else 1
    rows = stepped(rows, STEP=kept_step)
    k2 = stepped(k2, STEP=kept_step)
    reduced = stepped(reduced, STEP=reduced_step)
    r2 = stepped(r2, STEP=reduced_step)
    x_k0 = stepped(x_k0, STEP=STEP)
    x_k1 = stepped(x_k1, STEP=STEP)
    x_k2 = stepped(x_k2, STEP=reduced_step)
    x_r0 = stepped(x_r0, STEP=STEP)
    x_r1 = stepped(x_r1, STEP=STEP)
    x_r2 = stepped(x_r2, STEP=kept_step)
    y_k0 = stepped(y_k0, STEP=Y_STEP)
    y_k1 = stepped(y_k1, STEP=Y_STEP)
    y_r0 = stepped(y_r0, STEP=Y_STEP)
    y_r1 = stepped(y_r1, STEP=Y_STEP)
    if Y_UNIT == "kept":
        y_r2 = stepped(y_r2, STEP=Y_STEP)
    else:
        y_k2 = stepped(y_k2, STEP=Y_STEP)
    blocks = tl.cdiv(rows, BM)
    part = tl.program_id(0) // blocks
    row = tl.program_id(0) % blocks * BM + tl.arange(0, BM)
    row_mask = row < rows
    x_row = place(row, k1, k2, x_k0, x_k1, x_k2, AXES=KEPT, UNIT=UNIT == "kept")
    first = part * tiles * BR
    last = tl.minimum(first + tiles * BR, reduced)
    lane = tl.arange(0, BR)
    one_mask = row_mask[:, None] & (first + lane < reduced)[None, :]
    value = tl.zeros((BM, BR), tl.float32)
    if ONCE:
        x_r = place(
            first + lane, r1, r2, x_r0, x_r1, x_r2, AXES=REDUCED, UNIT=UNIT == "reduced"
        )  # fmt: skip
        value = tl.load(x + x_row[:, None] + x_r[None, :], mask=one_mask, other=0).to(tl.float32)
    if PHASE == "apply":
        centre = tl.zeros((BM,), tl.float32)
        spread = tl.zeros((BM,), tl.float32)
        group = tl.arange(0, BP)
        seen = 0.0
        for p in range(0, parts, BP):
            here = p + group
            mask = row_mask[:, None] & (here < parts)[None, :]
            at = here[None, :] * rows + row[:, None]
            spreads = tl.load(partial + at, mask=mask, other=0)
            if KIND == "deviation":
                # Chan's way to join what groups of elements have: no large sum of squares.
                centres = tl.load(partial + (parts * rows + at), mask=mask, other=0)
                sizes = tl.minimum(tiles * BR, tl.maximum(reduced - here * (tiles * BR), 0))
                counts = sizes.to(tl.float32)[None, :]
                new = tl.sum(sizes.to(tl.float32), 0)
                middle, around = joined(centres, spreads, counts, new)
                away = middle - centre
                centre += away * (new / (seen + new))
                spread += around + away * away * (seen * new / (seen + new))
                seen += new
            else:
                spread += tl.sum(spreads, 1)
    elif ONCE:
        centre, spread = settled(value, one_mask, (last - first).to(tl.float32), KIND=KIND)
    else:
        centres = tl.zeros((BM, BR), tl.float32)
        spreads = tl.zeros((BM, BR), tl.float32)
        count = 0.0
        for at in tl.range(first, last, BR, num_stages=STAGES):
            r = at + lane
            x_r = place(r, r1, r2, x_r0, x_r1, x_r2, AXES=REDUCED, UNIT=UNIT == "reduced")
            mask = row_mask[:, None] & (r < reduced)[None, :]
            now = tl.load(x + x_row[:, None] + x_r[None, :], mask=mask, other=0).to(tl.float32)
            if KIND == "deviation":
                count += 1.0
                away = now - centres
                centres = tl.where(mask, centres + away * (1.0 / count), centres)
                spreads = tl.where(mask, spreads + away * (now - centres), spreads)
            else:
                spreads += tl.where(mask, magnitude(now, KIND=KIND), 0.0)
        if KIND == "deviation":
            sizes = tl.cdiv(tl.maximum(last - first - lane, 0), BR).to(tl.float32)
            size = (last - first).to(tl.float32)
            centre, spread = joined(centres, spreads, sizes[None, :], size)
        else:
            spread = tl.sum(spreads, 1)
            centre = spread * 0
    if PHASE == "statistics":
        tl.store(partial + (part * rows + row), spread, mask=row_mask)
        if KIND == "deviation":
            tl.store(partial + ((parts + part) * rows + row), centre, mask=row_mask)
    else:
        if KIND == "deviation":
            small = epsilon.to(tl.float32, bitcast=True)
            over = 1.0 / tl.sqrt_rn(spread / reduced.to(tl.float32) + small)
        elif KIND == "l2":
            over = tl.sqrt_rn(spread)
        else:
            over = spread
        if KIND != "deviation":
            over = tl.where(over == 0, 1.0, over)
        y_row = place(row, k1, k2, y_k0, y_k1, y_k2, AXES=KEPT, UNIT=Y_UNIT == "kept")
        for at in tl.range(first, last, BR, num_stages=STAGES):
            r = at + lane
            r_mask = r < reduced
            mask = row_mask[:, None] & r_mask[None, :]
            if not ONCE:
                x_r = place(r, r1, r2, x_r0, x_r1, x_r2, AXES=REDUCED, UNIT=UNIT == "reduced")
                value = tl.load(x + x_row[:, None] + x_r[None, :], mask=mask, other=0)
                value = value.to(tl.float32)
            if KIND == "deviation":
                result = (value - centre[:, None]) * over[:, None]
            else:
                result = value / over[:, None]
            if SCALE != "":
                result *= operand(
                    scale, row, row_mask, k1, k2, (s_k0, s_k1, s_k2), r, r_mask, r1, r2,
                    (s_r0, s_r1, s_r2), KINDS=SCALE, KEPT=KEPT, REDUCED=REDUCED,
                )  # fmt: skip
            if BIAS != "":
                result += operand(
                    bias, row, row_mask, k1, k2, (b_k0, b_k1, b_k2), r, r_mask, r1, r2,
                    (b_r0, b_r1, b_r2), KINDS=BIAS, KEPT=KEPT, REDUCED=REDUCED,
                )  # fmt: skip
            y_r = place(r, r1, r2, y_r0, y_r1, y_r2, AXES=REDUCED, UNIT=Y_UNIT == "reduced")
            tl.store(
                y + y_row[:, None] + y_r[None, :], result.to(y.dtype.element_ty), mask=mask
            )  # fmt: skip
