"""What flows back to x from a norm over some of its axes.

Element by element. The largest and the smallest magnitude divide by how many elements share it:
where that is no operand, rows that fit a block count them first, longer ones in a launch of their
own, part by part. Its floor is the bytes of x and of the result, x twice for ties of long rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import isinf

from saccade.ir import DType
from saccade.kernels.base import In, Launch, Operand, Out, Temp, Variant, View, per_call
from saccade.kernels.cuda.base import FLOATS, CudaCall, CudaKernel, Entry, element_of
from saccade.kernels.cuda.machine import moved_bytes, stream_micros
from saccade.kernels.cuda.reduce.axis_loops import (
    AxisLoops,
    axis_loops,
    common_step,
    power_above,
)
from saccade.kernels.cuda.reduce.axis_tiles import AxisTile, TileWork, axis_tiles
from saccade.kernels.cuda.refusals import refuse_places
from saccade.opdefs import VectorNormGrad

__all__ = [
    "NORM_GRADIENT",
    "CudaNormGradientConfig",
    "NormWalk",
    "counts_ties",
    "gradient_walk",
    "step_of",
]

_INTEGERS = (
    "rows", "k1", "k2", "reduced", "tiles", "parts", "r1", "r2",
    *(f"{name}_{axes}{i}" for name in "xy" for axes in "kr" for i in range(3)),
    *(f"{name}_k{i}" for name in "gnt" for i in range(3)),
)  # fmt: skip
_HELD = 8192  # elements of a block that stay in registers
_SHORT = 1024  # elements of a block of short rows (one H200: 4 rows of 250)
_ACROSS = 16  # neighbouring rows of a block across them (one H200: 63 µs, 32 rows 65 to 84)
_WARP = 1024  # elements that a warp holds (one H200: 42 µs along rows, half as many 47)
_LATENCY = 1.5  # microseconds from loads over counts to stores (an estimate, not measured)
_GROUPS = 32  # parts whose counts are added up at a time


@dataclass(frozen=True)
class CudaNormGradientConfig:
    """What the code depends on.

    Attributes:
        elements: Of grad, x, norm and y, and what is computed in.
        power: The norm's p, 0 for the largest and the smallest magnitude.
        phase: "plain", "given" (ties are an operand), "once", "ties" or "apply".
        axes: How many axes are kept and how many reduced.
        units: Whose neighbours lie side by side in x and in y: "kept", "reduced" or "".
        steps: Extents and strides of x, and of x and y, are multiples of so many elements.
        tile: Rows and elements of a block, warps.
    """

    elements: tuple[str, str, str, str, str]
    power: float
    phase: str
    axes: tuple[int, int]
    units: tuple[str, str]
    steps: tuple[int, int]
    tile: AxisTile


@dataclass(frozen=True, slots=True)
class NormWalk:
    """Kept axes over x and what else a call has; reduced ones over what is as large as x."""

    kept: AxisLoops
    reduced: AxisLoops

    def unit(self, view: int) -> str:
        """Whose neighbours lie side by side."""
        if self.reduced.unit(view):
            return "reduced"
        return "kept" if self.kept.unit(view) else ""


@per_call
def gradient_walk(call: CudaCall) -> NormWalk:
    """The axes of a call, those of x, y and of what there is for each norm in this order."""
    grad, x, *others = call.inputs
    y, op = call.outputs[0], call.op
    stay = [axis for axis in range(len(x.shape)) if axis not in op.axes]
    places = stay if op.keepdims else range(len(stay))
    strides = [[view.strides[axis] for axis in stay] for view in (x, y)]
    strides += [[view.strides[place] for place in places] for view in (grad, *others)]
    along = [[view.strides[axis] for axis in op.axes] for view in (x, y)]
    return NormWalk(
        axis_loops([x.shape[axis] for axis in stay], strides),
        axis_loops([x.shape[axis] for axis in op.axes], along),
    )


def _supports(call: CudaCall) -> str | None:
    if not {view.dtype for view in (*call.inputs[:3], *call.outputs)} <= {*FLOATS, DType.F64}:
        return "element types"
    walk = gradient_walk(call)
    if not (walk.kept.fits and walk.reduced.fits):
        return "more than 3 separate axes are kept, or reduced"
    return refuse_places(call)


def _variants(call: CudaCall) -> Iterator[Variant]:
    x, walk, extreme = call.inputs[1], gradient_walk(call), counts_ties(call)
    nbytes = moved_bytes(call)
    held = _held(walk, x.dtype.itemsize) if extreme else None
    if held is not None:
        yield Variant(stream_micros(call) + _LATENCY, partial(_once, call, held))
    work = TileWork(walk.kept.count, walk.reduced.count, x.dtype.itemsize, nbytes, walk.unit(0))
    tiles = axis_tiles(call, work, cut=extreme, apart=not extreme, most=3 if held else 8)
    for micros, tile, parts in tiles:
        again = micros + _LATENCY if extreme else 0.0
        yield Variant(micros + again, partial(_launches, call, tile, parts))


def counts_ties(call: CudaCall) -> bool:
    """Whether the norm has ties, and how many is not known."""
    return isinf(call.op.p) and len(call.inputs) == 3


def _held(walk: NormWalk, itemsize: int) -> AxisTile | None:
    """A block that whole rows fit, if there is one of vectors."""
    elements = max(8, power_above(walk.reduced.count))
    # A program of one short row takes as long to start as its row to go by.
    across = walk.unit(0) == "kept"
    rows = min(_ACROSS if across else max(1, _SHORT // elements), power_above(walk.kept.count))
    if rows * elements > _HELD:
        return None
    # Halves across rows want more warps: 58 and 82 µs with 8 and 4, float32 67 and 63 (one H200).
    each = _WARP // 2 if across and itemsize < 4 else _WARP
    return AxisTile(rows, elements, max(1, min(16, rows * elements // each)), 1)


def _once(call: CudaCall, tile: AxisTile) -> tuple[Launch, ...]:
    return (_phase(call, tile, "once", 1, 1, In(0)),)


def _launches(call: CudaCall, tile: AxisTile, parts: int) -> tuple[Launch, ...]:
    walk = gradient_walk(call)
    blocks = -(-walk.reduced.count // tile.elements)
    if not counts_ties(call):
        given = len(call.inputs) == 4
        phase, ties = ("given", In(3)) if given else ("plain", In(0))
        return (_phase(call, tile, phase, 1, max(1, blocks), ties),)
    tiles = -(-blocks // parts)
    parts = -(-blocks // max(1, tiles))
    temp = Temp(0, max(1, 4 * parts * walk.kept.count))
    return tuple(_phase(call, tile, phase, tiles, parts, temp) for phase in ("ties", "apply"))


def _phase(
    call: CudaCall, tile: AxisTile, phase: str, tiles: int, parts: int, ties: Operand
) -> Launch:
    (grad, x, norm), y, walk = call.inputs[:3], call.outputs[0], gradient_walk(call)
    kept, reduced = walk.kept, walk.reduced
    wide = "fp64" if DType.F64 in {view.dtype for view in call.inputs} else "fp32"
    given = 4 if phase == "given" else 3  # where there are no ties nobody looks for them
    config = CudaNormGradientConfig(
        (element_of(grad), element_of(x), element_of(norm), element_of(y), wide),
        0.0 if isinf(call.op.p) else call.op.p, phase, (max(2, kept.axes), reduced.axes),
        (walk.unit(0), walk.unit(1)), (step_of(walk, (x,)), _stored(call)), tile,
    )  # fmt: skip
    integers = {
        "rows": kept.count, "k1": kept.sizes[1], "k2": kept.sizes[2], "reduced": reduced.count,
        "tiles": tiles, "parts": parts, "r1": reduced.sizes[1], "r2": reduced.sizes[2],
        **kept.integers("x_k", 0), **reduced.integers("x_r", 0), **kept.integers("y_k", 1),
        **reduced.integers("y_r", 1), **kept.integers("g_k", 2), **kept.integers("n_k", 3),
        **kept.integers("t_k", given),
    }  # fmt: skip
    operands: dict[str, Operand] = {
        "grad": In(0), "x": In(1), "norm": In(2), "y": Out(0), "partial": ties,
    }  # fmt: skip
    return Launch(config, operands, integers, parts * -(-kept.count // tile.rows))


def _stored(call: CudaCall) -> int:
    """The same of x and y, where results are better stored in vectors.

    Across rows single elements are faster, which many threads write together (one H200, norms over
    dim 1: 48 and 51 µs in float32, 35 and 37 in halves), but for halves that are counted first (70
    and 56).
    """
    x, walk = call.inputs[1], gradient_walk(call)
    whole = walk.unit(0) == "reduced" or (counts_ties(call) and x.dtype.itemsize < 4)
    return step_of(walk, (x, call.outputs[0])) if whole and walk.unit(0) == walk.unit(1) else 1


def step_of(walk: NormWalk, views: Sequence[View]) -> int:
    """What all divide that neighbouring elements of x are found by, and of y if it is one."""
    unit = walk.unit(0)
    if not unit:
        return 1
    along = walk.kept if unit == "kept" else walk.reduced
    strides = (s for i in range(len(views)) for s in walk.kept.strides[i] + walk.reduced.strides[i])
    steps = (s for s in strides if s > 1)
    return common_step((*steps, along.count, along.sizes[-1]), views)


def _entry(config: CudaNormGradientConfig) -> Entry:
    grad, x, norm, y, wide = config.elements
    constants: dict[str, int | float | str] = {
        "P": config.power, "EXTREME": config.power == 0, "PHASE": config.phase, "WIDE": wide,
        "KEPT": config.axes[0], "REDUCED": config.axes[1], "UNIT": config.units[0],
        "Y_UNIT": config.units[1], "STEP": config.steps[0], "Y_STEP": config.steps[1],
        "BM": config.tile.rows, "BR": config.tile.elements, "BP": _GROUPS,
    }  # fmt: skip
    # Where there are no ties nobody reads `partial`: any pointer will do.
    return Entry(
        "norm.gradient_code:gradient",
        (("grad", grad), ("x", x), ("norm", norm), ("y", y), ("partial", "i32")),
        _INTEGERS,
        constants,
        warps=config.tile.warps,
    )


NORM_GRADIENT = CudaKernel(
    "norm.gradient", (VectorNormGrad,), CudaNormGradientConfig, _supports, _variants, _entry
)
