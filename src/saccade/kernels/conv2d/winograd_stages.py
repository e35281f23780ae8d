"""Winograd's two transforms as loops over tiles: picture to V, then M to picture.

V is [frequency][block of channels][tile][channel of the block], M is [panel][frequency][tile]
[filter of the panel]. The distance of frequencies is a parameter: it is kept off multiples of
4 KiB, where the streams of a tile would share one set of the L1 cache.

A whole tile inside the picture goes through both dimensions in registers; tiles at the border of
the picture and shorter ones go through scratch, first down the columns, then along the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from saccade.kernels.conv2d.column_window import valid_taps
from saccade.kernels.conv2d.epilogue import Epilogue, Pixel, Place
from saccade.kernels.conv2d.winograd_tiles import At, Region
from saccade.kernels.conv2d.winograd_transforms import (
    forward,
    forward_square,
    inverse,
    inverse_square,
)

if TYPE_CHECKING:
    from saccade.codegen.language import Kernel, Ptr
    from saccade.codegen.values import Int, IntLike, Vec

__all__ = ["Picture", "Result", "Spectrum", "emit_input_tile", "emit_output_tile"]


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

    def at(self, down: IntLike, along: IntLike) -> Int:
        """Offset of a frequency."""
        return self.step * (down * self.edge + along)


@dataclass(frozen=True, slots=True)
class Picture:
    """The convolution's input: pixels of `channels` neighbouring elements.

    Attributes:
        x: First element.
        stage: Scratch for one vector of a patch, row by row.
        channels, height, width: Extents.
        strides: Elements between images, rows, columns.
        top, left: Padding.
        apart: Distance of the rows and columns of a patch.
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


def emit_input_tile(k: Kernel, picture: Picture, region: Region, at: At, v: Spectrum) -> None:
    """Transform the patch of the tile at `at`.

    Whole vectors of patches inside the picture are read where they are; of border patches and of
    the last channels what does not exist reads as zero. V's rows are padded to whole vectors.
    """
    h, w = at[1] - picture.top, at[2] - picture.left
    step_n, step_h, step_w = picture.strides
    corner = picture.x + (step_n * at[0] + step_h * h + step_w * w)
    down, along = picture.apart
    step_h, step_w = step_h * down, step_w * along
    done = k.int(0)
    if not region.bottom and not region.right:
        last = region.down.count - 1
        bottom, right = h + last * down, w + last * along
        inside = (h >= 0) & (w >= 0) & (bottom < picture.height) & (right < picture.width)
        done = inside.select(picture.channels - picture.channels % k.lanes, 0)
        with k.range(0, done, k.lanes) as c:
            target = v.first + c // k.lanes * v.block
            forward_square(
                k,
                region.down,
                lambda i, j: corner.vec(step_h * i + step_w * j + c),
                lambda f, g, value: target.store(value, v.at(f, g)),
            )
    with k.when(done < picture.channels):
        _emit_border(k, picture, region, (corner, h, w), v, done)


def _emit_border(
    k: Kernel, picture: Picture, region: Region, at: tuple[Ptr, Int, Int], v: Spectrum, done: Int
) -> None:
    """Channels from `done` on of a patch that may leave the picture."""
    (corner, h, w), (down, along) = at, (region.down, region.along)
    _, step_h, step_w = picture.strides
    apart = picture.apart
    stage, lanes, edge = picture.stage, k.lanes, v.edge
    low, high = valid_taps(k, w, picture.width, k.int(along.count), k.int(apart[1]))
    tops = [h + i * apart[0] for i in range(down.count)]
    exists = [(top >= 0) & (top < picture.height) for top in tops]
    with k.range(0, edge * edge) as i:
        stage.store(k.zero(), i * lanes)
    with k.range(done, picture.channels, lanes) as c:
        masks = [k.first(row.select(picture.channels - c, 0)) for row in exists]
        with k.range(low, high) as j:
            column = corner + (step_w * apart[1] * j + c)
            values = [column.vec(step_h * (i * apart[0]), mask) for i, mask in enumerate(masks)]
            for f, value in forward(k, down, values.__getitem__):
                stage.store(value, (j + f * edge) * lanes)
        target = v.first + c // lanes * v.block
        with k.range(down.first, down.first + down.count) as row:
            line = stage + row * (edge * lanes)
            for f, value in forward(k, along, lambda at: line.vec(at * lanes)):
                target.store(value, v.at(row, f))


@dataclass(frozen=True, slots=True)
class Result:
    """The convolution's result before the store map.

    Attributes:
        epilogue: Finishes and stores vectors of channels.
        height, width: Extents.
        stage: Scratch for one tile of vectors.
        inline: Whether whole tiles get their epilogue unrolled (short ones) or in a loop.
        apart: Distance of the rows and columns of a tile.
    """

    epilogue: Epilogue
    height: Int
    width: Int
    stage: Ptr
    inline: bool
    apart: tuple[int, int]

    def shift(self, pixel: Pixel, rows: IntLike, columns: IntLike) -> Pixel:
        """The pixel that many rows and columns of a tile further."""
        return _shift(self.epilogue, pixel, rows * self.apart[0], columns * self.apart[1])

    def left(self, k: Kernel, h: Int, w: Int) -> tuple[Int, Int]:
        """How many rows and columns of the tile that begins there exist."""
        down, along = self.apart
        rows = k.maximum_int(self.height - h, 0)
        columns = k.maximum_int(self.width - w, 0)
        if down * along > 1:
            rows, columns = (rows + (down - 1)) // down, (columns + (along - 1)) // along
        return rows, columns


@dataclass(frozen=True, slots=True)
class _Target:
    """Where one vector of filters of one tile goes: first pixel (twice) and channels."""

    at: At
    corner: Pixel
    place: Place


def emit_output_tile(
    k: Kernel, result: Result, region: Region, at: At, m: Spectrum, vectors: tuple[Int, Int]
) -> None:
    """Transform some vectors of filters of the tile at `at` and store their pixels.

    Args:
        k: Builder.
        result: Where pixels go.
        region: Form of the tile.
        at: Which tile.
        m: Its products.
        vectors: Number of the first vector among all vectors of filters, and how many.
    """
    corner = result.epilogue.pixel(*at)
    _, h, w = at
    rows, columns = result.left(k, h, w)
    edge = region.down.m
    with k.range(0, vectors[1]) as j:
        column = Spectrum(m.first + j * m.block, m.step, m.edge, 0)
        target = _Target(at, corner, result.epilogue.place(vectors[0] + j))
        if region.bottom or region.right or not result.inline:
            _store_staged(k, result, region, column, target)
        else:
            whole = (rows >= edge) & (columns >= edge)
            with k.when_else(whole) as (then, other):
                with then:
                    _store_inline(k, result, region, column, target)
                with other:
                    _store_staged(k, result, region, column, target)


def _store_inline(k: Kernel, result: Result, region: Region, m: Spectrum, target: _Target) -> None:
    """Store a whole tile from registers."""
    epilogue = result.epilogue

    def finish(i: int, j: int, value: Vec) -> None:
        epilogue.finish(value, result.shift(target.corner, i, j), target.place)

    inverse_square(k, region.down, lambda f, g: m.first.vec(m.at(f, g)), finish)


def _store_staged(k: Kernel, result: Result, region: Region, m: Spectrum, target: _Target) -> None:
    """Store the pixels of a tile that exist, in a loop, so that their epilogue is emitted once."""
    (_, h, w), stage, lanes, edge = target.at, result.stage, k.lanes, m.edge
    down, along = region.down, region.along
    with k.range(along.first, along.first + along.count) as g:
        for row, value in inverse(k, down, lambda f: m.first.vec(m.at(f, g))):
            stage.store(value, (g + edge * row) * lanes)
    rows, columns = result.left(k, h, w)
    rows, columns = k.minimum_int(rows, down.m), k.minimum_int(columns, along.m)
    with k.range(0, rows) as i:
        line = stage + i * (edge * lanes)
        for column, value in inverse(k, along, lambda f: line.vec(f * lanes)):
            line.store(value, column * lanes)
        with k.range(0, columns) as j:
            pixel = result.shift(target.corner, i, j)
            result.epilogue.finish(line.vec(j * lanes), pixel, target.place)


def _shift(epilogue: Epilogue, pixel: Pixel, rows: IntLike, columns: IntLike) -> Pixel:
    """The pixel that many rows and columns further; strides are multiplied once for all tiles."""
    operands = [
        None if offset is None else offset + strides[2] * rows + strides[3] * columns
        for offset, strides in zip(pixel.operands, epilogue.strides, strict=True)
    ]
    out = pixel.out + epilogue.out_h * rows + epilogue.out_w * columns
    return Pixel(out, tuple(operands))
