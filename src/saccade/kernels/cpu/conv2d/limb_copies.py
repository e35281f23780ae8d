"""Rows of a matrix and panels of another as limbs: what tiles of matrices read of float32.

A limb is the upper half of what those before it leave of an element, a bfloat16; the sum of three
is the element.
"""

from __future__ import annotations

from dataclasses import dataclass

from saccade.backends.cpu.codegen.bfloat16 import LIMBS
from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr
from saccade.backends.cpu.codegen.matrix_tiles import DEPTH, ROWS
from saccade.backends.cpu.codegen.values import Int, Mask, Vec

__all__ = ["STEP", "LimbPanel", "LimbRow"]

STEP = LIMBS * DEPTH * ROWS
"""Elements of 32 rows of a panel, `[limb][row / 2][column][row % 2]`."""
_SIDE = DEPTH * ROWS  # of one limb


@dataclass(frozen=True, slots=True)
class LimbRow:
    """A row of a tile that is written, limb by limb.

    Attributes:
        k: Builder.
        to: Its first limb's first element.
        apart: Elements from limb to limb.
    """

    k: KernelBuilder
    to: Ptr
    apart: Int

    def blank(self, at: Int) -> None:
        """Zeros for a step."""
        zeros = self.k.number(0, DEPTH, "int16")
        for limb in range(LIMBS):
            self.to.viewed("int16").store(zeros, limb * self.apart + at)

    def store(self, value: Vec, at: Int) -> None:
        """Computed elements, float32."""
        for limb, part in enumerate(self.k.limbs(value)):
            self.to.viewed("int16").store(self.k.upper_halves(part), limb * self.apart + at)

    def copy(self, source: Ptr, at: Int, count: Int, *, ragged: bool) -> None:
        """So many neighbours, float32, with zeros behind them where they do not fill steps.

        Args:
            source: The first.
            at: Where they go.
            count: How many there are.
            ragged: Whether the last may be fewer than those of a step.
        """
        k = self.k
        main = count // DEPTH * DEPTH if ragged else count
        with k.range(0, main, DEPTH) as i:
            self._piece(source, i, at + i, (None, None))
        if ragged:
            left = count - main
            masks = k.first(left, ROWS), k.first(k.maximum_int(left - ROWS, 0), ROWS)
            with k.when(left > 0):
                self._piece(source, main, at + main, masks)

    def _piece(self, source: Ptr, i: Int, at: Int, masks: tuple[Mask | None, Mask | None]) -> None:
        k, to = self.k, self.to.viewed("int16")
        halves = [source.vec(i + j * ROWS, mask, ROWS) for j, mask in enumerate(masks)]
        for limb, (low, high) in enumerate(zip(*map(k.limbs, halves), strict=True)):
            to.store(k.upper_halves(low, high), limb * self.apart + at)


@dataclass(frozen=True, slots=True)
class LimbPanel:
    """A panel of sixteen columns, row by row, that is written as steps of 32 rows.

    Attributes:
        k: Builder.
        source: Its first row, float32.
        inner: How many rows there are; what fills the last step is zero.
        to: Where the first step goes.
    """

    k: KernelBuilder
    source: Ptr
    inner: Int
    to: Ptr

    def split(self, start: Int, stop: Int, *, ragged: bool) -> None:
        """Steps `start … stop - 1`.

        Args:
            start: The first.
            stop: One past the last.
            ragged: Whether rows may not fill the last step.
        """
        k = self.k
        main = k.minimum_int(stop, self.inner // DEPTH) if ragged else stop
        with k.range(start, main) as step, k.range(0, DEPTH // 2) as pair:
            self._pair(step * DEPTH + pair * 2, (step - start) * STEP + pair * (2 * ROWS), None)
        if ragged:
            with k.when(main < stop), k.range(0, DEPTH // 2) as pair:
                row = main * DEPTH + pair * 2
                self._pair(row, (main - start) * STEP + pair * (2 * ROWS), self.inner - row)

    def _pair(self, row: Int, at: Int, left: Int | None) -> None:
        """Two rows, of which there may be fewer left."""
        k, to = self.k, self.to.viewed("int16")
        rows = []
        for i in range(2):
            # All or none: a mask of no lanes may stand past the buffer.
            mask = None if left is None else k.first((left > i).select(ROWS, 0), ROWS)
            rows.append(self.source.vec((row + i) * ROWS, mask, ROWS))
        for limb, both in enumerate(zip(*map(k.limbs, rows), strict=True)):
            to.store(k.paired_limbs(*both), at + limb * _SIDE)
