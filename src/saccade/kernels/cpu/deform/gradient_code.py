"""The gradients' products: of columns, spread to the image, and of the weights.

Columns: a chunk owns a block of channels of an image (or of a part of its pixels), and so all that
its samples add to; it goes through the pixels in order. For a tile of them, the result's gradient
times the weights gives the gradient of the columns, in scratch; one pass over it adds to the
image's four pixels at each sample, and sums over the channels what the sample's slopes need.

Weights: a chunk owns some taps of a block of channels and a part of all tiles, samples its columns
anew and multiplies the result's gradient with them. Its sums and columns share the cache.
"""

from __future__ import annotations

from functools import partial

from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr, Var
from saccade.backends.cpu.codegen.values import Int
from saccade.kernels.cpu import floats
from saccade.kernels.cpu.deform.config import COLUMNS, DeformConfig, SampleSizes
from saccade.kernels.cpu.deform.gradient_offsets import corner_sums
from saccade.kernels.cpu.deform.sample_points import SamplePlan
from saccade.kernels.cpu.deform.sampled_columns import (
    ColumnRows,
    Corners,
    corners_of,
    over_vectors,
    sample_pairs,
    sample_rows,
)
from saccade.kernels.cpu.deform.tile_product import Operands, product

__all__ = ["ColumnsGradient", "WeightGradient", "emit_bias"]


class ColumnsGradient:
    """Emits the phase that makes the image's gradient and the sums behind slopes."""

    def __init__(self, k: KernelBuilder, config: DeformConfig) -> None:
        self.k, self.config = k, config
        narrow = "bfloat16" if config.pairs else config.wide
        self.grad, self.panels = k.pointer("grad", narrow), k.pointer("panels", narrow)
        self.slopes, self.spreads = "slopes" in config.wanted, "x" in config.wanted
        self.x = k.pointer("x", config.wide) if self.slopes else None
        self.sums = k.pointer("sums", config.wide) if self.slopes else None
        self.feature_map = k.pointer("feature_map", config.wide) if self.spreads else None
        self.plan = SamplePlan(k, config)
        self.columns = k.scratch("columns", config.wide)
        self.g = k.sizes(SampleSizes)
        self.plan.declare(self.g)
        self.steps, self.groups, self.parts, self.capacity, self.chunks = k.integers(
            "grad_steps groups parts capacity chunks"
        )
        self.width = config.vectors * k.lanes

    def emit(self) -> None:
        """All chunks."""
        k, g = self.k, self.g
        each = (g.tiles + self.parts - 1) // self.parts
        # The pixel behind the last takes what samples outside add; nobody reads it.
        area = (g.height * g.width + 1) * g.pitch
        with k.chunks(self.chunks) as chunk:
            place = chunk // self.parts
            part = chunk - place * self.parts
            image = place // g.blocks
            block = place - image * g.blocks
            target = None
            if self.feature_map is not None:
                whole = self.chunks // self.parts
                # Cleared by the chunk that adds to it, into the cache where it stays.
                target = self.feature_map + (part * whole + place) * area
                with k.range(0, area, k.lanes) as at:
                    target.store(k.zero(k.lanes, self.config.wide), at)
            source = None if self.x is None else self.x + place * area
            end = k.minimum_int((part + 1) * each, g.tiles)
            with k.range(part * each, end) as tile:
                first = tile * g.tile
                count = k.minimum_int(g.tile, g.pixels - first)
                self.plan.start(first, count)
                self.plan.fill(image, block // g.per_offset, first, count, (0, g.taps))
                self._product(image, block, first, count)
                self._pass(place, first, count, source, target)

    def _across(self) -> Int:
        """Space for the channels of a block: whole panels."""
        return (self.g.pitch + (self.width - 1)) // self.width * self.width

    def _product(self, image: Int, block: Int, first: Int, count: Int) -> None:
        """The gradient of the tile's columns."""
        k, g = self.k, self.g
        across = self._across()
        panels = across // self.width
        group = image * self.groups + block // g.per_group
        left = self.grad + (group * g.pixels + first) * self.steps
        # Pairs lie side by side: a step has two elements for each column.
        step = self.width * (2 if self.config.pairs else 1)
        with k.range(0, g.taps) as tap, k.range(0, panels) as panel:
            number = (block * g.taps + tap) * panels + panel
            right = self.panels + number * self.steps * self.width
            product(k, self.config, Operands(
                left, self.steps, count, right, step, self.steps,
                self.columns + (tap * across + panel * self.width), g.taps * across, add=False,
            ))  # fmt: skip

    def _pass(
        self, place: Int, first: Int, count: Int, source: Ptr | None, target: Ptr | None
    ) -> None:
        """Spread the gradient of the columns, and sum what slopes need."""
        k, g = self.k, self.g
        across = self._across()
        with k.range(0, count) as pixel, k.range(0, g.taps) as tap:
            column = self.columns + (pixel * g.taps + tap) * across
            read = None if source is None else corners_of(k, self.plan, source, tap, pixel)
            write = None if target is None else corners_of(k, self.plan, target, tap, pixel)
            totals = [k.var(k.zero(k.lanes, self.config.wide)) for _ in range(4)] if read else []
            over_vectors(k, g, partial(_spread, k, column, read, write, totals))
            if self.sums is not None:
                sums = corner_sums(k, [total.get() for total in totals])
                at = ((place * g.taps + tap) * self.capacity + (first + pixel)) * 4
                self.sums.store(sums, at)


def _spread(
    k: KernelBuilder,
    column: Ptr,
    read: Corners | None,
    write: Corners | None,
    totals: list[Var],
    at: Int,
) -> None:
    """One vector of channels of one sample."""
    gradient = column.vec(at, None, k.lanes)
    if read is not None:
        for total, pixel in zip(totals, read.pixels, strict=True):
            total.set(k.fma(gradient, pixel.vec(at, None, k.lanes), total.get()))
    if write is not None:
        # One after the other: those outside the image are the same pixel.
        for share, pixel in zip(write.shares, write.pixels, strict=True):
            pixel.store(k.fma(share, gradient, pixel.vec(at, None, k.lanes)), at)


class WeightGradient:
    """Emits the phase that makes parts of the weights' gradient."""

    def __init__(self, k: KernelBuilder, config: DeformConfig) -> None:
        self.k, self.config = k, config
        self.x = k.pointer("x", config.wide)
        narrow = "bfloat16" if config.pairs else config.wide
        self.planes = k.pointer("planes", narrow)
        self.sums = k.pointer("sums", config.wide)
        self.plan = SamplePlan(k, config)
        self.columns = k.scratch("columns", narrow)
        self.g = k.sizes(SampleSizes)
        self.plan.declare(self.g)
        self.images, self.outputs, self.plane, self.parts, self.capacity = k.integers(
            "images all_outputs plane parts capacity"
        )
        self.each, self.sets, self.chunks = k.integers("each sets chunks")
        self.width = config.vectors * k.lanes

    def emit(self) -> None:
        """All chunks."""
        k, g = self.k, self.g
        every = self.images * g.tiles
        each = (every + self.parts - 1) // self.parts
        with k.chunks(self.chunks) as chunk:
            place = chunk // self.sets
            first_tap = (chunk - place * self.sets) * self.each
            taps = (first_tap, k.minimum_int(first_tap + self.each, g.taps))
            part = place // g.blocks
            block = place - part * g.blocks
            sums = self.sums + chunk * g.outputs * self.capacity
            with k.range(0, g.outputs * self.capacity, k.lanes) as at:
                sums.store(k.zero(k.lanes, self.config.wide), at)
            with k.range(part * each, k.minimum_int((part + 1) * each, every)) as number:
                image = number // g.tiles
                self._tile(block, image, (number - image * g.tiles) * g.tile, taps, sums)

    def _tile(self, block: Int, image: Int, first: Int, taps: tuple[Int, Int], sums: Ptr) -> None:
        k, g, columns, capacity = self.k, self.g, self.columns, self.capacity
        count = k.minimum_int(g.tile, g.pixels - first)
        self.plan.start(first, count)
        self.plan.fill(image, block // g.per_offset, first, count, taps)
        feature_map = self.x + (image * g.blocks + block) * (g.height * g.width + 1) * g.pitch
        _, channels = g.channels_of(block)
        rows = ColumnRows(columns, capacity, channels, count, *taps)
        (sample_pairs if self.config.pairs else sample_rows)(k, self.plan, feature_map, rows)
        padded = (count + (COLUMNS - 1)) // COLUMNS * COLUMNS
        filled = (count + 1) // 2 * 2 if self.config.pairs else count
        # The result's gradient is 0 there, but what an earlier tile left may be infinite or NaN.
        with k.range(filled * capacity, padded * capacity, k.lanes) as at:
            columns.store(k.zero(k.lanes, self.config.wide), at)
        row = image * self.outputs + block // g.per_group * g.outputs
        left = self.planes + (row * self.plane + first)
        step = self.width * (2 if self.config.pairs else 1)
        right_pitch = capacity * (2 if self.config.pairs else 1)
        # Exact: behind the last output begin the sums of another chunk.
        with k.range(0, capacity // self.width) as panel:
            product(k, self.config, Operands(
                left, self.plane, g.outputs, columns + panel * step, right_pitch, padded,
                sums + panel * self.width, capacity, add=True, exact=True,
            ))  # fmt: skip


def emit_bias(k: KernelBuilder, config: DeformConfig) -> None:
    """Sums of the planes of each channel; planes end with zeros, in whole vectors."""
    planes = k.pointer("planes", config.source)
    result = k.pointer("result", config.target)
    images, outputs, plane, stride = k.integers("images outputs plane stride")
    with k.chunks(outputs) as channel:
        total = k.var(k.zero(k.lanes, config.wide))
        with k.range(0, images) as image, k.range(0, plane, k.lanes) as at:
            row = planes + (image * outputs + channel) * plane
            total.set(total.get() + floats.load(k, row, at, k.lanes, config.wide))
        floats.store(k, result, k.sum_lanes(total.get()), channel * stride)
