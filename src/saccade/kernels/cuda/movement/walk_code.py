"""How blocks of a result are found: a generated function then loads, computes and stores them."""

import triton
import triton.language as tl


@triton.jit
def vectors(
    p0, extra, pid, rows, ROWS: tl.constexpr, VECTOR: tl.constexpr, BODY: tl.constexpr
):  # fmt: skip
    """ROWS short vectors of the result's innermost axis, out of `rows`."""
    row = pid * ROWS + tl.arange(0, ROWS)
    BODY(p0, extra, row, tl.arange(0, VECTOR), row < rows)


@triton.jit
def tiles(
    p0, extra, pid, down, across,
    DOWN: tl.constexpr, ACROSS: tl.constexpr, DOWN_STEP: tl.constexpr, ACROSS_STEP: tl.constexpr,
    BODY: tl.constexpr,
):  # fmt: skip
    """Rectangles over two axes: `across` is the result's innermost, the operand's is `down`.

    Both sizes come divided by steps, powers of two, so that the code knows what divides them.
    """
    down = down * DOWN_STEP
    across = across * ACROSS_STEP
    wide = tl.cdiv(across, ACROSS)
    high = tl.cdiv(down, DOWN)
    i = pid // wide % high * DOWN + tl.arange(0, DOWN)
    j = pid % wide * ACROSS + tl.arange(0, ACROSS)
    BODY(p0, extra, pid // (wide * high), i, j, i < down, j < across)


@triton.jit
def walk_vectors(p0, extra, rows, ROWS: tl.constexpr, VECTOR: tl.constexpr, BODY: tl.constexpr):
    """One walk: a program for each block."""
    vectors(p0, extra, tl.program_id(0), rows, ROWS, VECTOR, BODY)


@triton.jit
def walk_tiles(
    p0, extra, down, across,
    DOWN: tl.constexpr, ACROSS: tl.constexpr, DOWN_STEP: tl.constexpr, ACROSS_STEP: tl.constexpr,
    BODY: tl.constexpr,
):  # fmt: skip
    """One walk: a program for each rectangle."""
    pid = tl.program_id(0)
    tiles(p0, extra, pid, down, across, DOWN, ACROSS, DOWN_STEP, ACROSS_STEP, BODY)


@triton.jit
def counted_vectors(
    p0, extra, ROWS: tl.constexpr, VECTOR: tl.constexpr, BODY: tl.constexpr, COUNT: tl.constexpr
):  # fmt: skip
    """One walk over as many vectors as steps before it found: programs have several blocks."""
    rows = COUNT(extra)
    for first in range(tl.program_id(0) * ROWS, rows, tl.num_programs(0) * ROWS):
        row = first + tl.arange(0, ROWS)
        BODY(p0, extra, row, tl.arange(0, VECTOR), row < rows)


@triton.jit
def counted_tiles(
    p0, extra, down, across,
    DOWN: tl.constexpr, ACROSS: tl.constexpr, DOWN_STEP: tl.constexpr, ACROSS_STEP: tl.constexpr,
    BODY: tl.constexpr, COUNT: tl.constexpr,
):  # fmt: skip
    """The same over rectangles."""
    outer, down, across = COUNT(extra, down * DOWN_STEP, across * ACROSS_STEP)
    blocks = outer * tl.cdiv(down, DOWN) * tl.cdiv(across, ACROSS)
    for pid in range(tl.program_id(0), blocks, tl.num_programs(0)):
        tiles(p0, extra, pid, down, across, DOWN, ACROSS, 1, 1, BODY)


@triton.jit
def walk_several(p0, extra, BODY: tl.constexpr):
    """Several walks: the generated function finds out which of them a program belongs to."""
    BODY(p0, extra, tl.program_id(0))
