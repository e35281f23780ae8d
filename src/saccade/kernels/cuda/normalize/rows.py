"""LayerNorm, GroupNorm, InstanceNorm and p-norms: rows relative to statistics of their own.

    y = (x - mean) / sqrt(variance + epsilon) · scale + bias,   y = x / norm

A row that fits a block is read once and stays in registers. Longer ones are swept twice by one
program, or, where there are few, cut into parts: one launch leaves each part's statistics, a second
joins them in order and writes (no atomics: the same bits in every run). Sums are float32; variances
are those of distances from the mean. Its floor is the bytes of x and y, x twice for long rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import log2

import numpy as np

from saccade.backends.cuda.gpus import gpu
from saccade.kernels.base import In, Launch, Operand, Out, Temp, Variant, View, per_call
from saccade.kernels.cuda.base import FLOATS, CudaCall, CudaKernel, Entry, element_of
from saccade.kernels.cuda.machine import LAUNCH
from saccade.kernels.cuda.reduce.axis_loops import (
    AxisLoops,
    axis_loops,
    common_step,
    power_above,
)
from saccade.kernels.cuda.reduce.axis_tiles import AxisTile, TileWork, axis_tiles
from saccade.kernels.cuda.refusals import refuse_places
from saccade.opdefs import GroupNorm, LayerNorm, LpNormalize

__all__ = ["NORMALIZE_ROWS", "NormalizeRowsConfig"]

_INTEGERS = (
    "rows", "k1", "k2", "reduced", "tiles", "parts", "r1", "r2", "epsilon",
    *(f"{name}_{axes}{i}" for name in "xysb" for axes in "kr" for i in range(3)),
)  # fmt: skip
_HELD = 8192  # elements of a block that stay in registers
_GROUPS = 32  # parts whose statistics are joined at a time
_START, _JOINED = 1.25e-3, 0.35
"""Microseconds of an H100 until the next program starts; as often as warps that share rows double.
6304 rows of 768 in float16: 10.1 by one warp for two rows, 12.0 by two for one."""


@dataclass(frozen=True)
class NormalizeRowsConfig:
    """What the code depends on.

    Attributes:
        elements: Of x, y, scale and bias.
        kind: "deviation" (mean and variance), "l1" or "l2".
        phase: "rows", "statistics" or "apply".
        once: Whether a part is one block.
        axes: How many axes are kept and how many reduced.
        units: Whose neighbours lie side by side in x and in y: "kept", "reduced" or "".
        factors: How scale and bias vary along rows and elements, "" for none.
        steps: Strides and extents of x and of y are multiples of so many elements.
        tile: Rows and elements of a block, warps, stages.
    """

    elements: tuple[str, str, str, str]
    kind: str
    phase: str
    once: bool
    axes: tuple[int, int]
    units: tuple[str, str]
    factors: tuple[str, str]
    steps: tuple[int, int]
    tile: AxisTile


@dataclass(frozen=True, slots=True)
class _NormWalk:
    """Loops over x, y, scale and bias; strides of 0 for those that there are not."""

    kept: AxisLoops
    reduced: AxisLoops


@per_call
def _walk(call: CudaCall) -> _NormWalk:
    op, x = call.op, call.inputs[0]
    if isinstance(op, GroupNorm):
        n, channels, *space = x.shape
        shape = (n, op.groups, channels // op.groups, *space)
        inner = channels // op.groups
        strides = [_grouped(view.strides, inner) for view in (x, call.outputs[0])]
        factors = [(0, view.strides[0], *(0 for _ in space)) for view in call.inputs[1:]]
        strides += [_grouped(steps, inner) for steps in factors]
        reduced = set(range(2, len(shape)))
    else:
        shape = x.shape
        strides = [list(x.strides), list(call.outputs[0].strides)]
        strides += [_broadcast(view, x.shape) for view in call.inputs[1:]]
        first = op.axis
        reduced = {first} if isinstance(op, LpNormalize) else set(range(first, len(shape)))
    strides += [[0] * len(shape)] * (4 - len(strides))
    return _NormWalk(_loops(shape, strides, set(range(len(shape))) - reduced),
                     _loops(shape, strides, reduced))  # fmt: skip


def _loops(shape: Sequence[int], strides: Sequence[Sequence[int]], axes: set[int]) -> AxisLoops:
    order = sorted(axes)
    return axis_loops([shape[a] for a in order], [[s[a] for a in order] for s in strides])


def _grouped(steps: Sequence[int], inner: int) -> list[int]:
    """Strides with the axis of channels split into groups and the channels of one."""
    return [steps[0], steps[1] * inner, *steps[1:]]


def _broadcast(view: View, shape: Sequence[int]) -> list[int]:
    missing = len(shape) - len(view.shape)
    steps = [0 if n == 1 else s for n, s in zip(view.shape, view.strides, strict=True)]
    return [0] * missing + steps


def _kind(call: CudaCall) -> str:
    return f"l{call.op.p}" if isinstance(call.op, LpNormalize) else "deviation"


def _supports(call: CudaCall) -> str | None:
    if any(view.dtype not in FLOATS for view in (*call.inputs, *call.outputs)):
        return "element types"
    walk = _walk(call)
    if not (walk.kept.fits and walk.reduced.fits):
        return "more than 3 separate axes are kept, or reduced"
    return refuse_places(call)


def _unit(walk: _NormWalk, view: int) -> str:
    if walk.reduced.unit(view):
        return "reduced"
    return "kept" if walk.kept.unit(view) else ""


def _work(call: CudaCall, sweeps: int) -> TileWork:
    x, walk = call.inputs[0], _walk(call)
    nbytes = sweeps * x.nbytes + call.outputs[0].nbytes
    return TileWork(walk.kept.count, walk.reduced.count, x.dtype.itemsize, nbytes, _unit(walk, 0))


def _variants(call: CudaCall) -> Iterator[Variant]:
    timed = [*_held(call), *_swept(call)]
    for micros, tile, parts in sorted(timed, key=lambda one: one[0]):
        yield Variant(micros, partial(_launches, call, tile, parts), rounding=(tile, parts))


def _held(call: CudaCall) -> Iterator[tuple[float, AxisTile, int]]:
    """Blocks that whole rows fit: 0 parts."""
    work = _work(call, 1)
    elements = max(8, power_above(work.elements))
    sizes = sorted({min(power_above(work.rows), n) for n in (1, 2, 4, 8, 16, 32, 64)})
    for rows in sizes:
        if rows * elements <= _HELD and (rows == 1 or work.unit == "kept" or elements <= 2048):
            run = (rows if work.unit == "kept" else elements) * work.itemsize
            moved = work.nbytes * (1 + 16 / run) / _bandwidth(call)
            programs = -(-max(1, work.rows) // rows)
            most = max(1, min(16, rows * elements // 512))
            for warps in dict.fromkeys((most, max(1, most // 4))):
                waves = -(-programs // (call.target.multiprocessors * max(1, 48 // warps)))
                micros = max(1.3 * waves, moved, programs * _START) + _JOINED * log2(warps)
                yield LAUNCH + micros, AxisTile(rows, elements, warps, 1), 0


def _bandwidth(call: CudaCall) -> float:
    return 0.8 * gpu(call.target.machine).bandwidth


def _swept(call: CudaCall) -> Iterator[tuple[float, AxisTile, int]]:
    """Blocks that sweep rows twice, in one launch or two."""
    for micros, tile, parts in axis_tiles(call, _work(call, 2), most=5):
        again = 0.5 * (micros - LAUNCH) if parts == 1 else 1.0
        yield micros + again, tile, parts


def _launches(call: CudaCall, tile: AxisTile, parts: int) -> tuple[Launch, ...]:
    """All of a row held (0 parts), swept by one program (1), or in parts."""
    rows, blocks = _walk(call).kept.count, -(-_walk(call).reduced.count // tile.elements)
    if parts < 2:
        return (_phase(call, tile, "rows", max(1, blocks), 1, In(0)),)
    tiles = -(-blocks // parts)
    parts = -(-blocks // tiles)
    temp = Temp(0, 8 * parts * rows)
    return tuple(_phase(call, tile, phase, tiles, parts, temp) for phase in ("statistics", "apply"))


def _phase(
    call: CudaCall, tile: AxisTile, phase: str, tiles: int, parts: int, temp: Operand
) -> Launch:
    x, y, walk = call.inputs[0], call.outputs[0], _walk(call)
    kept, reduced = walk.kept, walk.reduced
    factors = call.inputs[1:] if phase != "statistics" else ()
    scale, bias = (*factors, x, x)[:2]
    kinds = [_varies(walk, 2 + i) for i in range(len(factors))] + ["", ""]
    config = NormalizeRowsConfig(
        (element_of(x), element_of(y), element_of(scale), element_of(bias)), _kind(call), phase,
        tiles == 1, (max(2, kept.axes), reduced.axes), (_unit(walk, 0), _unit(walk, 1)),
        (kinds[0], kinds[1]), (_step(call, 0), _step(call, 1)), tile,
    )  # fmt: skip
    epsilon = getattr(call.op, "epsilon", 0.0)
    integers = {
        "rows": kept.count, "k1": kept.sizes[1], "k2": kept.sizes[2], "reduced": reduced.count,
        "tiles": tiles, "parts": parts, "r1": reduced.sizes[1], "r2": reduced.sizes[2],
        "epsilon": int(np.float32(epsilon).view(np.int32)),
    }  # fmt: skip
    for view, name in enumerate("xysb"):
        integers |= kept.integers(f"{name}_k", view) | reduced.integers(f"{name}_r", view)
    places = (*(In(1 + i) for i in range(len(factors))), In(0), In(0))
    operands: dict[str, Operand] = {
        "x": In(0),
        "y": Out(0),
        "scale": places[0],
        "bias": places[1],
        "partial": temp,
    }
    return Launch(config, operands, integers, parts * -(-kept.count // tile.rows))


def _varies(walk: _NormWalk, view: int) -> str:
    """Along rows, along elements: "0" not at all, "1" neighbours side by side, "s" else."""
    loops = (walk.kept, walk.reduced)
    return "".join("s1"[one.unit(view)] if any(one.strides[view]) else "0" for one in loops)


def _step(call: CudaCall, view: int) -> int:
    """What all divide that neighbouring elements of x (0) or y (1) are found by."""
    walk = _walk(call)
    unit = _unit(walk, view)
    if not unit:
        return 1
    along = walk.kept if unit == "kept" else walk.reduced
    steps = (s for s in (*walk.kept.strides[view], *walk.reduced.strides[view]) if s > 1)
    stored = (call.inputs[0], call.outputs[0])[view]
    return common_step((*steps, along.count, along.sizes[-1]), (stored,))


def _entry(config: NormalizeRowsConfig) -> Entry:
    kinds = config.elements
    constants: dict[str, int | float | str] = {
        "KIND": config.kind, "PHASE": config.phase, "ONCE": config.once, "KEPT": config.axes[0],
        "REDUCED": config.axes[1], "UNIT": config.units[0], "Y_UNIT": config.units[1],
        "SCALE": config.factors[0], "BIAS": config.factors[1], "STEP": config.steps[0],
        "Y_STEP": config.steps[1], "BM": config.tile.rows, "BR": config.tile.elements,
        "BP": _GROUPS, "STAGES": config.tile.stages,
    }  # fmt: skip
    # Without parts nobody reads `partial`: any pointer will do.
    return Entry(
        "normalize.rows_code:normalize",
        (("x", kinds[0]), ("y", kinds[1]), ("scale", kinds[2]), ("bias", kinds[3]),
         ("partial", "fp32")),
        _INTEGERS,
        constants,
        warps=config.tile.warps,
        stages=config.tile.stages,
    )  # fmt: skip


NORMALIZE_ROWS = CudaKernel(
    "normalize.rows", (LayerNorm, GroupNorm, LpNormalize), NormalizeRowsConfig, _supports,
    _variants, _entry,
)  # fmt: skip
