"""Norms that are the largest or the smallest magnitude, and how many elements have it.

One read of x: each place of a block keeps the best of what passed it and how often. Where there are
too few rows to fill the machine they are cut into parts, which a second launch joins. Its floor is
the operand's bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter

from saccade.ir import DType
from saccade.kernels.base import In, Launch, Operand, Out, Temp, Variant, per_call
from saccade.kernels.cuda.base import FLOATS, CudaCall, CudaKernel, Entry, element_of
from saccade.kernels.cuda.machine import moved_bytes
from saccade.kernels.cuda.norm.gradient import NormWalk, step_of
from saccade.kernels.cuda.reduce.axis_loops import axis_loops
from saccade.kernels.cuda.reduce.axis_tiles import AxisTile, TileWork, axis_tiles
from saccade.kernels.cuda.refusals import refuse_places
from saccade.opdefs import TiedNorm

__all__ = ["NORM_TIED", "CudaTiedNormConfig"]

_INTEGERS = (
    "rows", "k1", "k2", "reduced", "tiles", "parts", "r1", "r2",
    "x_k0", "x_k1", "x_k2", "x_r0", "x_r1", "x_r2", "y_k0", "y_k1", "y_k2", "t_k0", "t_k1", "t_k2",
)  # fmt: skip
# One H200, rows of 250 in float32 and in halves, µs: blocks of 16x64 whose loads run ahead 33.9 and
# 31.5, of 32x32 34.4 and 27.6, of 8x128 that wait, with two warps, 36.4 and 29.8, with four 44 and
# more. Across rows 64x16 32.9 and 27.4, 64x32 35.5 and 29.8.
_WARP, _LARGE, _SLOWER = 256, 1024, 1.1
_JOINED = AxisTile(32, 32, 4, 1)  # of the second launch: rows, parts


@dataclass(frozen=True)
class CudaTiedNormConfig:
    """What the code depends on.

    Attributes:
        elements: Of x and of the norm, which is what is compared.
        largest: Whether the largest is looked for.
        phase: "whole", "parts" or "joined".
        axes: How many axes are kept and how many reduced.
        unit: Whose neighbours lie side by side in x: "kept", "reduced" or "".
        step: Strides and extents are multiples of so many elements.
        tile: Rows and elements of a block.
    """

    elements: tuple[str, str]
    largest: bool
    phase: str
    axes: tuple[int, int]
    unit: str
    step: int
    tile: AxisTile


@per_call
def _walk(call: CudaCall) -> NormWalk:
    """The axes of a call, those of x, the norm and the ties in this order."""
    x, op = call.inputs[0], call.op
    stay = [axis for axis in range(len(x.shape)) if axis not in op.axes]
    places = stay if op.keepdims else range(len(stay))
    strides = [[x.strides[axis] for axis in stay]]
    strides += [[view.strides[place] for place in places] for view in call.outputs]
    return NormWalk(
        axis_loops([x.shape[axis] for axis in stay], strides),
        axis_loops([x.shape[axis] for axis in op.axes], [[x.strides[axis] for axis in op.axes]]),
    )


def _supports(call: CudaCall) -> str | None:
    if not {call.inputs[0].dtype, call.outputs[0].dtype} <= {*FLOATS, DType.F64}:
        return "element types"
    walk = _walk(call)
    if not (walk.kept.fits and walk.reduced.fits):
        return "more than 3 separate axes are kept, or reduced"
    return refuse_places(call)


def _variants(call: CudaCall) -> Iterator[Variant]:
    x, walk = call.inputs[0], _walk(call)
    work = TileWork(
        walk.kept.count, walk.reduced.count, x.dtype.itemsize, moved_bytes(call), walk.unit(0)
    )
    also = [(64, 16)] if walk.unit(0) == "kept" else []
    found = []
    for micros, tile, parts in axis_tiles(call, work, also=also):
        elements, waits = tile.rows * tile.elements, tile.stages == 1
        warps = max(1, min(8, elements // (2 * _WARP if waits else _WARP)))
        large = elements > _LARGE or (waits and walk.unit(0) != "kept")
        found.append((micros * (_SLOWER if large else 1), replace(tile, warps=warps), parts))
    # All give the same bits, so that the usual block has its place among the others.
    for micros, tile, parts in sorted(found, key=itemgetter(0)):
        yield Variant(micros, partial(_launches, call, tile, parts))


def _launches(call: CudaCall, tile: AxisTile, parts: int) -> tuple[Launch, ...]:
    blocks = -(-_walk(call).reduced.count // tile.elements)
    if parts == 1:
        return (_phase(call, tile, "whole", (blocks, 1)),)
    tiles = -(-blocks // parts)
    parts = -(-blocks // tiles)
    return (
        _phase(call, tile, "parts", (tiles, parts)),
        _phase(call, _JOINED, "joined", (tiles, parts)),
    )


def _phase(call: CudaCall, tile: AxisTile, phase: str, cut: tuple[int, int]) -> Launch:
    x, (norm, _), walk = call.inputs[0], call.outputs, _walk(call)
    (tiles, parts), kept, reduced = cut, walk.kept, walk.reduced
    config = CudaTiedNormConfig(
        (element_of(x), element_of(norm)), call.op.p > 0, phase, (max(2, kept.axes), reduced.axes),
        walk.unit(0), step_of(walk, call.inputs), tile,
    )  # fmt: skip
    integers = {
        "rows": kept.count, "k1": kept.sizes[1], "k2": kept.sizes[2], "reduced": reduced.count,
        "tiles": tiles, "parts": parts, "r1": reduced.sizes[1], "r2": reduced.sizes[2],
        **kept.integers("x_k", 0), **reduced.integers("x_r", 0), **kept.integers("y_k", 1),
        **kept.integers("t_k", 2),
    }  # fmt: skip
    found = max(1, parts * kept.count)
    best: Operand = Out(0) if phase == "whole" else Temp(0, found * norm.dtype.itemsize)
    counts: Operand = Out(1) if phase == "whole" else Temp(1, 4 * found)
    operands: dict[str, Operand] = {
        "x": In(0),
        "y": Out(0),
        "ties": Out(1),
        "best": best,
        "counts": counts,
    }
    programs = -(-kept.count // tile.rows) * (parts if phase == "parts" else 1)
    return Launch(config, operands, integers, programs)


def _entry(config: CudaTiedNormConfig) -> Entry:
    x, wide = config.elements
    constants: dict[str, int | str] = {
        "LARGEST": config.largest, "PHASE": config.phase, "WIDE": wide, "KEPT": config.axes[0],
        "REDUCED": config.axes[1], "UNIT": config.unit, "STEP": config.step,
        "BM": config.tile.rows, "BR": config.tile.elements, "STAGES": config.tile.stages,
    }  # fmt: skip
    return Entry(
        "norm.tied_code:tied_norm",
        (("x", x), ("y", wide), ("ties", "i32"), ("best", wide), ("counts", "i32")),
        _INTEGERS,
        constants,
        warps=config.tile.warps,
        stages=config.tile.stages,
    )


NORM_TIED = CudaKernel("norm.tied", (TiedNorm,), CudaTiedNormConfig, _supports, _variants, _entry)
