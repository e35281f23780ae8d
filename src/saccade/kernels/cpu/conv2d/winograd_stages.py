"""Winograd's two transforms of one tile: image to V, then M to image.

V is [frequency][block of channels][tile][channel of the block], M is [panel][frequency][tile]
[filter of the panel]. The distance of frequencies is a parameter: it is kept off multiples of
4 KiB, where the streams of a tile would share one set of the L1 cache.

A tile goes first down its columns into scratch that stays in L1, then along the rows. Either way
is a loop over lines around one transform of a line, and forms of tiles (whole, shorter) are
branches around that loop: the code of a kernel holds one copy of each transform and compiles fast.
Transforming both dimensions in registers would save those stores, but loads every value once per
group of rows instead, and takes eight times the code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from saccade.kernels.cpu.conv2d.column_window import valid_taps
from saccade.kernels.cpu.conv2d.epilogue import Epilogue, Pixel, VectorPlace
from saccade.kernels.cpu.conv2d.winograd_points import WinogradTile
from saccade.kernels.cpu.conv2d.winograd_tiles import TileAxis, Where
from saccade.kernels.cpu.conv2d.winograd_transforms import forward, inverse

if TYPE_CHECKING:
    from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr
    from saccade.backends.cpu.codegen.values import Int, IntLike, Vec

__all__ = ["InputImage", "Spectrum", "WinogradResult", "emit_input_tile", "emit_output_tile"]


@dataclass(frozen=True, slots=True)
class Spectrum:
    """One tile's row of V or M.

    Attributes:
        first: Where frequency (0, 0) begins.
        step: Elements from frequency to frequency.
        edge: Frequencies along one axis of a whole tile.
        block: Elements from one vector of channels to the next.
    """

    first: Ptr
    step: Int
    edge: int
    block: IntLike


@dataclass(frozen=True, slots=True)
class InputImage:
    """The convolution's input: pixels of `channels` neighbouring elements.

    Attributes:
        x: First element.
        stage: Scratch for one vector of a patch, row by row.
        channels, height, width: Extents.
        strides: Elements between images, rows, columns.
        top, left: Padding.
        apart: Distance of the rows and columns of a patch.
        far: Whether the next patch is asked for while one is read.
    """

    x: Ptr
    stage: Ptr
    channels: Int
    height: Int
    width: Int
    strides: tuple[Int, Int, Int]
    top: Int
    left: Int
    apart: tuple[int, int]
    far: bool


def _each_form(k: KernelBuilder, axis: TileAxis, emit: Callable[[WinogradTile], None]) -> None:
    """Code for the axis' form, whole or one of the shorter ones."""
    with k.when_else(axis.short) as (then, other):
        with then:
            for form in axis.shorter:
                with k.when(axis.results.equals(form.m)):
                    emit(form)
        with other:
            emit(axis.whole)


def emit_input_tile(k: KernelBuilder, image: InputImage, where: Where, v: Spectrum) -> None:
    """Transform the patch of a tile.

    Whole vectors of patches inside the image are read where they are; of border patches and of
    the last channels what does not exist reads as zero. V's rows are padded to whole vectors.
    """
    n, h, w = where.at
    stride = where.down.whole.stride
    h, w = h * stride - image.top, w * stride - image.left
    step_n, step_h, step_w = image.strides
    corner = image.x + (step_n * n + step_h * h + step_w * w)
    down, along = image.apart
    bottom = h + (where.down.whole.count - 1) * down
    right = w + (where.along.whole.count - 1) * along
    inside = (h >= 0) & (w >= 0) & (bottom < image.height) & (right < image.width)
    inside = inside & ~where.down.short & ~where.along.short
    whole = inside.select(image.channels - image.channels % k.lanes, 0)
    with k.when(whole < image.channels), k.range(0, v.edge * v.edge) as i:
        image.stage.store(k.zero(), i * k.lanes)
    right_tile = step_w * (where.along.whole.m * stride * along)
    with k.range(0, image.channels, k.lanes) as c:
        with k.when_else(c < whole) as (then, other):
            with then:
                following = (c + k.lanes < whole).select(c + k.lanes, right_tile)
                _columns_inside(k, image, where, corner + c, corner + following)
            with other:
                _columns_at_border(k, image, where, (corner + c, h, w), image.channels - c)
        _rows_forward(k, image.stage, where, v, v.first + c // k.lanes * v.block)


def _columns_inside(
    k: KernelBuilder, image: InputImage, where: Where, corner: Ptr, following: Ptr
) -> None:
    """Down the columns of a patch that exists; of a far image the one that follows is fetched.

    A patch has too few pixels side by side for the processor to see by itself what comes next.
    """
    (_, step_h, step_w), (down, along) = image.strides, image.apart
    tile = where.down.whole
    with k.range(0, tile.count) as j:
        column = corner + step_w * along * j
        values = [column.vec(step_h * (i * down)) for i in range(tile.count)]
        for i in range(tile.count):
            if image.far:
                k.prefetch(following + step_w * along * j, step_h * (i * down), 2)
        for f, value in forward(k, tile, values.__getitem__):
            image.stage.store(value, (j + f * tile.edge) * k.lanes)


def _columns_at_border(
    k: KernelBuilder, image: InputImage, where: Where, at: tuple[Ptr, Int, Int], channels: Int
) -> None:
    """Down the columns of a patch that may leave the image; `channels` are left."""
    corner, h, w = at
    _, step_h, step_w = image.strides
    down, along = image.apart
    low, high = valid_taps(k, w, image.width, where.along.count, k.int(along))

    def emit(tile: WinogradTile) -> None:
        tops = [h + i * down for i in range(tile.count)]
        exists = [(top >= 0) & (top < image.height) for top in tops]
        masks = [k.first(row.select(channels, 0)) for row in exists]
        with k.range(low, high) as j:
            column = corner + step_w * along * j
            values = [column.vec(step_h * (i * down), mask) for i, mask in enumerate(masks)]
            for f, value in forward(k, tile, values.__getitem__):
                image.stage.store(value, (j + f * tile.edge) * k.lanes)

    _each_form(k, where.down, emit)


def _rows_forward(k: KernelBuilder, stage: Ptr, where: Where, v: Spectrum, target: Ptr) -> None:
    """Along the rows of a patch that went down its columns, into its row of V."""

    def emit(tile: WinogradTile) -> None:
        with k.range(0, where.down.count) as number:
            row = where.down.frequency(number)
            line, out = stage + row * (v.edge * k.lanes), target + v.step * v.edge * row
            values = [line.vec(i * k.lanes) for i in range(tile.count)]
            for f, value in forward(k, tile, values.__getitem__):
                out.store(value, v.step * f)

    _each_form(k, where.along, emit)


@dataclass(frozen=True, slots=True)
class WinogradResult:
    """The convolution's result before the store map.

    Attributes:
        epilogue: Finishes and stores vectors of channels.
        height, width: Extents.
        stage: Scratch for one tile of vectors.
        inline: Whether whole lines get their epilogue unrolled (short ones) or in a loop.
        apart: Distance of the rows and columns of a tile.
        far: Whether what the tile to the right writes is asked for while one is written.
    """

    epilogue: Epilogue
    height: Int
    width: Int
    stage: Ptr
    inline: bool
    apart: tuple[int, int]
    far: bool

    def shift(self, pixel: Pixel, rows: IntLike, columns: IntLike) -> Pixel:
        """The pixel that many rows and columns of a tile further."""
        return _shift(self.epilogue, pixel, rows * self.apart[0], columns * self.apart[1])

    def left(self, k: KernelBuilder, where: Where) -> tuple[Int, Int]:
        """How many rows and columns of the tile exist."""
        (_, h, w), (down, along) = where.at, self.apart
        rows = k.maximum_int(self.height - h, 0)
        columns = k.maximum_int(self.width - w, 0)
        if down * along > 1:
            rows, columns = (rows + (down - 1)) // down, (columns + (along - 1)) // along
        return k.minimum_int(rows, where.down.results), k.minimum_int(columns, where.along.results)


@dataclass(frozen=True, slots=True)
class _Target:
    """Where one vector of filters of one tile goes: first pixel, channels, pixels that exist."""

    corner: Pixel
    place: VectorPlace
    rows: Int
    columns: Int


def emit_output_tile(
    k: KernelBuilder, result: WinogradResult, where: Where, m: Spectrum, vectors: tuple[Int, Int]
) -> None:
    """Transform some vectors of filters of a tile and store their pixels.

    Args:
        k: Builder.
        result: Where pixels go.
        where: Which tile.
        m: Its products.
        vectors: Number of the first vector among all vectors of filters, and how many.
    """
    corner = result.epilogue.pixel(*where.at)
    rows, columns = result.left(k, where)
    with k.range(0, vectors[1]) as j:
        target = _Target(corner, result.epilogue.place(vectors[0] + j), rows, columns)
        _columns_inverse(k, result.stage, where, m, m.first + j * m.block)
        _rows_inverse(k, result, where, target)


def _columns_inverse(k: KernelBuilder, stage: Ptr, where: Where, m: Spectrum, source: Ptr) -> None:
    """Down the columns of a square of products, into scratch."""

    def emit(tile: WinogradTile) -> None:
        with k.range(0, where.along.count) as number:
            g = where.along.frequency(number)
            column = source + m.step * g
            values = {f: column.vec(m.step * (m.edge * f)) for f in tile.frequencies}
            for row, value in inverse(k, tile, values.__getitem__):
                stage.store(value, (g + m.edge * row) * k.lanes)

    _each_form(k, where.down, emit)


def _rows_inverse(k: KernelBuilder, result: WinogradResult, where: Where, target: _Target) -> None:
    """Along the rows of a tile, and the pixels that exist into the result."""

    def emit(tile: WinogradTile) -> None:
        with k.range(0, target.rows) as i:
            line = result.stage + i * (tile.edge * k.lanes)
            values = {f: line.vec(f * k.lanes) for f in tile.frequencies}
            found = inverse(k, tile, values.__getitem__)
            row = result.shift(target.corner, i, 0)
            if result.inline and tile.m == tile.base:
                with k.when_else(target.columns >= tile.m) as (then, other):
                    with then:
                        for j, value in found:
                            if result.far:
                                right = result.shift(row, 0, j + tile.m)
                                result.epilogue.fetch(right, target.place)
                            result.epilogue.finish(value, result.shift(row, 0, j), target.place)
                    with other:
                        _finish_line(k, result, row, target, line, found)
            else:
                _finish_line(k, result, row, target, line, found)

    _each_form(k, where.along, emit)


def _finish_line(
    k: KernelBuilder,
    result: WinogradResult,
    row: Pixel,
    target: _Target,
    line: Ptr,
    found: list[tuple[int, Vec]],
) -> None:
    """Store the pixels of a line that exist, in a loop, so that their epilogue is emitted once."""
    for column, value in found:
        line.store(value, column * k.lanes)
    with k.range(0, target.columns) as j:
        pixel = result.shift(row, 0, j)
        result.epilogue.finish(line.vec(j * k.lanes), pixel, target.place)


def _shift(epilogue: Epilogue, pixel: Pixel, rows: IntLike, columns: IntLike) -> Pixel:
    """The pixel that many rows and columns further; strides are multiplied once for all tiles."""
    operands = [
        None if offset is None else offset + strides[2] * rows + strides[3] * columns
        for offset, strides in zip(pixel.operands, epilogue.strides, strict=True)
    ]
    out = pixel.out + epilogue.out_h * rows + epilogue.out_w * columns
    return Pixel(out, tuple(operands))
