"""The phase that adds up the gradient of some channels, band of rows by band of rows.

A chunk owns a block of channels of a band of a picture's rows: it clears sums for it in scratch,
which fits the second-level cache, walks the picture's boxes in order, adds what each of them gives
to pixels of the band, and stores the band once. So nothing is shared, and every sum has the same
order whatever the team and the bands.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from saccade.codegen.language import Kernel, Ptr
from saccade.codegen.values import Int, Mask, Vec
from saccade.kernels.floats import lanes_of, load, store
from saccade.kernels.roi.axis import Axis
from saccade.kernels.roi.planes import scatter_block
from saccade.kernels.roi.tables import Tables, TablesCode

__all__ = ["SpreadCode", "emit_spread"]


@dataclass(frozen=True)
class SpreadCode:
    """What the code depends on.

    Attributes:
        tables: How the tables were made; sums are kept in the type of their weights.
        grad: Type of the elements that come in, channels innermost.
        out: Type of the result's.
        vectors: Vectors of channels that are done side by side.
        planar: Whether the pixels of a channel are neighbours in the result, not the channels.
    """

    tables: TablesCode = field(default_factory=TablesCode)
    grad: str = "float32"
    out: str = "float32"
    vectors: int = 1
    planar: bool = False


def emit_spread(k: Kernel, code: SpreadCode) -> None:
    """The code of one configuration."""
    _Spread(k, code).emit()


@dataclass(frozen=True, slots=True)
class _Band:
    """Rows of a picture, and channels from `channel` on; `grad` stands at that one."""

    picture: Int
    top: Int
    rows: Int
    channel: Int
    channels: Int
    grad: Ptr


class _Spread:
    def __init__(self, k: Kernel, code: SpreadCode) -> None:
        self.k, self.code = k, code
        self.lanes = lanes_of(k, code.tables.weight)
        self.grad, self.out = k.pointer("grad", code.grad), k.pointer("out", code.out)
        self.tables = Tables(k, code.tables)
        self.sums = k.scratch("sums", code.tables.weight)
        self.tables.declare_integers()
        self.pictures, self.height, self.width, self.channels = k.integers("n h w channels")
        self.bands, self.band, self.blocks, self.block = k.integers("bands band blocks block")
        self.pitch, self.grad_k, self.grad_h, self.grad_w = k.integers("pitch grad_k grad_h grad_w")
        self.grad_start, self.out_start, self.out_n, self.out_h, self.out_w, self.out_c = (
            k.integers("grad_start out_start out_n out_h out_w out_c")
        )

    def emit(self) -> None:
        """Chunks are numbered by block, picture, band."""
        k, order = self.k, self.tables.order
        with k.chunks(self.blocks * self.pictures * self.bands) as chunk:
            top = chunk % self.bands * self.band
            rest = chunk // self.bands
            picture, channel = rest % self.pictures, rest // self.pictures * self.block
            band = _Band(
                picture, top, k.minimum_int(self.height - top, self.band), channel,
                k.minimum_int(self.channels - channel, self.block),
                self.grad + (self.grad_start + channel),
            )  # fmt: skip
            self._clear(band)
            with k.range(order.start(picture), order.start(picture + 1)) as at:
                box = order.box(at)
                down, along = self.tables.of(box)
                low, high = down.reach()
                with k.when((low < band.top + band.rows) & (high >= band.top)):
                    self._box(band, band.grad + box * self.grad_k, down, along)
            self._store(band)

    def _clear(self, band: _Band) -> None:
        k = self.k
        zero = k.zero(self.lanes, self.code.tables.weight)
        with k.range(0, band.rows * self.width * self.pitch, self.lanes) as at:
            self.sums.store(zero, at)

    def _box(self, band: _Band, grad: Ptr, down: Axis, along: Axis) -> None:
        """What a box gives to a band."""
        k, tables = self.k, self.tables
        with k.range(0, tables.rows) as p, k.range(down.first(p), down.first(p + 1)) as i:
            row = down.pixel(i) - band.top
            with k.when((row >= 0) & (row < band.rows)):
                to, weight = self.sums + row * self.width * self.pitch, down.weight(i)
                with k.range(0, tables.columns) as q:
                    source = grad + (p * self.grad_h + q * self.grad_w)
                    columns = along.first(q), along.first(q + 1)
                    step = self.code.vectors * self.lanes
                    whole = band.channels // step * step
                    with k.range(0, whole, step) as c:
                        values = self._weighted(source + c, weight, self.code.vectors, None)
                        self._add(to + c, along, columns, values)
                    with k.range(whole, band.channels, self.lanes) as c:
                        mask = k.first(band.channels - c, self.lanes)
                        values = self._weighted(source + c, weight, 1, mask)
                        self._add(to + c, along, columns, values)

    def _weighted(self, source: Ptr, weight: Vec, vectors: int, mask: Mask | None) -> list[Vec]:
        k, element = self.k, self.code.tables.weight
        factor = k.broadcast(weight, self.lanes)
        loaded = (
            load(k, source, v * self.lanes, self.lanes, element, mask) for v in range(vectors)
        )
        return [value * factor for value in loaded]

    def _add(self, to: Ptr, along: Axis, columns: tuple[Int, Int], values: list[Vec]) -> None:
        """A row of one bin's pixels; channels past the last one are room in scratch."""
        k = self.k
        with k.range(*columns) as j:
            pixel = to + along.pixel(j) * self.pitch
            weight = k.broadcast(along.weight(j), self.lanes)
            for v, value in enumerate(values):
                at = v * self.lanes
                pixel.store(k.fma(value, weight, pixel.vec(at, None, self.lanes)), at)

    def _store(self, band: _Band) -> None:
        k, element = self.k, self.code.tables.weight
        start = self.out_start + band.picture * self.out_n + band.top * self.out_h
        to = self.out + (start + band.channel * self.out_c)
        if self.code.planar:
            positions = band.rows * self.width
            scatter_block(
                k, self.sums, self.pitch, (positions, band.channels), to, self.out_c, element
            )
            return
        with k.range(0, band.rows) as row, k.range(0, self.width) as column:
            source = self.sums + (row * self.width + column) * self.pitch
            pixel = to + (row * self.out_h + column * self.out_w)
            whole = band.channels // self.lanes * self.lanes
            with k.range(0, whole, self.lanes) as c:
                store(k, pixel, source.vec(c, None, self.lanes), c)
            with k.when(whole < band.channels):
                rest = source.vec(whole, None, self.lanes)
                store(k, pixel, rest, whole, k.first(band.channels - whole, self.lanes))
