"""Interpolation of channels-last images pixel by pixel: vectors over channels.

    y[n, c, p, q] = epilogue(Σ_j Σ_i rows[p, i] · columns[q, j] · x[n, c, h(p, i), w(q, j)])

with 1, 2 or 4 taps per axis (nearest, linear, cubic); the sum takes the taps of a column one after
the other, from the first on. The tables are packed constants, made for the sizes when the plan is
made. What is best where rows of the image are hardly used twice; `rows` does the others.
Refuses planar operands and results, other ranks, resized batches or channels, and types other than
float32, float16 and bfloat16.
"""

from __future__ import annotations

from dataclasses import dataclass

from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.backends.cpu.codegen.values import Int, Mask, Vec
from saccade.kernels.base import In, Launch, Out, image_strides
from saccade.kernels.cpu.base import CpuCall, CpuKernel, single_variant
from saccade.kernels.cpu.machine import machine
from saccade.kernels.cpu.pointwise.channel_epilogue import Finish, FinishCode, plan_finish
from saccade.kernels.cpu.pointwise.vector_elements import to_float
from saccade.kernels.cpu.resize.axis_tables import axis, refusal, weighted
from saccade.opdefs.resize import Resize

__all__ = ["RESIZE", "ResizeConfig"]

_UNROLL = 4


@dataclass(frozen=True)
class ResizeConfig:
    """What the code depends on.

    Attributes:
        rows: Taps along the rows of the image.
        columns: Taps along its columns.
        element: Element type of the image.
        finish: The epilogue.
    """

    rows: int
    columns: int
    element: str
    finish: FinishCode


def supports(call: CpuCall) -> str | None:
    """Why this kernel cannot take the call."""
    reason, out = refusal(call), call.outputs[0]
    if reason is not None:
        return reason
    if not out.channels_last:
        return "a result that is not channels-last"
    plan = plan_finish(call)
    return plan if isinstance(plan, str) else None


def launch(call: CpuCall) -> tuple[Launch, ...]:
    """One phase; a chunk is a few rows of the result."""
    x, out = call.inputs[0], call.outputs[0]
    finish = plan_finish(call)
    assert not isinstance(finish, str)
    rows, columns = axis(call, 2), axis(call, 3)
    config = ResizeConfig(rows.taps, columns.taps, x.dtype.value, finish.code)
    n, channels, p, q = out.shape
    # Nothing to claim where the result is empty, and nothing below is divided by 0.
    lines = n * p if channels and q else 0
    per_chunk = max(1, min(-(-lines // (8 * call.threads)), 65536 // max(1, channels * q)))
    chunks = -(-lines // per_chunk)
    integers: dict[str, int | tuple[int, ...]] = {
        "chunks": chunks,
        "per_chunk": per_chunk,
        "lines": lines,
        "channels": channels,
        "p": p,
        "q": q,
        **image_strides("x", x.strides),
        **image_strides("y", out.strides),
        **finish.integers,
    }
    tables = {**rows.operands("row"), **columns.operands("column")}
    operands = {"x": In(0), "y": Out(0), **tables, **finish.operands}
    return (Launch(config, operands, integers, chunks),)


def emit(k: KernelBuilder, config: ResizeConfig) -> None:
    """The code of one configuration."""
    _Resize(k, config).emit()


class _Resize:
    def __init__(self, k: KernelBuilder, config: ResizeConfig) -> None:
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
        self.y_n, self.y_h, self.y_w = k.integers("y_n y_h y_w")
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
            # One product for all channels of the pixel.
            weights.extend(k.broadcast(w * across) for w in down)
        return offsets, weights

    def _pixel(self, place: tuple[Int, Int, Int], lines: list[Int], down: list[Vec]) -> None:
        k, lanes = self.k, self.k.lanes
        n, p, q = place
        offsets, weights = self._taps(q, lines, down)
        to = n * self.y_n + p * self.y_h + q * self.y_w
        many = self.channels // (_UNROLL * lanes) * (_UNROLL * lanes)

        def block(channel: Int, count: int, mask: Mask | None) -> None:
            for u in range(count):
                c = channel + u * lanes
                value = self._sum([o + c for o in offsets], weights, mask)
                self.y.store(self.finish.apply(value, place, c, mask), to + c, mask)

        with k.range(0, many, _UNROLL * lanes) as channel:
            block(channel, _UNROLL, None)
        # The rest goes vector by vector, under a mask that only cuts the last one.
        with k.range(many, self.channels, lanes) as channel:
            block(channel, 1, k.first(self.channels - channel))

    def _sum(self, offsets: list[Int], weights: list[Vec], mask: Mask | None) -> Vec:
        values = [to_float(self.k, self.x.vec(o, mask), self.config.element) for o in offsets]
        return weighted(self.k, values, weights)


def cost(call: CpuCall) -> float:
    """Microseconds: a load and an operation per tap."""
    x, out = call.inputs[0], call.outputs[0]
    taps = axis(call, 2).taps * axis(call, 3).taps
    nbytes = x.nbytes + out.nbytes
    return machine(call.target).roofline((4.0 * taps + 8) * out.size, nbytes, call.threads, 0.5)


RESIZE = CpuKernel(
    "resize.direct", (Resize,), ResizeConfig, supports, single_variant(launch, cost), emit
)
