"""The code of the direct convolution: an implicit matrix product over taps and channels."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from saccade.backends.cpu.codegen.expressions import emit_expr
from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr, Var
from saccade.backends.cpu.codegen.values import Bool, Int, IntLike
from saccade.ir.expr import parse
from saccade.kernels.cpu.conv2d.direct_ahead import emit_widen
from saccade.kernels.cpu.conv2d.direct_config import DirectConfig
from saccade.kernels.cpu.conv2d.direct_pixels import DirectSizes, PixelWalk, Spot, TapRegion
from saccade.kernels.cpu.conv2d.direct_regions import REGION_WORDS
from saccade.kernels.cpu.conv2d.direct_sum import emit_sum_of_parts
from saccade.kernels.cpu.conv2d.epilogue import Epilogue, Pixel
from saccade.kernels.cpu.conv2d.microkernel import (
    Reduction,
    accumulate,
    anchored,
    share_after,
    vector_lanes,
    zero_sums,
)
from saccade.kernels.cpu.conv2d.tile_grid import Cell, TileGrid

__all__ = ["emit_direct"]


@dataclass(frozen=True, slots=True)
class _Edges:
    """Where the windows of a tile start, and whether they are in order.

    Attributes:
        column: Whether the tile lies in one image, so that `tops` do not decrease.
        line: Whether it lies in one row, so that `lefts` increase.
        tops: First row of each pixel's window.
        lefts: First column.
    """

    column: Bool
    line: Bool
    tops: list[Int]
    lefts: list[Int]


class _Direct:
    """Emits one convolution."""

    def __init__(self, k: KernelBuilder, config: DirectConfig) -> None:
        self.k, self.config = k, config
        self.reduction = Reduction(config.unroll, config.shape, config.pairs, config.odd)
        products = "bfloat16" if config.pairs else "float32"
        self.x, self.w = k.pointer("x", config.element), k.pointer("w", products)
        self.zeros = k.pointer("zeros", config.element) if config.border == "zeros" else None
        self.table = k.pointer("regions", "int64") if config.border == "regions" else None
        self.operands = [
            k.pointer(f"prologue{i}", element) for i, element in enumerate(config.prologue_operands)
        ]
        self.panel = k.scratch("panel", products) if config.copied else None
        self.epilogue = Epilogue(k, config.epilogue)
        self.g, self.grid = k.sizes(DirectSizes), k.sizes(TileGrid)
        self.walk = PixelWalk(k, config.rows, config.flat)
        self.operand_strides = k.array("prologue_n", len(self.operands))
        self.epilogue.declare_integers()
        self.lanes = vector_lanes(k, config.vectors, config.half)
        self.width = sum(self.lanes) * (2 if config.pairs else 1)  # weights of one step

    def emit(self) -> None:
        """All chunks."""
        k, g = self.k, self.g
        with self.grid.chunks(k) as cell:
            first, end = cell.tiles
            if self.table is not None:
                with k.range(0, g.regions) as number:
                    region, begin, count = self.walk.listed(self.table + number * REGION_WORDS)
                    low = k.maximum_int(first - begin, 0)
                    self._tiles(region, cell, low, k.minimum_int(end - begin, count))
            else:
                count = (g.pixels + (self.config.rows - 1)) // self.config.rows
                self._tiles(self.walk.whole(self.g), cell, first, k.minimum_int(end, count))

    def _tiles(self, region: TapRegion, cell: Cell, first: Int, end: Int) -> None:
        """Tiles `first … end-1` of a region, of the blocks of a cell."""
        k = self.k
        if self.config.phase == "rows":
            region = self._rows_of_part(region, cell.group)
        if self.panel is not None:
            self._copy(region, first, end)
        with k.range(*cell.blocks) as block, k.range(first, end) as tile:
            self._tile(region, cell.group, block, tile, first)

    def _rows_of_part(self, region: TapRegion, group: Int) -> TapRegion:
        """The region with those of its rows of taps that a group of results sums."""
        k, g = self.k, self.g
        per_part = (g.taps_r + (g.row_parts - 1)) // g.row_parts
        first = (group - group // g.row_parts * g.row_parts) * per_part
        low, high = region.taps_r
        rows = k.maximum_int(low, first), k.minimum_int(high, first + per_part)
        return replace(region, taps_r=rows)

    # Products

    def _tile(self, region: TapRegion, group: Int, block: Int, tile: Int, chunk_first: Int) -> None:
        k, g, config = self.k, self.g, self.config
        sums = zero_sums(k, config.rows, config.vectors, config.half)
        first = self.walk.spot(region, tile * config.rows)
        with k.when(g.far.differs(0)):
            self._fetch(region, first, group, block)
        panel = g.taps_r * g.taps_s * self._steps() * self.width
        source = group // g.row_parts if config.phase == "rows" else group
        weights = self.w + (source * self.grid.blocks + block) * panel
        number = tile - chunk_first
        if self.panel is not None:
            local = number * config.rows
            rows = [anchored(k, self.panel + (local + i) * g.depth) for i in range(config.rows)]
            self._accumulate(
                sums, rows, anchored(k, weights), 1, after=self._after(weights, number)
            )
        else:
            spots, x = self.walk.spots(region, first), self.x + source * g.depth * g.x_c
            self._taps(region, sums, spots, x, weights, number)
        self._finish(region, sums, first, group, block)

    def _accumulate(
        self,
        sums: list[list[Var]],
        rows: list[Ptr],
        weights: Ptr,
        steps: IntLike | list[Int],
        following: Int | None = None,
        after: Ptr | None = None,
    ) -> None:
        accumulate(
            self.k, sums, rows, weights, step=steps, pitch=self.width, count=self.g.depth,
            reduction=self.reduction, half=self.config.half, following=following, after=after,
            early=self.config.early,
        )  # fmt: skip

    def _after(self, weights: Ptr, tile: Int, r: IntLike = 0, s: IntLike = 0) -> Ptr | None:
        """What a tile's tap asks for of the weights behind its block's, if anything."""
        if self.config.pairs or not self.config.unroll:
            return None
        k, g = self.k, self.g
        taps = g.taps_r * g.taps_s
        share = share_after(
            k, weights + taps * g.depth * self.width, g.depth, self.width, self.reduction, tile,
            r * g.taps_s + s, taps,
        )  # fmt: skip
        return k.pick(g.ahead.differs(0), share, weights)

    def _steps(self) -> Int:
        """Steps of the reduction over the channels of one tap."""
        return (self.g.depth + 1) // 2 if self.config.pairs else self.g.depth

    def _taps(
        self,
        region: TapRegion,
        sums: list[list[Var]],
        spots: list[Spot],
        x: Ptr,
        weights: Ptr,
        tile: Int,
    ) -> None:
        k, g = self.k, self.g
        if self.config.flat:
            rows = [anchored(k, x + s.q * g.x_w) for s in spots]
            step = 1 if self.config.unit else g.x_c
            following = g.far * self.config.rows * g.x_w
            after = self._after(weights, tile)
            self._accumulate(sums, rows, anchored(k, weights), step, following, after)
            return
        tops = [s.p * g.stride_h - g.pad_top for s in spots]
        lefts = [s.q * g.stride_w - g.pad_left for s in spots]
        origins = [
            s.n * g.x_n + top * g.x_h + left * g.x_w
            for s, top, left in zip(spots, tops, lefts, strict=True)
        ]
        starts = [x + origin for origin in origins]
        if self.zeros is None:
            self._inner_taps(region, sums, starts, weights, tile)
            return
        column = spots[0].n.equals(spots[-1].n)  # the tile lies in one image, …
        line = column & spots[0].p.equals(spots[-1].p)  # … in one row of it
        edges = _Edges(column, line, tops, lefts)
        if self.config.shape != "once":
            self._edge_taps(region, sums, starts, edges, weights, tile)
            return
        # With few channels the checks of every tap would cost more than its products.
        bottom = tops[-1] + (g.taps_r - 1) * g.dilation_h
        right = lefts[-1] + (g.taps_s - 1) * g.dilation_w
        inner = (tops[0] >= 0) & (bottom < g.height) & (lefts[0] >= 0) & (right < g.width)
        with k.when_else(line & inner) as (then, other):
            with then:
                self._inner_taps(region, sums, starts, weights, tile)
            with other:
                self._edge_taps(region, sums, starts, edges, weights, tile)

    def _panel(self, weights: Ptr, r: Int, s: Int) -> Ptr:
        pitch = self._steps() * self.width
        return anchored(self.k, weights + (r * self.g.taps_s + s) * pitch)

    def _inner_taps(
        self, region: TapRegion, sums: list[list[Var]], starts: list[Ptr], weights: Ptr, tile: Int
    ) -> None:
        """The taps of a tile whose windows lie inside the image as far as its region's go."""
        k, g = self.k, self.g
        rows = [anchored(k, start) for start in starts]
        with k.range(*region.taps_r) as r, k.range(*region.taps_s) as s:
            move = r * g.dilation_h * g.x_h + s * g.dilation_w * g.x_w
            moved = [row + move for row in rows]
            step = 1 if self.config.unit else g.x_c
            after = self._after(weights, tile, r, s)
            self._accumulate(sums, moved, self._panel(weights, r, s), step, after=after)

    def _edge_taps(
        self,
        region: TapRegion,
        sums: list[list[Var]],
        starts: list[Ptr],
        edges: _Edges,
        weights: Ptr,
        tile: Int,
    ) -> None:
        """The taps of a tile that may leave the image."""
        k, g = self.k, self.g
        with k.range(*region.taps_r) as r:
            down = r * g.dilation_h
            reached = self._reached(edges.column, edges.tops, down, g.height)
            with reached, k.range(0, g.taps_s) as s:
                right = s * g.dilation_w
                with self._reached(edges.line, edges.lefts, right, g.width):
                    move = down * g.x_h + right * g.x_w
                    rows, steps = [], []
                    for start, top, left in zip(starts, edges.tops, edges.lefts, strict=True):
                        row, step = self._row(start + move, top + down, left + right)
                        rows.append(row)
                        steps.append(step)
                    panel, after = self._panel(weights, r, s), self._after(weights, tile, r, s)
                    along = 1 if self.config.unit else steps
                    self._accumulate(sums, rows, panel, along, after=after)

    def _reached(
        self, ordered: Bool, starts: list[Int], move: Int, limit: Int
    ) -> AbstractContextManager[None]:
        """Skip a tap that lies outside the image for every pixel of a tile in order."""
        outside = (starts[-1] + move < 0) | (starts[0] + move >= limit)
        return self.k.when(~(ordered & outside))

    def _row(self, inside: Ptr, i: Int, j: Int) -> tuple[Ptr, Int]:
        """Elements at (i, j), zeros outside the image, and their distance."""
        k, g = self.k, self.g
        assert self.zeros is not None
        seen = self._below(i, g.height) & self._below(j, g.width)
        return anchored(k, k.pick(seen, inside, self.zeros)), seen.select(g.x_c, 0)

    def _below(self, a: Int, limit: Int) -> Bool:
        """Whether `0 <= a < limit`, in one comparison."""
        return Bool(self.k.b, self.k.b.icmp_unsigned("<", a.value, limit.value))

    def _finish(
        self, region: TapRegion, sums: list[list[Var]], first: Spot, group: Int, block: Int
    ) -> None:
        k = self.k
        places = self.epilogue.places(block, self.lanes, group)
        for spot, tile in zip(self.walk.spots(region, first), sums, strict=True):
            with k.when(spot.number < region.pixels):
                pixel = self._pixel(spot)
                for total, place in zip(tile, places, strict=True):
                    self.epilogue.finish(total.get(), pixel, place)

    def _pixel(self, spot: Spot) -> Pixel:
        g, p, q = self.g, spot.p, spot.q
        if self.config.spread:
            p, q = p * g.step_h + g.first_h, q * g.step_w + g.first_w
        return self.epilogue.pixel(spot.n, p, q)

    def _fetch(self, region: TapRegion, first: Spot, group: Int, block: Int) -> None:
        """Ask for what a tile writes and for its residual, while the products take their time."""
        places = self.epilogue.places(block, self.lanes, group)
        for spot in self.walk.spots(region, first):
            pixel = self._pixel(spot)
            for place in places:
                self.epilogue.fetch(pixel, place)

    # Prologue

    def _copy(self, region: TapRegion, first: Int, end: Int) -> None:
        """Every pixel of the chunk, after the prologue, in this thread's scratch."""
        k, g = self.k, self.g
        start = first * self.config.rows
        stop = k.minimum_int(end * self.config.rows, region.pixels)
        with k.range(start, stop) as number:
            spot = self.walk.spot(region, number)
            x = self.x + (
                spot.n * g.x_n + spot.p * g.stride_h * g.x_h + spot.q * g.stride_w * g.x_w
            )
            lanes = k.lanes if self.config.unit else 1
            main = g.depth // lanes * lanes
            with k.range(0, main, lanes) as c:
                self._prologue_at(spot, x, (number - start) * g.depth, c, lanes)
            with k.range(main, g.depth) as c:
                self._prologue_at(spot, x, (number - start) * g.depth, c, 1)

    def _prologue_at(self, spot: Spot, x: Ptr, row: Int, c: Int, lanes: int) -> None:
        assert self.panel is not None
        values = [x.vec(c if self.config.unit else c * self.g.x_c, lanes=lanes)]
        for pointer, n_stride in zip(self.operands, self.operand_strides, strict=True):
            values.append(pointer.vec(spot.n * n_stride + c, lanes=lanes))
        value = emit_expr(self.k, parse(self.config.prologue), values, stored=self.panel.element)
        self.panel.store(value, row + c)


def emit_direct(k: KernelBuilder, config: DirectConfig) -> None:
    """Emit the convolution that `config` describes."""
    if config.phase == "sum":
        emit_sum_of_parts(k, config.epilogue)
    elif config.phase == "widen":
        emit_widen(k)
    else:
        _Direct(k, config).emit()
