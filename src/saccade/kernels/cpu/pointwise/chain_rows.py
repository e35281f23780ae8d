"""Chains along rows: the innermost axis in vectors, several of them at once.

Operands meet it with neighbours, with one element for the whole row, or at a stride. What is left
of a row is a masked vector, or single elements where an operand is strided.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from saccade.backends.cpu.codegen.bfloat16 import BFLOAT16
from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr
from saccade.backends.cpu.codegen.values import Int, Mask, Vec
from saccade.ir.expr import parse
from saccade.kernels.cpu.movement.loop_nest import Nest, Row
from saccade.kernels.cpu.pointwise.chain_operators import operators
from saccade.kernels.cpu.pointwise.chain_values import computed, widened
from saccade.kernels.cpu.pointwise.vector_elements import load, store

if TYPE_CHECKING:
    from saccade.kernels.cpu.pointwise.chain import ChainConfig

__all__ = ["emit_rows"]

_FLOAT64 = {"pow", "sin", "cos", "mod", "fmod"}
"""Operators that need the registers for one vector alone."""


def emit_rows(k: KernelBuilder, config: ChainConfig, pointers: list[Ptr], nest: Nest) -> None:
    """All rows, from neighbour to neighbour."""
    body = _Body(k, config, pointers, nest)
    # All integers are int64 lanes.
    lanes = k.lanes // 2 if config.arithmetic.endswith("64") else k.lanes
    with nest.walk() as row:
        splats = body.splats(row, lanes)
        whole = row.low
        for count in body.widths():
            step = count * lanes
            low, whole = whole, whole + (row.high - whole) // step * step
            with k.range(low, whole, step) as i:
                body.vector(row, i, None, step, splats)
        if "strided" in config.kinds:
            with k.range(whole, row.high) as i:
                # No splats, which are whole vectors: single elements load theirs.
                body.vector(row, i, None, 1, {})
        else:
            with k.when(whole < row.high):
                body.vector(row, whole, k.first(row.high - whole, lanes), lanes, splats)


class _Body:
    """One vector of results, or several at once.

    Of several vectors each operation is done for all of them before the next one: what waits for
    its operands then has independent work beside it, which a processor finds only if it is near.
    """

    def __init__(
        self, k: KernelBuilder, config: ChainConfig, pointers: list[Ptr], nest: Nest
    ) -> None:
        self.k, self.config, self.pointers, self.nest = k, config, pointers, nest
        self.expr = parse(config.expr)

    def widths(self) -> tuple[int, ...]:
        """How many vectors are done at once, the most first."""
        config = self.config
        # Four with 32 registers: eight of a silu spill.
        several = max(2, self.k.target.registers // 8)
        slow = config.arithmetic.endswith("64") or "strided" in config.kinds
        return (1,) if slow or operators(self.expr).keys() & _FLOAT64 else (several, 1)

    def _in_pairs(self, lanes: int) -> bool:
        """Whether the vectors hold the even elements, then the odd ones: half the conversions."""
        config = self.config
        near = {e for e, kind in zip(config.elements, config.kinds, strict=True) if kind == "unit"}
        return lanes > self.k.lanes and near == {BFLOAT16}

    def _load(self, p: int, row: Row, i: Int, mask: Mask | None, lanes: int) -> Vec:
        element, stride = self.config.elements[p], self.nest.strides[p][-1]
        kind = self.config.kinds[p]
        if kind == "unit" and self._in_pairs(lanes):
            pairs = self.pointers[p].pairs(row.offsets[p] + i, None, lanes // 2)
            return self.k.concat(self.k.split_pair(pairs))
        raw = load(self.k, self.pointers[p], kind, row.offsets[p], i, stride, mask, lanes)
        return widened(self.k, raw, element, self.config.arithmetic)

    def splats(self, row: Row, lanes: int) -> dict[int, Vec]:
        """Operands that are one element for the whole row."""
        return {
            p: self._load(p, row, row.low, None, lanes)
            for p in range(1, len(self.pointers))
            if self.config.kinds[p] == "zero"
        }

    def vector(
        self, row: Row, i: Int, mask: Mask | None, lanes: int, splats: dict[int, Vec]
    ) -> None:
        """Results from position `i` of the row on."""
        k, config = self.k, self.config
        operands = [
            k.concat([splats[p]] * (lanes // splats[p].lanes))
            if p in splats
            else self._load(p, row, i, mask, lanes)
            for p in range(1, len(self.pointers))
        ]
        value = computed(k, config, self.expr, operands, lanes)
        stride = self.nest.strides[0][-1]
        if self._in_pairs(lanes):
            even, odd = k.split(value, lanes // 2)
            self.pointers[0].store_halves(even, odd, row.offsets[0] + i)
            return
        store(k, self.pointers[0], config.kinds[0], row.offsets[0], i, stride, mask, value)
