"""Copies images into dense blocks that products and samples read, and blocks back into images.

blocks     target[image, block, row, column] = source[image, first of the block + column, row],
           rows being pixels and columns channels, or the other way round; columns up to the
           pitch and some more rows are zeros
images     the way back, summed over parts
"""

from __future__ import annotations

from dataclasses import dataclass

from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr
from saccade.backends.cpu.codegen.values import Int, IntLike, Vec
from saccade.kernels.base import Launch, Operand, View
from saccade.kernels.cpu import floats
from saccade.kernels.cpu.deform.config import (
    DeformConfig,
    SampleGeometry,
    ceil_to,
    element_of,
    strides_of,
)
from saccade.kernels.cpu.matmul.operand_panels import transposed

__all__ = ["blocks_launch", "emit_blocks", "emit_images", "images_launch", "planes_launch"]

_BAND = 256
"""Rows of a chunk."""


@dataclass(frozen=True, slots=True)
class _Copy:
    """Integer parameters; strides are the image's."""

    image: Int
    column: Int
    row: Int
    blocks: Int
    unit: Int
    per: Int
    block: Int
    pitch: Int
    rows: Int
    extra: Int
    bands: Int
    parts: Int
    chunks: Int


@dataclass(frozen=True, slots=True)
class _Piece:
    """One chunk: a band of rows of a block."""

    feature_map: Ptr
    block: Ptr
    first: Int
    end: Int
    columns: Int


def _piece(k: KernelBuilder, c: _Copy, chunk: Int, feature_map: Ptr, block: Ptr) -> _Piece:
    place = chunk // c.bands
    first = (chunk - place * c.bands) * _BAND
    image = place // c.blocks
    number = place - image * c.blocks
    unit = number // c.per
    # A unit's last block may have fewer channels: blocks are whole vectors, units need not be.
    before = (number - unit * c.per) * c.block
    channel = unit * c.unit + before
    return _Piece(
        feature_map + (image * c.image + channel * c.column),
        block + place * (c.rows + c.extra) * c.pitch,
        first,
        k.minimum_int(first + _BAND, c.rows),
        k.minimum_int(c.unit - before, c.block),
    )


def emit_blocks(k: KernelBuilder, config: DeformConfig) -> None:
    """Images to blocks."""
    feature_map, target = k.pointer("feature_map", config.source), k.pointer("block", config.target)
    c = k.sizes(_Copy)
    with k.chunks(c.chunks) as chunk:
        p = _piece(k, c, chunk, feature_map, target)
        if config.form == "columns":
            _copy_rows(k, config, c, p)
        elif config.form == "rows":
            _transpose(k, config, c, p)
        else:
            _copy_elements(k, config, c, p)
        zero = k.zero(k.lanes, config.wide)
        # By the last band alone: images without pixels have one, too, as samples read this row.
        with k.when(p.end.equals(c.rows)):
            edge = p.block + c.rows * c.pitch
            with k.range(0, c.extra * c.pitch, k.lanes) as at:
                floats.store(k, edge, zero, at)


def _copy_rows(k: KernelBuilder, config: DeformConfig, c: _Copy, p: _Piece) -> None:
    """Columns are neighbours in the image."""
    with k.range(p.first, p.end) as row:
        source, target = p.feature_map + row * c.row, p.block + row * c.pitch
        with k.range(0, c.pitch, k.lanes) as at:
            # Masked lanes read as 0, which fills the row up to its pitch.
            inside = k.first(p.columns - at)
            value = floats.load(k, source, at, k.lanes, config.wide, inside)
            floats.store(k, target, value, at)


def _transpose(k: KernelBuilder, config: DeformConfig, c: _Copy, p: _Piece) -> None:
    """Rows are neighbours in the image: squares of vectors."""
    with k.range(p.first, p.end, k.lanes) as row, k.range(0, c.pitch, k.lanes) as column:
        vectors = []
        for j in range(k.lanes):
            # A column that is not there: an address inside the image, and a mask of no lanes.
            there = (column + j) < p.columns
            inside = k.first(there.select(p.end - row, 0))
            place = p.feature_map + there.select(column + j, 0) * c.column
            vectors.append(floats.load(k, place, row, k.lanes, config.wide, inside))
        for i, value in enumerate(transposed(k, vectors)):
            # Behind the band lie rows of another chunk.
            with k.when(row + i < p.end):
                floats.store(k, p.block, value, (row + i) * c.pitch + column)


def _copy_elements(k: KernelBuilder, config: DeformConfig, c: _Copy, p: _Piece) -> None:
    with k.range(p.first, p.end) as row, k.range(0, c.pitch) as column:
        there = column < p.columns
        at = row * c.row + there.select(column, 0) * c.column
        value = floats.load_one(k, p.feature_map, at, config.wide)
        zero = k.zero(1, config.wide)
        # Selected, not multiplied by 0: what was read may be infinite or NaN.
        kept = Vec(k.b, k.b.select(there.value, value.value, zero.value))
        floats.store(k, p.block, kept, row * c.pitch + column)


def emit_images(k: KernelBuilder, config: DeformConfig) -> None:
    """Blocks to images: rows are pixels."""
    block, feature_map = k.pointer("block", config.wide), k.pointer("feature_map", config.target)
    c = k.sizes(_Copy)
    with k.chunks(c.chunks) as chunk:
        p = _piece(k, c, chunk, feature_map, block)
        # A part has the blocks of all images.
        apart = c.chunks // c.bands * (c.rows + c.extra) * c.pitch
        across = k.range(0, p.columns, k.lanes)
        with k.range(p.first, p.end, k.lanes) as row, across as column:
            # Squares are read whole: rows behind the last one repeat it and are not stored.
            numbers = [k.minimum_int(row + i, p.end - 1) for i in range(k.lanes)]
            rows = [p.block + (number * c.pitch + column) for number in numbers]
            store_square(
                k, config.form, [_total(k, place, c.parts, apart) for place in rows], p.feature_map,
                (c.column, c.row), (row, column), (p.end - row, p.columns - column),
            )  # fmt: skip


def _total(k: KernelBuilder, place: Ptr, parts: Int, apart: Int) -> Vec:
    """The sum of a vector's parts, in their order."""
    total = k.var(place.vec(0, None, k.lanes))
    with k.range(1, parts) as part:
        total.set(total.get() + place.vec(part * apart, None, k.lanes))
    value: Vec = total.get()
    return value


def store_square(
    k: KernelBuilder, form: str, square: list[Vec], feature_map: Ptr, strides: tuple[Int, Int],
    place: tuple[IntLike, IntLike], left: tuple[Int, Int],
) -> None:  # fmt: skip
    """Vectors of channels, one for each of neighbouring pixels, into an image.

    Args:
        k: Builder.
        form: `columns` where channels are neighbours in memory, `rows` where pixels are, else "".
        square: As many as a vector has lanes.
        feature_map: Its first pixel and channel.
        strides: Elements from channel to channel and from pixel to pixel.
        place: The square's first pixel and channel.
        left: Pixels and channels from there on.
    """
    (by_channel, by_pixel), (pixel, channel) = strides, place
    if form == "columns":
        inside = k.first(left[1])
        for i, value in enumerate(square):
            with k.when(left[0] > i):
                floats.store(k, feature_map, value, (pixel + i) * by_pixel + channel, inside)
        return
    inside = k.first(left[0])
    for j, value in enumerate(transposed(k, square)):
        with k.when(left[1] > j):
            start = feature_map + (channel + j) * by_channel
            if form == "rows":
                floats.store(k, start, value, pixel, inside)
            else:
                for i in range(k.lanes):
                    with k.when(left[0] > i):
                        floats.store(k, start, k.extract(value, i), (pixel + i) * by_pixel)


def form_of(view: View) -> str:
    """How channels and pixels of an image lie."""
    _, channel, pixel = strides_of(view)
    # A single channel's stride says nothing: its pixels decide.
    if channel == 1 or (view.shape[1] == 1 and pixel != 1):
        return "columns"
    return "rows" if pixel == 1 else ""


def blocks_launch(
    view: View, source: Operand, target: Operand, element: str, g: SampleGeometry,
    *, units: tuple[int, int, int, int], pitch: int, extra: int, wide: str,
) -> Launch:  # fmt: skip
    """The phase that makes blocks of an image, pixels as rows.

    Args:
        view: The image.
        source: Operand.
        target: Operand.
        element: The target's elements.
        g: Sizes.
        units: Blocks of an image, channels of a unit, its blocks, channels of a block.
        pitch: Channels of a row of the target.
        extra: Rows of zeros behind the pixels.
        wide: Elements of registers.
    """
    image, channel, pixel = strides_of(view)
    rows = view.shape[2] * view.shape[3]
    form = form_of(view)
    config = DeformConfig("blocks", element_of(view), element, wide, form=form)
    bands = max(1, -(-rows // _BAND))
    chunks = g.images * units[0] * bands
    steps = {"image": image, "column": 1 if form == "columns" else channel, "row": pixel}
    parts = {"pitch": pitch, "rows": rows, "extra": extra, "bands": bands, "parts": 1}
    integers = {**steps, **_units(*units), **parts, "chunks": chunks}
    return Launch(config, {"feature_map": source, "block": target}, integers, chunks)


def _units(blocks: int, unit: int, per: int, block: int) -> dict[str, int]:
    """Blocks of an image, channels of a unit, its blocks, channels of a block."""
    return {"blocks": blocks, "unit": unit, "per": per, "block": block}


def planes_launch(
    view: View, source: Operand, target: Operand, element: str, g: SampleGeometry,
    *, pitch: int, wide: str,
) -> Launch:  # fmt: skip
    """The phase that copies an image by channels, its pixels padded with zeros to a pitch."""
    image, channel, pixel = strides_of(view)
    count, channels = view.shape[2] * view.shape[3], view.shape[1]
    form = {"columns": "rows", "rows": "columns", "": ""}[form_of(view)]
    config = DeformConfig("blocks", element_of(view), element, wide, form=form)
    bands = max(1, -(-channels // _BAND))
    chunks = g.images * bands
    steps = {"image": image, "column": pixel, "row": channel}
    parts = {"pitch": pitch, "rows": channels, "extra": 0, "bands": bands, "parts": 1}
    integers = {**steps, **_units(1, count, 1, count), **parts, "chunks": chunks}
    return Launch(config, {"feature_map": source, "block": target}, integers, chunks)


def images_launch(
    view: View, source: Operand, target: Operand, g: SampleGeometry, *, parts: int, wide: str
) -> Launch:
    """The phase that sums parts of blocks into an image."""
    image, channel, pixel = strides_of(view)
    rows = view.shape[2] * view.shape[3]
    form = form_of(view)
    config = DeformConfig("images", "", element_of(view), wide, form=form)
    bands = -(-rows // _BAND)
    chunks = g.images * g.blocks * bands
    steps = {"image": image, "column": 1 if form == "columns" else channel, "row": pixel}
    cut = {"pitch": g.pitch, "rows": rows, "extra": 1, "bands": bands, "parts": parts}
    integers = {**steps, **_units(g.blocks, g.unit, g.per, g.block), **cut, "chunks": chunks}
    return Launch(config, {"block": source, "feature_map": target}, integers, chunks)


def planes_pitch(pixels: int, unit: int) -> int:
    """Elements from plane to plane: an odd number of units, so that planes share no cache set."""
    return (ceil_to(max(1, pixels), unit) // unit | 1) * unit
