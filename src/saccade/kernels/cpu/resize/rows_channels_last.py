"""The walk of `rows` over channels-last results.

A chunk is a band of some columns, as many as keep their rows in the L1 cache: it goes down, and
keeps as many interpolated rows as there are taps.
"""

from __future__ import annotations

from dataclasses import replace

from saccade.backends.cpu.codegen.language import Ptr
from saccade.backends.cpu.codegen.values import Int
from saccade.kernels.cpu.resize.rows_code import RowResult, RowsCode, missing

__all__ = ["LastRows"]


class LastRows(RowsCode):
    """Runs are pixels, or all pixels of a row together."""

    def chunk(self, n: Int, part: Int, band: tuple[Int, Int], y: Ptr) -> None:
        k = self.k
        count = k.minimum_int(self.part, self.q - part)
        done = k.var(0)

        def first(rows: list[Int]) -> None:
            with k.range(*missing(k, done, rows)) as h:
                self._along(self.x + (n * self.x_n + h * self.x_h), self._place(h), part, count)

        def write(p: list[Int], rows: list[Int]) -> None:
            to = y + (n * self.y_n + part * self.y_column)
            results = [RowResult(self.weights(i), to + i * self.y_h, (n, i, part)) for i in p]
            self._between(results, [self._place(h) for h in rows], count)

        self.down(band, first, write)

    def _place(self, h: Int) -> Ptr:
        """Where an interpolated row is kept: neighbouring ones take turns."""
        # Taps are a power of two, and rows of one sum no further apart than there are taps.
        return self.kept + (h & (self.config.rows - 1)) * self.slot

    def _along(self, row: Ptr, to: Ptr, first: Int, count: Int) -> None:
        """What is stored beyond the last channel, the next pixel overwrites."""
        k, lanes = self.k, self.k.lanes
        with k.range(0, count) as i:
            taps = self.taps(first + i, lanes)
            with k.range(0, self.channels, lanes) as c:
                to.store(self.sum(row, taps, c, lanes), i * self.pitch + c)

    def _between(self, results: list[RowResult], kept: list[Ptr], count: Int) -> None:
        if self.config.flat:
            self.run(kept, results, count * self.channels)
            return
        with self.k.range(0, count) as i:
            pixels = []
            for r in results:
                n, p, part = r.place
                pixels.append(replace(r, to=r.to + i * self.y_run, place=(n, p, i + part)))
            self.run([row + i * self.pitch for row in kept], pixels, self.channels)
