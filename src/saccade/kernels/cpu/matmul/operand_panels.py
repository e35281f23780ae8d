"""Packs a matrix that is computed at run time into panels [batch, block, steps, width].

A step is a row of float32, or in pairs of bfloat16 two rows, neighbours of a column side by side;
of an odd number of rows the last is paired with zeros.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr
from saccade.backends.cpu.codegen.values import Bool, Int, IntLike, Mask, Vec
from saccade.kernels.cpu.matmul.direct_config import MatMulConfig

__all__ = ["emit_pack", "transposed"]


@dataclass(frozen=True, slots=True)
class _OperandPanel:
    """One panel: `target[at · width + column] = source[at · by_row + column · by_column]`.

    In pairs, 32 bits of `target` are the elements of rows 2 · at and 2 · at + 1. Columns from
    `left` on, up to `width`, become zeros.
    """

    source: Ptr
    target: Ptr
    by_row: Int
    by_column: Int
    inner: Int
    left: Int
    width: int
    pairs: bool

    @property
    def steps(self) -> Int:
        """Rows of the panel."""
        return (self.inner + 1) // 2 if self.pairs else self.inner


def emit_pack(k: KernelBuilder, config: MatMulConfig) -> None:
    """One chunk for each panel."""
    b = k.pointer("b", config.b)
    panels = k.pointer("panels", "int32" if config.pairs else "float32")
    inner, columns, inner_batch, blocks, chunks = k.integers(
        "inner columns inner_batch blocks chunks"
    )
    s0, s1, sk, sn = k.integers("b_0 b_1 b_k b_n")
    width = config.vectors * k.lanes
    with k.chunks(chunks) as chunk:
        batch = chunk // blocks
        first = (chunk - batch * blocks) * width
        outer = batch // inner_batch
        source = b + (outer * s0 + (batch - outer * inner_batch) * s1 + first * sn)
        panel = _OperandPanel(source, panels, sk, sn, inner, columns - first, width, config.pairs)
        panel = replace(panel, target=panels + chunk * panel.steps * width)
        if config.shape == "rows":
            _pack_rows(k, panel)
        elif config.shape == "columns":
            # Of an odd number of rows the last one is not a pair: nothing may be read past it.
            whole = (inner // 2 if config.pairs else inner) // k.lanes * k.lanes
            _pack_columns(k, panel, whole)
            _pack_elements(k, panel, whole)
        else:
            _pack_elements(k, panel, 0)


def _pack_rows(k: KernelBuilder, p: _OperandPanel) -> None:
    with k.range(0, p.steps) as at, k.range(0, p.width, k.lanes) as column:
        left = p.left - column
        if p.pairs:
            even = (p.source + at * 2 * p.by_row).half_pairs(column, k.first(left))
            both = k.first(_second(p, at).select(left, 0))
            odd = (p.source + (at * 2 + 1) * p.by_row).half_pairs(column, both)
            row = k.join_pair(even, odd)
        else:
            row = (p.source + at * p.by_row).vec(column, k.first(left))
        p.target.store(row, at * p.width + column)


def _second(p: _OperandPanel, at: Int) -> Bool:
    """Whether a pair of rows has a second one."""
    return at * 2 + 1 < p.inner


def _pack_columns(k: KernelBuilder, p: _OperandPanel, end: Int) -> None:
    """Squares of vectors, transposed in registers."""
    with k.range(0, end, k.lanes) as at, k.range(0, p.width, k.lanes) as column:
        rows = []
        for i in range(k.lanes):
            # All or none: a mask of no lanes may stand past the buffer.
            inside = k.first((column + i < p.left).select(k.lanes, 0))
            rows.append(_steps(p, p.source + (column + i) * p.by_column, at, inside))
        for i, row in enumerate(transposed(k, rows)):
            p.target.store(row, (at + i) * p.width + column)


def _steps(p: _OperandPanel, column: Ptr, at: Int, inside: Mask) -> Vec:
    """A vector of neighbouring steps of a column that lies together."""
    return column.pairs(at * 2, inside) if p.pairs else column.vec(at, inside)


def _pack_elements(k: KernelBuilder, p: _OperandPanel, start: IntLike) -> None:
    with k.range(start, p.steps) as at, k.range(0, p.width) as column:
        inside = column < p.left
        # Columns and rows that are not there read the first one, and become zeros below.
        source = p.source + inside.select(column, 0) * p.by_column
        if p.pairs:
            second = _second(p, at)
            odd = source.half_pair(second.select(at * 2 + 1, 0) * p.by_row)
            odd = _or_zero(k, second, odd)
            value = k.join_pair(source.half_pair(at * 2 * p.by_row), odd)
        else:
            value = source.load(at * p.by_row)
        p.target.store(_or_zero(k, inside, value), at * p.width + column)


def _or_zero(k: KernelBuilder, condition: Bool, value: Vec) -> Vec:
    return Vec(k.b, k.b.select(condition.value, value.value, value.like(0).value))


def transposed(k: KernelBuilder, rows: list[Vec]) -> list[Vec]:
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
