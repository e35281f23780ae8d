"""Interpolation of channels-last pictures: vectors over channels, separable tables of taps.

    y[n, c, p, q] = epilogue(Σ_i Σ_j rows[p, i] · columns[q, j] · x[n, c, h(p, i), w(q, j)])

with 1, 2 or 4 taps per axis (nearest, linear, cubic). The tables are packed constants, made for
the sizes when the plan is made. A planar float32 result (the caller's memory) is written in
squares: as many pixels as a vector has lanes, transposed in registers.
Refuses planar operands, other ranks, resized batches or channels, and types other than float32,
float16 and bfloat16.
"""

from __future__ import annotations

from dataclasses import dataclass

from saccade.codegen.language import Kernel
from saccade.codegen.values import Int, Mask, Vec
from saccade.ir import DType
from saccade.kernels.base import (
    Call,
    CpuKernel,
    In,
    Launch,
    Out,
    Packed,
    Packing,
    View,
    one_way,
)
from saccade.kernels.machine import machine
from saccade.kernels.movement.networks import transpose
from saccade.kernels.pointwise.elements import FLOATS, to_float
from saccade.kernels.pointwise.finish import Finish, FinishCode, plan_finish
from saccade.kernels.resize.pack import TAPS
from saccade.opdefs.resize import Resize

__all__ = ["RESIZE", "ResizeConfig"]

_UNROLL = 4


@dataclass(frozen=True)
class ResizeConfig:
    """What the code depends on.

    Attributes:
        rows: Taps along the rows of the picture.
        columns: Taps along its columns.
        element: Element type of the picture.
        finish: The epilogue.
        planar: Whether neighbouring columns of the result are neighbours in memory, not channels.
    """

    rows: int
    columns: int
    element: str
    finish: FinishCode
    planar: bool


def _scale(op: Resize, before: int, after: int, axis: int) -> float:
    return (after / before if before else 1.0) if op.scales is None else op.scales[axis]


def _stays(call: Call, axis: int) -> bool:
    before, after = call.inputs[0].shape[axis], call.outputs[0].shape[axis]
    return before == after and _scale(call.op, before, after, axis) == 1


def _planar(out: View) -> bool:
    return out.dtype is DType.F32 and out.strides[3] == 1


def supports(call: Call) -> str | None:
    """Why this kernel cannot take the call."""
    x, out = call.inputs[0], call.outputs[0]
    if x.dtype not in FLOATS:
        return f"elements of type {x.dtype.value}"
    if len(x.shape) != 4:
        return f"{len(x.shape)} axes"
    if not (_stays(call, 0) and _stays(call, 1)):
        return "a resized batch or channels"
    if not x.channels_last:
        return "a planar operand"
    if not out.channels_last and not _planar(out):
        return "a result that is neither channels-last nor planar float32"
    plan = plan_finish(call.op.epilogue, call.inputs[1:], 1, out, 1)
    return plan if isinstance(plan, str) else None


def _tables(call: Call, axis: int) -> tuple[int, tuple[Packed, Packed]]:
    """Taps along an axis, and its tables of indices and weights."""
    op: Resize = call.op
    before, after = call.inputs[0].shape[axis], call.outputs[0].shape[axis]
    scale = _scale(op, before, after, axis)
    mode, kind = ("nearest", "asymmetric") if _stays(call, axis) else (op.mode, op.coordinate)
    taps = TAPS[mode]
    indices = Packing(
        "axis_indices", (mode, kind, op.nearest, before, after, scale), (), 4 * after * taps
    )
    weights = Packing(
        "axis_weights", (mode, kind, before, after, scale, op.cubic_a, op.exclude_outside), (),
        4 * after * taps,
    )  # fmt: skip
    return taps, (Packed(indices), Packed(weights))


def launch(call: Call) -> tuple[Launch, ...]:
    """One phase; a chunk is a few rows of the result."""
    op, x, out = call.op, call.inputs[0], call.outputs[0]
    finish = plan_finish(op.epilogue, call.inputs[1:], 1, out, 1)
    assert not isinstance(finish, str)
    (rows, row_tables), (columns, column_tables) = _tables(call, 2), _tables(call, 3)
    planar = not out.channels_last
    config = ResizeConfig(rows, columns, x.dtype.value, finish.code, planar)
    n, channels, p, q = out.shape
    lines = n * p if channels and q else 0
    per_chunk = max(1, min(-(-lines // (8 * call.threads)), 65536 // max(1, channels * q)))
    chunks = -(-lines // per_chunk)
    integers = (
        *(chunks, per_chunk, lines, channels, p, q),
        *(x.strides[0], x.strides[2], x.strides[3]),
        *(out.strides[0], out.strides[2], out.strides[1 if planar else 3]),
        *finish.integers,
    )
    operands = (In(0), Out(0), *row_tables, *column_tables, *finish.operands)
    return (Launch(config, operands, integers, chunks),)


def emit(k: Kernel, config: ResizeConfig) -> None:
    """The code of one configuration."""
    _Resize(k, config).emit()


class _Resize:
    def __init__(self, k: Kernel, config: ResizeConfig) -> None:
        self.k, self.config = k, config
        self.x, self.y = k.pointer("x", config.element), k.pointer("y", config.finish.element)
        self.row_at, self.row_weights = k.pointer("row_at", "int32"), k.pointer("row_weights")
        self.column_at = k.pointer("column_at", "int32")
        self.column_weights = k.pointer("column_weights")
        self.finish = Finish(k, config.finish)
        self.chunks, self.per_chunk, self.lines, self.channels, self.p, self.q = k.integers(
            "chunks per_chunk lines channels p q"
        )
        self.x_n, self.x_h, self.x_w = k.integers("x_n x_h x_w")
        self.y_n, self.y_h, self.y_step = k.integers("y_n y_h y_step")
        self.finish.declare_integers()

    def emit(self) -> None:
        """All lines of the result."""
        k, config = self.k, self.config
        with k.chunks(self.chunks) as chunk:
            low = chunk * self.per_chunk
            high = k.minimum_int(low + self.per_chunk, self.lines)
            with k.range(low, high) as line:
                n, p = line // self.p, line % self.p
                lines, down = [], []
                for i in range(config.rows):
                    at = p * config.rows + i
                    lines.append(n * self.x_n + self.row_at.load_int(at) * self.x_h)
                    down.append(self.row_weights.load(at))
                if config.planar:
                    with k.range(0, self.q, k.lanes) as q:
                        self._square((n, p, q), lines, down)
                else:
                    with k.range(0, self.q) as q:
                        self._pixel((n, p, q), lines, down)

    def _taps(self, q: Int, lines: list[Int], down: list[Vec]) -> tuple[list[Int], list[Vec]]:
        """Offsets into x and weights of the taps of column q."""
        k, config = self.k, self.config
        offsets: list[Int] = []
        weights: list[Vec] = []
        for j in range(config.columns):
            at = q * config.columns + j
            step = self.column_at.load_int(at) * self.x_w
            across = self.column_weights.load(at)
            offsets.extend(line + step for line in lines)
            weights.extend(k.broadcast(w * across) for w in down)
        return offsets, weights

    def _pixel(self, place: tuple[Int, Int, Int], lines: list[Int], down: list[Vec]) -> None:
        k, lanes = self.k, self.k.lanes
        n, p, q = place
        offsets, weights = self._taps(q, lines, down)
        to = n * self.y_n + p * self.y_h + q * self.y_step
        many = self.channels // (_UNROLL * lanes) * (_UNROLL * lanes)

        def block(channel: Int, count: int, mask: Mask | None) -> None:
            for u in range(count):
                c = channel + u * lanes
                value = self._sum([o + c for o in offsets], weights, mask)
                self.y.store(self.finish.apply(value, place, c, mask), to + c, mask)

        with k.range(0, many, _UNROLL * lanes) as channel:
            block(channel, _UNROLL, None)
        with k.range(many, self.channels, lanes) as channel:
            block(channel, 1, k.first(self.channels - channel))

    def _square(self, place: tuple[Int, Int, Int], lines: list[Int], down: list[Vec]) -> None:
        """As many columns as a vector has lanes, of all channels."""
        k, lanes = self.k, self.k.lanes
        n, p, first = place
        inside = k.first(self.q - first)
        to = n * self.y_n + p * self.y_h + first
        with k.range(0, self.channels, lanes) as channel:
            mask = k.first(self.channels - channel)
            pixels = []
            for i in range(lanes):
                # Past the last column, that column is computed again and not stored.
                q = k.minimum_int(first + i, self.q - 1)
                offsets, weights = self._taps(q, lines, down)
                value = self._sum([o + channel for o in offsets], weights, mask)
                pixels.append(self.finish.apply(value, (n, p, q), channel, mask))
            for i, row in enumerate(transpose(k, pixels)):
                with k.when(channel + i < self.channels):
                    self.y.store(row, to + (channel + i) * self.y_step, inside)

    def _sum(self, offsets: list[Int], weights: list[Vec], mask: Mask | None) -> Vec:
        k = self.k
        values = [to_float(k, self.x.vec(o, mask), self.config.element) for o in offsets]
        if len(values) == 1:  # nearest: every weight is 1
            return values[0]
        total = values[0] * weights[0]
        for value, weight in zip(values[1:], weights[1:], strict=True):
            total = k.fma(value, weight, total)
        return total


def cost(call: Call) -> float:
    """Microseconds: a load and an operation per tap."""
    x, out = call.inputs[0], call.outputs[0]
    taps = TAPS[call.op.mode] ** 2
    nbytes = x.nbytes + out.nbytes
    return machine(call.target).roofline((4.0 * taps + 8) * out.size, nbytes, call.threads, 0.5)


RESIZE = CpuKernel("resize.direct", (Resize,), ResizeConfig, supports, one_way(launch, cost), emit)
