"""Interpolation of channels-last pictures by rows: along each row of the picture, then between.

    s[h, q, c] = Σ_j columns[q, j] · x[n, c, h, w(q, j)]
    y[n, c, p, q] = epilogue(Σ_i rows[p, i] · s[h(p, i), q, c])

Each sum takes its taps from the first on. A chunk walks down a band of rows of some columns of the
result. Of the interpolated rows s it keeps as many as there are taps, in float32, in the result's
order (for a planar one they are transposed in registers), and makes one only when a row of the
result needs it first: eight times as high a picture interpolates its columns an eighth as often,
and what is left for each row of the result is whole vectors. Bands begin with the same rows again,
so they are not short. Results that the caches do not hold go past them.
Refuses what `axes.refusal` names, and results that are neither channels-last nor planar.
"""

from __future__ import annotations

from dataclasses import dataclass

from saccade.codegen.streams import LINE
from saccade.kernels.base import Call, CpuKernel, In, Launch, Out, Scratch, View, one_way
from saccade.kernels.machine import beyond_caches, machine
from saccade.kernels.pointwise.finish import plan_finish
from saccade.kernels.resize.axes import Axis, axis, refusal
from saccade.kernels.resize.rows_code import RowsConfig, emit
from saccade.opdefs.resize import Resize

__all__ = ["RESIZE_ROWS"]

_CHUNKS = 8  # for each thread, where that makes no short bands
_BAND = 4  # rows of the picture between the first and the last of a band, at least
_PART = 4  # wide vectors of a planar row in a chunk, at least


def supports(call: Call) -> str | None:
    """Why this kernel cannot take the call."""
    reason, out = refusal(call), call.outputs[0]
    if reason is not None:
        return reason
    if not out.channels_last and out.strides[3] != 1:
        return "a result that is neither channels-last nor planar"
    plan = plan_finish(call.op.epilogue, call.inputs[1:], 1, out, _vector_axis(out))
    return plan if isinstance(plan, str) else None


def _vector_axis(out: View) -> int:
    return 1 if out.channels_last else 3


@dataclass(frozen=True, slots=True)
class _Cut:
    """The parts of a result.

    Attributes:
        columns: Columns of a part.
        parts: Parts side by side.
        band: Rows of a band.
        bands: Bands one below the other.
        slot: Elements of the scratch that a row takes.
    """

    columns: int
    parts: int
    band: int
    bands: int
    slot: int


def _cut(call: Call, rows: Axis, side: int) -> _Cut:
    """As many columns as keep their rows in the first cache, and bands to busy the team."""
    (n, channels, p, q), wide = call.outputs[0].shape, 2 * call.target.lanes
    planar = not call.outputs[0].channels_last
    unit, most = wide if planar else 1, call.target.l1 * 3 // 4
    fitting = max(1, most // (4 * rows.taps * max(1, channels) * unit)) * unit
    wanted = -(-_CHUNKS * call.threads // max(1, n))
    parts = -(-q // fitting)
    repeats = -(-p // max(1, rows.before))
    bands = max(1, min(-(-wanted // max(1, parts)), p // (_BAND * repeats)))
    parts = max(parts, min(-(-wanted // (2 * bands)), q // (_PART * unit)))
    columns = -(-q // max(1, parts))
    columns = -(-columns // unit) * unit
    band = -(-p // bands)
    kept = -(-channels // side) * side if planar else channels
    slot = -(-(columns * kept + wide) // wide) * wide
    return _Cut(columns, -(-q // max(1, columns)), band, -(-p // band) if p else 0, slot)


def _side(channels: int, lanes: int) -> int:
    """The power of two that covers the channels with the fewest vectors, two more for each part."""
    sides = [1 << i for i in range(lanes.bit_length())]
    return min(reversed(sides), key=lambda side: -(-channels // side) * (side + 2))


def launch(call: Call) -> tuple[Launch, ...]:
    """One phase; a chunk is a band of some columns."""
    op, x, out = call.op, call.inputs[0], call.outputs[0]
    finish = plan_finish(op.epilogue, call.inputs[1:], 1, out, _vector_axis(out))
    assert not isinstance(finish, str)
    rows, columns = axis(call, 2), axis(call, 3)
    n, channels, p, q = out.shape
    planar = not out.channels_last
    side = _side(channels, call.target.lanes) if planar else 1
    cut = _cut(call, rows, side)
    y_run, y_column = (out.strides[1], 1) if planar else (out.strides[3], out.strides[3])
    flat = not planar and not finish.operands and y_run == channels
    config = RowsConfig(
        rows.taps, columns.taps, x.dtype.value, finish.code, side if planar else 0, flat,
        _streamed(call, (out.strides[0], out.strides[2], y_run, cut.columns * y_column)),
    )  # fmt: skip
    chunks = n * cut.bands * cut.parts if channels else 0
    integers = (
        *(chunks, cut.bands, cut.band, cut.parts, cut.columns, cut.slot),
        *(channels, p, q, x.strides[0], x.strides[2], x.strides[3]),
        *(out.strides[0], out.strides[2], y_run, y_column),
        *finish.integers,
    )
    tables = (rows.indices, rows.weights, columns.indices, columns.weights)
    scratch = Scratch(4 * rows.taps * cut.slot)
    operands = (In(0), Out(0), *tables, scratch, *finish.operands)
    return (Launch(config, operands, integers, chunks),)


def _streamed(call: Call, steps: tuple[int, ...]) -> bool:
    out = call.outputs[0]
    lines = all(step * out.dtype.itemsize % LINE == 0 for step in steps)
    return lines and beyond_caches(call.target, out.nbytes)


def cost(call: Call) -> float:
    """Microseconds: a load and an operation per tap of either step."""
    x, out = call.inputs[0], call.outputs[0]
    rows, columns = axis(call, 2), axis(call, 3)
    share = min(rows.taps, rows.before / max(1, rows.after))
    turning = 0 if out.channels_last else 16
    flops = 4.0 * rows.taps + 8 + share * (4.0 * columns.taps + 8 + turning)
    nbytes = x.nbytes + out.nbytes
    return machine(call.target).roofline(flops * out.size, nbytes, call.threads, 0.5)


RESIZE_ROWS = CpuKernel("resize.rows", (Resize,), RowsConfig, supports, one_way(launch, cost), emit)
