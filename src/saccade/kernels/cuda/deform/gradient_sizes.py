"""Sizes of a deformable convolution's gradients, and the pieces that bound the memory of columns.

A piece is some images with all that belongs to them: tables, records, columns. Where one image is
more than a piece may be, its columns come in pieces of channels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd
from typing import NamedTuple

from saccade.ir import DType
from saccade.kernels.base import View, per_call
from saccade.kernels.cuda.base import CudaCall, element_of
from saccade.kernels.cuda.deform.half_products import parts_of
from saccade.locks import cached_property
from saccade.opdefs import DeformConvGradient

__all__ = ["ChannelPiece", "GradientSizes", "sizes_of"]

_ALL = 60 << 20  # bytes of everything
_PIECE = 44 << 20  # bytes of a piece: most of it stays in the L2 cache
_TABLES = 32  # bytes of a sample, with float32: four tables, arrival and lists
_RECORD = 4  # numbers of weights


class ChannelPiece(NamedTuple):
    """Some channels of every offset group: the first, how many, and how many lie in one group."""

    first: int
    channels: int
    segment: int


@dataclass(frozen=True)
class GradientSizes:
    """Sizes of one call.

    Attributes:
        op: Its operator.
        grad: Of the result.
        x: Its pixels.
        weight: [outputs, channels of a group, rows, columns].
        offset: Of the samples.
        parts: Of float32, whose products are those of `half_products_code`; 0 where it is whole.
    """

    op: DeformConvGradient
    grad: View
    x: View
    weight: View
    offset: View
    parts: int

    @cached_property
    def images(self) -> int:
        """In the batch."""
        return self.x.shape[0]

    @cached_property
    def pixels(self) -> int:
        """Of an image of the result."""
        return self.grad.shape[2] * self.grad.shape[3]

    @cached_property
    def taps(self) -> int:
        """Of the window."""
        return self.weight.shape[2] * self.weight.shape[3]

    @cached_property
    def channels(self) -> int:
        """Of a group of x."""
        return self.weight.shape[1]

    @cached_property
    def outputs(self) -> int:
        """Of a group of the result."""
        return self.weight.shape[0] // self.op.groups

    @cached_property
    def shared(self) -> int:
        """Channels that have the same offsets."""
        return self.x.shape[1] // self.op.offset_groups

    @cached_property
    def segment(self) -> int:
        """Channels that have the same offsets and the same group."""
        return gcd(self.channels, self.shared)

    @cached_property
    def samples(self) -> int:
        """Of an image: offset groups, taps and pixels."""
        return self.op.offset_groups * self.taps * self.pixels

    @cached_property
    def cells(self) -> int:
        """Of an image: squares of four pixels, those across its border, too."""
        return (self.x.shape[2] + 1) * (self.x.shape[3] + 1)

    @cached_property
    def wide(self) -> DType:
        """What is computed in."""
        return DType.F64 if self.x.dtype is DType.F64 else DType.F32

    @cached_property
    def element(self) -> str:
        """Of what products read."""
        return "fp16" if self.parts else element_of(self.x)

    def wants(self, *names: str) -> bool:
        """Whether one of these gradients is wanted."""
        return not set(names).isdisjoint(self.op.wanted)

    @cached_property
    def spread(self) -> bool:
        """Whether the columns' gradient is."""
        return self.wants("x", "offset", "mask")

    @cached_property
    def columned(self) -> bool:
        """Whether there are columns: those of x, for the weights, or their gradient."""
        return self.spread or self.wants("weight")

    def copied(self, name: str) -> bool:
        """Whether the map x or grad is read from a copy: channels last, or in parts of float32."""
        if name == "grad":
            return self.parts > 0 or not self.grad.channels_last
        return not self.x.channels_last

    @cached_property
    def _fixed(self) -> int:
        """Bytes of an image besides columns."""
        samples = self.samples * (_TABLES + _RECORD * self.wide.itemsize)
        cells = 8 * self.op.offset_groups * self.cells
        images = max(1, self.images)
        copies = self.x.nbytes // images if self.copied("x") else 0
        copies += self.grad.nbytes // images if self.copied("grad") else 0
        return samples + cells + copies

    def columns(self, channels: int) -> int:
        """Bytes of an image's columns of so many channels of every offset group."""
        return self.samples * channels * self.x.dtype.itemsize

    @cached_property
    def together(self) -> int:
        """Images of a piece."""
        each = self._fixed + (self.columns(self.shared) if self.columned else 0)
        most = max(1, _PIECE // max(1, each))
        return -(-self.images // max(1, -(-self.images // most)))

    @cached_property
    def room(self) -> int:
        """Bytes that are left for sums in parts."""
        columns = self.columns(self.shared) if self.columned else 0
        return _ALL - self.weight.nbytes - min(_PIECE, self.together * (self._fixed + columns))

    def batches(self) -> Iterator[tuple[int, int]]:
        """First image and number of images of each piece; one of none for none."""
        step = max(1, self.together)
        for first in range(0, max(1, self.images), step):
            yield first, min(step, self.images - first)

    def channel_pieces(self) -> Iterator[ChannelPiece]:
        """Pieces of the columns: one, unless an image is too large."""
        room = (_PIECE - self._fixed) // max(1, self.columns(1))
        most = max(16, room // 16 * 16)
        if most >= self.shared:
            yield ChannelPiece(0, self.shared, self.segment)
        elif most >= self.segment:
            step = most // self.segment * self.segment
            for first in range(0, self.shared, step):
                yield ChannelPiece(first, min(step, self.shared - first), self.segment)
        else:
            for start in range(0, self.shared, self.segment):
                for first in range(start, start + self.segment, most):
                    count = min(most, start + self.segment - first)
                    yield ChannelPiece(first, count, count)


@per_call
def sizes_of(call: CudaCall) -> GradientSizes:
    """The sizes of a call."""
    grad, x, weight, offset = call.inputs[:4]
    return GradientSizes(call.op, grad, x, weight, offset, parts_of(call, x.dtype))
