"""What the two walks of `rows` have in common: parameters, and the sums of both steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from saccade.backends.cpu.codegen.emitter import BYTES
from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr, Var
from saccade.backends.cpu.codegen.streams import LINE
from saccade.backends.cpu.codegen.values import Bool, Int, IntLike, Vec
from saccade.kernels.cpu.pointwise.channel_epilogue import Finish, FinishCode
from saccade.kernels.cpu.pointwise.vector_elements import to_float
from saccade.kernels.cpu.resize.axis_tables import weighted

__all__ = ["RowResult", "RowsCode", "RowsConfig", "Taps", "missing"]

Taps = tuple[list[Int], list[Vec]]
"""Offsets into a row of the image, and weights."""


@dataclass(frozen=True)
class RowsConfig:
    """What the code depends on.

    Attributes:
        rows: Taps along the rows of the image, a power of two.
        columns: Taps along its columns.
        element: Element type of the image.
        finish: The epilogue.
        side: Channels of a chunk, a power of two, where the result is planar, else 0.
        flat: Whether the pixels of a row of the result are one run of elements.
        together: Rows of the result that are written at once, where they sum the same rows.
        streamed: Whether results go past the caches.
    """

    rows: int
    columns: int
    element: str
    finish: FinishCode
    side: int
    flat: bool
    together: int
    streamed: bool


@dataclass(frozen=True, slots=True)
class RowResult:
    """Neighbouring elements of one row of the result.

    Attributes:
        weights: Of the rows of the image.
        to: Where they go.
        place: Their position along the other axes, for the epilogue.
        first: Position of the first of them.
    """

    weights: Sequence[Vec]
    to: Ptr
    place: Sequence[IntLike]
    first: IntLike = 0


class RowsCode:
    """Declares the parameters."""

    def __init__(self, k: KernelBuilder, config: RowsConfig) -> None:
        self.k, self.config = k, config
        self.x, self.y = k.pointer("x", config.element), k.pointer("y", config.finish.element)
        self.row_at, self.row_weights = k.pointer("row_at", "int32"), k.pointer("row_weights")
        self.column_at = k.pointer("column_at", "int32")
        self.column_weights = k.pointer("column_weights")
        self.kept = k.scratch("kept")
        self.finish = Finish(k, config.finish)
        self.chunks, self.bands, self.band, self.parts, self.part = k.integers(
            "chunks bands band parts part"
        )
        self.slot, self.pitch = k.integers("slot pitch")
        self.channels, self.p, self.q = k.integers("channels p q")
        self.x_n, self.x_h, self.x_w = k.integers("x_n x_h x_w")
        self.y_n, self.y_h, self.y_run, self.y_column = k.integers("y_n y_h y_run y_column")
        self.finish.declare_integers()

    def emit(self) -> None:
        """All chunks: a band of rows of the result, and a part of its columns or channels."""
        k = self.k
        with k.streams(self.y, [self.x], self.config.streamed) as ways:
            for y in ways:
                with k.chunks(self.chunks) as chunk:
                    band, rest = chunk % self.bands, chunk // self.bands
                    low = band * self.band
                    high = k.minimum_int(low + self.band, self.p)
                    part, n = rest % self.parts * self.part, rest // self.parts
                    self.chunk(n, part, (low, high), y)

    def chunk(self, n: Int, part: Int, band: tuple[Int, Int], y: Ptr) -> None:
        """One chunk: its image, its first column or channel, its rows."""
        raise NotImplementedError

    def along(self, h: Int) -> None:
        """Interpolate a row of the image and keep it."""
        raise NotImplementedError

    def rows_under(self, p: Int) -> list[Int]:
        """The rows of the image that a row of the result sums."""
        taps = self.config.rows
        return [self.row_at.load_int(p * taps + i) for i in range(taps)]

    def down(
        self,
        band: tuple[Int, Int],
        first: Callable[[list[Int]], None],
        write: Callable[[list[Int], list[Int]], None],
    ) -> None:
        """From the top of a band to its end.

        Args:
            band: Rows of the result.
            first: What has to be done about the rows of the image.
            write: Writes these rows of the result, which sum these of the image.
        """
        k, (low, high), together = self.k, band, self.config.together
        p = k.var(low)

        def several(count: int, rows: list[Int]) -> None:
            at: Int = p.get()
            write([at + i for i in range(count)], rows)
            p.set(at + count)

        with k.repeat_while(lambda: p.get() < high):
            rows = self.rows_under(p.get())
            first(rows)
            if together == 1:
                several(1, rows)
            else:
                with k.when_else(self._alike(p.get() + together, rows, high)) as (then, other):
                    with then:
                        several(together, rows)
                    with other:
                        several(1, rows)

    def _alike(self, end: Int, rows: Sequence[Int], high: Int) -> Bool:
        """Whether all rows of the result up to `end`, which exist, sum these."""
        alike = end <= high
        # Rows do not decrease: where the last one sums these, so do all before it.
        for one, other in zip(
            rows, self.rows_under(self.k.minimum_int(end, high) - 1), strict=True
        ):
            alike = alike & one.equals(other)
        return alike

    # Along the rows of the image

    def taps(self, q: Int, lanes: int) -> Taps:
        """The taps of column q."""
        columns = self.config.columns
        places = [q * columns + j for j in range(columns)]
        offsets = [self.column_at.load_int(at) * self.x_w for at in places]
        return offsets, [self.column_weights.splat(at, lanes) for at in places]

    def sum(self, row: Ptr, taps: Taps, c: Int, lanes: int) -> Vec:
        """So many channels of one column, zeros beyond the last one."""
        k, (offsets, weights) = self.k, taps
        mask = k.first(self.channels - c, lanes)
        loaded = [row.vec(o + c, mask, lanes) for o in offsets]
        return weighted(k, [to_float(k, v, self.config.element) for v in loaded], weights)

    # Between them

    def weights(self, p: Int) -> list[Vec]:
        """Those of the rows under row p of the result."""
        taps = self.config.rows
        return [self.row_weights.splat(p * taps + i, 2 * self.k.lanes) for i in range(taps)]

    def run(self, rows: Sequence[Ptr], results: Sequence[RowResult], size: Int) -> None:
        """Neighbouring elements of rows of the result.

        Two vectors at a time; what goes past the caches begins at a line.
        """
        k, wide = self.k, 2 * self.k.lanes

        def step(e: IntLike, count: Int | None) -> None:
            mask = None if count is None else k.first(count, wide)
            # No mask: kept rows have space behind them.
            values = [row.vec(e, None, wide) for row in rows]
            for result in results:
                value = weighted(k, values, result.weights)
                value = self.finish.apply(value, result.place, result.first + e, mask)
                result.to.store(value, e, mask)

        head, to = k.int(0), results[0].to
        if to.streamed:
            # The buffer begins at a line: how far the next one is follows from the offset.
            head = k.minimum_int(-to.offset & (LINE // BYTES[to.element] - 1), size)
            with k.when(head > 0):
                step(0, head)
        end = head + (size - head) // wide * wide
        with k.range(head, end, wide) as e:
            step(e, None)
        with k.when(end < size):
            step(end, size - end)


def missing(k: KernelBuilder, done: Var, rows: Sequence[Int]) -> tuple[Int, Int]:
    """The rows that are needed and were not interpolated yet; they are from now on."""
    low, high = k.maximum_int(done.get(), rows[0]), rows[-1] + 1
    done.set(high)
    return low, high
