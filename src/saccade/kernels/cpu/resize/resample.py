"""Interpolation along one axis as a sparse matrix, with as many taps as the axis needs.

    y[o, p, i] = fill[p] + Σ_j weights[p, j] · x[o, first[p] + j, i]

o and i are what lies outside and inside of the axis in memory, row-major or channels-last. The
tables are packed constants, made for the sizes when the plan is made: filters of an antialiased
resize are as wide as an element of its result. Vectors go along i, for a block of neighbours at a
time, so that a sum stays in registers. Positions outside a region read nothing and are the fill.
Refuses operands and results with gaps or in different orders, and types other than float32, float16
and bfloat16.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from saccade.backends.cpu.codegen.calling import real_word
from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.backends.cpu.codegen.values import Int, Mask
from saccade.kernels.base import In, Launch, Operand, Out, Packed, Packing, View
from saccade.kernels.cpu.base import CpuCall, CpuKernel, single_variant
from saccade.kernels.cpu.machine import machine
from saccade.kernels.cpu.pointwise.vector_elements import FLOATS, from_float, to_float
from saccade.kernels.cpu.refusals import refuse_types
from saccade.kernels.cpu.resize.pack_resample import resample_weights
from saccade.opdefs import Resample

__all__ = ["RESIZE_RESAMPLE", "ResampleConfig"]

_UNROLL = 4
_CHUNKS = 8  # for each thread


@dataclass(frozen=True)
class ResampleConfig:
    """What the code depends on.

    Attributes:
        x: Element type of the operand.
        y: Element type of the result.
    """

    x: str
    y: str


def _order(view: View) -> tuple[int, ...] | None:
    """The axes from the outermost to the innermost in memory, where nothing lies between."""
    rank = len(view.shape)
    orders = [tuple(range(rank))]
    if rank == 4:
        orders.append((0, 2, 3, 1))
    for order in orders:
        sizes = [view.shape[axis] for axis in order]
        steps = [prod(sizes[i + 1 :]) for i in range(rank)]
        if all(
            size == 1 or view.strides[axis] == step
            for axis, size, step in zip(order, sizes, steps, strict=True)
        ):
            return order
    return None


def _shared_order(x: View, y: View) -> tuple[int, ...] | None:
    """The order of both; one of 1 x 1 or of one channel may be in either."""
    if 0 in y.shape:
        return tuple(range(len(y.shape)))
    found = [_order(x), _order(y)]
    if None in found:
        return None
    if found[0] == found[1]:
        return found[0]
    # What has one order only decides; the other one must fit it as well.
    for order in found:
        assert order is not None
        if all(_fits(view, order) for view in (x, y)):
            return order
    return None


def _fits(view: View, order: Sequence[int]) -> bool:
    step = 1
    for axis in reversed(order):
        if view.shape[axis] != 1 and view.strides[axis] != step:
            return False
        step *= view.shape[axis]
    return True


def supports(call: CpuCall) -> str | None:
    """Why this kernel cannot take the call."""
    x, y = call.inputs[0], call.outputs[0]
    if _shared_order(x, y) is None:
        return "the operand and the result have gaps, or different orders"
    return refuse_types((x, y), FLOATS)


def _tables(call: CpuCall) -> tuple[Packed, Packed, int]:
    """Spans and weights, and how many weights there are for a position."""
    op: Resample = call.op
    before, after = call.inputs[0].shape[op.axis], call.outputs[0].shape[op.axis]
    rule = op.rule(before, after)
    # Plans keep plain tuples.
    parameters = (tuple(rule), before, after)
    most = resample_weights(rule, before, after).shape[1] if after else 1
    spans = Packing("resample_spans", parameters, (), 8 * after)
    weights = Packing("resample_weights", parameters, (), 4 * after * most)
    return Packed(spans), Packed(weights), most


def launch(call: CpuCall) -> tuple[Launch, ...]:
    """One phase; a chunk is a few positions of the axis, for one or all that lies outside."""
    x, y, op = call.inputs[0], call.outputs[0], call.op
    order = _shared_order(x, y)
    assert order is not None
    at = order.index(op.axis)
    outer = prod(y.shape[axis] for axis in order[:at])
    inner = prod(y.shape[axis] for axis in order[at + 1 :])
    before, after = x.shape[op.axis], y.shape[op.axis]
    spans, weights, most = _tables(call)
    lines = outer * after if inner else 0
    per_chunk = max(1, -(-lines // (_CHUNKS * call.threads)))
    chunks = -(-lines // per_chunk)
    integers = {
        "lines": lines,
        "per_chunk": per_chunk,
        "before": before,
        "after": after,
        "inner": inner,
        "most": most,
        "fill": real_word(op.fill),
    }
    operands: dict[str, Operand] = {
        "x": In(0), "y": Out(0), "spans": spans, "weights": weights,
    }  # fmt: skip
    return (Launch(ResampleConfig(x.dtype.value, y.dtype.value), operands, integers, chunks),)


def emit(k: KernelBuilder, config: ResampleConfig) -> None:
    """The code of one configuration."""
    _Resample(k, config).emit()


class _Resample:
    def __init__(self, k: KernelBuilder, config: ResampleConfig) -> None:
        self.k, self.config = k, config
        self.x, self.y = k.pointer("x", config.x), k.pointer("y", config.y)
        self.spans, self.weights = k.pointer("spans", "int32"), k.pointer("weights")
        self.lines, self.per_chunk, self.before, self.after, self.inner, self.most = k.integers(
            "lines per_chunk before after inner most"
        )
        self.fill = k.broadcast(k.convert(k.real("fill"), "float32"))

    def emit(self) -> None:
        """All lines: one position of the axis with all that lies inside of it."""
        k = self.k
        with k.chunks((self.lines + (self.per_chunk - 1)) // self.per_chunk) as chunk:
            low = chunk * self.per_chunk
            with k.range(low, k.minimum_int(low + self.per_chunk, self.lines)) as line:
                outer, p = line // self.after, line % self.after
                first, count = self.spans.load_int(p * 2), self.spans.load_int(p * 2 + 1)
                source = (outer * self.before + first) * self.inner
                self._line(source, count, p * self.most, line * self.inner)

    def _line(self, source: Int, count: Int, weights: Int, to: Int) -> None:
        k, block = self.k, _UNROLL * self.k.lanes
        many = self.inner // block * block
        with k.range(0, many, block) as at:
            self._block((source + at, count, weights, to + at), _UNROLL, None)
        with k.range(many, self.inner, k.lanes) as at:
            self._block((source + at, count, weights, to + at), 1, k.first(self.inner - at))

    def _block(self, place: tuple[Int, Int, Int, Int], vectors: int, mask: Mask | None) -> None:
        """Sums of some vectors, in registers over all neighbours."""
        k, lanes = self.k, self.k.lanes
        source, count, weights, to = place
        start = (count > 0).choose(k.zero(lanes), self.fill)
        sums = [k.var(start) for _ in range(vectors)]
        with k.range(0, count) as j:
            weight = k.broadcast(self.weights.load(weights + j))
            for u, total in enumerate(sums):
                at = source + j * self.inner + u * lanes
                value = to_float(k, self.x.vec(at, mask), self.config.x)
                total.set(k.fma(value, weight, total.get()))
        for u, total in enumerate(sums):
            self.y.store(from_float(k, total.get(), self.config.y), to + u * lanes, mask)


def cost(call: CpuCall) -> float:
    """Microseconds: a load and an operation per tap, by vectors along what lies inside."""
    x, y = call.inputs[0], call.outputs[0]
    *_, most = _tables(call)
    order = _shared_order(x, y) or ()
    inner = prod(y.shape[axis] for axis in order[order.index(call.op.axis) + 1 :])
    filled = inner / (-(-inner // call.target.lanes) * call.target.lanes) if inner else 1.0
    flops = (4.0 * most + 8) * y.size / filled
    return machine(call.target).roofline(flops, x.nbytes + y.nbytes, call.threads, 0.5)


RESIZE_RESAMPLE = CpuKernel(
    "resize.resample", (Resample,), ResampleConfig, supports, single_variant(launch, cost), emit
)
