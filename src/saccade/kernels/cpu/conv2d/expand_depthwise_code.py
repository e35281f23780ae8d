"""The code of `conv2d.expand_depthwise`: rows of the wide feature map in scratch, then windows."""

from __future__ import annotations

from dataclasses import dataclass

from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.backends.cpu.codegen.values import Int
from saccade.kernels.cpu.conv2d.depthwise_code import DepthwiseRows, FinishRow, RowCode
from saccade.kernels.cpu.conv2d.epilogue import Epilogue
from saccade.kernels.cpu.conv2d.microkernel import Reduction, accumulate, anchored, zero_sums
from saccade.kernels.cpu.conv2d.row_bands import Band, RowBands
from saccade.kernels.cpu.conv2d.row_groups import RowGroups, Side
from saccade.kernels.cpu.conv2d.row_sums import RowTotals

__all__ = ["ExpandConfig", "emit_expand"]


@dataclass(frozen=True, slots=True)
class ExpandConfig:
    """What the code depends on.

    Attributes:
        element: Element type of the feature map.
        pixels, vectors: Of a tile of the wide feature map; a chunk has as many vectors of channels.
        unroll, shape, pairs, odd: See `microkernel.Reduction`.
        taps, stride, dilation: Of the depthwise convolution, along the row.
        first, body, last, any_width: How its rows are cut, see `row_groups`.
        inner: `EpilogueSpec.code` of the 1x1 convolution.
        epilogue: `EpilogueSpec.code` of the depthwise one.
        sums: `SumsSpec.code`.
    """

    element: str
    pixels: int
    vectors: int
    unroll: int
    shape: str
    pairs: bool
    odd: bool
    taps: int
    stride: int
    dilation: int
    first: Side
    body: int
    last: Side
    any_width: bool
    inner: tuple[str, ...]
    epilogue: tuple[str, ...]
    sums: str


@dataclass(frozen=True, slots=True)
class _ExpandSizes(RowBands):
    """Integer parameters; the windows are those of the depthwise convolution."""

    repeats: Int
    depth: Int
    vectors: Int


class _Expand:
    def __init__(self, k: KernelBuilder, config: ExpandConfig) -> None:
        self.k, self.config = k, config
        self.x = k.pointer("x", config.element)
        self.expand = k.pointer("expand", "bfloat16" if config.pairs else "float32")
        self.weights = k.pointer("depthwise")
        self.wide = k.scratch("wide")
        self.inner = Epilogue(k, config.inner, out=self.wide, prefix="inner_")
        self.epilogue = Epilogue(k, config.epilogue)
        self.totals = RowTotals(k, config.sums)
        self.s = k.sizes(_ExpandSizes)
        self.inner.declare_integers()
        self.epilogue.declare_integers()
        self.totals.declare_integers()
        self.pitch = config.vectors * k.lanes  # elements from pixel to pixel

    def emit(self) -> None:
        """All chunks."""
        k, s = self.k, self.s
        blocks = (s.vectors + (self.config.vectors - 1)) // self.config.vectors
        reach = s.taps * s.dilation - s.dilation + 1
        with s.chunks(k, blocks) as band:
            begin = k.maximum_int(band.low * s.stride - s.top, 0)
            end = k.minimum_int((s.end(k, band) - 1) * s.stride - s.top + reach, s.height)
            self._widen(band, begin, end)
            self._windows(band, begin)

    def _widen(self, band: Band, begin: Int, end: Int) -> None:
        """Rows `begin … end-1` of the wide feature map, those under the windows, into scratch."""
        k, s, config = self.k, self.s, self.config
        count = (end - begin) * s.width
        x = self.x + (s.x_n * band.image + s.x_h * begin)
        reduction = Reduction(config.unroll, config.shape, config.pairs, config.odd)
        steps = (s.depth + 1) // 2 if config.pairs else s.depth
        step = self.pitch * (2 if config.pairs else 1)
        panel = self.expand + band.part * steps * step
        self.inner.out = self.wide + (0 - band.part * self.pitch)
        numbers = range(config.vectors)
        places = [self.inner.place(band.part * config.vectors + j) for j in numbers]
        with k.range(0, count, config.pixels) as first:
            spots = [k.minimum_int(first + i, count - 1) for i in range(config.pixels)]
            rows = [anchored(k, x + s.x_w * spot) for spot in spots]
            sums = zero_sums(k, config.pixels, config.vectors)
            accumulate(
                k, sums, rows, anchored(k, panel), step=1, pitch=step, count=s.depth,
                reduction=reduction,
            )  # fmt: skip
            for i, tile in enumerate(sums):
                with k.when(first + i < count):
                    pixel = self.inner.pixel(0, 0, first + i)
                    for total, place in zip(tile, places, strict=True):
                        self.inner.finish(total.get(), pixel, place)

    def _windows(self, band: Band, begin: Int) -> None:
        """The rows of the result, from rows of the wide feature map from `begin` on."""
        k, s, config = self.k, self.s, self.config
        groups = RowGroups.of(config.first, config.body, config.last, config.any_width)
        code = RowCode(k, groups, config.taps, config.stride, config.dilation, s)
        line = s.width * self.pitch
        vector = band.part * config.vectors
        with k.range(vector, k.minimum_int(vector + config.vectors, s.vectors)) as v:
            place = self.epilogue.place(v)
            corner = self.wide + ((v - vector) * k.lanes - s.left * self.pitch)
            weights = self.weights + v * (s.taps * (config.taps * k.lanes))
            with k.range(band.low, s.end(k, band)) as p:
                h, taps = s.window(k, p)
                rows = DepthwiseRows(
                    corner + (h - begin) * line, line * s.dilation, k.int(self.pitch),
                    weights, k.int(k.lanes), taps, None,
                )  # fmt: skip
                total = self.totals.begin()
                code.emit(rows, s.repeats, FinishRow(self.epilogue, place, band.image, p, total))
                self.totals.end(total, band.image, p, place)


def emit_expand(k: KernelBuilder, config: ExpandConfig) -> None:
    """Emit the two convolutions that `config` describes."""
    _Expand(k, config).emit()
