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
    """

    x: Ptr
    stage: Ptr
    channels: Int
    height: Int
    width: Int
    strides: tuple[Int, Int, Int]
    top: Int
    left: Int


def emit_input_tile(k: Kernel, picture: Picture, region: Region, at: At, v: Spectrum) -> None:
    """Transform the patch of the tile at `at`.

    Whole vectors of patches inside the picture are read where they are; of border patches and of
    the last channels what does not exist reads as zero. V's rows are padded to whole vectors.
    """
    h, w = at[1] - picture.top, at[2] - picture.left
    step_n, step_h, step_w = picture.strides
    corner = picture.x + (step_n * at[0] + step_h * h + step_w * w)
    done = k.int(0)
    if not region.bottom and not region.right:
        edge = region.down.count
        inside = (h >= 0) & (w >= 0) & (h + edge <= picture.height) & (w + edge <= picture.width)
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
    stage, lanes, edge = picture.stage, k.lanes, v.edge
    low, high = _valid(k, w, picture.width, along.count)
    exists = [(h + i >= 0) & (h + i < picture.height) for i in range(down.count)]
    with k.range(0, edge * edge) as i:
        stage.store(k.zero(), i * lanes)
    with k.range(done, picture.channels, lanes) as c:
        masks = [k.first(row.select(picture.channels - c, 0)) for row in exists]
        with k.range(low, high) as j:
            column = corner + (step_w * j + c)
            values = [column.vec(step_h * i, mask) for i, mask in enumerate(masks)]
            for f, value in forward(k, down, values.__getitem__):
                stage.store(value, (j + f * edge) * lanes)
        target = v.first + c // lanes * v.block
        with k.range(down.first, down.first + down.count) as row:
            line = stage + row * (edge * lanes)
            for f, value in forward(k, along, lambda at: line.vec(at * lanes)):
                target.store(value, v.at(row, f))


def _valid(k: Kernel, first: Int, size: Int, count: int) -> tuple[Int, Int]:
    """Which of `count` positions from `first` on lie in 0 … size-1."""
    low = k.minimum_int(k.maximum_int(-first, 0), count)
    return low, k.minimum_int(k.maximum_int(size - first, 0), count)


@dataclass(frozen=True, slots=True)
class Result:
    """The convolution's result before the store map.

    Attributes:
        epilogue: Finishes and stores vectors of channels.
        height, width: Extents.
        stage: Scratch for one tile of vectors.
        inline: Whether whole tiles get their epilogue unrolled (short ones) or in a loop.
    """

    epilogue: Epilogue
    height: Int
    width: Int
    stage: Ptr
    inline: bool


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
    edge = region.down.m
    with k.range(0, vectors[1]) as j:
        column = Spectrum(m.first + j * m.block, m.step, m.edge, 0)
        target = _Target(at, corner, result.epilogue.place(vectors[0] + j))
        if region.bottom or region.right or not result.inline:
            _store_staged(k, result, region, column, target)
        else:
            whole = (h + edge <= result.height) & (w + edge <= result.width)
            with k.when_else(whole) as (then, other):
                with then:
                    _store_inline(k, result, region, column, target)
                with other:
                    _store_staged(k, result, region, column, target)


def _store_inline(k: Kernel, result: Result, region: Region, m: Spectrum, target: _Target) -> None:
    """Store a whole tile from registers."""
    epilogue = result.epilogue

    def finish(i: int, j: int, value: Vec) -> None:
        epilogue.finish(value, _shift(epilogue, target.corner, i, j), target.place)

    inverse_square(k, region.down, lambda f, g: m.first.vec(m.at(f, g)), finish)


def _store_staged(k: Kernel, result: Result, region: Region, m: Spectrum, target: _Target) -> None:
    """Store the pixels of a tile that exist, in a loop, so that their epilogue is emitted once."""
    (_, h, w), stage, lanes, edge = target.at, result.stage, k.lanes, m.edge
    down, along = region.down, region.along
    with k.range(along.first, along.first + along.count) as g:
        for row, value in inverse(k, down, lambda f: m.first.vec(m.at(f, g))):
            stage.store(value, (g + edge * row) * lanes)
    rows = k.minimum_int(result.height - h, down.m)
    columns = k.minimum_int(result.width - w, along.m)
    with k.range(0, rows) as i:
        line = stage + i * (edge * lanes)
        for column, value in inverse(k, along, lambda f: line.vec(f * lanes)):
            line.store(value, column * lanes)
        with k.range(0, columns) as j:
            pixel = _shift(result.epilogue, target.corner, i, j)
            result.epilogue.finish(line.vec(j * lanes), pixel, target.place)


def _shift(epilogue: Epilogue, pixel: Pixel, rows: IntLike, columns: IntLike) -> Pixel:
    """The pixel that many rows and columns further; strides are multiplied once for all tiles."""
    operands = [
        None if offset is None else offset + strides[2] * rows + strides[3] * columns
        for offset, strides in zip(pixel.operands, epilogue.strides, strict=True)
    ]
    out = pixel.out + epilogue.out_h * rows + epilogue.out_w * columns
    return Pixel(out, tuple(operands))
