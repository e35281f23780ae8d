"""Blocks of channels in and out: images as the phases between want them, channels innermost.

gathered  [N, C, H, W] of any strides, some images and channels of it -> [n][h][w][c] dense
scatter   [position][c] in scratch -> channels whose positions are neighbours in memory
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr
from saccade.backends.cpu.codegen.values import Bool, Int, Mask, Vec
from saccade.backends.cpu.target import Target
from saccade.kernels.base import In, Launch, Temp, View
from saccade.kernels.cpu.floats import HALVES, lanes_of, load, narrow_pairs, store
from saccade.kernels.cpu.movement.copy_code import CopyConfig, copy_launch
from saccade.kernels.cpu.movement.register_shuffles import transpose

__all__ = [
    "NO_COPY",
    "PixelBlock",
    "at_once",
    "cached_blocks",
    "channel_vectors",
    "flat_planes",
    "kept_bins",
    "scatter_block",
]

_BINS = 128  # of a box in scratch, or a row of them

NO_COPY = CopyConfig("", 0, 0)
"""Of phases that copy nothing."""


def flat_planes(view: View) -> bool:
    """Whether the positions of each channel are neighbours in memory, first rows first."""
    _, _, h, w = view.shape
    # The stride along an axis of one element may be anything.
    return (view.strides[3] == 1 or w == 1) and (view.strides[2] == w or h == 1)


@dataclass(frozen=True, slots=True)
class PixelBlock:
    """A block of channels of some images, pixels as rows of channels.

    Attributes:
        view: All images and channels: input 0.
        place: Where it is read: there, or in a temporary that `gathered` fills.
        images, channels: First and last + 1.
    """

    view: View
    place: In | Temp
    images: tuple[int, int]
    channels: tuple[int, int]

    @property
    def strides(self) -> tuple[int, ...]:
        """Along [N, C, H, W], where it is read."""
        if isinstance(self.place, In):
            return self.view.strides
        (c0, c1), (_, _, h, w) = self.channels, self.view.shape
        return h * w * (c1 - c0), 1, w * (c1 - c0), c1 - c0

    @property
    def start(self) -> int:
        """Its first element, where it is read."""
        return self._first if isinstance(self.place, In) else 0

    @property
    def _first(self) -> int:
        return self.images[0] * self.view.strides[0] + self.channels[0] * self.view.strides[1]

    def gathered(self, target: Target, threads: int) -> Launch:
        """The phase that fills the temporary; its config is a `CopyConfig`."""
        assert isinstance(self.place, Temp), "read in the input itself"
        (n0, n1), (c0, c1), (_, _, h, w) = self.images, self.channels, self.view.shape
        return copy_launch(
            (n1 - n0, c1 - c0, h, w),
            self.strides,
            self.view.strides,
            self.view.dtype.itemsize,
            (self.place, In(0)),
            starts=(0, self._first),
            lanes=target.lanes,
            threads=threads,
        )


def cached_blocks(view: View, target: Target, least: int, temp: int) -> Iterator[PixelBlock]:
    """Ranges of images and of channels that half of the last-level cache holds together.

    Args:
        view: The images.
        target: Machine.
        least: Bytes of a pixel's channels in a block, where they are neighbours in memory.
        temp: Number of a temporary for the blocks, where channels are no neighbours.
    """
    n, channels, h, w = view.shape
    size = view.dtype.itemsize
    lanes = target.lanes * 4 // max(4, min(8, size))
    budget, pixels = target.l3 // 2, max(1, h * w)
    # A vector of channels at least, even if a single image is then larger than the budget.
    whole = max(lanes, budget // (pixels * size) // lanes * lanes)
    block = min(channels, max(whole, least // size if view.channels_last else lanes))
    group = max(1, budget // (pixels * block * size))
    here = view.channels_last or not view.size
    place = In(0) if here else Temp(temp, group * pixels * block * size)
    for first in range(0, max(1, n), group):
        images = (first, min(first + group, max(1, n)))
        for c in range(0, channels, block):
            yield PixelBlock(view, place, images, (c, min(c + block, channels)))


def kept_bins(bins: tuple[int, int], channels: int, lanes: int) -> tuple[int, int, int]:
    """What scratch keeps of a box at a time, for `scatter_block`.

    Args:
        bins: Of a box, down and along.
        channels: Of a bin.
        lanes: Side of the squares that are transposed; they reach past the last bin.

    Returns:
        Rows of bins, elements from bin to bin, and bins that there is room for.
    """
    rows, columns = bins
    tall = min(rows, max(1, _BINS // columns))
    return tall, -(-channels // lanes) * lanes, -(-tall * columns // lanes) * lanes


def channel_vectors(
    k: KernelBuilder, channels: Int, vectors: int, lanes: int
) -> Iterator[tuple[Int, int, Mask | None]]:
    """Loops over channels: so many vectors side by side, then one by one, with a mask.

    Yields:
        The first channel, the number of vectors, and which lanes exist: None for all.
    """
    whole = channels // (vectors * lanes) * (vectors * lanes)
    with k.range(0, whole, vectors * lanes) as c:
        yield c, vectors, None
    with k.range(whole, channels, lanes) as c:
        yield c, 1, k.first(channels - c, lanes)


def scatter_block(
    k: KernelBuilder,
    block: Ptr,
    pitch: Int,
    sizes: tuple[Int, Int],
    to: Ptr,
    channel_step: Int,
    element: str,
    some: Callable[[Int, int], Bool] | None = None,
) -> None:
    """Write a block of channels, position by position side by side.

    Elements of 16 bits are transposed in pairs of positions, which fill whole vectors.

    Args:
        k: Builder.
        block: Elements of `element`; it is read in squares of positions and channels.
        pitch: Elements from position to position.
        sizes: Positions and channels.
        to: The first position of the first channel.
        channel_step: Elements from channel to channel.
        element: Type of what is read, float32 or float64.
        some: Whether there is anything at so many positions from one on; where there is not, the
            block is not read (but for the last `at_once` positions), and zeros are written.
    """
    _Scatter(k, block, pitch, sizes, to, channel_step, element).emit(some)


@dataclass(frozen=True, slots=True)
class _Scatter:
    """The parameters of `scatter_block`."""

    k: KernelBuilder
    block: Ptr
    pitch: Int
    sizes: tuple[Int, Int]
    to: Ptr
    channel_step: Int
    element: str

    def emit(self, some: Callable[[Int, int], Bool] | None) -> None:
        k, (positions, channels) = self.k, self.sizes
        side, step = lanes_of(k, self.element), at_once(k, self.to.element, self.element)
        whole: Callable[[Int, Int], None] = self._square
        zeros = self._zeros
        if self.to.element in HALVES:
            whole, zeros = self._pairs, self._zero_pairs
        end = positions // step * step
        with k.range(0, channels, side) as c:
            with k.range(0, end, step) as first:
                if some is None:
                    whole(c, first)
                else:
                    with k.when_else(some(first, step)) as (then, other):
                        with then:
                            whole(c, first)
                        with other:
                            zeros(c, first)
            # The rest in squares under masks, which pairs of positions do not have.
            with k.range(end, positions, side) as first:
                self._square(c, first, positions - first)

    def _read(self, position: Int, c: Int) -> Vec:
        side = lanes_of(self.k, self.element)
        return load(self.k, self.block, position * self.pitch + c, side, self.element)

    def _each(self, c: Int, rows: Iterable[Vec]) -> Iterator[tuple[Int, Vec]]:
        """Where the channels' rows go."""
        for i, row in enumerate(rows):
            with self.k.when(c + i < self.sizes[1]):
                yield (c + i) * self.channel_step, row

    def _square(self, c: Int, first: Int, count: Int | None = None) -> None:
        k, side = self.k, lanes_of(self.k, self.element)
        mask = None if count is None else k.first(count, side)
        rows = transpose(k, [self._read(first + i, c) for i in range(side)])
        for at, row in self._each(c, rows):
            store(k, self.to, row, at + first, mask)

    def _zeros(self, c: Int, first: Int) -> None:
        k, side = self.k, lanes_of(self.k, self.element)
        for at, row in self._each(c, [k.zero(side, self.element)] * side):
            store(k, self.to, row, at + first)

    def _pairs(self, c: Int, first: Int) -> None:
        """Positions two by two, each pair in a word."""
        k, step = self.k, at_once(self.k, self.to.element, self.element)
        words = [
            narrow_pairs(k, self._read(first + i, c), self._read(first + i + 1, c), self.to.element)
            for i in range(0, step, 2)
        ]
        self._put_words(c, first, transpose(k, words))

    def _zero_pairs(self, c: Int, first: Int) -> None:
        side = lanes_of(self.k, self.element)
        self._put_words(c, first, [self.k.zero(side, self.element)] * side)

    def _put_words(self, c: Int, first: Int, words: Iterable[Vec]) -> None:
        k, step = self.k, at_once(self.k, self.to.element, self.element)
        # Words hold two elements that are rounded already.
        kind, bits = k.vector_type(step, "int16"), replace(self.to, element="int16")
        for at, row in self._each(c, words):
            bits.store(Vec(k.b, k.b.bitcast(row.value, kind)), at + first)


def at_once(k: KernelBuilder, out: str, element: str) -> int:
    """Positions of a channel that are written by one instruction."""
    return lanes_of(k, element) * (2 if out in HALVES else 1)
