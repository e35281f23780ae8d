"""The phase that adds up the gradient of some channels, band of rows by band of rows.

A chunk owns a block of channels of a band of a picture's rows: it clears sums for it in scratch,
which fits the second-level cache, adds what the band's list (`band_lists`) names, in its order, and
stores the band once. So nothing is shared, and every sum has the same order whatever the team and
the bands. What will be added next is asked for early: a row of bins is short, and the next one lies
anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from saccade.codegen.emitter import BYTES
from saccade.codegen.language import Kernel, Ptr
from saccade.codegen.streams import LINE
from saccade.codegen.values import Int, Mask, Vec
from saccade.kernels.floats import HALVES, lanes_of, load, store
from saccade.kernels.roi.axis import Axis
from saccade.kernels.roi.band_lists import BandLists, Part
from saccade.kernels.roi.planes import scatter_block
from saccade.kernels.roi.tables import Tables, TablesCode

__all__ = ["SpreadCode", "emit_spread"]

_AHEAD = 2  # parts of a list


@dataclass(frozen=True)
class SpreadCode:
    """What the code depends on.

    Attributes:
        tables: How the tables were made; sums are kept in the type of their weights.
        grad: Type of the elements that come in, channels innermost.
        out: Type of the result's.
        vectors: Vectors of channels that are done side by side.
        planar: Whether the pixels of a channel are neighbours in the result, not the channels.
        streamed: Whether the result is written past the caches: bands, planes and blocks of
            channels begin lines.
    """

    tables: TablesCode = field(default_factory=TablesCode)
    grad: str = "float32"
    out: str = "float32"
    vectors: int = 1
    planar: bool = False
    streamed: bool = False


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
        self.tables, self.lists = Tables(k, code.tables), BandLists(k)
        self.sums = k.scratch("sums", code.tables.weight)
        self.tables.declare_integers()
        self.lists.declare_integers()
        self.pictures, self.height, self.width, self.channels = k.integers("n h w channels")
        self.blocks, self.block = k.integers("blocks block")
        self.pitch, self.grad_k, self.grad_h, self.grad_w = k.integers("pitch grad_k grad_h grad_w")
        self.grad_start, self.out_start, self.out_n, self.out_h, self.out_w, self.out_c = (
            k.integers("grad_start out_start out_n out_h out_w out_c")
        )

    def emit(self) -> None:
        """Chunks are numbered by block, picture, band."""
        k, lists = self.k, self.lists
        with k.chunks(self.blocks * self.pictures * lists.bands) as chunk:
            number, rest = chunk % lists.bands, chunk // lists.bands
            top = number * lists.band
            picture, channel = rest % self.pictures, rest // self.pictures * self.block
            band = _Band(
                picture, top, k.minimum_int(self.height - top, lists.band), channel,
                k.minimum_int(self.channels - channel, self.block),
                self.grad + (self.grad_start + channel),
            )  # fmt: skip
            self._clear(band)
            first, end = lists.of(picture, number)
            with k.range(first, end) as at:
                part, following = lists.part(at), lists.part(k.minimum_int(at + _AHEAD, end - 1))
                self._part(band, part, self._source(band, following))
            self._store(band)

    def _source(self, band: _Band, part: Part) -> Ptr:
        return band.grad + (part.box * self.grad_k + part.bins * self.grad_h)

    def _clear(self, band: _Band) -> None:
        k = self.k
        zero = k.zero(self.lanes, self.code.tables.weight)
        with k.range(0, band.rows * self.width * self.pitch, self.lanes) as at:
            self.sums.store(zero, at)

    def _part(self, band: _Band, part: Part, ahead: Ptr) -> None:
        """What a row of bins gives to a band; `ahead` is where one that comes soon lies."""
        k, (down, along) = self.k, self.tables.of(part.box)
        rows, grad = (part.first, part.end), self._source(band, part)
        step = self.code.vectors * self.lanes
        whole = band.channels // step * step
        with k.range(0, self.tables.columns) as q:
            at, columns = q * self.grad_w, (along.first(q), along.first(q + 1))
            self._fetch(ahead + at)
            for low, high, vectors in ((0, whole, self.code.vectors), (whole, band.channels, 1)):
                with k.range(low, high, vectors * self.lanes) as c:
                    mask = None if high is whole else k.first(band.channels - c, self.lanes)
                    values = self._values(grad + (at + c), vectors, mask)
                    self._add(band, c, values, (down, rows), (along, columns))

    def _fetch(self, source: Ptr) -> None:
        """Ask for a bin of a block of channels."""
        line = LINE // BYTES[self.code.grad]
        for at in range(0, self.code.vectors * self.lanes, line):
            self.k.prefetch(source, at)

    def _values(self, source: Ptr, vectors: int, mask: Mask | None) -> list[Vec]:
        k, element = self.k, self.code.tables.weight
        return [load(k, source, v * self.lanes, self.lanes, element, mask) for v in range(vectors)]

    def _add(
        self,
        band: _Band,
        channel: Int,
        values: list[Vec],
        down: tuple[Axis, tuple[Int, Int]],
        along: tuple[Axis, tuple[Int, Int]],
    ) -> None:
        """One bin's pixels; channels past the last one are room in scratch."""
        k, lanes = self.k, self.lanes
        with k.range(*down[1]) as i:
            to = self.sums + ((down[0].pixel(i) - band.top) * self.width * self.pitch + channel)
            factor = k.broadcast(down[0].weight(i), lanes)
            shares = [value * factor for value in values]
            with k.range(*along[1]) as j:
                pixel = to + along[0].pixel(j) * self.pitch
                weight = k.broadcast(along[0].weight(j), lanes)
                for v, share in enumerate(shares):
                    at = v * lanes
                    pixel.store(k.fma(share, weight, pixel.vec(at, None, lanes)), at)

    def _store(self, band: _Band) -> None:
        start = self.out_start + band.picture * self.out_n + band.top * self.out_h
        with self.k.streams(self.out, [], self.code.streamed) as ways:
            for out in ways:
                to = out + (start + band.channel * self.out_c)
                if self.code.planar:
                    sizes = band.rows * self.width, band.channels
                    element = self.code.tables.weight
                    scatter_block(self.k, self.sums, self.pitch, sizes, to, self.out_c, element)
                else:
                    self._pixels(band, to)

    def _pixels(self, band: _Band, to: Ptr) -> None:
        """Pixel by pixel; two vectors of elements of 16 bits fill a line."""
        k, lanes = self.k, self.lanes
        parts = 2 if self.code.out in HALVES else 1
        with k.range(0, band.rows) as row, k.range(0, self.width) as column:
            source = self.sums + (row * self.width + column) * self.pitch
            pixel = to + (row * self.out_h + column * self.out_w)
            whole = band.channels // (parts * lanes) * (parts * lanes)
            with k.range(0, whole, parts * lanes) as c:
                vectors = [source.vec(c + v * lanes, None, lanes) for v in range(parts)]
                store(k, pixel, k.concat(vectors), c)
            with k.range(whole, band.channels, lanes) as c:
                mask = k.first(band.channels - c, lanes)
                store(k, pixel, source.vec(c, None, lanes), c, mask)
