"""What the two walks of `rows` have in common: parameters, and the sums of both steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from saccade.codegen.emitter import BYTES
from saccade.codegen.language import Kernel, Ptr, Var
from saccade.codegen.streams import LINE
from saccade.codegen.values import Int, IntLike, Vec
from saccade.kernels.pointwise.elements import to_float
from saccade.kernels.pointwise.finish import Finish, FinishCode
from saccade.kernels.resize.axes import weighted

__all__ = ["RowsCode", "RowsConfig", "Taps"]

Taps = tuple[list[Int], list[Vec]]
"""Offsets into a row of the picture, and weights."""


@dataclass(frozen=True)
class RowsConfig:
    """What the code depends on.

    Attributes:
        rows: Taps along the rows of the picture, a power of two.
        columns: Taps along its columns.
        element: Element type of the picture.
        finish: The epilogue.
        side: Channels of a chunk, a power of two, where the result is planar, else 0.
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


class RowsCode:
    """Declares the parameters."""

    def __init__(self, k: Kernel, config: RowsConfig) -> None:
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
        """One chunk: its picture, its first column or channel, its rows."""
        raise NotImplementedError

    def along(self, h: Int) -> None:
        """Interpolate a row of the picture and keep it."""
        raise NotImplementedError

    def rows_under(self, p: Int) -> list[Int]:
        """The rows of the picture that a row of the result sums."""
        taps = self.config.rows
        return [self.row_at.load_int(p * taps + i) for i in range(taps)]

    # Along the rows of the picture

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

    def run(
        self,
        rows: Sequence[Ptr],
        weights: Sequence[Vec],
        to: Ptr,
        size: Int,
        place: tuple[Sequence[IntLike], IntLike],
    ) -> None:
        """Neighbouring elements of a row of the result; their place is for the epilogue.

        Two vectors at a time; what goes past the caches begins at a line.
        """
        k, wide = self.k, 2 * self.k.lanes

        def step(e: IntLike, count: Int | None) -> None:
            mask = None if count is None else k.first(count, wide)
            value = weighted(k, [row.vec(e, None, wide) for row in rows], weights)
            to.store(self.finish.apply(value, place[0], place[1] + e, mask), e, mask)

        head = k.int(0)
        if to.streamed:
            head = k.minimum_int(-to.offset & (LINE // BYTES[to.element] - 1), size)
            with k.when(head > 0):
                step(0, head)
        end = head + (size - head) // wide * wide
        with k.range(head, end, wide) as e:
            step(e, None)
        with k.when(end < size):
            step(end, size - end)


def missing(k: Kernel, done: Var, rows: Sequence[Int]) -> tuple[Int, Int]:
    """The rows that are needed and were not interpolated yet; they are from now on."""
    low, high = k.maximum_int(done.get(), rows[0]), rows[-1] + 1
    done.set(high)
    return low, high
