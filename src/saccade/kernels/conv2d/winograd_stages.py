"""Winograd's two transforms as loops over tiles: picture to V, then M to picture.

V is [frequency][tile][channel], M is [panel][frequency][tile][filter of the panel]. The distance
of frequencies is a parameter: it is kept off multiples of 4 KiB, where the (m+2)² streams of a tile
would share one set of the L1 cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from saccade.kernels.conv2d.epilogue import Epilogue, Pixel, Place
from saccade.kernels.conv2d.winograd_transforms import forward_square, inverse_square

if TYPE_CHECKING:
    from saccade.codegen.language import Kernel, Ptr
    from saccade.codegen.values import Int, IntLike, Vec

__all__ = ["Picture", "Result", "Spectrum", "Tiling", "emit_input_tile", "emit_output_tile"]

At = tuple["Int", "Int", "Int"]  # image, row and column of a tile's first output pixel


@dataclass(frozen=True, slots=True)
class Tiling:
    """How tiles are numbered: image by image, row by row.

    Attributes:
        m: Edge of a tile.
        columns: Tiles side by side in an image.
        per_image: Tiles in an image.
    """

    m: int
    columns: Int
    per_image: Int

    def pixel(self, tile: Int) -> At:
        """Where a tile begins."""
        n = tile // self.per_image
        within = tile - n * self.per_image
        row = within // self.columns
        return n, row * self.m, (within - row * self.columns) * self.m


@dataclass(frozen=True, slots=True)
class Spectrum:
    """One tile's row of V or M: the elements of frequency f begin at `first + f · step`."""

    first: Ptr
    step: Int


@dataclass(frozen=True, slots=True)
class Picture:
    """The convolution's input: pixels of `channels` neighbouring elements.

    Attributes:
        m: Edge of a tile.
        x: First element.
        patch: Scratch for one vector of a patch, (m+2)² vectors.
        channels, height, width: Extents.
        strides: Elements between images, rows, columns.
        top, left: Padding.
    """

    m: int
    x: Ptr
    patch: Ptr
    channels: Int
    height: Int
    width: Int
    strides: tuple[Int, Int, Int]
    top: Int
    left: Int


def emit_input_tile(k: Kernel, picture: Picture, at: At, v: Spectrum) -> None:
    """Transform the patch of the tile at `at`.

    Whole vectors of patches inside the picture are read where they are; of border patches and of
    the last channels what exists is first copied between zeros. V's rows are padded to whole
    vectors.
    """
    edge = picture.m + 2
    h, w = at[1] - picture.top, at[2] - picture.left
    rows, columns = _valid(k, h, picture.height, edge), _valid(k, w, picture.width, edge)
    inside = (h >= 0) & (w >= 0) & (h + edge <= picture.height) & (w + edge <= picture.width)
    step_n, step_h, step_w = picture.strides
    corner = picture.x + (step_n * at[0] + step_h * h + step_w * w)
    with k.when(~inside), k.range(0, edge * edge) as i:
        picture.patch.store(k.zero(), i * k.lanes)
    with k.range(0, picture.channels, k.lanes) as c:
        direct = inside & (c + k.lanes <= picture.channels)
        with k.when(~direct):
            mask = k.first(picture.channels - c)
            with k.range(*rows) as i, k.range(*columns) as j:
                value = corner.vec(step_h * i + step_w * j + c, mask)
                picture.patch.store(value, (i * edge + j) * k.lanes)
        source = k.pick(direct, corner + c, picture.patch)
        down, along = direct.select(step_h, edge * k.lanes), direct.select(step_w, k.lanes)
        patch = [[source.vec(down * i + along * j) for j in range(edge)] for i in range(edge)]
        for r, row in enumerate(forward_square(k, picture.m, patch)):
            for s, value in enumerate(row):
                v.first.store(value, v.step * (r * edge + s) + c)


def _valid(k: Kernel, first: Int, size: Int, count: int) -> tuple[Int, Int]:
    """Which of `count` positions from `first` on lie in 0 … size-1."""
    low = k.minimum_int(k.maximum_int(-first, 0), count)
    return low, k.minimum_int(k.maximum_int(size - first, 0), count)


@dataclass(frozen=True, slots=True)
class Result:
    """The convolution's result before the store map.

    Attributes:
        m: Edge of a tile.
        epilogue: Finishes and stores vectors of channels.
        height, width: Extents.
        stage: Scratch for one tile of vectors.
        inline: Whether whole tiles get their epilogue unrolled (short ones) or in a loop.
    """

    m: int
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
    k: Kernel, result: Result, at: At, m: Spectrum, vectors: tuple[Int, Int]
) -> None:
    """Transform some vectors of filters of the tile at `at` and store their pixels.

    Args:
        k: Builder.
        result: Where pixels go.
        at: Which tile.
        m: Its products.
        vectors: Number of the first vector among all vectors of filters, and how many.
    """
    edge = result.m + 2
    corner = result.epilogue.pixel(*at)
    with k.range(0, vectors[1]) as j:
        column = m.first + j * k.lanes
        values = [[column.vec(m.step * (i * edge + q)) for q in range(edge)] for i in range(edge)]
        pixels = inverse_square(k, result.m, values)
        target = _Target(at, corner, result.epilogue.place(vectors[0] + j))
        if result.inline:
            _store_inline(k, result, pixels, target)
        else:
            _store_staged(k, result, pixels, target)


def _store_inline(k: Kernel, result: Result, pixels: list[list[Vec]], target: _Target) -> None:
    """Store a whole tile from registers, a partial one by `_store_staged`."""
    edge, (_, h, w) = result.m, target.at
    whole = (h + edge <= result.height) & (w + edge <= result.width)
    with k.when_else(whole) as (then, other):
        with then:
            for i, line in enumerate(pixels):
                for j, value in enumerate(line):
                    pixel = _shift(result.epilogue, target.corner, i, j)
                    result.epilogue.finish(value, pixel, target.place)
        with other:
            _store_staged(k, result, pixels, target)


def _store_staged(k: Kernel, result: Result, pixels: list[list[Vec]], target: _Target) -> None:
    """Store the pixels of a tile that exist, in a loop, so that their epilogue is emitted once."""
    edge, (_, h, w) = result.m, target.at
    for r, line in enumerate(pixels):
        for s, value in enumerate(line):
            result.stage.store(value, (r * edge + s) * k.lanes)
    rows = k.minimum_int(result.height - h, edge)
    columns = k.minimum_int(result.width - w, edge)
    with k.range(0, rows) as i, k.range(0, columns) as j:
        value = result.stage.vec((i * edge + j) * k.lanes)
        pixel = _shift(result.epilogue, target.corner, i, j)
        result.epilogue.finish(value, pixel, target.place)


def _shift(epilogue: Epilogue, pixel: Pixel, rows: IntLike, columns: IntLike) -> Pixel:
    """The pixel that many rows and columns further; strides are multiplied once for all tiles."""
    operands = [
        None if offset is None else offset + strides[2] * rows + strides[3] * columns
        for offset, strides in zip(pixel.operands, epilogue.strides, strict=True)
    ]
    out = pixel.out + epilogue.out_h * rows + epilogue.out_w * columns
    return Pixel(out, tuple(operands))
