"""Gradients of offsets and masks, from sums over channels that the gradient of columns left.

    sums[image, block, tap, pixel, corner] = Σ gradient of the column · pixel at the corner

A sample is bilinear between its corners, so these four numbers make all its slopes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.backends.cpu.codegen.values import Int, Vec
from saccade.kernels.base import Launch, Operand, View
from saccade.kernels.cpu import floats
from saccade.kernels.cpu.deform.config import (
    DeformConfig,
    SampleGeometry,
    SampleSizes,
    Strides,
    by_name,
)
from saccade.kernels.cpu.deform.sample_points import SamplePlace, SamplePlan, plan_scratch

__all__ = ["Slopes", "corner_sums", "slopes_launch"]


def corner_sums(k: KernelBuilder, vectors: Sequence[Vec]) -> Vec:
    """The sums over lanes of four vectors, as the four lanes of one."""
    # All four at once: halves of two vectors fill one, so that later steps are as few as for a
    # single.
    n = vectors[0].lanes
    low, high = range(n // 2), range(n // 2, n)
    halves = [
        k.shuffle(a, b, [*low, *(n + i for i in low)])
        + k.shuffle(a, b, [*high, *(n + i for i in high)])
        for a, b in (vectors[:2], vectors[2:])
    ]
    size, starts = n // 4, (0, n // 2, n, n + n // 2)
    total = _fold(k, halves[0], halves[1], starts, size)
    while size > 1:
        size //= 2
        total = _fold(k, total, total, range(0, 8 * size, 2 * size), size)
    return total


def _fold(k: KernelBuilder, a: Vec, b: Vec, starts: Sequence[int], size: int) -> Vec:
    """Neighbouring runs of `size` lanes added: those at `starts`, and those behind them."""
    first = [start + i for start in starts for i in range(size)]
    return k.shuffle(a, b, first) + k.shuffle(a, b, [i + size for i in first])


class Slopes:
    """Emits the phase: a chunk for each tile of an offset group."""

    def __init__(self, k: KernelBuilder, config: DeformConfig) -> None:
        self.k, self.config = k, config
        self.sums = k.pointer("sums", config.wide)
        self.results = {
            name: k.pointer(f"{name}_gradient", element) for name, element in _targets(config)
        }
        self.plan = SamplePlan(k, config)
        self.g = k.sizes(SampleSizes)
        self.plan.declare(self.g)
        self.by = {name: k.sizes(Strides, f"{name}_gradient_") for name in self.results}
        self.capacity, self.groups, self.chunks = k.integers("capacity groups chunks")

    def emit(self) -> None:
        """All chunks."""
        k, g = self.k, self.g
        with k.chunks(self.chunks) as chunk:
            place = chunk // g.tiles
            first = (chunk - place * g.tiles) * g.tile
            count = k.minimum_int(g.tile, g.pixels - first)
            image = place // self.groups
            group = place - image * self.groups
            self.plan.start(first, count)
            with k.range(0, g.taps) as tap, k.range(0, count, k.lanes) as at:
                self._vector(image, group, tap, first, at, count)

    def _vector(self, image: Int, group: Int, tap: Int, first: Int, at: Int, count: Int) -> None:
        where = self.plan.at(image, group, tap, first, at, count)
        corners = self._corners(image, group, tap, first + at)
        factor = self.plan.factor(image, group, tap, first + at, count - at)
        channel, left = group * self.g.taps + tap, count - at
        if "offset" in self.results:
            for axis, slope in enumerate(self._slopes(where, corners)):
                value = slope if factor is None else slope * factor
                self._store("offset", value, image, channel * 2 + axis, first + at, left)
        if "mask" in self.results:
            shares = [self.k.convert(v, self.config.wide) for v in where.shares()]
            total = shares[0] * corners[0]
            for share, corner in zip(shares[1:], corners[1:], strict=True):
                total = self.k.fma(share, corner, total)
            self._store("mask", total, image, channel, first + at, left)

    def _corners(self, image: Int, group: Int, tap: Int, pixel: Int) -> list[Vec]:
        """The four sums of a vector of pixels, over all blocks of the offset group."""
        k, g = self.k, self.g
        block = image * g.blocks + group * g.per_offset
        start = self.sums + ((block * g.taps + tap) * self.capacity + pixel) * 4
        totals = [k.var(start.vec(i * k.lanes, None, k.lanes)) for i in range(4)]
        with k.range(1, g.per_offset) as number:
            part = start + number * g.taps * self.capacity * 4
            for i, total in enumerate(totals):
                total.set(total.get() + part.vec(i * k.lanes, None, k.lanes))
        # Corners lie innermost: every fourth lane is one corner's.
        every = k.concat([total.get() for total in totals])
        return [k.shuffle(every, every, range(j, 4 * k.lanes, 4)) for j in range(4)]

    def _slopes(self, where: SamplePlace, corners: list[Vec]) -> list[Vec]:
        """Derivatives by the sample's row and by its column."""
        k, (a, b, c, d) = self.k, corners
        below, beyond = (k.convert(v, self.config.wide) for v in (where.below, where.beyond))
        # `reached`, not `inside`: a sample at exactly -1 counts for nothing, but its slope does.
        # NaN stays.
        counts, zero = where.reached | ~where.known, a.like(0.0)
        down = (c - a) * (1.0 - beyond) + (d - b) * beyond
        right = (b - a) * (1.0 - below) + (d - c) * below
        return [counts.select(v, zero) for v in (down, right)]

    def _store(
        self, name: str, value: Vec, image: Int, channel: Int, pixel: Int, left: Int
    ) -> None:
        k, by, target = self.k, self.by[name], self.results[name]
        start = target + (image * by.image + channel * by.channel + pixel * by.pixel)
        # No instruction rounds float64 to 16 bits at once.
        if target.element in ("float16", "bfloat16"):
            value = k.convert(value, "float32")
        if not self.config.strided:
            floats.store(k, start, value, 0, k.first(left))
            return
        for i in range(k.lanes):
            with k.when(left > i):
                floats.store(k, start, k.extract(value, i), by.pixel * i)


def _targets(config: DeformConfig) -> list[tuple[str, str]]:
    elements = {"offset": config.offset, "mask": config.mask}
    return [(name, elements[name]) for name in ("offset", "mask") if name in config.wanted]


def slopes_launch(
    config: DeformConfig, g: SampleGeometry, lanes: int, *, sums: Operand,
    results: Mapping[str, tuple[Operand, View]],
    given: tuple[Mapping[str, Operand], Mapping[str, int]], capacity: int,
) -> Launch:  # fmt: skip
    """The phase.

    Args:
        config: With the gradients that are wanted.
        g: Sizes.
        lanes: Of a vector.
        sums: Of the corners.
        results: The gradients, by what they are of.
        given: Offset and mask, and their strides.
        capacity: Pixels of the sums.
    """
    chunks = g.images * g.offset_groups * g.tiles
    operands: dict[str, Operand] = {"sums": sums}
    integers = {**g.integers(), **given[1]}
    for name, (result, view) in results.items():
        operands[f"{name}_gradient"] = result
        integers |= by_name(f"{name}_gradient", view)
    operands |= {**given[0], **plan_scratch(g, config, lanes)}
    integers |= {"capacity": capacity, "groups": g.offset_groups, "chunks": chunks}
    return Launch(config, operands, integers, chunks)
