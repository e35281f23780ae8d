"""The code of `excite.direct`: means, and two matrices times a vector."""

from __future__ import annotations

from dataclasses import dataclass

from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr, Var
from saccade.backends.cpu.codegen.values import Int, Vec
from saccade.kernels.cpu.conv2d.epilogue import Epilogue
from saccade.kernels.cpu.conv2d.microkernel import Reduction, accumulate, anchored, zero_sums

__all__ = ["ExciteConfig", "ExciteSizes", "emit_excite"]

_ROWS = 4  # rows of the feature map whose sums do not wait for each other


@dataclass(frozen=True, slots=True)
class ExciteConfig:
    """What the code depends on.

    Attributes:
        stage: `squeeze`, `excite`, or `whole` for one after the other.
        element: Type of the feature map's elements.
        weights: Type of the weights' elements.
        squeezing, exciting: Vectors of filters of a block of either matrix; 0 if it is not read.
        whole: For each matrix, whether all its blocks are full.
        inner: `EpilogueSpec.code` of the first product; empty where it is not applied.
        outer: That of the second one.
    """

    stage: str
    element: str
    weights: str
    squeezing: int
    exciting: int
    whole: tuple[bool, bool]
    inner: tuple[str, ...]
    outer: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ExciteSizes:
    """Integer parameters."""

    images: Int
    channels: Int
    rows: Int
    columns: Int
    x_n: Int
    x_h: Int
    x_w: Int
    count: Int
    per_part: Int
    parts: Int
    hidden: Int
    gates: Int


def emit_excite(k: KernelBuilder, config: ExciteConfig) -> None:
    """Emit the stage that `config` describes."""
    _Excite(k, config).emit()


@dataclass(frozen=True, slots=True)
class _Matrix:
    """A block of a matrix, input channel by input channel.

    Attributes:
        weights: Of the first input channel that is wanted.
        filters: From channel to channel.
        vectors: That hold them.
        whole: Whether they are full.
    """

    weights: Ptr
    filters: Int
    vectors: int
    whole: bool


class _Excite:
    def __init__(self, k: KernelBuilder, config: ExciteConfig) -> None:
        self.k, self.config = k, config
        self.parts = k.pointer("parts")
        if config.stage != "excite":
            self.x = k.pointer("x", config.element)
            self.first = k.pointer("squeeze", config.weights)
            self.means = k.scratch("means")
        if config.stage != "squeeze":
            self.second = k.pointer("excite", config.weights)
            self.hidden = k.scratch("hidden")
            self.inner = Epilogue(k, config.inner, out=self.hidden, prefix="inner_")
            self.outer = Epilogue(k, config.outer)
        self.s = k.sizes(ExciteSizes)
        if config.stage != "squeeze":
            self.inner.declare_integers()
            self.outer.declare_integers()

    def emit(self) -> None:
        """All chunks."""
        k, s, stage = self.k, self.s, self.config.stage
        if stage == "whole":
            with k.chunks(k.int(1)), k.range(0, s.images) as n:
                with k.range(0, s.parts) as part:
                    self._squeeze(n, part)
                self._excite(n, k.int(0), self._blocks())
        elif stage == "squeeze":
            # Images inside: the part's weights are in the caches for all but the first.
            with k.chunks(s.parts) as part, k.range(0, s.images) as n:
                self._squeeze(n, part)
        else:
            with k.chunks(self._blocks()) as block, k.range(0, s.images) as n:
                self._excite(n, block, block + 1)

    def _blocks(self) -> Int:
        """Of the second matrix."""
        width = self.config.exciting * self.k.lanes
        return (self.s.gates + (width - 1)) // width

    # Sums over channels, of a part of them

    def _squeeze(self, n: Int, part: Int) -> None:
        k, s = self.k, self.s
        low = part * s.per_part
        high = k.minimum_int(low + s.per_part, s.channels)
        self._average(n, low, high)
        vectors = self.config.squeezing
        width = vectors * k.lanes
        with k.range(0, s.hidden, width) as first:
            filters = k.minimum_int(s.hidden - first, width)
            # Blocks lie as [channels, filters]; only the last one is narrower, and none lies behind
            # it.
            weights = self.first + (s.channels * first + filters * low)
            matrix = _Matrix(weights, filters, vectors, self.config.whole[0])
            to = self.parts + ((n * s.parts + part) * self._pitch() + first)
            for j, total in enumerate(self._products(self.means, matrix, high - low)):
                to.store(total.get(), j * k.lanes)

    def _pitch(self) -> Int:
        """Elements from part to part: whole blocks."""
        width = self.config.squeezing * self.k.lanes
        return (self.s.hidden + (width - 1)) // width * width

    def _average(self, n: Int, low: Int, high: Int) -> None:
        """The means of channels `low … high-1`, into scratch."""
        k, s = self.k, self.s
        whole = s.rows // _ROWS * _ROWS
        count = k.broadcast(Vec(k.b, k.b.sitofp(s.count.value, k.vector_type(1))))
        with k.range(low, high, k.lanes) as channel:
            mask = k.first(high - channel)
            corner = self.x + (s.x_n * n + channel)
            sums = [k.var(k.zero()) for _ in range(_ROWS)]
            with k.range(0, whole, _ROWS) as p, k.range(0, s.columns) as q:
                for i, total in enumerate(sums):
                    value = corner.vec(s.x_h * (p + i) + s.x_w * q, mask)
                    total.set(total.get() + value)
            with k.range(whole, s.rows) as p, k.range(0, s.columns) as q:
                value = corner.vec(s.x_h * p + s.x_w * q, mask)
                sums[0].set(sums[0].get() + value)
            # The same order for any team and either variant.
            total = (sums[0].get() + sums[1].get()) + (sums[2].get() + sums[3].get())
            self.means.store(total / count, channel - low, mask)

    def _products(self, vector: Ptr, matrix: _Matrix, count: Int) -> list[Var]:
        """A vector times a block of a matrix."""
        k = self.k
        (sums,) = tile = zero_sums(k, 1, matrix.vectors)
        masks = (
            None
            if matrix.whole
            else [k.first(matrix.filters - j * k.lanes) for j in range(matrix.vectors)]
        )
        pitch = matrix.vectors * k.lanes if matrix.whole else matrix.filters
        accumulate(
            k, tile, [anchored(k, vector)], anchored(k, matrix.weights), step=1, pitch=pitch,
            count=count, reduction=Reduction(4, "tail"), masks=masks,
        )  # fmt: skip
        return sums

    # Gates, of a part of them

    def _excite(self, n: Int, low: Int, high: Int) -> None:
        k, s, exciting = self.k, self.s, self.config.exciting
        self._activate(n)
        width = exciting * k.lanes
        pixel = self.outer.pixel(n, 0, 0)
        with k.range(low, high) as block:
            places = [self.outer.place(block * exciting + j) for j in range(exciting)]
            first = block * width
            filters = k.minimum_int(s.gates - first, width)
            weights = self.second + s.hidden * first
            matrix = _Matrix(weights, filters, exciting, self.config.whole[1])
            sums = self._products(self.hidden, matrix, s.hidden)
            for total, place in zip(sums, places, strict=True):
                self.outer.finish(total.get(), pixel, place)

    def _activate(self, n: Int) -> None:
        """What both products have between them, into scratch: parts are added in their order."""
        k, s = self.k, self.s
        pitch = self._pitch()
        pixel = self.inner.pixel(n, 0, 0)
        with k.range(0, (s.hidden + (k.lanes - 1)) // k.lanes) as v:
            line = self.parts + (n * s.parts * pitch + v * k.lanes)
            total = k.var(line.vec())
            with k.range(1, s.parts) as part:
                total.set(total.get() + line.vec(part * pitch))
            self.inner.finish(total.get(), pixel, self.inner.place(v))
