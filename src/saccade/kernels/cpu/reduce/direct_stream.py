"""Reductions across that read their operand from its first byte to its last.

A few vectors of results at a time would read a part of every pixel, sweep after sweep: from memory
and the last-level cache that is slower than reading all of it in order. Here results so far wait in
scratch, which stays in the L1 cache, and several pixels are taken in at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr
from saccade.backends.cpu.codegen.values import Int, Mask, Vec
from saccade.kernels.cpu.movement.loop_nest import Row
from saccade.kernels.cpu.reduce.direct_loads import Reader

__all__ = ["PIXELS", "Stream"]

PIXELS = 4
"""Pixels that are taken in at a time."""


class Stream:
    """One row of results.

    Args:
        k: Builder.
        reader: Of the operand.
        results: Scratch of a row of results in whole blocks.
        combine: Of two vectors.
        start: Neutral element of it.
        plain: Whether elements are summed as they are.
    """

    def __init__(
        self,
        k: KernelBuilder,
        reader: Reader,
        results: Ptr,
        combine: Callable[[Vec, Vec], Vec],
        start: float,
        *,
        plain: bool,
    ) -> None:
        # What is not changed before it is summed goes into dot products, unconverted.
        self.plain = plain and reader.together > 1 and k.target.bf16
        self.k, self.reader, self.results = k, reader, results
        self.combine, self.start = combine, start
        self.lanes = reader.lanes
        self.block = reader.together * self.lanes

    def begin(self, row: Row) -> None:
        """Nothing taken in yet."""
        with self.k.range(0, row.high - row.low, self.block) as i:
            for u in range(self.reader.together):
                start = self.k.number(self.start, self.lanes, self.reader.wide)
                self.results.store(start, i + u * self.lanes)

    def take(self, row: Row, offsets: Sequence[Int], visit: Callable[[Vec], Vec]) -> None:
        """Take in the pixels at these offsets."""
        self._blocks(row, lambda i, mask: self._take(row.low, i, mask, offsets, visit))

    def _blocks(self, row: Row, body: Callable[[Int, Mask | None], None]) -> None:
        k, count = self.k, row.high - row.low
        whole = count // self.block * self.block
        with k.range(0, whole, self.block) as i:
            body(i, None)
        with k.when(whole < count):
            # Over all elements of a block: pairs of bfloat16 are masked by elements, too.
            body(whole, k.first(count - whole, self.block))

    def _take(
        self,
        low: Int,
        i: Int,
        mask: Mask | None,
        offsets: Sequence[Int],
        visit: Callable[[Vec], Vec],
    ) -> None:
        if self.plain:
            self._add(low, i, mask, offsets)
            return
        pixels = [self.reader.vectors(o + low + i, self.reader.together, mask) for o in offsets]
        for u, vectors in enumerate(zip(*pixels, strict=True)):
            values = [visit(v) for v in vectors]
            # Pixels first: results so far are loaded and stored once for all of them.
            while len(values) > 1:
                values = [self.combine(*values[j : j + 2]) for j in range(0, len(values), 2)]
            at = i + u * self.lanes
            so_far = self.results.vec(at, lanes=self.lanes)
            self.results.store(self.combine(so_far, values[0]), at)

    def _add(self, low: Int, i: Int, mask: Mask | None, offsets: Sequence[Int]) -> None:
        """The same for plain sums of bfloat16, two pixels at a time."""
        places = [i, i + self.k.lanes]
        sums = [self.results.vec(at) for at in places]
        pixels = [self.reader.source.pairs(o + low + i, mask) for o in offsets]
        for j in range(0, len(pixels), 2):
            second = pixels[j + 1] if j + 1 < len(pixels) else None
            sums = self.reader.add_two(sums, pixels[j], second)
        for at, total in zip(places, sums, strict=True):
            self.results.store(total, at)

    def finish(self, row: Row, store: Callable[[Int, Vec, Mask | None], None]) -> None:
        """Hand over the results: position, vector and which of it there are."""
        k, lanes = self.k, self.lanes

        def block(i: Int, mask: Mask | None) -> None:
            starts = [i + u * lanes for u in range(self.reader.together)]
            in_order = self.reader.in_order_of_two if self.plain else self.reader.in_order
            found = in_order([self.results.vec(at, lanes=lanes) for at in starts])
            for u, value in enumerate(found):
                at = row.low + i + u * lanes
                store(at, value, None if mask is None else k.first(row.high - at, lanes))

        self._blocks(row, block)
