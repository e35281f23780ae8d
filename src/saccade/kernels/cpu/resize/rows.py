"""Interpolation of channels-last images by rows: along each row of the image, then between.

    s[h, q, c] = Σ_j columns[q, j] · x[n, c, h, w(q, j)]
    y[n, c, p, q] = epilogue(Σ_i rows[p, i] · s[h(p, i), q, c])

Each sum takes its taps from the first on. A chunk is a band of rows of the result. It interpolates
each row of the image once and keeps it, in float32 and in the result's order: eight times as high
an image interpolates its columns an eighth as often, and what is left for each row of the result
is whole vectors. Bands begin with the same rows again, so they are not short. `rows_channels_last`
and `rows_planar` are the two orders. Results that the caches do not hold go past them.
Refuses what `axis_tables.refusal` names, and results that are neither channels-last nor planar.
"""

from __future__ import annotations

from dataclasses import dataclass

from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.backends.cpu.codegen.streams import LINE
from saccade.kernels.base import In, Launch, Out, Scratch, View, image_strides
from saccade.kernels.cpu.base import CpuCall, CpuKernel, single_variant
from saccade.kernels.cpu.machine import beyond_caches, machine
from saccade.kernels.cpu.pointwise.channel_epilogue import plan_finish
from saccade.kernels.cpu.resize.axis_tables import ResizeAxis, axis, refusal
from saccade.kernels.cpu.resize.pack_axes import axis_indices
from saccade.kernels.cpu.resize.rows_channels_last import LastRows
from saccade.kernels.cpu.resize.rows_code import RowsConfig
from saccade.kernels.cpu.resize.rows_planar import PlanarRows
from saccade.opdefs.resize import Resize

__all__ = ["RESIZE_ROWS"]

_CHUNKS = 8  # for each thread, where that makes no short bands
_BAND = 4  # rows of the feature map between the first and the last of a band, at least
_PART = 4  # pixels in a chunk, at least
_TOGETHER = 4  # rows of the result that are written at once, at most
_KEPT = 4  # what a band of planes keeps is at most one such part of the L2 cache


def supports(call: CpuCall) -> str | None:
    """Why this kernel cannot take the call."""
    reason, out = refusal(call), call.outputs[0]
    if reason is not None:
        return reason
    if not out.channels_last and out.strides[3] != 1:
        return "a result that is neither channels-last nor planar"
    plan = plan_finish(call, _vector_axis(out))
    return plan if isinstance(plan, str) else None


def _vector_axis(out: View) -> int:
    return 1 if out.channels_last else 3


@dataclass(frozen=True, slots=True)
class _Cut:
    """The parts of a result, and what a chunk keeps.

    Attributes:
        bands: Bands one below the other.
        band: Rows of a band.
        parts: Parts of the columns of channels-last results, of the channels of planar ones.
        part: Columns or channels of a part.
        slots: Interpolated rows that are kept.
        slot: Elements of one.
        pitch: Elements from one of its runs to the next.
    """

    bands: int
    band: int
    parts: int
    part: int
    slots: int
    slot: int
    pitch: int

    def integers(self) -> dict[str, int]:
        """As the code's parameters."""
        return {
            "bands": self.bands,
            "band": self.band,
            "parts": self.parts,
            "part": self.part,
            "slot": self.slot,
            "pitch": self.pitch,
        }


def _bands(call: CpuCall, rows: ResizeAxis, parts: int, most: int) -> tuple[int, int]:
    """How many bands busy the team, and rows of one; at most so many rows of the image each."""
    (n, _, p, _), repeats = call.outputs[0].shape, -(-rows.after // max(1, rows.before))
    wanted = -(-_CHUNKS * call.threads // max(1, n * parts))
    bands = max(1, min(wanted, p // (_BAND * repeats)))
    # Perhaps more of them: scratch holds only so many rows of the image.
    bands = max(bands, -(-min(rows.before, p) // max(1, most)))
    band = -(-p // bands)
    # Rows of a band are rounded up, so that bands may be fewer.
    return -(-p // max(1, band)), band


def _last_cut(call: CpuCall, rows: ResizeAxis) -> _Cut:
    """As many columns as keep their rows in the L1 cache."""
    (_, channels, _, q), wide = call.outputs[0].shape, 2 * call.target.lanes
    fitting = max(1, call.target.l1 * 3 // 4 // (4 * rows.taps * max(1, channels)))
    parts = -(-q // fitting)
    bands, band = _bands(call, rows, parts, rows.before)
    wanted = -(-_CHUNKS * call.threads // (2 * max(1, call.outputs[0].shape[0] * bands)))
    parts = max(1, parts, min(wanted, q // _PART))
    columns = -(-q // parts)
    # Two vectors are read at a time, past the last pixel too.
    slot = -(-(columns * channels + wide) // wide) * wide
    parts = -(-q // max(1, columns))
    return _Cut(bands, band, parts, columns, rows.taps, slot, channels)


def _planar_cut(call: CpuCall, rows: ResizeAxis) -> _Cut:
    """Few channels, and as many rows as stay in the L2 cache."""
    (_, channels, p, q), lanes = call.outputs[0].shape, call.target.lanes
    side = _side(channels, lanes)
    # Two vectors more than a row has: pairs of them begin where the result has a line, and read
    # past its end.
    pitch = (-(-q // (2 * lanes)) + 1) * 2 * lanes
    slot, parts = side * pitch, -(-channels // side)
    most = call.target.l2 // (_KEPT * 4 * slot) - rows.taps
    bands, band = _bands(call, rows, parts, most)
    under = axis_indices(*rows.indices.packing.parameters)
    lows = range(0, p, max(1, band))
    # All rows under a band are kept: space for the band that lies over most of them.
    slots = max((int(under[min(i + band, p) - 1, -1] - under[i, 0]) + 1 for i in lows), default=0)
    return _Cut(bands, band, parts, side, slots, slot, pitch)


def _side(channels: int, lanes: int) -> int:
    """The power of two that covers the channels with the fewest vectors, two more for each part."""
    sides = [1 << i for i in range(lanes.bit_length())]
    return min(reversed(sides), key=lambda side: -(-channels // side) * (side + 2))


def launch(call: CpuCall) -> tuple[Launch, ...]:
    """One phase; a chunk is a band of some columns."""
    x, out = call.inputs[0], call.outputs[0]
    finish = plan_finish(call, _vector_axis(out))
    assert not isinstance(finish, str)
    rows, columns = axis(call, 2), axis(call, 3)
    n, channels, p, q = out.shape
    planar = not out.channels_last
    cut = _planar_cut(call, rows) if planar else _last_cut(call, rows)
    y_run, y_column = (out.strides[1], 1) if planar else (out.strides[3], out.strides[3])
    streamed = beyond_caches(call.target, out.nbytes)
    # Not flat with epilogue operands, which go by pixel and channel.
    config = RowsConfig(
        rows.taps, columns.taps, x.dtype.value, finish.code, cut.part if planar else 0,
        flat=not planar and not finish.operands and y_run == channels,
        together=_together(rows, out, streamed=streamed), streamed=streamed,
    )  # fmt: skip
    chunks = n * cut.bands * cut.parts if channels and q else 0
    integers: dict[str, int | tuple[int, ...]] = {
        "chunks": chunks,
        **cut.integers(),
        "channels": channels,
        "p": p,
        "q": q,
        **image_strides("x", x.strides),
        **image_strides("y", out.strides, "nh"),
        "y_run": y_run,
        "y_column": y_column,
        **finish.integers,
    }
    tables = {**rows.operands("row"), **columns.operands("column")}
    kept = Scratch(4 * cut.slots * cut.slot)
    operands = {"x": In(0), "y": Out(0), **tables, "kept": kept, **finish.operands}
    return (Launch(config, operands, integers, chunks),)


def _together(rows: ResizeAxis, out: View, *, streamed: bool) -> int:
    """Half of the rows that sum the same rows, or fewer; they begin at the same place of a line."""
    if rows.after < 2 * rows.before or (streamed and out.strides[2] * out.dtype.itemsize % LINE):
        return 1
    return _TOGETHER if rows.after >= 2 * _TOGETHER * rows.before else 2


def emit(k: KernelBuilder, config: RowsConfig) -> None:
    """The code of one configuration."""
    (PlanarRows if config.side else LastRows)(k, config).emit()


def cost(call: CpuCall) -> float:
    """Microseconds: a load and an operation per tap of either step."""
    x, out = call.inputs[0], call.outputs[0]
    rows, columns = axis(call, 2), axis(call, 3)
    share = min(rows.taps, rows.before / max(1, rows.after))
    turning = 0 if out.channels_last else 16
    flops = 4.0 * rows.taps + 8 + share * (4.0 * columns.taps + 16 + turning)
    nbytes = x.nbytes + out.nbytes
    return machine(call.target).roofline(flops * out.size, nbytes, call.threads, 0.5)


RESIZE_ROWS = CpuKernel(
    "resize.rows", (Resize,), RowsConfig, supports, single_variant(launch, cost), emit
)
