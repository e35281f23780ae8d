"""The code of `conv2d.separable`: rows of windows into scratch, then products over their pixels.

Scratch holds planes, one for each vector of channels: [vectors, pixels, lanes]. Windows fill one
plane after the other from end to end, and the elements of a tile's pixels are a constant distance
apart, so that one register addresses them all.
"""

from __future__ import annotations

from dataclasses import dataclass

from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr
from saccade.backends.cpu.codegen.values import Int
from saccade.kernels.cpu.conv2d.depthwise_code import DepthwiseRows, FinishRow, RowCode
from saccade.kernels.cpu.conv2d.direct_pixels import PixelWalk, Rectangle
from saccade.kernels.cpu.conv2d.epilogue import Epilogue
from saccade.kernels.cpu.conv2d.microkernel import (
    Reduction,
    Sums,
    accumulate,
    anchored,
    vector_lanes,
    zero_sums,
)
from saccade.kernels.cpu.conv2d.row_bands import WindowSizes
from saccade.kernels.cpu.conv2d.row_groups import RowGroups, Side

__all__ = ["SeparableConfig", "emit_separable"]

_UNROLL = 4  # steps of one trip over the channels of a plane


@dataclass(frozen=True, slots=True)
class SeparableConfig:
    """What the code depends on.

    Attributes:
        element: Element type of the feature map.
        between: Element type of the planes.
        taps, stride, dilation: Of the depthwise convolution, along the row.
        first, body, last, any_width: How its rows are cut, see `row_groups`.
        pixels, vectors: Of a tile of the result.
        half: Whether its last vector is half as wide.
        unroll, shape, pairs, odd: How the channels of the last plane are summed if it is not full,
            see `microkernel.Reduction`.
        flat: Whether pixels are evenly apart in every operand of the 1x1 convolution.
        inner: `EpilogueSpec.code` of the depthwise convolution.
        epilogue: `EpilogueSpec.code` of the 1x1 one.
    """

    element: str
    between: str
    taps: int
    stride: int
    dilation: int
    first: Side
    body: int
    last: Side
    any_width: bool
    pixels: int
    vectors: int
    half: bool
    unroll: int
    shape: str
    pairs: bool
    odd: bool
    flat: bool
    inner: tuple[str, ...]
    epilogue: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _SeparableSizes(WindowSizes):
    """Integer parameters; the windows are those of the depthwise convolution."""

    repeats: Int
    depth: Int
    vectors: Int
    plane: Int
    blocks: Int
    share: Int


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Pixels `first … end-1` and the rows `low … high-1` that they lie in, through all images."""

    first: Int
    end: Int
    low: Int
    high: Int


class _Separable:
    def __init__(self, k: KernelBuilder, config: SeparableConfig) -> None:
        self.k, self.config = k, config
        self.x = k.pointer("x", config.element)
        self.taps = k.pointer("depthwise")
        self.weights = k.pointer("pointwise", "bfloat16" if config.pairs else "float32")
        self.between = k.scratch("between", config.between)
        self.inner = Epilogue(k, config.inner, out=self.between, prefix="inner_")
        self.epilogue = Epilogue(k, config.epilogue)
        self.s = k.sizes(_SeparableSizes)
        self.inner.declare_integers()
        self.epilogue.declare_integers()
        self.lanes = vector_lanes(k, config.vectors, config.half)

    def emit(self) -> None:
        """All chunks."""
        k, s = self.k, self.s
        pixels = s.images * s.rows * s.columns
        with k.chunks((pixels + s.share - 1) // s.share) as number:
            first = number * s.share
            end = k.minimum_int(first + s.share, pixels)
            chunk = _Chunk(first, end, first // s.columns, (end - 1) // s.columns + 1)
            with k.range(0, s.vectors) as vector:
                self._windows(chunk, vector)
            with k.range(0, s.blocks) as block:
                self._products(chunk, block)

    def _windows(self, chunk: _Chunk, vector: Int) -> None:
        """One plane."""
        k, s, config = self.k, self.s, self.config
        groups = RowGroups.of(config.first, config.body, config.last, config.any_width)
        code = RowCode(k, groups, config.taps, config.stride, config.dilation, s)
        place = self.inner.place(vector)
        channel = vector * k.lanes
        # Where the plane would begin if it held every row, and place by place every vector.
        self.inner.out = self.between + (
            vector * s.plane - chunk.low * s.columns * k.lanes - channel
        )
        corner = self.x + (channel - s.x_w * s.left)
        weights = self.taps + vector * (s.taps * (config.taps * k.lanes))
        with k.range(chunk.low, chunk.high) as number:
            image = number // s.rows
            p = number - image * s.rows
            h, taps = s.window(k, p)
            rows = DepthwiseRows(
                corner + (s.x_n * image + s.x_h * h), s.x_h * s.dilation, s.x_w,
                weights, k.int(k.lanes), taps, place.mask,
            )  # fmt: skip
            code.emit(rows, s.repeats, FinishRow(self.inner, place, image, p))

    def _products(self, chunk: _Chunk, block: Int) -> None:
        """The results of one block of channels."""
        k, s, config = self.k, self.s, self.config
        walk, zero = PixelWalk(k, config.pixels, config.flat), k.int(0)
        pixels = Rectangle(chunk.end, zero, s.rows, zero, s.columns)
        places = self.epilogue.places(block, self.lanes)
        with k.range(chunk.first, chunk.end, config.pixels) as first:
            sums = zero_sums(k, config.pixels, config.vectors, config.half)
            self._sum(sums, self.between + (first - chunk.low * s.columns) * k.lanes, block)
            spots = walk.spots(pixels, walk.spot(pixels, first))
            for spot, tile in zip(spots, sums, strict=True):
                with k.when(spot.number < chunk.end):
                    pixel = self.epilogue.pixel(spot.n, spot.p, spot.q)
                    for total, place in zip(tile, places, strict=True):
                        self.epilogue.finish(total.get(), pixel, place)

    def _sum(self, sums: Sums, start: Ptr, block: Int) -> None:
        """The products of a tile whose first pixel is at `start`, plane by plane."""
        k, s, config = self.k, self.s, self.config
        pairs = config.pairs
        width = sum(self.lanes) * (2 if pairs else 1)
        steps, of_plane = ((s.depth + 1) // 2, k.lanes // 2) if pairs else (s.depth, k.lanes)
        panel = self.weights + block * steps * width

        def add(plane: Int, count: Int, reduction: Reduction) -> None:
            spot = anchored(k, start + plane * s.plane)
            rows = [spot + i * k.lanes for i in range(config.pixels)]
            weights = anchored(k, panel + plane * (of_plane * width))
            accumulate(
                k, sums, rows, weights, step=1, pitch=width, count=count, reduction=reduction,
                half=config.half,
            )  # fmt: skip

        full = s.depth // k.lanes
        with k.range(0, full) as plane:
            add(plane, k.int(k.lanes), Reduction(_UNROLL, "whole", pairs))
        if config.unroll or config.odd:
            last = Reduction(config.unroll, config.shape, pairs, config.odd)
            add(full, s.depth - full * k.lanes, last)


def emit_separable(k: KernelBuilder, config: SeparableConfig) -> None:
    """Emit the two convolutions that `config` describes."""
    _Separable(k, config).emit()
