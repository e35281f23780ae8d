"""The code of pooling: blocks of windows where there are any, windows one by one elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr, Var
from saccade.backends.cpu.codegen.values import Bool, Int, Mask, Vec
from saccade.kernels.cpu.pointwise.channel_epilogue import Finish
from saccade.kernels.cpu.pointwise.vector_elements import to_float
from saccade.kernels.cpu.pool.direct_blocks import PoolBlocks
from saccade.kernels.cpu.pool.direct_lanes import Floats, lanes_of, vector_lanes
from saccade.kernels.cpu.pool.direct_places import PoolPart

if TYPE_CHECKING:
    from saccade.kernels.cpu.pool.direct import PoolConfig

__all__ = ["PoolAxis", "PoolCode", "Range"]

_UNROLL = 4  # vectors of channels per window that is done alone


@dataclass(frozen=True, slots=True)
class PoolAxis:
    """Windows along one axis."""

    size: Int
    taps: Int
    stride: Int
    dilation: Int
    before: Int
    after: Int


@dataclass(frozen=True, slots=True)
class Range:
    """One window along one axis: first element, valid taps, divisor."""

    start: Int
    low: Int
    high: Int
    count: Int


class PoolCode:
    """Declares the parameters, emits the code."""

    def __init__(self, k: KernelBuilder, config: PoolConfig) -> None:
        self.k, self.config = k, config
        self.x: Ptr = k.pointer("x", config.element)
        self.y: Ptr = k.pointer("y", config.finish.element)
        self.zeros = k.scratch("zeros", config.element) if config.zeros else None
        self.width = vector_lanes(config.element, k.lanes)
        self.finish = Finish(k, config.finish)
        self.images, self.bands, self.band, self.blocks, self.block = k.integers(
            "images bands band blocks block"
        )
        self.channels, self.p, self.q, h, w = k.integers("channels p q h w")
        r, s, stride_h, stride_w, dilation_h, dilation_w, top, left, bottom, right = k.integers(
            "r s stride_h stride_w dilation_h dilation_w top left bottom right"
        )
        self.down = PoolAxis(h, r, stride_h, dilation_h, top, bottom)
        self.along = PoolAxis(w, s, stride_w, dilation_w, left, right)
        self.x_n, self.x_h, self.x_w = k.integers("x_n x_h x_w")
        self.y_n, self.y_h, self.y_w = k.integers("y_n y_h y_w")
        self.finish.declare_integers()

    def emit(self) -> None:
        """All chunks, with results past the caches where they are to go there and can."""
        with self.k.streams(self.y, [], self.config.streamed) as ways:
            for self.y in ways:
                self._chunks()

    def _chunks(self) -> None:
        """Image by image, band of rows by band, block of channels by block."""
        k = self.k
        with k.chunks(self.images * self.bands * self.blocks) as chunk:
            above, piece = chunk // self.blocks, chunk % self.blocks
            first, low = above % self.bands * self.band, piece * self.block
            part = PoolPart(
                above // self.bands,
                first,
                k.minimum_int(first + self.band, self.p),
                low,
                k.minimum_int(low + self.block, self.channels),
            )
            if self.config.rows:
                self._blocks(part)
            else:
                self._windows(part)

    def _blocks(self, part: PoolPart) -> None:
        k = self.k
        if self.zeros is not None:
            # Scratch holds anything when a chunk begins.
            with k.range(0, self.block + self.width, k.lanes) as i:
                self.zeros.store(k.zero(), i)
        zero = k.zero()
        # No lane has met one yet.
        nan = k.var(Vec(k.b, zero.compare("!=", zero).value))
        lanes = lanes_of(self, nan)
        PoolBlocks(self, part, lanes).emit()
        if isinstance(lanes, Floats) and self.config.kind == "max":
            with k.when(k.any_lane(Mask(k.b, nan.get().value))):  # which is rare
                self._windows(self._touched(part))

    def _touched(self, part: PoolPart) -> PoolPart:
        """What the blocks of a part write: more than the part where it is smaller than a step."""
        k, c = self.k, self.config
        first = k.minimum_int(part.first, self.p - c.height)
        low = part.low if c.masked else k.minimum_int(part.low, part.high - k.lanes)
        return replace(part, first=first, low=low)

    def _windows(self, part: PoolPart) -> None:
        """Windows one by one; maxima keep NaN."""
        with self.k.range(part.first, part.end) as p:
            rows = self.range(self.down, p)
            with self.k.range(0, self.q) as q:
                self._window((part.n, p, q), rows, part.low, part.high)

    def range(self, axis: PoolAxis, at: Int) -> Range:
        """The taps of window `at` along an axis."""
        k = self.k
        start = at * axis.stride - axis.before
        low = self._taps_below(axis, 0 - start)
        # Never less than `low`, so that counts are not negative.
        high = k.maximum_int(self._taps_below(axis, axis.size - start), low)
        count = high - low
        if self.config.include_pad:
            count = self._taps_below(axis, axis.size + axis.after - start)
        return Range(start, low, high, count)

    def _taps_below(self, axis: PoolAxis, distance: Int) -> Int:
        """How many taps stand before `distance`."""
        k = self.k
        positive = (distance > 0).select(distance, 0)
        return k.minimum_int((positive + (axis.dilation - 1)) // axis.dilation, axis.taps)

    def _window(self, place: tuple[Int, Int, Int], rows: Range, low: Int, high: Int) -> None:
        k, lanes = self.k, self.k.lanes
        n, p, q = place
        columns = self.range(self.along, q)
        inside = (columns.high - columns.low).equals(self.along.taps)
        source = n * self.x_n + rows.start * self.x_h + columns.start * self.x_w
        to = n * self.y_n + p * self.y_h + q * self.y_w
        divisor = None
        if self.config.kind == "average":
            taps = rows.count * columns.count
            divisor = Vec(k.b, k.b.sitofp(taps.value, k.vector_type(1)))
        many = low + (high - low) // (_UNROLL * lanes) * (_UNROLL * lanes)

        def block(channel: Int, count: int, mask: Mask | None) -> None:
            sums = _Sums(self, count, mask)
            sums.walk(source + channel, rows, columns, inside)
            for u, value in enumerate(sums.values(divisor)):
                c = channel + u * lanes
                self.y.store(self.finish.apply(value, place, c, mask), to + c, mask)

        with k.range(low, many, _UNROLL * lanes) as channel:
            block(channel, _UNROLL, None)
        with k.range(many, high, lanes) as channel:
            block(channel, 1, k.first(high - channel))


class _Sums:
    """Accumulators of a few vectors of channels of one window."""

    def __init__(self, pool: PoolCode, count: int, mask: Mask | None) -> None:
        self.pool, self.mask, self.k = pool, mask, pool.k
        k = pool.k
        self.maximum = pool.config.kind == "max"
        start = k.number(float("-inf")) if self.maximum else k.zero()
        self.sums: list[Var] = [k.var(start) for _ in range(count)]
        # Infinity equals itself: no lane is set.
        none = Vec(k.b, start.compare("!=", start).value)
        self.nans: list[Var] = [k.var(none) for _ in range(count)] if self.maximum else []

    def walk(self, source: Int, rows: Range, columns: Range, inside: Bool) -> None:
        """Take in every valid tap."""
        pool, k = self.pool, self.k
        step_h = pool.down.dilation * pool.x_h
        step_w = pool.along.dilation * pool.x_w
        with k.range(rows.low, rows.high) as r:
            line = source + r * step_h
            if pool.config.unrolled:
                # Most windows have all of their columns, and need no inner loop.
                with k.when_else(inside) as (then, other):
                    with then:
                        self._taps([line + step_w * s for s in range(pool.config.unrolled)])
                    with other, k.range(columns.low, columns.high) as s:
                        self._taps([line + s * step_w])
            else:
                with k.range(columns.low, columns.high) as s:
                    self._taps([line + s * step_w])

    def _taps(self, offsets: list[Int]) -> None:
        pool, k = self.pool, self.k
        for u, total in enumerate(self.sums):
            loaded = [
                to_float(k, pool.x.vec(o + u * k.lanes, self.mask), pool.config.element)
                for o in offsets
            ]
            value = total.get()
            for v in loaded:
                value = k.maximum(value, v) if self.maximum else value + v
            total.set(value)
            if self.maximum:
                self._note_nans(u, loaded)

    def _note_nans(self, u: int, loaded: list[Vec]) -> None:
        """The maximum instruction loses NaN; one unordered comparison sees to two vectors."""
        b = self.k.b
        found = self.nans[u].get().value
        for i in range(0, len(loaded), 2):
            last = loaded[min(i + 1, len(loaded) - 1)]
            found = b.or_(found, b.fcmp_unordered("uno", loaded[i].value, last.value))
        self.nans[u].set(Vec(b, found))

    def values(self, divisor: Vec | None) -> list[Vec]:
        """The results before the epilogue."""
        k = self.k
        sums: list[Vec] = [s.get() for s in self.sums]
        if divisor is not None:
            return [s / k.broadcast(divisor) for s in sums]
        nan = k.number(float("nan"))
        return [
            Mask(k.b, n.get().value).select(nan, s) for n, s in zip(self.nans, sums, strict=True)
        ]
