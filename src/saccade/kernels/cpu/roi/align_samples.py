"""The phase that samples a block of channels of some images for all of their boxes.

Vectors go over channels; an entry of a box's rows times one of its columns is a pixel and a weight
for all of them. Where the result is planar, a few rows of bins are kept in scratch, channels
innermost, and transposed in registers as they are stored.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr, Var
from saccade.backends.cpu.codegen.values import Int, Mask, Vec
from saccade.kernels.cpu.floats import lanes_of, load, store
from saccade.kernels.cpu.movement.register_shuffles import interleave
from saccade.kernels.cpu.roi.bilinear_axis import BilinearAxis
from saccade.kernels.cpu.roi.bilinear_tables import BilinearTables, TablesCode
from saccade.kernels.cpu.roi.channel_blocks import channel_vectors, scatter_block

__all__ = ["SampleCode", "emit_sample"]


@dataclass(frozen=True)
class SampleCode:
    """What the code depends on.

    Attributes:
        tables: How the tables were made.
        element: Type of the images' elements.
        out: Type of the result's.
        vectors: Vectors of channels that are summed side by side.
        planar: Whether the bins of a channel are neighbours in the result, not the channels.
        largest: Whether the largest weighted pixel is wanted instead of the sum; samples outside
            count as 0.
    """

    tables: TablesCode = field(default_factory=TablesCode)
    element: str = "float32"
    out: str = "float32"
    vectors: int = 1
    planar: bool = False
    largest: bool = False

    @property
    def sums(self) -> str:
        """Type of sums and of scratch."""
        return self.tables.weight

    @property
    def pairs(self) -> bool:
        """Whether pairs of bfloat16 are loaded at once and split."""
        return self.element == "bfloat16"


def emit_sample(k: KernelBuilder, code: SampleCode) -> None:
    """The code of one configuration."""
    _AlignSamples(k, code).emit()


class _AlignSamples:
    def __init__(self, k: KernelBuilder, code: SampleCode) -> None:
        self.k, self.code = k, code
        self.lanes = lanes_of(k, code.sums)
        self.x, self.out = k.pointer("x", code.element), k.pointer("out", code.out)
        self.tables = BilinearTables(k, code.tables)
        if code.planar:
            self.scratch = k.scratch("bins", code.sums)
        self.tables.declare_integers()
        self.parts, self.first, self.last, self.channels = k.integers("parts first last channels")
        self.x_n, self.x_h, self.x_w, self.x_start = k.integers("x_n x_h x_w x_start")
        self.out_k, self.out_h, self.out_step = k.integers("out_k out_h out_step")
        self.out_start, self.pitch, self.tall = k.integers("out_start pitch tall")

    def emit(self) -> None:
        """A chunk is some of the boxes, in their order by image."""
        with self.tables.order.walk(self.first, self.last, self.parts) as (box, image):
            source = self.x + (self.x_start + image * self.x_n)
            to = self.out + (self.out_start + box * self.out_k)
            self._box(source, to, self.tables.of(box))

    def _box(self, source: Ptr, to: Ptr, axes: tuple[BilinearAxis, BilinearAxis]) -> None:
        k, tables = self.k, self.tables
        if not self.code.planar:
            with k.range(0, tables.rows) as p, k.range(0, tables.columns) as q:
                self._bin(source, to + (p * self.out_h + q * self.out_step), axes, (p, q))
            return
        with k.range(0, tables.rows, self.tall) as first:
            last = k.minimum_int(first + self.tall, tables.rows)
            with k.range(first, last) as p, k.range(0, tables.columns) as q:
                place = (p - first) * tables.columns + q
                self._bin(source, self.scratch + place * self.pitch, axes, (p, q))
            scatter_block(
                k, self.scratch, self.pitch, ((last - first) * tables.columns, self.channels),
                to + first * tables.columns, self.out_step, self.code.sums,
            )  # fmt: skip

    def _bin(
        self, source: Ptr, to: Ptr, axes: tuple[BilinearAxis, BilinearAxis], place: tuple[Int, Int]
    ) -> None:
        """All channels of one bin."""
        k, (down, along), (p, q) = self.k, axes, place
        rows = down.first(p), down.first(p + 1)
        columns = along.first(q), along.first(q + 1)
        outside = None
        if self.code.largest:
            outside = Mask(k.b, (down.clipped(p) | along.clipped(q)).value)
        spans = channel_vectors(k, self.channels, self.code.vectors, self.lanes)
        for c, vectors, mask in spans:
            # Single vectors behind the last whole group are masked, and have no second one to pair
            # with.
            group = _Group(self, vectors, mask, paired=mask is None and self.code.pairs)
            with k.range(*rows) as i:
                row = source + (down.pixel(i) * self.x_h + c)
                weight = down.weight(i)
                with k.range(*columns) as j:
                    # One product for all channels.
                    both = k.broadcast(weight * along.weight(j), self.lanes)
                    group.add(row + along.pixel(j) * self.x_w, both)
            group.finish(to + c, outside)


class _Group:
    """Sums of neighbouring vectors of channels.

    Pairs of bfloat16 have sums of their even and of their odd elements.
    """

    def __init__(
        self, sample: _AlignSamples, vectors: int, mask: Mask | None, *, paired: bool
    ) -> None:
        self.k, self.code, self.lanes = sample.k, sample.code, sample.lanes
        self.mask, self.paired = mask, paired
        start = float("-inf") if self.code.largest else 0.0
        zero = self.k.number(start, self.lanes, self.code.sums)
        self.sums: list[Var] = [self.k.var(zero) for _ in range(vectors)]

    def add(self, source: Ptr, weight: Vec) -> None:
        """One pixel's channels, weighted."""
        k = self.k
        for total, value in zip(self.sums, self._values(source), strict=True):
            if self.code.largest:
                total.set(k.maximum(total.get(), value * weight))
            else:
                total.set(k.fma(value, weight, total.get()))

    def _values(self, source: Ptr) -> list[Vec]:
        k, lanes, count = self.k, self.lanes, len(self.sums)
        if self.paired:
            pairs = [source.pairs(2 * v * lanes, None, lanes) for v in range(count // 2)]
            return [half for pair in pairs for half in k.split_pair(pair)]
        return [load(k, source, v * lanes, lanes, self.code.sums, self.mask) for v in range(count)]

    def finish(self, to: Ptr, outside: Mask | None) -> None:
        """Store the sums: in scratch in whole vectors, in the result what it has space for."""
        k, lanes = self.k, self.lanes
        values: list[Vec] = [total.get() for total in self.sums]
        if outside is not None:
            # Samples outside are zeros among the others.
            zeros = [k.maximum(v, 0.0) for v in values]
            pairs = zip(zeros, values, strict=True)
            values = [Vec(k.b, k.b.select(outside.value, z.value, v.value)) for z, v in pairs]
        mask = None if self.code.planar else self.mask
        if self.paired and to.element == "bfloat16":
            for v in range(0, len(values), 2):
                to.store_halves(values[v], values[v + 1], v * lanes)
            return
        if self.paired:
            halves = zip(values[::2], values[1::2], strict=True)
            # Into scratch, or another type: even and odd elements take turns again.
            values = [part for pair in halves for part in interleave(k, pair)]
        for v, value in enumerate(values):
            store(k, to, value, v * lanes, mask)
