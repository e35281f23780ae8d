"""Winograd's two transforms as loops over tiles: picture to V before the matrix products, M to picture after them.

V is [frequency][tile][channel], M is [panel][frequency][tile][filter of the panel]. The distance of frequencies is a
parameter: it is kept off multiples of 4 KiB, where the (m+2)² streams of a tile would share one set of the L1 cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from saccade.kernels.conv2d.epilogue import Epilogue, Pixel, Place
from saccade.kernels.conv2d.winograd_transforms import forward_square, inverse_square

if TYPE_CHECKING:
    from saccade.codegen.language import Kernel, Ptr
    from saccade.codegen.values import Int, IntLike, Vec

__all__ = ["Picture", "Result", "Tiling", "emit_input_tile", "emit_output_tile"]


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

    def pixel(self, tile: Int) -> tuple[Int, Int, Int]:
        """Image and first output pixel of a tile."""
        n = tile // self.per_image
        within = tile - n * self.per_image
        row = within // self.columns
        return n, row * self.m, (within - row * self.columns) * self.m


@dataclass(frozen=True, slots=True)
class Picture:
    """The convolution's input: pixels of `channels` neighbouring elements.

    Attributes:
        x: First element.
        patch: Scratch for one vector of a patch, `patch_vectors` vectors.
        channels, height, width: Extents.
        strides: Elements between images, rows, columns.
        top, left: Padding.
    """

    x: Ptr
    patch: Ptr
    channels: Int
    height: Int
    width: Int
    strides: tuple[Int, Int, Int]
    top: Int
    left: Int


def emit_input_tile(
    k: Kernel, tiling: Tiling, picture: Picture, tile: Int, v: Ptr, frequency: Int
) -> None:
    """Transform one patch into `v` (its row of V), `frequency` elements from frequency to frequency.

    Whole vectors of patches inside the picture are read where they are; of border patches and of the last channels
    what exists is first copied between zeros. V's rows are padded to whole vectors.
    """
    edge = tiling.m + 2
    n, h, w = tiling.pixel(tile)
    h, w = h - picture.top, w - picture.left
    rows, columns = _valid(k, h, picture.height, edge), _valid(k, w, picture.width, edge)
    inside = (h >= 0) & (w >= 0) & (h + edge <= picture.height) & (w + edge <= picture.width)
    step_n, step_h, step_w = picture.strides
    corner = picture.x + (step_n * n + step_h * h + step_w * w)
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
        for i, row in enumerate(forward_square(k, tiling.m, patch)):
            for j, value in enumerate(row):
                v.store(value, frequency * (i * edge + j) + c)


def _valid(k: Kernel, first: Int, size: Int, count: int) -> tuple[Int, Int]:
    """Which of `count` positions from `first` on lie in 0 … size-1."""
    low = k.minimum_int(k.maximum_int(0 - first, 0), count)
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


def emit_output_tile(
    k: Kernel, tiling: Tiling, result: Result, m: Ptr, tile: Int, vectors: tuple[Int, Int],
    frequency: Int,
) -> None:  # fmt: skip
    """Transform some vectors of filters of one tile and store their pixels.

    Args:
        k: Builder.
        tiling: Numbering of tiles.
        result: Where pixels go.
        m: The tile's row of M.
        tile: Its number.
        vectors: Number of the row's first vector among the filters, and how many.
        frequency: Elements of M from frequency to frequency.
    """
    edge = tiling.m + 2
    n, h, w = tiling.pixel(tile)
    corner = result.epilogue.pixel(n, h, w)
    with k.range(0, vectors[1]) as j:
        column = m + j * k.lanes
        values = [[column.vec(frequency * (i * edge + q)) for q in range(edge)] for i in range(edge)]
        pixels = inverse_square(k, tiling.m, values)
        place = result.epilogue.place(vectors[0] + j)
        if result.inline:
            _store_inline(k, result, pixels, corner, place, (h, w))
        else:
            _store_staged(k, result, pixels, corner, place, (h, w))


def _store_inline(
    k: Kernel, result: Result, pixels: list[list[Vec]], corner: Pixel, place: Place, at: tuple[Int, Int]
) -> None:  # fmt: skip
    """Store a whole tile from registers, a partial one by `_store_staged`."""
    edge = len(pixels)
    whole = (at[0] + edge <= result.height) & (at[1] + edge <= result.width)
    with k.when_else(whole) as (then, other):
        with then:
            for i, line in enumerate(pixels):
                for j, value in enumerate(line):
                    pixel = _shift(result.epilogue, corner, i, j)
                    result.epilogue.finish(value, pixel, place)
        with other:
            _store_staged(k, result, pixels, corner, place, at)


def _store_staged(
    k: Kernel, result: Result, pixels: list[list[Vec]], corner: Pixel, place: Place, at: tuple[Int, Int]
) -> None:  # fmt: skip
    """Store the pixels of a tile that exist, in a loop, so that their epilogue is emitted once."""
    edge = len(pixels)
    for i, line in enumerate(pixels):
        for j, value in enumerate(line):
            result.stage.store(value, (i * edge + j) * k.lanes)
    rows = k.minimum_int(result.height - at[0], edge)
    columns = k.minimum_int(result.width - at[1], edge)
    with k.range(0, rows) as i, k.range(0, columns) as j:
        value = result.stage.vec((i * edge + j) * k.lanes)
        result.epilogue.finish(value, _shift(result.epilogue, corner, i, j), place)


def _shift(epilogue: Epilogue, pixel: Pixel, rows: IntLike, columns: IntLike) -> Pixel:
    """The pixel that many rows and columns further; strides are multiplied once for all tiles."""
    operands = [
        None if offset is None else offset + strides[2] * rows + strides[3] * columns
        for offset, strides in zip(pixel.operands, epilogue.strides, strict=True)
    ]
    out = pixel.out + epilogue.out_h * rows + epilogue.out_w * columns
    return Pixel(out, tuple(operands))
