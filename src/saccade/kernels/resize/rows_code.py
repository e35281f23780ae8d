"""The code of `rows`: what a chunk keeps, and its two steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from saccade.codegen.language import Kernel, Ptr
from saccade.codegen.values import Int, IntLike, Vec
from saccade.kernels.movement.networks import turn
from saccade.kernels.pointwise.elements import to_float
from saccade.kernels.pointwise.finish import Finish, FinishCode
from saccade.kernels.resize.axes import weighted

__all__ = ["RowsConfig", "emit"]


@dataclass(frozen=True)
class RowsConfig:
    """What the code depends on.

    Attributes:
        rows: Taps along the rows of the picture, a power of two.
        columns: Taps along its columns.
        element: Element type of the picture.
        finish: The epilogue.
        side: Channels of a rectangle that is transposed, where the result is planar, else 0.
        flat: Whether the pixels of a row of the result are one run of elements.
        streamed: Whether results go past the caches.
    """

    rows: int
    columns: int
    element: str
    finish: FinishCode
    side: int
    flat: bool
    streamed: bool


@dataclass(frozen=True, slots=True)
class _Part:
    """Some columns of the result: picture, first column, how many."""

    n: Int
    first: Int
    count: Int


def emit(k: Kernel, config: RowsConfig) -> None:
    """The code of one configuration."""
    _Rows(k, config).emit()


class _Rows:
    def __init__(self, k: Kernel, config: RowsConfig) -> None:
        self.k, self.config = k, config
        self.x, self.y = k.pointer("x", config.element), k.pointer("y", config.finish.element)
        self.row_at, self.row_weights = k.pointer("row_at", "int32"), k.pointer("row_weights")
        self.column_at = k.pointer("column_at", "int32")
        self.column_weights = k.pointer("column_weights")
        self.kept = k.scratch("kept")
        self.finish = Finish(k, config.finish)
        self.chunks, self.bands, self.band, self.parts, self.columns, self.slot = k.integers(
            "chunks bands band parts columns slot"
        )
        self.channels, self.p, self.q = k.integers("channels p q")
        self.x_n, self.x_h, self.x_w = k.integers("x_n x_h x_w")
        self.y_n, self.y_h, self.y_run, self.y_column = k.integers("y_n y_h y_run y_column")
        self.finish.declare_integers()

    def emit(self) -> None:
        """All chunks."""
        k = self.k
        with k.streams(self.y, [self.x], self.config.streamed) as ways:
            for y in ways:
                with k.chunks(self.chunks) as chunk:
                    first = chunk % self.parts * self.columns
                    band = chunk // self.parts
                    count = k.minimum_int(self.columns, self.q - first)
                    self._band(_Part(band // self.bands, first, count), band % self.bands, y)

    def _band(self, part: _Part, band: Int, y: Ptr) -> None:
        """Rows of the picture come in their order: `done` of them are kept, or were."""
        k, taps = self.k, self.config.rows
        low = band * self.band
        done = k.var(0)
        with k.range(low, k.minimum_int(low + self.band, self.p)) as p:
            rows = [self.row_at.load_int(p * taps + i) for i in range(taps)]
            end = rows[-1] + 1
            with k.range(k.maximum_int(done.get(), rows[0]), end) as h:
                if self.config.side:
                    self._turned(part, h)
                else:
                    self._pixels(part, h)
            done.set(end)
            self._between(part, p, rows, y)

    def _place(self, h: Int) -> Ptr:
        """Where an interpolated row is kept: neighbouring ones take turns."""
        return self.kept + (h & (self.config.rows - 1)) * self.slot

    # Along the rows of the picture

    def _taps(self, q: Int, lanes: int) -> tuple[list[Int], list[Vec]]:
        """Offsets into a row of x and weights of the taps of column q."""
        columns = self.config.columns
        places = [q * columns + j for j in range(columns)]
        offsets = [self.column_at.load_int(at) * self.x_w for at in places]
        return offsets, [self.column_weights.splat(at, lanes) for at in places]

    def _sum(self, row: Ptr, taps: tuple[list[Int], list[Vec]], c: Int, lanes: int) -> Vec:
        """So many channels of one column, zeros beyond the last one."""
        k, (offsets, weights) = self.k, taps
        mask = k.first(self.channels - c, lanes)
        loaded = [row.vec(o + c, mask, lanes) for o in offsets]
        values = [to_float(k, v, self.config.element) for v in loaded]
        return weighted(k, values, weights)

    def _pixels(self, part: _Part, h: Int) -> None:
        """Channels side by side. What is stored beyond the last one, the next pixel overwrites."""
        k, lanes = self.k, self.k.lanes
        row, to = self.x + (part.n * self.x_n + h * self.x_h), self._place(h)
        with k.range(0, part.count) as i:
            taps = self._taps(part.first + i, lanes)
            with k.range(0, self.channels, lanes) as c:
                to.store(self._sum(row, taps, c, lanes), i * self.channels + c)

    def _turned(self, part: _Part, h: Int) -> None:
        """Columns side by side; beyond the last column, that column is computed again."""
        k, lanes, side = self.k, self.k.lanes, self.config.side
        row, to = self.x + (part.n * self.x_n + h * self.x_h), self._place(h)
        with k.range(0, part.count, lanes) as i, k.range(0, self.channels, side) as c:
            pixels = []
            for j in range(lanes):
                q = k.minimum_int(part.first + i + j, self.q - 1)
                pixels.append(self._sum(row, self._taps(q, side), c, side))
            for j, run in enumerate(turn(k, pixels)):
                to.store(run, (c + j) * self.columns + i)

    # Between them

    def _between(self, part: _Part, p: Int, rows: Sequence[Int], y: Ptr) -> None:
        """One row of the result, run by run: planes, pixels, or all pixels together."""
        k, config, taps = self.k, self.config, self.config.rows
        kept = [self._place(h) for h in rows]
        weights = [self.row_weights.splat(p * taps + i, 2 * k.lanes) for i in range(taps)]
        to = y + (part.n * self.y_n + p * self.y_h + part.first * self.y_column)
        if config.flat:
            size = part.count * self.channels
            self._run(kept, weights, to, size, ((part.n, p, part.first), 0))
            return
        planar = bool(config.side)
        runs, size = (self.channels, part.count) if planar else (part.count, self.channels)
        pitch = self.columns if planar else self.channels
        with k.range(0, runs) as run:
            place = (part.n, run, p) if planar else (part.n, p, part.first + run)
            sources = [row + run * pitch for row in kept]
            at: IntLike = part.first if planar else 0
            self._run(sources, weights, to + run * self.y_run, size, (place, at))

    def _run(
        self,
        rows: Sequence[Ptr],
        weights: Sequence[Vec],
        to: Ptr,
        size: Int,
        place: tuple[Sequence[IntLike], IntLike],
    ) -> None:
        """Neighbouring elements, two vectors at a time; their place is for the epilogue."""
        k, wide = self.k, 2 * self.k.lanes
        whole = size // wide * wide

        def step(e: Int, count: Int | None) -> None:
            mask = None if count is None else k.first(count, wide)
            value = weighted(k, [row.vec(e, None, wide) for row in rows], weights)
            to.store(self.finish.apply(value, place[0], place[1] + e, mask), e, mask)

        with k.range(0, whole, wide) as e:
            step(e, None)
        with k.when(whole < size):
            step(whole, size - whole)
