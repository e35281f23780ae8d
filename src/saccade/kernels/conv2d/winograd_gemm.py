"""The matrix product inside Winograd's convolution: rows of tiles times a panel of filters.

`m[t, j] = Σ_c v[t, c] · u[c, j]` for j over one panel of nv vectors. The panel streams from the
cache, the rows are read one element at a time and broadcast; mr · nv sums stay in registers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from saccade.codegen.language import Kernel, Ptr
    from saccade.codegen.target import Target
    from saccade.codegen.values import Int

__all__ = ["Shape", "emit_rows", "panel_vectors", "rows_in_registers"]

UNROLL = 4


@dataclass(frozen=True, slots=True)
class Shape:
    """Extents of one product.

    Attributes:
        rows: How many rows v has.
        depth: Length of the sums.
        pitch: Elements from row to row of v.
    """

    rows: Int
    depth: Int
    pitch: Int


def panel_vectors(vectors: int, target: Target) -> int:
    """Vectors in a panel: of 4 to 1 (2 to 1 with 16 registers) what is fastest for all `vectors`.

    A narrow panel is slower for each vector: the rows are read again for every panel.
    """
    widths = range(4 if target.registers >= 32 else 2, 0, -1)
    return min(widths, key=lambda nv: -(-vectors // nv) * (nv + 0.25))


def rows_in_registers(nv: int, target: Target) -> int:
    """Rows so that the sums, one panel row and one broadcast element fit in the registers."""
    return min((target.registers - nv - 1) // nv, 12)


def emit_rows(k: Kernel, shape: Shape, matrices: tuple[Ptr, Ptr, Ptr], mr: int, nv: int) -> None:
    """All rows of `v` times the panel `u` into `m` (rows of nv vectors)."""
    v, u, m = matrices
    pitch = nv * k.lanes
    rest = shape.rows % mr
    full = shape.rows - rest
    with k.range(0, full, mr) as row:
        tile = (v + row * shape.pitch, u, m + row * pitch)
        _emit_tile(k, shape, tile, (mr, nv), UNROLL)
    # What is left, by powers of two: a height for every number would double the time to compile.
    for height in (8, 4, 2, 1):
        if height < mr:
            done = shape.rows - rest % (2 * height)
            with k.when((rest % (2 * height)) >= height):
                tile = (v + done * shape.pitch, u, m + done * pitch)
                _emit_tile(k, shape, tile, (height, nv), 1)


def _emit_tile(
    k: Kernel,
    shape: Shape,
    matrices: tuple[Ptr, Ptr, Ptr],
    size: tuple[int, int],
    unroll: int,
) -> None:
    (v, u, m), (height, nv) = matrices, size
    sums = [[k.var(k.zero()) for _ in range(nv)] for _ in range(height)]
    rows = [v + shape.pitch * i for i in range(height)]

    def step(c: Int) -> None:
        panel = u + c * (nv * k.lanes)
        columns = [panel.vec(j * k.lanes) for j in range(nv)]
        for row, line in zip(rows, sums, strict=True):
            element = row.splat(c)
            for total, column in zip(line, columns, strict=True):
                total.set(k.fma(element, column, total.get()))

    whole = shape.depth - shape.depth % unroll
    with k.range(0, whole, unroll) as c:
        for ahead in range(unroll):
            step(c + ahead)
    if unroll > 1:
        with k.range(whole, shape.depth) as c:
            step(c)
    for i, line in enumerate(sums):
        for j, total in enumerate(line):
            m.store(total.get(), (i * nv + j) * k.lanes)
