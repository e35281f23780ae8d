"""Pooling of channels-last pictures: vectors over channels, windows clipped at the borders.

    y[n, c, p, q] = epilogue(max or mean over the taps (r, s) that lie on the picture)

Windows whose columns lie on the picture are taken a few at a time, so that they share what is
found of each column (`shared_columns`). The others walk their valid rows and columns one by one, so
no padding is ever read. A mean divides by the exact number of taps. NaN wins a maximum. Refuses
planar pictures (the layout converts), float64 and integers.
"""

from __future__ import annotations

from dataclasses import dataclass

from saccade.codegen.language import Kernel, Ptr, Var
from saccade.codegen.values import Bool, Int, Mask, Vec
from saccade.kernels.base import Call, CpuKernel, In, Launch, Out, one_way
from saccade.kernels.machine import machine
from saccade.kernels.pointwise.elements import FLOATS, to_float
from saccade.kernels.pointwise.finish import Finish, FinishCode, plan_finish
from saccade.kernels.pool.shared_columns import SharedColumns
from saccade.opdefs.pool import Pool2d

__all__ = ["POOL", "PoolConfig"]

_UNROLL = 4  # vectors of channels per window
_MOST_COLUMNS = 8  # columns of a window that are unrolled
_REGISTERS = 12  # columns of neighbouring windows that are held at a time


@dataclass(frozen=True)
class PoolConfig:
    """What the code depends on.

    Attributes:
        kind: `max` or `average`.
        columns: Taps per row of a window where they are unrolled, else 0.
        element: Element type of the picture.
        windows: How many windows share their columns, 0 where none do.
        stride: Columns from window to window where they share, else 0.
        include_pad: Whether means count taps in the padding.
        finish: The epilogue.
    """

    kind: str
    columns: int
    windows: int
    stride: int
    element: str
    include_pad: bool
    finish: FinishCode


def supports(call: Call) -> str | None:
    """Why this kernel cannot take the call."""
    x, out = call.inputs[0], call.outputs[0]
    if x.dtype not in FLOATS:
        return f"elements of type {x.dtype.value}"
    if not (x.channels_last and out.channels_last):
        return "planar pictures"
    plan = plan_finish(call.op.epilogue, call.inputs[1:], 1, out, 1)
    return plan if isinstance(plan, str) else None


def launch(call: Call) -> tuple[Launch, ...]:
    """One phase; a chunk is a row of windows, or a block of its channels."""
    op, x, out = call.op, call.inputs[0], call.outputs[0]
    finish = plan_finish(op.epilogue, call.inputs[1:], 1, out, 1)
    assert not isinstance(finish, str)
    n, channels, p, q = out.shape
    rows = n * p
    columns = op.kernel[1] if op.kernel[1] <= _MOST_COLUMNS else 0
    windows = _shared_windows(columns, op.stride[1], op.dilation[1])
    config = PoolConfig(
        op.kind, columns, windows, op.stride[1] if windows else 0, x.dtype.value,
        op.count_include_pad, finish.code,
    )  # fmt: skip
    block = _channel_block(channels, rows, call.threads, call.target.lanes)
    blocks = -(-channels // block) if q else 0
    integers = (
        *(rows * blocks, blocks, block, channels, p, q, x.shape[2], x.shape[3]),
        *(*op.kernel, *op.stride, *op.dilation, *op.padding),
        *(x.strides[0], x.strides[2], x.strides[3]),
        *(out.strides[0], out.strides[2], out.strides[3]),
        *finish.integers,
    )
    return (Launch(config, (In(0), Out(0), *finish.operands), integers, rows * blocks),)


def _shared_windows(columns: int, stride: int, dilation: int) -> int:
    """Windows that are taken at a time: as many as hold all of their columns in registers."""
    if columns == 0 or dilation != 1:
        return 0
    return max(0, (_REGISTERS - columns) // stride + 1)


def _channel_block(channels: int, rows: int, threads: int, lanes: int) -> int:
    """All channels, unless there are too few rows of windows for the team."""
    whole = max(1, channels)
    if rows >= 4 * threads or rows == 0:
        return whole
    vectors = -(-whole // lanes)
    pieces = min(vectors, -(-4 * threads // rows))
    return -(-vectors // pieces) * lanes


@dataclass(frozen=True, slots=True)
class _Axis:
    """Windows along one axis."""

    size: Int
    taps: Int
    stride: Int
    dilation: Int
    before: Int
    after: Int


@dataclass(frozen=True, slots=True)
class _Range:
    """One window along one axis: first element, valid taps, divisor."""

    start: Int
    low: Int
    high: Int
    count: Int


def emit(k: Kernel, config: PoolConfig) -> None:
    """The code of one configuration."""
    _Pool(k, config).emit()


class _Pool:
    def __init__(self, k: Kernel, config: PoolConfig) -> None:
        self.k, self.config = k, config
        self.x: Ptr = k.pointer("x", config.element)
        self.y: Ptr = k.pointer("y", config.finish.element)
        self.finish = Finish(k, config.finish)
        self.chunks, self.blocks, self.block, self.channels, self.p, self.q, h, w = k.integers(
            "chunks blocks block channels p q h w"
        )
        r, s, stride_h, stride_w, dilation_h, dilation_w, top, left, bottom, right = k.integers(
            "r s stride_h stride_w dilation_h dilation_w top left bottom right"
        )
        self.down = _Axis(h, r, stride_h, dilation_h, top, bottom)
        self.along = _Axis(w, s, stride_w, dilation_w, left, right)
        self.x_n, self.x_h, self.x_w = k.integers("x_n x_h x_w")
        self.y_n, self.y_h, self.y_w = k.integers("y_n y_h y_w")
        self.finish.declare_integers()

    def emit(self) -> None:
        """All chunks."""
        k = self.k
        with k.chunks(self.chunks) as chunk:
            row, piece = chunk // self.blocks, chunk % self.blocks
            n, p = row // self.p, row % self.p
            low = piece * self.block
            high = k.minimum_int(low + self.block, self.channels)
            rows = self._range(self.down, p)
            if self.config.windows < 2:
                with k.range(0, self.q) as q:
                    self._window((n, p, q), rows, low, high)
            else:
                self._row((n, p), rows, low, high)

    def _row(self, place: tuple[Int, Int], rows: _Range, low: Int, high: Int) -> None:
        """Windows at the borders one by one, those between a few at a time."""
        k, c = self.k, self.config
        lead = k.minimum_int((self.along.before + (c.stride - 1)) // c.stride, self.q)
        room = self.along.size + self.along.before - c.columns
        inner = k.minimum_int((room >= 0).select(room // c.stride + 1, 0), self.q)
        groups = (rows.high > rows.low).select(k.maximum_int(inner - lead, 0) // c.windows, 0)
        rest = self.q - groups * c.windows
        with k.range(0, groups + rest) as turn:
            after = turn - lead
            shared = (after >= 0) & (after < groups)
            skipped = k.minimum_int(k.maximum_int(after, 0), groups) * (c.windows - 1)
            q, count = turn + skipped, k.var(shared.select(c.windows, 1))
            with k.when(shared):
                columns = self._range(self.along, q)
                source = place[0] * self.x_n + rows.start * self.x_h + columns.start * self.x_w
                block = SharedColumns(self, (*place, q), rows, source)
                count.set(block.walk(low, high).select(c.windows, 0))
            # Alone at a border, or all of a group that has a NaN in it, which is rare.
            with k.range(q, q + count.get()) as one:
                self._window((*place, one), rows, low, high)

    def _range(self, axis: _Axis, at: Int) -> _Range:
        k = self.k
        start = at * axis.stride - axis.before
        low = self._taps_below(axis, 0 - start)
        high = k.maximum_int(self._taps_below(axis, axis.size - start), low)
        count = high - low
        if self.config.include_pad:
            count = self._taps_below(axis, axis.size + axis.after - start)
        return _Range(start, low, high, count)

    def _taps_below(self, axis: _Axis, distance: Int) -> Int:
        """How many taps stand before `distance`."""
        k = self.k
        positive = (distance > 0).select(distance, 0)
        return k.minimum_int((positive + (axis.dilation - 1)) // axis.dilation, axis.taps)

    def _window(self, place: tuple[Int, Int, Int], rows: _Range, low: Int, high: Int) -> None:
        k, lanes = self.k, self.k.lanes
        n, p, q = place
        columns = self._range(self.along, q)
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

    def __init__(self, pool: _Pool, count: int, mask: Mask | None) -> None:
        self.pool, self.mask, self.k = pool, mask, pool.k
        k = pool.k
        self.maximum = pool.config.kind == "max"
        start = k.number(float("-inf")) if self.maximum else k.zero()
        self.sums: list[Var] = [k.var(start) for _ in range(count)]
        none = Vec(k.b, start.compare("!=", start).value)
        self.nans: list[Var] = [k.var(none) for _ in range(count)] if self.maximum else []

    def walk(self, source: Int, rows: _Range, columns: _Range, inside: Bool) -> None:
        """Take in every valid tap."""
        pool, k = self.pool, self.k
        step_h = pool.down.dilation * pool.x_h
        step_w = pool.along.dilation * pool.x_w
        with k.range(rows.low, rows.high) as r:
            line = source + r * step_h
            if pool.config.columns:
                with k.when_else(inside) as (then, other):
                    with then:
                        self._taps([line + step_w * s for s in range(pool.config.columns)])
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


def cost(call: Call) -> float:
    """Microseconds: a load and an operation per valid tap."""
    out, x = call.outputs[0], call.inputs[0]
    taps = call.op.kernel[0] * call.op.kernel[1]
    nbytes = x.nbytes + out.nbytes
    return machine(call.target).roofline(4.0 * taps * out.size, nbytes, call.threads, 0.5)


POOL = CpuKernel("pool.direct", (Pool2d,), PoolConfig, supports, one_way(launch, cost), emit)
