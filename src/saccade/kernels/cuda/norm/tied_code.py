"""The largest or smallest magnitude of rows and how many there are of it, in blocks."""

import triton
import triton.language as tl

from saccade.kernels.cuda.reduce.axis_loops_code import element, place, stepped
from saccade.kernels.cuda.reduce.direct_code import added, combined


@triton.jit
def counted(best, count, value, ties, LARGEST: tl.constexpr):
    """Best and count with a value that is there `ties` times; a NaN stays, and equals nothing."""
    if LARGEST:
        higher = added(best, value, COMBINE="max")
        beaten = value > best
    else:
        higher = added(best, value, COMBINE="min")
        beaten = value < best
    return higher, tl.where(beaten, ties, count + tl.where(value == best, ties, 0))


@triton.jit
def settle(best, count, LARGEST: tl.constexpr):
    """[rows, elements] of either over all elements."""
    total = combined(best, COMBINE="max") if LARGEST else combined(best, COMBINE="min")
    return total, tl.sum(tl.where(best == total[:, None], count, 0), 1)


@triton.jit
def tied_norm(
    x, y, ties, best, counts, extra,
    rows, k1, k2, reduced, tiles, parts, r1, r2,
    x_k0, x_k1, x_k2, x_r0, x_r1, x_r2, y_k0, y_k1, y_k2, t_k0, t_k1, t_k2,
    LARGEST: tl.constexpr, PHASE: tl.constexpr, WIDE: tl.constexpr, KEPT: tl.constexpr,
    REDUCED: tl.constexpr, UNIT: tl.constexpr, STEP: tl.constexpr, BM: tl.constexpr,
    BR: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """PHASE is "whole", "parts" (left in `best` and `counts`, [part, row]) or "joined"."""
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
    wide: tl.constexpr = element(WIDE)
    start: tl.constexpr = float("-inf") if LARGEST else float("inf")
    blocks = tl.cdiv(rows, BM)
    part = tl.program_id(0) // blocks
    row = tl.program_id(0) % blocks * BM + tl.arange(0, BM)
    row_mask = row < rows
    held = tl.full((BM, BR), start, wide)
    count = tl.zeros((BM, BR), tl.int32)
    if PHASE == "joined":
        for at in range(0, parts, BR):
            here = at + tl.arange(0, BR)
            mask = row_mask[:, None] & (here < parts)[None, :]
            to = here[None, :] * rows + row[:, None]
            value = tl.load(best + to, mask=mask, other=start)
            shared = tl.load(counts + to, mask=mask, other=0)
            held, count = counted(held, count, value, shared, LARGEST=LARGEST)
    else:
        x_row = place(row, k1, k2, x_k0, x_k1, x_k2, AXES=KEPT, UNIT=UNIT == "kept")
        first = part * tiles * BR
        last = tl.minimum(first + tiles * BR, reduced)
        for at in tl.range(first, last, BR, num_stages=STAGES):
            r = at + tl.arange(0, BR)
            x_r = place(r, r1, r2, x_r0, x_r1, x_r2, AXES=REDUCED, UNIT=UNIT == "reduced")
            mask = row_mask[:, None] & (r < reduced)[None, :]
            value = tl.load(x + x_row[:, None] + x_r[None, :], mask=mask, other=0).to(wide)
            value = tl.where(mask, tl.abs(value), start)
            held, count = counted(held, count, value, mask.to(tl.int32), LARGEST=LARGEST)
    total, number = settle(held, count, LARGEST=LARGEST)
    if PHASE == "parts":
        tl.store(best + (part * rows + row), total, mask=row_mask)
        tl.store(counts + (part * rows + row), number, mask=row_mask)
    else:
        y_row = place(row, k1, k2, y_k0, y_k1, y_k2, AXES=KEPT, UNIT=False)
        t_row = place(row, k1, k2, t_k0, t_k1, t_k2, AXES=KEPT, UNIT=False)
        tl.store(y + y_row, total, mask=row_mask)
        tl.store(ties + t_row, number, mask=row_mask)
