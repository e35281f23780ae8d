"""The phase that adds up the gradient of some channels, band of rows by band of rows.

A chunk owns a block of channels of a band of an image's rows: it clears sums for it in scratch,
which fits the L2 cache, adds what the band's list (`align_gradient_bands`) names, in its
order, and stores the band once; columns that nothing is given to are neither cleared nor read. So
nothing is shared, and every sum has the same order whatever the team and the bands. What will be
added next is asked for early: a row of bins is short, and the next one lies anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from saccade.backends.cpu.codegen.emitter import BYTES
from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr
from saccade.backends.cpu.codegen.streams import LINE
from saccade.backends.cpu.codegen.values import Bool, Int, Mask, Vec
from saccade.kernels.cpu.floats import HALVES, lanes_of, load, store
from saccade.kernels.cpu.roi.align_gradient_bands import BandLists, BandPart
from saccade.kernels.cpu.roi.bilinear_axis import BilinearAxis
from saccade.kernels.cpu.roi.bilinear_tables import BilinearTables, TablesCode
from saccade.kernels.cpu.roi.channel_blocks import at_once, scatter_block

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


def emit_spread(k: KernelBuilder, code: SpreadCode) -> None:
    """The code of one configuration."""
    _AlignScatter(k, code).emit()


@dataclass(frozen=True, slots=True)
class _Band:
    """Rows of an image, and channels from `channel` on; `grad` stands at that one."""

    image: Int
    top: Int
    rows: Int
    channel: Int
    channels: Int
    parts: tuple[Int, Int]
    grad: Ptr


class _AlignScatter:
    def __init__(self, k: KernelBuilder, code: SpreadCode) -> None:
        self.k, self.code = k, code
        self.lanes = lanes_of(k, code.tables.weight)
        self.grad, self.out = k.pointer("grad", code.grad), k.pointer("out", code.out)
        self.tables, self.lists = BilinearTables(k, code.tables), BandLists(k)
        self.sums = k.scratch("sums", code.tables.weight)
        self.tables.declare_integers()
        self.lists.declare_integers()
        self.images, self.height, self.width, self.channels = k.integers("n h w channels")
        self.blocks, self.block = k.integers("blocks block")
        self.pitch, self.grad_k, self.grad_h, self.grad_w = k.integers("pitch grad_k grad_h grad_w")
        self.grad_start, self.out_start, self.out_n, self.out_h, self.out_w, self.out_c = (
            k.integers("grad_start out_start out_n out_h out_w out_c")
        )

    def emit(self) -> None:
        """Chunks are numbered by block, image, band."""
        k, lists = self.k, self.lists
        with k.chunks(self.blocks * self.images * lists.bands) as chunk:
            number, rest = chunk % lists.bands, chunk // lists.bands
            top = number * lists.band
            image, channel = rest % self.images, rest // self.images * self.block
            parts = lists.of(image, number)
            band = _Band(
                image, top, k.minimum_int(self.height - top, lists.band), channel,
                k.minimum_int(self.channels - channel, self.block), parts,
                self.grad + (self.grad_start + channel),
            )  # fmt: skip
            columns = self._columns(band)
            self._clear(band, columns)
            with k.range(*parts) as at:
                following = lists.part(k.minimum_int(at + _AHEAD, parts[1] - 1))
                self._part(band, lists.part(at), self._source(band, following))
            self._store(band, columns)

    def _columns(self, band: _Band) -> tuple[Int, Int]:
        """The first column that anything is given to, and one past the last."""
        k = self.k
        low, high = k.var(self.width), k.var(0)
        with k.range(*band.parts) as at:
            _, along = self.tables.of(self.lists.part(at).box)
            first, last = along.reach()
            low.set(k.minimum_int(low.get(), first))
            high.set(k.maximum_int(high.get(), last + 1))
        return low.get(), high.get()

    def _source(self, band: _Band, part: BandPart) -> Ptr:
        return band.grad + (part.box * self.grad_k + part.bins * self.grad_h)

    def _clear(self, band: _Band, columns: tuple[Int, Int]) -> None:
        """What will be read: columns of each row, and what is stored at once with the nearest."""
        k, (low, high), element = self.k, columns, self.code.tables.weight
        positions = band.rows * self.width
        beside = at_once(k, self.code.out, element) if self.code.planar else 0
        done = k.var(0)

        def clear(first: Int, end: Int) -> None:
            # What is beside two rows may overlap: everything is cleared once.
            first = k.maximum_int(first, done.get())
            end = k.maximum_int(k.minimum_int(end, positions), first)
            with k.range(first * self.pitch, end * self.pitch, self.lanes) as at:
                self.sums.store(k.zero(self.lanes, element), at)
            done.set(end)

        with k.when(low < high), k.range(0, positions, self.width) as row:
            clear(row + low - beside, row + high + beside)
        if self.code.planar:
            # `scatter_block` reads the last positions in any case.
            clear(positions - beside, positions)

    def _part(self, band: _Band, part: BandPart, ahead: Ptr) -> None:
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
                    # Only the first of the two ranges consists of whole groups.
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
        down: tuple[BilinearAxis, tuple[Int, Int]],
        along: tuple[BilinearAxis, tuple[Int, Int]],
    ) -> None:
        """One bin's pixels; channels past the last one are space in scratch."""
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

    def _store(self, band: _Band, columns: tuple[Int, Int]) -> None:
        start = self.out_start + band.image * self.out_n + band.top * self.out_h
        with self.k.streams(self.out, [], self.code.streamed) as ways:
            for out in ways:
                to = out + (start + band.channel * self.out_c)
                if self.code.planar:
                    self._planes(band, columns, to)
                else:
                    self._pixels(band, columns, to)

    def _planes(self, band: _Band, columns: tuple[Int, Int], to: Ptr) -> None:
        width, (low, high) = self.width, columns

        def some(first: Int, count: int) -> Bool:
            row = first // width * width
            here = (first < row + high) & (first + count > row + low)
            # Positions at once may reach into the columns of the next row.
            return (low < high) & (here | (first + count > row + width + low))

        sizes = band.rows * width, band.channels
        element = self.code.tables.weight
        scatter_block(self.k, self.sums, self.pitch, sizes, to, self.out_c, element, some)

    def _pixels(self, band: _Band, columns: tuple[Int, Int], to: Ptr) -> None:
        """Pixel by pixel; two vectors of elements of 16 bits fill a line."""
        k, lanes, (low, high) = self.k, self.lanes, columns
        parts = 2 if self.code.out in HALVES else 1
        zero = k.zero(lanes, self.code.tables.weight)
        whole = band.channels // (parts * lanes) * (parts * lanes)
        low = k.minimum_int(low, high)  # where there is nothing, both are 0
        with k.range(0, band.rows) as row:
            for first, end, some in ((0, low, False), (low, high, True), (high, self.width, False)):
                with k.range(first, end) as column:
                    source = self.sums + (row * self.width + column) * self.pitch
                    pixel = to + (row * self.out_h + column * self.out_w)
                    with k.range(0, whole, parts * lanes) as c:
                        vectors = [
                            source.vec(c + v * lanes, None, lanes) if some else zero
                            for v in range(parts)
                        ]
                        store(k, pixel, k.concat(vectors), c)
                    with k.range(whole, band.channels, lanes) as c:
                        mask = k.first(band.channels - c, lanes)
                        store(k, pixel, source.vec(c, None, lanes) if some else zero, c, mask)
