"""The code of the direct convolution: an implicit matrix product over taps and channels."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, fields

from saccade.codegen.expressions import emit_expr
from saccade.codegen.language import Kernel, Ptr, Var
from saccade.codegen.values import Bool, Int, IntLike
from saccade.ir.expr import IDENTITY, parse
from saccade.kernels.conv2d.config import DirectConfig
from saccade.kernels.conv2d.epilogue import Epilogue
from saccade.kernels.conv2d.microkernel import Reduction, accumulate, anchored, zero_sums

__all__ = ["GEOMETRY", "emit_direct"]


@dataclass(frozen=True, slots=True)
class _Geometry:
    """The integer parameters, in order."""

    x_n: Int
    x_c: Int
    x_h: Int
    x_w: Int
    height: Int
    width: Int
    out_height: Int
    out_width: Int
    depth: Int
    taps_r: Int
    taps_s: Int
    stride_h: Int
    stride_w: Int
    pad_top: Int
    pad_left: Int
    dilation_h: Int
    dilation_w: Int
    pixels: Int
    blocks: Int
    tiles_chunk: Int
    blocks_chunk: Int
    tile_chunks: Int
    block_chunks: Int
    pixels_first: Int
    groups: Int
    step_h: Int
    step_w: Int
    first_h: Int
    first_w: Int


GEOMETRY = tuple(f.name for f in fields(_Geometry))


@dataclass(frozen=True, slots=True)
class _Spot:
    """An output pixel: number and coordinates (those of the last pixel past the end)."""

    number: Int
    n: Int
    p: Int
    q: Int


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

    def __init__(self, k: Kernel, config: DirectConfig) -> None:
        self.k, self.config = k, config
        self.reduction = Reduction(config.unroll, config.shape, config.pairs, config.odd)
        products = "bfloat16" if config.pairs else "float32"
        self.x, self.w = k.pointer("x", config.element), k.pointer("w", products)
        self.zeros = k.pointer("zeros", config.element) if config.padded else None
        self.operands = [k.pointer("prologue", element) for element in config.prologue_operands]
        self.panel = k.scratch("panel", products) if config.prologue != str(IDENTITY) else None
        self.epilogue = Epilogue(k, config.epilogue)
        self.g = _Geometry(*(k.integer(name) for name in GEOMETRY))
        self.operand_strides = [k.integer("n") for _ in self.operands]
        self.epilogue.declare_integers()
        self.width = config.vectors * k.lanes * (2 if config.pairs else 1)  # weights of one step

    def emit(self) -> None:
        """All chunks."""
        k, g = self.k, self.g
        area = g.tile_chunks * g.block_chunks
        with k.chunks(g.groups * area) as chunk:
            group = chunk // area
            within = chunk - group * area
            fast = g.pixels_first.differs(0)
            inner = fast.select(g.tile_chunks, g.block_chunks)
            outer_at = within // inner
            inner_at = within - outer_at * inner
            first = fast.select(inner_at, outer_at) * g.tiles_chunk
            block = fast.select(outer_at, inner_at) * g.blocks_chunk
            count = (g.pixels + (self.config.rows - 1)) // self.config.rows
            end = k.minimum_int(first + g.tiles_chunk, count)
            if self.panel is not None:
                self._apply_prologue(first, end)
            stop = k.minimum_int(block + g.blocks_chunk, g.blocks)
            with k.range(block, stop) as b, k.range(first, end) as tile:
                self._tile(group, b, tile, first)

    # Pixels

    def _spot(self, number: Int) -> _Spot:
        g, zero = self.g, self.k.int(0)
        if self.config.flat:
            return _Spot(number, zero, zero, self.k.minimum_int(number, g.pixels - 1))
        area = g.out_height * g.out_width
        n = number // area
        rest = number - n * area
        p = rest // g.out_width
        return _Spot(number, n, p, rest - p * g.out_width)

    def _following(self, spot: _Spot) -> _Spot:
        g, number = self.g, spot.number + 1
        more = number < g.pixels
        turn = more & (spot.q + 1).equals(g.out_width)
        next_p = turn.select(spot.p + 1, spot.p)
        over = next_p.equals(g.out_height)
        q = turn.select(0, more.select(spot.q + 1, spot.q))
        return _Spot(number, over.select(spot.n + 1, spot.n), over.select(0, next_p), q)

    def _spots(self, first: _Spot) -> list[_Spot]:
        if self.config.flat:
            return [self._spot(first.number + i) for i in range(self.config.rows)]
        spots = [first]
        while len(spots) < self.config.rows:
            spots.append(self._following(spots[-1]))
        return spots

    # Products

    def _tile(self, group: Int, block: Int, tile: Int, chunk_first: Int) -> None:
        k, g, config = self.k, self.g, self.config
        sums = zero_sums(k, config.rows, config.vectors)
        first = self._spot(tile * config.rows)
        panel = g.taps_r * g.taps_s * self._steps() * self.width
        weights = self.w + (group * g.blocks + block) * panel
        if self.panel is not None:
            local = (tile - chunk_first) * config.rows
            rows = [anchored(k, self.panel + (local + i) * g.depth) for i in range(config.rows)]
            self._accumulate(sums, rows, anchored(k, weights), 1)
        else:
            self._taps(sums, self._spots(first), self.x + group * g.depth * g.x_c, weights)
        self._finish(sums, first, group, block)

    def _accumulate(
        self, sums: list[list[Var]], rows: list[Ptr], weights: Ptr, steps: IntLike | list[Int]
    ) -> None:
        accumulate(
            self.k, sums, rows, weights, step=steps, pitch=self.width, count=self.g.depth,
            reduction=self.reduction,
        )  # fmt: skip

    def _steps(self) -> Int:
        """Steps of the reduction over the channels of one tap."""
        return (self.g.depth + 1) // 2 if self.config.pairs else self.g.depth

    def _taps(self, sums: list[list[Var]], spots: list[_Spot], x: Ptr, weights: Ptr) -> None:
        k, g = self.k, self.g
        if self.config.flat:
            rows = [anchored(k, x + s.q * g.x_w) for s in spots]
            step = 1 if self.config.unit else g.x_c
            self._accumulate(sums, rows, anchored(k, weights), step)
            return
        tops = [s.p * g.stride_h - g.pad_top for s in spots]
        lefts = [s.q * g.stride_w - g.pad_left for s in spots]
        origins = [
            s.n * g.x_n + top * g.x_h + left * g.x_w
            for s, top, left in zip(spots, tops, lefts, strict=True)
        ]
        starts = [x + origin for origin in origins]
        if self.zeros is None:
            self._inner_taps(sums, starts, weights)
            return
        column = spots[0].n.equals(spots[-1].n)  # the tile lies in one image, …
        line = column & spots[0].p.equals(spots[-1].p)  # … in one row of it
        edges = _Edges(column, line, tops, lefts)
        if self.config.shape != "once":
            self._edge_taps(sums, starts, edges, weights)
            return
        # With few channels the checks of every tap would cost more than its products.
        bottom = tops[-1] + (g.taps_r - 1) * g.dilation_h
        right = lefts[-1] + (g.taps_s - 1) * g.dilation_w
        inner = (tops[0] >= 0) & (bottom < g.height) & (lefts[0] >= 0) & (right < g.width)
        with k.when_else(line & inner) as (then, other):
            with then:
                self._inner_taps(sums, starts, weights)
            with other:
                self._edge_taps(sums, starts, edges, weights)

    def _panel(self, weights: Ptr, r: Int, s: Int) -> Ptr:
        pitch = self._steps() * self.width
        return anchored(self.k, weights + (r * self.g.taps_s + s) * pitch)

    def _inner_taps(self, sums: list[list[Var]], starts: list[Ptr], weights: Ptr) -> None:
        """All taps of a tile that lies inside the picture."""
        k, g = self.k, self.g
        rows = [anchored(k, start) for start in starts]
        with k.range(0, g.taps_r) as r, k.range(0, g.taps_s) as s:
            move = r * g.dilation_h * g.x_h + s * g.dilation_w * g.x_w
            moved = [row + move for row in rows]
            step = 1 if self.config.unit else g.x_c
            self._accumulate(sums, moved, self._panel(weights, r, s), step)

    def _edge_taps(
        self, sums: list[list[Var]], starts: list[Ptr], edges: _Edges, weights: Ptr
    ) -> None:
        """The taps of a tile that may leave the picture."""
        k, g = self.k, self.g
        with k.range(0, g.taps_r) as r:
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
                    panel = self._panel(weights, r, s)
                    self._accumulate(sums, rows, panel, 1 if self.config.unit else steps)

    def _reached(
        self, ordered: Bool, starts: list[Int], move: Int, limit: Int
    ) -> AbstractContextManager[None]:
        """Skip a tap that lies outside the picture for every pixel of a tile in order."""
        outside = (starts[-1] + move < 0) | (starts[0] + move >= limit)
        return self.k.when(~(ordered & outside))

    def _row(self, inside: Ptr, i: Int, j: Int) -> tuple[Ptr, Int]:
        """Elements at (i, j), zeros outside the picture, and their distance."""
        k, g = self.k, self.g
        assert self.zeros is not None
        seen = self._below(i, g.height) & self._below(j, g.width)
        return anchored(k, k.pick(seen, inside, self.zeros)), seen.select(g.x_c, 0)

    def _below(self, a: Int, limit: Int) -> Bool:
        """Whether `0 <= a < limit`, in one comparison."""
        return Bool(self.k.b, self.k.b.icmp_unsigned("<", a.value, limit.value))

    def _finish(self, sums: list[list[Var]], first: _Spot, group: Int, block: Int) -> None:
        k, g, config = self.k, self.g, self.config
        vectors = range(config.vectors)
        places = [self.epilogue.place(block * config.vectors + j, group) for j in vectors]
        for spot, tile in zip(self._spots(first), sums, strict=True):
            with k.when(spot.number < g.pixels):
                n, p, q = spot.n, spot.p, spot.q
                if config.spread:
                    p, q = p * g.step_h + g.first_h, q * g.step_w + g.first_w
                pixel = self.epilogue.pixel(n, p, q)
                for total, place in zip(tile, places, strict=True):
                    self.epilogue.finish(total.get(), pixel, place)

    # Prologue

    def _apply_prologue(self, first: Int, end: Int) -> None:
        """Apply the prologue to every pixel of the chunk, into this thread's scratch."""
        k, g = self.k, self.g
        start = first * self.config.rows
        stop = k.minimum_int(end * self.config.rows, g.pixels)
        with k.range(start, stop) as number:
            spot = self._spot(number)
            x = self.x + (
                spot.n * g.x_n + spot.p * g.stride_h * g.x_h + spot.q * g.stride_w * g.x_w
            )
            lanes = k.lanes if self.config.unit else 1
            main = g.depth // lanes * lanes
            with k.range(0, main, lanes) as c:
                self._prologue_at(spot, x, (number - start) * g.depth, c, lanes)
            with k.range(main, g.depth) as c:
                self._prologue_at(spot, x, (number - start) * g.depth, c, 1)

    def _prologue_at(self, spot: _Spot, x: Ptr, row: Int, c: Int, lanes: int) -> None:
        assert self.panel is not None
        values = [x.vec(c if self.config.unit else c * self.g.x_c, lanes=lanes)]
        for pointer, n_stride in zip(self.operands, self.operand_strides, strict=True):
            values.append(pointer.vec(spot.n * n_stride + c, lanes=lanes))
        value = emit_expr(self.k, parse(self.config.prologue), values)
        self.panel.store(value, row + c)


def emit_direct(k: Kernel, config: DirectConfig) -> None:
    """Emit the convolution that `config` describes."""
    _Direct(k, config).emit()
