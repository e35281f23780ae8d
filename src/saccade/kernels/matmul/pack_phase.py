"""Packs a matrix that is computed at run time into panels [batch, block, K, width]."""

from __future__ import annotations

from dataclasses import dataclass

from saccade.codegen.language import Kernel, Ptr
from saccade.codegen.values import Int, IntLike, Vec
from saccade.kernels.matmul.config import MatMulConfig

__all__ = ["emit_pack"]


@dataclass(frozen=True, slots=True)
class _Panel:
    """One panel: `target[at · width + column] = source[at · by_row + column · by_column]`.

    Columns from `left` on, up to `width`, become zeros.
    """

    source: Ptr
    target: Ptr
    by_row: Int
    by_column: Int
    inner: Int
    left: Int
    width: int


def emit_pack(k: Kernel, config: MatMulConfig) -> None:
    """One chunk for each panel."""
    b, panels = k.pointer("b"), k.pointer("panels")
    inner, columns, inner_batch, blocks, chunks = k.integers("inner columns b1 blocks chunks")
    s0, s1, sk, sn = k.integers("b_0 b_1 b_k b_n")
    width = config.vectors * k.lanes
    with k.chunks(chunks) as chunk:
        batch = chunk // blocks
        first = (chunk - batch * blocks) * width
        outer = batch // inner_batch
        source = b + (outer * s0 + (batch - outer * inner_batch) * s1 + first * sn)
        target = panels + chunk * inner * width
        panel = _Panel(source, target, sk, sn, inner, columns - first, width)
        if config.shape == "rows":
            _pack_rows(k, panel)
        elif config.shape == "columns":
            whole = inner // k.lanes * k.lanes
            _pack_columns(k, panel, whole)
            _pack_elements(k, panel, whole)
        else:
            _pack_elements(k, panel, 0)


def _pack_rows(k: Kernel, p: _Panel) -> None:
    with k.range(0, p.inner) as at, k.range(0, p.width, k.lanes) as column:
        row = (p.source + at * p.by_row).vec(column, k.first(p.left - column))
        p.target.store(row, at * p.width + column)


def _pack_columns(k: Kernel, p: _Panel, end: Int) -> None:
    """Squares of vectors, transposed in registers."""
    with k.range(0, end, k.lanes) as at, k.range(0, p.width, k.lanes) as column:
        rows = []
        for i in range(k.lanes):
            lanes = (column + i < p.left).select(k.lanes, 0)
            rows.append((p.source + (column + i) * p.by_column).vec(at, k.first(lanes)))
        for i, row in enumerate(_transposed(k, rows)):
            p.target.store(row, (at + i) * p.width + column)


def _pack_elements(k: Kernel, p: _Panel, start: IntLike) -> None:
    with k.range(start, p.inner) as at, k.range(0, p.width) as column:
        inside = column < p.left
        value = p.source.load(at * p.by_row + inside.select(column, 0) * p.by_column)
        chosen = Vec(k.b, k.b.select(inside.value, value.value, k.zero(1).value))
        p.target.store(chosen, at * p.width + column)


def _transposed(k: Kernel, rows: list[Vec]) -> list[Vec]:
    """A square of vectors, transposed by halving: log2(lanes) rounds of shuffles."""
    n, step = k.lanes, k.lanes // 2
    while step:
        first = [i % (2 * step) < step for i in range(n)]
        low = [i if first[i] else n + i - step for i in range(n)]
        high = [i + step if first[i] else n + i for i in range(n)]
        following = list(rows)
        for i in range(n):
            if i % (2 * step) < step:
                following[i] = k.shuffle(rows[i], rows[i + step], low)
                following[i + step] = k.shuffle(rows[i], rows[i + step], high)
        rows, step = following, step // 2
    return rows
