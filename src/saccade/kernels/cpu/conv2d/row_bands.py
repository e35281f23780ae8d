"""Convolutions that walk the rows of their result: their sizes, their windows, their chunks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.backends.cpu.codegen.values import Int, IntLike
from saccade.kernels.base import View, image_strides
from saccade.kernels.cpu.conv2d.column_window import valid_taps
from saccade.opdefs import Conv2d

__all__ = [
    "Band",
    "RowBands",
    "WindowSizes",
    "band_integers",
    "split_bands",
    "window_integers",
]


@dataclass(frozen=True, slots=True)
class Band:
    """A chunk: first row of a band of an image of the result, and which part of the band."""

    image: Int
    low: Int
    part: Int


@dataclass(frozen=True, slots=True)
class WindowSizes:
    """Integer parameters; a kernel derives its sizes from these and adds its own.

    Attributes:
        images, rows, columns: Extents of the result.
        height, width: Extents of the image.
        x_n, x_c, x_h, x_w: Elements between its images, channels, rows, columns.
        top, left: Padding.
        taps, stride, dilation: Of the convolution, from row to row. Along the row they are part of
            the code.
    """

    images: Int
    rows: Int
    columns: Int
    height: Int
    width: Int
    x_n: Int
    x_c: Int
    x_h: Int
    x_w: Int
    top: Int
    left: Int
    taps: Int
    stride: Int
    dilation: Int

    def window(self, k: KernelBuilder, row: Int) -> tuple[Int, tuple[Int, Int]]:
        """First row of the image under a row's windows, and the taps that fall on the image."""
        h = row * self.stride - self.top
        return h, valid_taps(k, h, self.height, self.taps, self.dilation)


@dataclass(frozen=True, slots=True)
class RowBands(WindowSizes):
    """The same where chunks are bands of rows of the result.

    Attributes:
        band: Rows of the result in a chunk.
    """

    band: Int

    @contextmanager
    def chunks(self, k: KernelBuilder, parts: IntLike = 1) -> Iterator[Band]:
        """Claim chunks: every band of every image in so many parts, neighbours of each other."""
        bands = (self.rows + self.band - 1) // self.band
        with k.chunks(self.images * bands * parts) as chunk:
            above = chunk // parts
            image = above // bands
            yield Band(image, (above - image * bands) * self.band, chunk - above * parts)

    def end(self, k: KernelBuilder, band: Band) -> Int:
        """One past the last row of a band."""
        return k.minimum_int(band.low + self.band, self.rows)


def window_integers(conv: Conv2d, x: View, taps: int, result: tuple[int, ...]) -> dict[str, int]:
    """The values of `WindowSizes`.

    Args:
        conv: The convolution.
        x: Its image.
        taps: Rows of a window.
        result: Shape of its sums.
    """
    images, _, rows, columns = result
    return {
        "images": images,
        "rows": rows,
        "columns": columns,
        "height": x.shape[2],
        "width": x.shape[3],
        **image_strides("x", x.strides, "nchw"),
        "top": conv.padding[0],
        "left": conv.padding[1],
        "taps": taps,
        "stride": conv.stride[0],
        "dilation": conv.dilation[0],
    }


def band_integers(
    conv: Conv2d, x: View, taps: int, result: tuple[int, ...], band: int
) -> dict[str, int]:
    """The values of `RowBands`: those of `WindowSizes`, and the rows of a chunk."""
    found = window_integers(conv, x, taps, result)
    found["band"] = band
    return found


def split_bands(rows: int, vectors: int, threads: int) -> tuple[int, int]:
    """Rows in a band and vectors of channels in a block, for chunks of so many threads.

    A thread's share is a part of the image: producers and consumers share theirs out likewise.
    """
    if threads == 1:
        return max(1, rows), vectors
    tall = rows >= 8 * threads
    bands = 2 * threads if tall else threads if rows >= 2 * threads else 1
    blocks = max(1, min(3 if tall else 6, vectors // (2 if tall else 4)))
    return max(1, -(-rows // bands)), -(-vectors // blocks)
