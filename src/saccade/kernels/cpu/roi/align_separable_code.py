"""The phase that samples maps of few channels for all boxes: rows first, then columns.

    t[p, c, x] = Σ_i rows[p, i] · x[c, h(p, i), x]           whole vectors along the rows of the map
    y[p, c, q] = Σ_x columns[x, q] · t[p, c, x]              planar: vectors over bins
    y[p, q, c] = Σ_j columns[q, j] · t[p, w(q, j), c]        channels innermost: vectors over them

for the columns x that the box meets. Both orders add the same numbers in the same order. Of a
planar result, each column comes with the bins that it belongs to, so that no other bin sees a NaN
of it. Everything is in scratch; a box's result is copied out at the end, so that vectors may
reach beyond the ends of its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace

from saccade.backends.cpu.codegen import llvm
from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr
from saccade.backends.cpu.codegen.values import Int, Mask, Vec
from saccade.kernels.cpu.floats import lanes_of, load, store
from saccade.kernels.cpu.roi.align_separable_tables import GridCode, GridTable, entries, table
from saccade.kernels.cpu.roi.bilinear_axis import Sampling
from saccade.kernels.cpu.roi.box_operands import Boxes, BoxesCode, put

__all__ = ["ProductsCode", "emit_products"]

_PLANES = 8  # at a time: their rows often lie in the same set of the L1 cache


@dataclass(frozen=True)
class ProductsCode:
    """What the code depends on.

    Attributes:
        boxes: How boxes are read.
        grid: The tables.
        element, out: Types of the maps' elements and of the result's.
        row: Elements of a vector along a row of the map, at most as many as it has.
        channels: Elements of a vector over channels where these are innermost; 0 for planar maps.
        group: Rows of the result, or of bins, that are summed side by side.
        planes: Planes of which a row of bins is summed side by side.
    """

    boxes: BoxesCode = field(default_factory=BoxesCode)
    grid: GridCode = field(default_factory=GridCode)
    element: str = "float32"
    out: str = "float32"
    row: int = 4
    channels: int = 0
    group: int = 4
    planes: int = 1


@dataclass(frozen=True, slots=True)
class _BoxColumns:
    """The columns of a box.

    Attributes:
        start: The first element of a row that is read.
        size: Elements that are read, whole vectors.
        first, last: The first column and one past the last.
    """

    start: Int
    size: Int
    first: Int
    last: Int


def emit_products(k: KernelBuilder, code: ProductsCode) -> None:
    """The code of one configuration."""
    _Products(k, code).emit()


class _Products:
    def __init__(self, k: KernelBuilder, code: ProductsCode) -> None:
        self.k, self.code, self.sums = k, code, code.grid.weight
        self.x, self.out = k.pointer("x", code.element), k.pointer("out", code.out)
        self.boxes, self.bad = Boxes(k, code.boxes), k.pointer("bad", "int32")
        self.index, self.weight = k.scratch("index", "int32"), k.scratch("weight", self.sums)
        self.rows, self.bins = k.scratch("rows", self.sums), k.scratch("bins", self.sums)
        if not code.channels:
            self.columns = k.scratch("columns", "int32")
            self.shares = k.scratch("shares", self.sums)
        self.boxes.declare_integers()
        real = [k.convert(k.real(n), code.boxes.geometry) for n in ("scale", "offset", "least")]
        self.sampling = Sampling(real[0], real[1], real[2], k.int(code.grid.samples))
        self.parts, self.ph, self.pw, self.height, self.width = k.integers("parts ph pw h w")
        self.planes, self.step = k.integers("planes step")
        self.x_n, self.x_c, self.x_h = k.integers("x_n x_c x_h")
        self.out_k, self.out_row, self.out_rows = k.integers("out_k out_row out_rows")
        self.length, self.pitch = k.integers("length pitch")

    def emit(self) -> None:
        """A chunk is some of the boxes."""
        k, boxes = self.k, self.boxes
        with k.chunks(self.parts) as part:
            # All boxes by one chunk: a sum over chunks would need another phase.
            with k.when(part.equals(0)):
                self._count_bad()
            low = boxes.count * part // self.parts
            with k.range(low, boxes.count * (part + 1) // self.parts) as box:
                self._box(box)

    def _count_bad(self) -> None:
        """Boxes whose image is not there."""
        k = self.k
        missing = k.var(0)
        with k.range(0, self.boxes.count) as box:
            _, valid = self.boxes.image(box)
            missing.set(missing.get() + valid.select(0, 1))
        put(self.bad, missing.get())

    def _box(self, box: Int) -> None:
        k, grid, boxes = self.k, self.code.grid, self.boxes
        image, valid = boxes.image(box)
        spans = []
        for axis, bins in enumerate((self.ph, self.pw)):
            ends = boxes.corner(box, 1 - axis), boxes.corner(box, 3 - axis)
            span = self.sampling.span(k, *ends, bins)
            # A box whose image is not there has no samples, and bins of 0.
            spans.append(replace(span, count=valid.select(span.count, 0)))
        down = GridTable(k, grid, self.index, self.weight, (self.ph, self.height))
        capacity = table(grid, self.ph)
        sizes = self.pw, self.width
        along = GridTable(k, grid, self.index + capacity, self.weight + capacity, sizes)
        # Rows carry the division for both axes.
        down.fill(spans[0], float(grid.samples**2))
        window = self._window(*along.fill(spans[1], 1.0))
        self._sum_rows(self.x + image * self.x_n, down, window)
        if self.code.channels:
            self._sum_pixels(along, window)
        else:
            self._sum_columns(along, window)
        self._copy(self.out + box * self.out_k)

    def _window(self, low: Int, high: Int) -> _BoxColumns:
        k, lanes = self.k, self.code.row
        last = high + 1
        count = k.maximum_int(last - low, 0) * self.step
        size = (count + (lanes - 1)) // lanes * lanes
        # Vectors end where the row does, or earlier.
        most = k.maximum_int(self.width * self.step - size, 0)
        return _BoxColumns(k.minimum_int(low * self.step, most), size, low, last)

    def _place(self, window: _BoxColumns, at: Int) -> Int:
        """The first element of a vector of the window."""
        furthest = self.width * self.step - self.code.row
        return self.k.minimum_int(window.start + at, furthest)

    def _sum_rows(self, source: Ptr, down: GridTable, window: _BoxColumns) -> None:
        """Rows of bins, of a few planes at a time: neighbouring bins read the same lines again."""
        k = self.k
        with k.range(0, self.planes, _PLANES) as first, k.range(0, self.ph) as p:
            last = k.minimum_int(first + _PLANES, self.planes)
            self._by_count(
                down.count(p),
                lambda n: self._sum_row(source, down, window, (p, n), (first, last)),
            )

    def _by_count(self, count: Int, emit: Callable[[int], None]) -> None:
        """Code for numbers of entries, the next larger of which is taken.

        Neighbouring samples meet the same pixels where they are at most a pixel apart.
        """
        samples = self.code.grid.samples
        most = entries(self.code.grid)
        self._choose(count, sorted({0, max(2, samples), samples + 1, most}), emit)

    def _choose(self, count: Int, cases: list[int], emit: Callable[[int], None]) -> None:
        if len(cases) == 1:
            emit(cases[0])
            return
        with self.k.when_else(count <= cases[0]) as (then, other):
            with then:
                emit(cases[0])
            with other:
                self._choose(count, cases[1:], emit)

    def _sum_row(
        self,
        source: Ptr,
        down: GridTable,
        window: _BoxColumns,
        bins: tuple[Int, int],
        planes: tuple[Int, Int],
    ) -> None:
        """One row of bins, of so many entries, of some planes; several are summed side by side."""
        k, lanes, group = self.k, self.code.row, self.code.planes
        p, every = bins[0], range(bins[1])
        lines = [source + down.pixel(e, p) * self.x_h for e in every]
        weights = [down.weight(e, p, lanes) for e in every]
        steps = [(self.x_c * i, self.ph * (lanes * i)) for i in range(group)]
        with k.range(*planes, group) as some, self._vectors(window) as at:
            # The last group reaches back, and does some planes again.
            c = k.minimum_int(some, self.planes - group)
            place = c * self.x_c + self._place(window, at)
            to = self._row(window, c * self.ph + p, at)
            for source_step, step in steps:
                total = k.zero(lanes, self.sums)
                for line, weight in zip(lines, weights, strict=True):
                    value = load(k, line + source_step, place, lanes, self.sums)
                    total = k.fma(value, weight, total)
                self.rows.store(total, to + step)

    def _vectors(self, window: _BoxColumns) -> AbstractContextManager[Int]:
        """Places in a row."""
        return self.k.range(0, window.size, self.code.row)

    def _row(self, window: _BoxColumns, row: Int, at: Int) -> Int:
        """Where a vector of a row of bins is kept.

        Of planar maps, the same vector of all rows is side by side, so that some rows are at
        constant distances; of others, whose channels may begin anywhere, all of a row is.
        """
        if self.code.channels:
            return row * window.size + (self._place(window, at) - window.start)
        return at * (self.planes * self.ph) + row * self.code.row

    @contextmanager
    def _groups(self, count: Int) -> Iterator[Int]:
        """The first of each group of rows; the last group may meet the one before it."""
        with self.k.range(0, count, self.code.group) as first:
            yield self.k.minimum_int(first, count - self.code.group)

    def _sum_columns(self, along: GridTable, window: _BoxColumns) -> None:
        """Bins of planar maps, `bins[row][q]`; the last ones first, as vectors reach beyond."""
        k, lanes, group = self.k, self.code.grid.lanes, self.code.group
        vectors = (self.pw + (lanes - 1)) // lanes
        with k.range(0, vectors) as number:
            first = (vectors - 1 - number) * lanes
            count = self._list(along, window, first)
            with self._groups(self.planes * self.ph) as row:
                totals = [k.var(k.zero(lanes, self.sums)) for _ in range(group)]
                with k.range(0, count) as n:
                    here = self.rows + (row * self.code.row + self.columns.load_int(n * 2))
                    bins = k.lanes_set(self.columns.load_int(n * 2 + 1), lanes)
                    share = self.shares.vec(n * lanes, None, lanes)
                    for i, total in enumerate(totals):
                        value = here.splat(i * self.code.row, lanes)
                        added = k.fma(value, share, total.get())
                        total.set(bins.select(added, total.get()))
                to = row * self.pw + first
                for i, total in enumerate(totals):
                    self.bins.store(total.get(), to + self.pw * i)

    def _list(self, along: GridTable, window: _BoxColumns, first: Int) -> Int:
        """Columns that a vector of bins reads: where they are, whose they are, and weights."""
        k, lanes = self.k, self.code.grid.lanes
        every = range(entries(self.code.grid))
        pixels, weights = ([f(e, first) for e in every] for f in (along.pixels, along.weights))
        count = k.var(0)
        with k.range(window.first, window.last) as x:
            here = k.broadcast(Vec(k.b, k.b.trunc(x.value, llvm.I32)), lanes)
            share, bins = k.zero(lanes, self.sums), None
            # Backwards: of entries with the same pixel the first one has the weight, and is
            # selected last.
            for pixel, weight in zip(pixels[::-1], weights[::-1], strict=True):
                met = Mask(k.b, k.b.icmp_signed("==", pixel.value, here.value))
                share = met.select(weight, share)
                bins = met if bins is None else bins | met
            assert bins is not None
            n, bits = count.get(), k.mask_bits(bins)
            at = (x - window.start) // self.code.row * self.code.row
            column = self._row(window, k.int(0), at) + (x - self._place(window, at))
            put(self.columns, column, n * 2)
            put(self.columns, bits, n * 2 + 1)
            self.shares.store(share, n * lanes)
            # A column of no bin is overwritten by the next one, without a branch.
            count.set(n + bits.equals(0).select(0, 1))
        found: Int = count.get()
        return found

    def _sum_pixels(self, along: GridTable, window: _BoxColumns) -> None:
        """Bins of maps whose channels are innermost, `bins[p][q][c]`."""
        with self.k.range(0, self.pw) as q:
            self._by_count(along.count(q), lambda n: self._sum_pixel(along, window, q, n))

    def _sum_pixel(self, along: GridTable, window: _BoxColumns, q: Int, count: int) -> None:
        """A column of bins, of so many entries."""
        k, lanes = self.k, self.code.channels
        places = [along.pixel(e, q) * self.step - window.start for e in range(count)]
        weights = [along.weight(e, q, lanes) for e in range(count)]
        steps = [(window.size * i, self.pitch * i) for i in range(self.code.group)]
        with k.range(0, self.step, lanes) as c, self._groups(self.ph) as p:
            source, to = p * window.size + c, p * self.pitch + (q * self.step + c)
            for source_step, step in steps:
                total = k.zero(lanes, self.sums)
                for place, weight in zip(places, weights, strict=True):
                    value = self.rows.vec(source + (source_step + place), None, lanes)
                    total = k.fma(value, weight, total)
                self.bins.store(total, to + step)

    def _copy(self, to: Ptr) -> None:
        """A box's bins into the result."""
        k = self.k
        lanes = lanes_of(k, self.sums)
        whole = self.length // lanes * lanes
        with k.range(0, self.out_rows) as row:
            source, target = self.bins + row * self.pitch, to + row * self.out_row
            with k.range(0, whole, lanes) as at:
                store(k, target, source.vec(at, None, lanes), at)
            with k.when(whole < self.length):
                rest = source.vec(whole, None, lanes)
                store(k, target, rest, whole, k.first(self.length - whole, lanes))
