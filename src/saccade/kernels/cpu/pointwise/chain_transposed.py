"""Chains whose result is stored in another order than some operands.

The rectangles of `movement.copy_transposed`: of operands in the other order the rows are transposed
in registers, of all others they are loaded as they lie; the expression follows row by row, before
anything is stored. Nothing is in memory twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from saccade.backends.cpu.codegen.bfloat16 import BFLOAT16
from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr
from saccade.backends.cpu.codegen.values import Int, Vec
from saccade.ir.expr import parse
from saccade.kernels.cpu.movement.copy_transposed import Transposed
from saccade.kernels.cpu.pointwise.chain_values import computed, widened
from saccade.kernels.cpu.pointwise.vector_elements import load

if TYPE_CHECKING:
    from saccade.kernels.cpu.pointwise.chain import ChainConfig

__all__ = ["emit_transposed"]


def emit_transposed(
    k: KernelBuilder, config: ChainConfig, pointers: list[Ptr], transposed: Transposed
) -> None:
    """The code of a configuration with operands of kind `transposed`."""
    rows = _RectangleRows(k, config, pointers, transposed)
    with transposed.walk() as offsets:
        rows.emit(offsets)


class _RectangleRows:
    """The rows of one rectangle."""

    def __init__(
        self, k: KernelBuilder, config: ChainConfig, pointers: list[Ptr], transposed: Transposed
    ) -> None:
        self.k, self.config, self.pointers, self.transposed = k, config, pointers, transposed
        self.expr, self.lanes = parse(config.expr), config.tile[0]

    @property
    def _in_pairs(self) -> bool:
        """Whether vectors hold the even elements, then the odd ones: half the conversions."""
        config = self.config
        near = {e for e, kind in zip(config.elements, config.kinds, strict=True) if kind != "zero"}
        return self.lanes > self.k.lanes and near == {BFLOAT16} and "strided" not in config.kinds

    def emit(self, offsets: tuple[Int, ...]) -> None:
        """All of them, one after the other."""
        k, (to, *_) = self.k, self.pointers
        operands = [self._rows(p, offsets[p]) for p in range(1, len(self.pointers))]
        for row in range(self.config.tile[1]):
            # Rows are asked for one by one: those of a transpose come when they are done.
            found = [next(rows) for rows in operands]
            value = computed(k, self.config, self.expr, found, self.lanes)
            at = offsets[0] + self.transposed.steps[0] * row
            if self._in_pairs:
                even, odd = k.split(value, self.lanes // 2)
                to.store_halves(even, odd, at)
            else:
                to.store(value, at)

    def _rows(self, p: int, at: Int) -> Iterator[Vec]:
        """An operand's rows, as arithmetic takes them."""
        k, element, pointer = self.k, self.config.elements[p], self.pointers[p]
        arithmetic = self.config.arithmetic
        stride, step = self.transposed.nest.strides[p][-1], self.transposed.steps[p]
        kind = self.config.kinds[p]
        if kind == "transposed":
            halves = element == BFLOAT16
            # Transposed as it lies, and widened after: half as many bits to shuffle.
            raw = pointer.viewed("int16") if halves else pointer
            for vector in self.transposed.read(raw, p, at):
                yield self._widened(vector) if halves else widened(k, vector, element, arithmetic)
            return
        for row in range(self.config.tile[1]):
            first = at + step * row
            if kind == "unit" and self._in_pairs:
                yield k.concat(k.split_pair(pointer.pairs(first, None, self.lanes // 2)))
            else:
                loaded = load(k, pointer, kind, first, k.int(0), stride, None, self.lanes)
                yield widened(k, loaded, element, arithmetic)

    def _widened(self, raw: Vec) -> Vec:
        """int16 lanes that hold bfloat16, as float32."""
        k = self.k
        if not self._in_pairs:
            return k.widen_bf16(raw)
        pairs = k.b.bitcast(raw.value, k.vector_type(self.lanes // 2, "int32"))
        return k.concat(k.split_pair(Vec(k.b, pairs)))
