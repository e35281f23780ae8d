"""Where samples lie: for a tile's pixels and each tap, four pixels of the image, their shares.

A plan is computed once for a tile and an offset group, a vector of pixels at a time, and serves all
of the group's channels. A pixel outside is the one past the last, which is zeros, so that
nothing branches and no number of another pixel takes part. Samples a pixel or more outside have no
share of anything; those at NaN are NaN.
"""

from __future__ import annotations

from dataclasses import dataclass

from saccade.backends.cpu.codegen.emitter import BYTES
from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr
from saccade.backends.cpu.codegen.values import Int, IntLike, Mask, Vec
from saccade.kernels.base import Operand, Scratch
from saccade.kernels.cpu import floats
from saccade.kernels.cpu.deform.config import (
    DeformConfig,
    SampleGeometry,
    SampleSizes,
    Strides,
    ceil_to,
)

__all__ = ["CORNERS", "SamplePlace", "SamplePlan", "plan_scratch"]

CORNERS = ((0, 0), (0, 1), (1, 0), (1, 1))
"""Rows and columns of the four pixels, from the one above and left of a sample."""


@dataclass(frozen=True, slots=True)
class SamplePlace:
    """Samples of a vector of pixels.

    Attributes:
        below, beyond: From the row above to the sample, from the column to its left.
        reached: Whether any pixel may be within one of it.
        inside: Whether it is less than one pixel outside; it counts only then.
        known: Whether it has a place, which NaN is not.
        index: For each corner the number of its pixel.
    """

    below: Vec
    beyond: Vec
    reached: Mask
    inside: Mask
    known: Mask
    index: tuple[Vec, ...]

    def shares(self) -> list[Vec]:
        """Of each corner."""
        # Selected, not multiplied: NaN keeps shares of NaN, and what is far outside has exactly 0.
        counts = self.inside | ~self.known
        zero = self.below.like(0.0)
        tall, wide = (1.0 - self.below, self.below), (1.0 - self.beyond, self.beyond)
        return [counts.select(tall[i] * wide[j], zero) for i, j in CORNERS]


class SamplePlan:
    """Declares its buffers and integers; fills and reads the plan.

    Scratch: the plan's indices and shares, and rows and columns of the tile's pixels.
    """

    def __init__(self, k: KernelBuilder, config: DeformConfig) -> None:
        self.k, self.config = k, config
        # Offsets of float64 keep their places in float64 where sums are float32.
        self.place = config.wide if config.wide == "float64" else floats.wide(config.offset)
        self.offset = k.pointer("offset", config.offset)
        self.mask = k.pointer("mask", config.mask) if config.mask else None
        self.index = k.scratch("index", "int32")
        self.share = k.scratch("share", config.wide)
        self.base = k.scratch("base", self.place)

    def declare(self, sizes: SampleSizes) -> None:
        """Integer parameters."""
        self.sizes = sizes
        self.by_offset = self.k.sizes(Strides, "offset_")
        self.by_mask = self.k.sizes(Strides, "mask_")
        lanes = self.k.lanes
        self.capacity = (sizes.tile + (lanes - 1)) // lanes * lanes

    def start(self, first: Int, count: Int) -> None:
        """Rows and columns of a tile's pixels before any tap or offset."""
        k, g = self.k, self.sizes
        above = first // g.across
        row, column = k.var(above), k.var(first - above * g.across)
        with k.range(0, count) as i:
            down, along = row.get() * g.stride_y - g.top, column.get() * g.stride_x - g.left
            for axis, place in enumerate((down, along)):
                self.base.store(k.to_real(place, self.place), i + self.capacity * axis)
            after = column.get() + 1  # a division for each pixel would be noticed
            ends = after.equals(g.across)
            column.set(ends.select(0, after))
            row.set(row.get() + ends.select(1, 0))

    def fill(
        self, image: Int, group: Int, first: Int, count: Int, taps: tuple[IntLike, IntLike]
    ) -> None:
        """The plan of an offset group for the tile, and for taps from one to before another."""
        k = self.k
        with k.range(*taps) as tap, k.range(0, count, k.lanes) as at:
            where = self.at(image, group, tap, first, at, count)
            shares = [k.convert(v, self.config.wide) for v in where.shares()]
            factor = self.factor(image, group, tap, first + at, count - at)
            for corner, (index, share) in enumerate(zip(where.index, shares, strict=True)):
                position = (tap * 4 + corner) * self.capacity + at
                self.index.store(index, position)
                self.share.store(share if factor is None else share * factor, position)

    def factor(self, image: Int, group: Int, tap: Int, first: Int, left: Int) -> Vec | None:
        """The mask of a vector of pixels."""
        if self.mask is None:
            return None
        by = self.by_mask
        channel = group * self.sizes.taps + tap
        start = self.mask + (image * by.image + channel * by.channel + first * by.pixel)
        return self._vector(start, by.pixel, left, self.config.wide)

    def at(self, image: Int, group: Int, tap: Int, first: Int, at: Int, count: Int) -> SamplePlace:
        """Samples of the tile's pixels from `at` on."""
        k, g, by = self.k, self.sizes, self.by_offset
        row = tap // g.tap_columns
        steps = (row * g.dilation_y, (tap - row * g.tap_columns) * g.dilation_x)
        start = self.offset + (image * by.image + (first + at) * by.pixel)
        places = []
        for axis, step in enumerate(steps):
            channel = (group * g.taps + tap) * 2 + axis
            # Channels of offsets are pairs (row, column), tap by tap.
            moved = self._vector(start + channel * by.channel, by.pixel, count - at, self.place)
            base = self.base.vec(at + self.capacity * axis, None, k.lanes)
            tap_at = k.broadcast(k.to_real(step, self.place))
            places.append(base + tap_at + moved)
        return self._place(*places)

    def _vector(self, start: Ptr, by: Int, left: Int, element: str) -> Vec:
        """A vector of pixels, of which the first `left` are there."""
        k = self.k
        if not self.config.strided:
            return floats.load(k, start, 0, k.lanes, element, k.first(left))
        value = k.zero(k.lanes, element)
        for i in range(k.lanes):
            # Lanes behind the last pixel repeat it: nothing is read past the operand.
            one = floats.load_one(k, start, k.minimum_int(k.int(i), left - 1) * by, element)
            value = k.insert(value, one, i)
        return value

    def _place(self, y: Vec, x: Vec) -> SamplePlace:
        k, g = self.k, self.sizes
        height, width = (
            k.broadcast(k.to_real(size, self.place)) for size in (g.height, g.width)
        )  # fmt: skip
        above, before = k.call("floor", y), k.call("floor", x)
        limits = y.compare("<", height) & x.compare("<", width)
        reached = limits & y.compare(">=", -1.0) & x.compare(">=", -1.0)
        inside = limits & y.compare(">", -1.0) & x.compare(">", -1.0)
        # Comparisons with NaN are false, this one too.
        known = y.compare("==", y) & x.compare("==", x)
        # What is converted to integers must be finite and small.
        zero = y.like(0.0)
        rows = [reached.select(above, zero) + float(i) for i in range(2)]
        columns = [reached.select(before, zero) + float(j) for j in range(2)]
        row_there = [v.compare(">=", 0.0) & v.compare("<", height) for v in rows]
        column_there = [v.compare(">=", 0.0) & v.compare("<", width) for v in columns]
        index = []
        for i, j in CORNERS:
            there = reached & row_there[i] & column_there[j]
            index.append(self._index(rows[i], columns[j], there))
        return SamplePlace(y - above, x - before, reached, inside, known, tuple(index))

    def _index(self, row: Vec, column: Vec, there: Mask) -> Vec:
        """Numbers of pixels, int32; the one past the last where there is none."""
        k, b = self.k, self.k.b
        kind = k.vector_type(k.lanes, "int32")
        # 32 bits suffice: larger images are refused.
        narrow = [b.trunc(v.value, k.vector_type(1, "int32")) for v in
                  (self.sizes.width, self.sizes.height * self.sizes.width)]  # fmt: skip
        width, outside = (k.broadcast(Vec(b, v)) for v in narrow)
        whole = [b.fptosi(v.value, kind) for v in (row, column)]
        number = b.add(b.mul(whole[0], width.value), whole[1])
        return Vec(b, b.select(there.value, number, outside.value))


def plan_scratch(g: SampleGeometry, config: DeformConfig, lanes: int) -> dict[str, Operand]:
    """The scratch of a plan."""
    capacity = ceil_to(g.tile, lanes)
    size = BYTES[config.wide]
    entries = 4 * g.taps * capacity
    # `base` in 8 bytes: places may be float64 where sums are not.
    return {
        "index": Scratch(4 * entries),
        "share": Scratch(size * entries),
        "base": Scratch(8 * 2 * capacity),
    }
