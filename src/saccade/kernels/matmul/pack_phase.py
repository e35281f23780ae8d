"""Packs a matrix that is computed at run time into panels [batch, block, K, width]."""

from __future__ import annotations

from saccade.codegen.language import Kernel, Ptr
from saccade.codegen.values import Bool, Int, Vec
from saccade.kernels.matmul.config import MatMulConfig

__all__ = ["emit_pack"]


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
        left = columns - first
        main = inner // k.lanes * k.lanes if config.unit else k.int(0)
        with k.range(0, main, k.lanes) as at, k.range(0, width, k.lanes) as column:
            rows = [
                _column(k, source + (column + i) * sn, at, column + i < left)
                for i in range(k.lanes)
            ]
            for i, row in enumerate(_transposed(k, rows)):
                target.store(row, (at + i) * width + column)
        with k.range(main, inner) as at, k.range(0, width) as column:
            inside = column < left
            value = source.load(at * sk + inside.select(column, 0) * sn)
            zero = k.zero(1)
            chosen = Vec(k.b, k.b.select(inside.value, value.value, zero.value))
            target.store(chosen, at * width + column)


def _column(k: Kernel, source: Ptr, at: Int, inside: Bool) -> Vec:
    """Elements of one column, zeros past the last column."""
    return source.vec(at, k.first(inside.select(k.lanes, 0)))


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
