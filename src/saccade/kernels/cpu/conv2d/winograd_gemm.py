"""The matrix product inside Winograd's convolution: rows of tiles times a panel of filters.

`m[t, j] = Σ_c v[t, c] · u[c, j]` for j over one panel of nv vectors. Rows of v are interleaved:
[block of channels][row][channel of the block], a block as wide as a vector, so that all rows are
reached from one address. The panel streams from the cache or from memory, elements of v are
broadcast; rows · nv sums stay in registers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr
    from saccade.backends.cpu.codegen.values import Bool, Int
    from saccade.backends.cpu.target import Target

__all__ = [
    "Shape",
    "emit_rows",
    "even_heights",
    "panel_vectors",
    "phased_heights",
    "rows_in_registers",
    "usual_heights",
]


_MOST_PHASED = 25
"""Rows that read a panel once: those of a 28x28 image in tiles of 6. In two pieces they took a
fifth longer; every further height costs 15 ms of compiling."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Extents of one product.

    Attributes:
        rows: How many rows v has.
        depth: Length of the sums.
        block: Elements from one block of channels of v to the next.
        ahead: How many vectors of the panel ahead are asked for early, 0 for none.
        near: Whether they are asked into the L1 cache, else into the L2 cache.
    """

    rows: Int
    depth: Int
    block: Int
    ahead: int = 0
    near: bool = False


@lru_cache(maxsize=64)
def panel_vectors(vectors: int, target: Target) -> int:
    """Vectors in a panel: of 4 to 1 (2 to 1 with 16 registers) what is fastest for all `vectors`.

    A narrow panel is slower for each vector: the rows are read again for every panel.
    """
    widths = range(4 if target.registers >= 32 else 2, 0, -1)
    return min(widths, key=lambda nv: -(-vectors // nv) * (nv + 0.25))


def rows_in_registers(nv: int, target: Target) -> int:
    """Rows so that the sums, one panel row and one broadcast element fit in the registers."""
    return (target.registers - nv - 1) // nv


@lru_cache(maxsize=64)
def usual_heights(nv: int, target: Target) -> tuple[int, ...]:
    """Heights for any number of rows, the tallest first.

    Fewer than registers allow where panels are narrow: each takes its time to compile.
    """
    return tuple(range(min(rows_in_registers(nv, target), 12 if nv == 1 else 8), 0, -1))


@lru_cache(maxsize=64)
def phased_heights(nv: int, target: Target) -> tuple[int, ...]:
    """Heights where a product's rows are few and its weights come from memory, the tallest first.

    More rows at a time than usual: what waits for weights does so once.
    """
    return tuple(range(min(rows_in_registers(nv, target), _MOST_PHASED), 0, -1))


@lru_cache(maxsize=4096)
def even_heights(rows: int, most: int) -> tuple[tuple[int, int], ...]:
    """How `emit_rows` cuts `rows`: as few pieces as possible, of nearly equal heights.

    Returns:
        Height and number of pieces, the tallest first.
    """
    if rows == 0:
        return ()
    pieces = -(-rows // most)
    low, more = divmod(rows, pieces)
    return tuple((height, n) for height, n in ((low + 1, more), (low, pieces - more)) if n)


def emit_rows(
    k: KernelBuilder, shape: Shape, matrices: tuple[Ptr, Ptr, Ptr], heights: Sequence[int], nv: int
) -> None:
    """All rows of `v` times the panel `u` into `m` (rows of nv vectors).

    Args:
        k: Builder.
        shape: Extents.
        matrices: v, u, m.
        heights: The heights of pieces that there is code for, the tallest first; all that
            `even_heights` gives must be among them.
        nv: Vectors in the panel.
    """
    v, u, m = matrices
    with k.when(shape.rows > 0):
        pieces = (shape.rows + (heights[0] - 1)) // heights[0]
        low = shape.rows // pieces
        more = shape.rows - low * pieces
        with k.range(0, pieces) as piece:
            row = piece * low + k.minimum_int(piece, more)
            height = low + (piece < more).select(1, 0)
            tile = (v + row * k.lanes, u, m + row * (nv * k.lanes))
            for one in heights:
                with k.when(height.equals(one)):
                    _emit_tile(k, shape, tile, (one, nv), first=piece.equals(0))


def _emit_tile(
    k: KernelBuilder,
    shape: Shape,
    matrices: tuple[Ptr, Ptr, Ptr],
    size: tuple[int, int],
    *,
    first: Bool,
) -> None:
    (v, u, m), (height, nv) = matrices, size
    sums = [[k.var(k.zero()) for _ in range(nv)] for _ in range(height)]

    with k.range(0, shape.depth, k.lanes) as c:
        rows = k.registered(v + c // k.lanes * shape.block)
        panels = k.registered(u + c * (nv * k.lanes))
        # Not unrolled: a step is long enough, and each height has code of its own to compile.
        with k.range(0, k.minimum_int(shape.depth - c, k.lanes)) as lane:
            panel = panels + lane * (nv * k.lanes)
            columns = [panel.vec(j * k.lanes) for j in range(nv)]
            if shape.ahead:
                with k.when(first):
                    for j in range(nv):
                        k.prefetch(panel, (j + shape.ahead) * k.lanes, 3 if shape.near else 2)
            elements = k.registered(rows + lane) if nv == 1 else rows + lane
            for i, line in enumerate(sums):
                element = elements.splat(i * k.lanes)
                for total, column in zip(line, columns, strict=True):
                    total.set(k.fma(element, column, total.get()))
    for i, line in enumerate(sums):
        for j, total in enumerate(line):
            m.store(total.get(), (i * nv + j) * k.lanes)
