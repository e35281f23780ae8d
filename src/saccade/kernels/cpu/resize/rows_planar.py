"""The walk of `rows` over planar results.

A chunk is a band of the planes of a few channels. It interpolates all rows of the image under the
band, transposing rectangles of columns and channels in registers, and then writes one plane after
the other: rows of a plane lie one behind the other, which is what the memory is fast at.
"""

from __future__ import annotations

from saccade.backends.cpu.codegen.language import Ptr
from saccade.backends.cpu.codegen.values import Int
from saccade.kernels.cpu.movement.register_shuffles import turn
from saccade.kernels.cpu.resize.rows_code import RowResult, RowsCode, missing

__all__ = ["PlanarRows"]


class PlanarRows(RowsCode):
    """Runs are rows of a plane."""

    def chunk(self, n: Int, part: Int, band: tuple[Int, Int], y: Ptr) -> None:
        k, taps = self.k, self.config.rows
        # Rows of the image are kept from the first one under the band on.
        top = self.row_at.load_int(band[0] * taps)
        done = k.var(0)
        with k.range(*band) as p, k.range(*missing(k, done, self.rows_under(p))) as h:
            row = self.x + (n * self.x_n + h * self.x_h)
            self._along(row, self.kept + (h - top) * self.slot, part)
        planes = k.minimum_int(self.channels - part, self.config.side)
        with k.range(0, planes) as c:
            to, kept = y + (n * self.y_n + (part + c) * self.y_run), self.kept + c * self.pitch

            def write(p: list[Int], rows: list[Int]) -> None:
                results = [
                    RowResult(self.weights(i), to + i * self.y_h, (n, part + c, i)) for i in p
                ]
                self.run([kept + (h - top) * self.slot for h in rows], results, self.q)

            self.down(band, lambda _: None, write)

    def _along(self, row: Ptr, to: Ptr, channel: Int) -> None:
        """Columns side by side; beyond the last column, that column is computed again."""
        k, lanes, side = self.k, self.k.lanes, self.config.side
        with k.range(0, self.q, lanes) as i:
            pixels = []
            for j in range(lanes):
                q = k.minimum_int(i + j, self.q - 1)
                pixels.append(self.sum(row, self.taps(q, side), channel, side))
            for j, run in enumerate(turn(k, pixels)):
                to.store(run, i + j * self.pitch)
