"""Blocks of channels as dense planes, for phases that walk one channel at a time.

    in     operand [N, C, H, W] of any strides -> temporary [n][c][h][w]
    out    temporary [n][c][h][w] -> result [N, C, H, W] of any strides

What has dense planes already is used where it lies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from saccade.backends.cpu.target import Target
from saccade.kernels.base import Launch, Operand, Temp, View
from saccade.kernels.cpu.base import CpuCall
from saccade.kernels.cpu.movement.copy_code import copy_launch
from saccade.kernels.cpu.roi.channel_blocks import flat_planes

__all__ = ["Planar", "channel_blocks", "image_blocks"]

_LEAST = 16  # channels of a block: whole lines of channels-last images
_LINE = 64  # bytes
_PADDED = 64  # lines of a plane from which on one more is not noticed


@dataclass(frozen=True, slots=True)
class Planar:
    """A block of channels of an operand or a result.

    Attributes:
        view, operand: All of it.
        temp: Where its planes are put if they are not dense.
        channels: First and last + 1.
        images: The same, or None for all.
        lines: Whether rows of the temporary begin cache lines.
    """

    view: View
    operand: Operand
    temp: int
    channels: tuple[int, int]
    images: tuple[int, int] | None = None
    lines: bool = False

    @property
    def _shape(self) -> tuple[int, int, int, int]:
        _, _, h, w = self.view.shape
        (first, last), (c0, c1) = self.block
        return last - first, c1 - c0, h, w

    @property
    def _start(self) -> int:
        image, channel, *_ = self.view.strides
        (first, _), (c0, _) = self.block
        return first * image + c0 * channel

    @property
    def block(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Images and channels."""
        return self.images or (0, self.view.shape[0]), self.channels

    @property
    def place(self) -> Operand:
        """Where the planes are."""
        if flat_planes(self.view):
            return self.operand
        n, count, _, _ = self._shape
        return Temp(self.temp, n * count * self.pitch * self.view.dtype.itemsize)

    @property
    def steps(self) -> tuple[int, int, int]:
        """From image to image, from channel to channel, and to the block's first element."""
        if flat_planes(self.view):
            image, channel, *_ = self.view.strides
            return image, channel, self._start
        count = self._shape[1]
        return count * self.pitch, self.pitch, 0

    @property
    def row(self) -> int:
        """Elements from row to row of a plane."""
        _, _, _, w = self._shape
        line = _LINE // self.view.dtype.itemsize
        return -(-w // line) * line if self.lines and not flat_planes(self.view) else w

    @property
    def pitch(self) -> int:
        """Elements from plane to plane of the temporary.

        Large planes lie an odd number of cache lines apart, so that the same pixel of neighbouring
        channels does not come to lie in a few of the caches' sets.
        """
        dense, line = self._shape[2] * self.row, _LINE // self.view.dtype.itemsize
        lines = -(-dense // line)
        return (lines | 1) * line if self.lines or lines >= _PADDED else dense

    def copied(self, target: Target, threads: int, *, back: bool = False) -> Launch | None:
        """The phase that fills the temporary, or empties it; None where there is nothing to do."""
        n, count, h, w = self._shape
        if flat_planes(self.view) or 0 in self._shape:
            return None
        planes = (count * self.pitch, self.pitch, self.row, 1)
        sides = (planes, 0, self.place), (self.view.strides, self._start, self.operand)
        to, source = sides[::-1] if back else sides
        return copy_launch(
            (n, count, h, w),
            to[0],
            source[0],
            self.view.dtype.itemsize,
            (to[2], source[2]),
            starts=(to[1], source[1]),
            lanes=target.lanes,
            threads=threads,
        )


def channel_blocks(call: CpuCall, views: Iterable[View], channels: int) -> list[tuple[int, int]]:
    """Channels in blocks whose copies stay in the last-level cache; views have as many channels."""
    copied = [view for view in views if not flat_planes(view)]
    nbytes = sum(view.nbytes for view in copied)
    if not nbytes:
        return [(0, channels)]
    most = min(channels, max(1, call.target.l3 // 2 * channels // nbytes // _LEAST) * _LEAST)
    return [(c, min(c + most, channels)) for c in range(0, channels, most)]


def image_blocks(
    view: View, budget: int, unit: int
) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Images, and channels by `unit`, whose copies take so many bytes or are a single unit."""
    n, channels, h, w = view.shape
    if flat_planes(view):
        yield (0, n), (0, channels)
        return
    capacity = budget // max(1, h * w * view.dtype.itemsize)
    most = min(channels, max(1, capacity // unit) * unit)
    group = max(1, capacity // most)
    for first in range(0, n, group):
        for c in range(0, channels, most):
            yield (first, min(first + group, n)), (c, min(c + most, channels))
