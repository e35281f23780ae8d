"""Reductions over any axes of any storage, and norms, in one launch or two.

    y = epilogue(finish(combine over the axes of term(x)))

A program takes a block of results and sweeps the elements behind them; where there are too few
results to fill the machine, these are cut into parts, whose results a second launch combines in
order (no atomics: the same bits in every run). Sums are kept in float32, float64 for float64,
integers in their own type. Its floor is the operand's bytes; small ones take a launch's latency.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import inf

import numpy as np

from saccade.ir import DType
from saccade.ir.expr import IDENTITY, Expr
from saccade.kernels.base import In, Launch, Operand, Out, Temp, Variant, View, per_call
from saccade.kernels.cuda.base import ELEMENTS, FLOATS, CudaCall, CudaKernel, Entry, element_of
from saccade.kernels.cuda.epilogue import (
    NO_EPILOGUE,
    BlockEpilogue,
    EpilogueCode,
    epilogue_of,
    integers_of,
    pointers_of,
    source_of,
)
from saccade.kernels.cuda.machine import moved_bytes
from saccade.kernels.cuda.reduce.axis_loops import AxisLoops, axis_loops, common_step
from saccade.kernels.cuda.reduce.axis_tiles import AxisTile, TileWork, axis_tiles
from saccade.kernels.cuda.refusals import refuse_epilogue, refuse_places
from saccade.opdefs import Reduce, VectorNorm

__all__ = ["REDUCE_DIRECT", "CudaReduceConfig"]

_INTEGERS = (
    "count", "rows", "k1", "k2", "reduced", "tiles", "r1", "r2", "x_k0", "x_k1", "x_k2",
    "x_r0", "x_r1", "x_r2", "y_part", "y_k0", "y_k1", "y_k2",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _CudaReduction:
    """Term of an element, how terms combine, what becomes of them all, and its exponents."""

    term: str
    combine: str
    finish: str = ""
    power: float = 0.0
    root: float = 0.0


_KINDS = {
    kind: _CudaReduction(term, combine, finish)
    for kind, term, combine, finish in (
        ("sum", "", "sum", ""), ("mean", "", "sum", "mean"), ("max", "", "max", ""),
        ("min", "", "min", ""), ("prod", "", "prod", ""), ("l1", "abs", "sum", ""),
        ("l2", "square", "sum", "sqrt"), ("sum_square", "square", "sum", ""),
        ("log_sum", "", "sum", "log"), ("log_sum_exp", "", "log_sum_exp", ""),
    )
}  # fmt: skip
_NORMS = {
    0.0: _CudaReduction("nonzero", "sum"), 1.0: _KINDS["l1"], 2.0: _KINDS["l2"],
    3.0: _CudaReduction("cube", "sum", "root", root=1 / 3), inf: _CudaReduction("abs", "max"),
    -inf: _CudaReduction("abs", "min"),
}  # fmt: skip


@dataclass(frozen=True)
class CudaReduceConfig:
    """What the code depends on.

    Attributes:
        elements: Of x, of y, and what sums are kept in.
        task: Term, combination and finish.
        power, root: Exponents of these.
        limit: What combining no integers gives.
        axes: How many axes are kept and how many reduced.
        unit: Whose neighbours lie side by side in x: "kept", "reduced" or "".
        y_unit: Whether neighbouring results do.
        step: Strides and extents are multiples of so many elements.
        tile: Results and elements of a block, warps, stages.
        epilogue: See `epilogue.BlockEpilogue.code`.
    """

    elements: tuple[str, str, str]
    task: tuple[str, str, str]
    power: float
    root: float
    limit: int
    axes: tuple[int, int]
    unit: str
    y_unit: bool
    step: int
    tile: AxisTile
    epilogue: EpilogueCode


@dataclass(frozen=True, slots=True)
class _Walk:
    """Loops of a call: the kept ones over x, the result and the epilogue's operands."""

    kept: AxisLoops
    reduced: AxisLoops
    unit: str


def _task(op: Reduce | VectorNorm) -> _CudaReduction:
    if isinstance(op, Reduce):
        return _KINDS[op.kind]
    power = _CudaReduction("power", "sum", "root", op.p, 1 / op.p if op.p else 0.0)
    return _NORMS.get(op.p, power)


def _epilogue(call: CudaCall) -> Expr:
    return call.op.epilogue if isinstance(call.op, Reduce) else IDENTITY


@per_call
def _walk(call: CudaCall) -> _Walk:
    x, y, axes = call.inputs[0], call.outputs[0], call.op.axes
    stay = [axis for axis in range(len(x.shape)) if axis not in axes]
    places = stay if call.op.keepdims else range(len(stay))
    used = () if _epilogue(call) == IDENTITY else call.inputs[1:]
    others = [y, *(view.broadcast_to(y.shape) for view in used)]
    strides = [[x.strides[axis] for axis in stay]]
    strides += [[view.strides[place] for place in places] for view in others]
    kept = axis_loops([x.shape[axis] for axis in stay], strides)
    reduced = axis_loops([x.shape[axis] for axis in axes], [[x.strides[axis] for axis in axes]])
    unit = "reduced" if reduced.unit(0) else "kept" if kept.unit(0) else ""
    return _Walk(kept, reduced, unit)


def _supports(call: CudaCall) -> str | None:
    x, y = call.inputs[0], call.outputs[0]
    norm = isinstance(call.op, VectorNorm)
    if norm and not {x.dtype, y.dtype} <= {*FLOATS, DType.F64}:
        return "element types"
    if not norm and x.dtype is not y.dtype and not {x.dtype, y.dtype} <= {*FLOATS}:
        return "element types"
    walk = _walk(call)
    if not (walk.kept.fits and walk.reduced.fits):
        return "more than 3 separate axes are kept, or reduced"
    return refuse_epilogue(call, _epilogue(call)) or refuse_places(call)


def _wide(call: CudaCall) -> str:
    """The element that sums are kept in."""
    types = {call.inputs[0].dtype, call.outputs[0].dtype}
    if DType.F64 in types:
        return "fp64"
    dtype = call.inputs[0].dtype
    if dtype in FLOATS:
        return "fp32"
    return "i32" if dtype.itemsize < 4 else ELEMENTS[dtype]


def _limit(dtype: DType, combine: str) -> int:
    """What combining no integers gives."""
    if dtype.is_float or combine not in ("max", "min"):
        return int(combine == "prod")
    if dtype is DType.BOOL:
        return int(combine == "min")
    info = np.iinfo(dtype.numpy)
    return int(info.min if combine == "max" else info.max)


def _variants(call: CudaCall) -> Iterator[Variant]:
    walk = _walk(call)
    x = call.inputs[0]
    nbytes = moved_bytes(call)
    work = TileWork(walk.kept.count, walk.reduced.count, x.dtype.itemsize, nbytes, walk.unit)
    for micros, tile, parts in axis_tiles(call, work):
        yield Variant(micros, partial(_launches, call, tile, parts), rounding=(tile, parts))


def _launches(call: CudaCall, tile: AxisTile, parts: int) -> tuple[Launch, ...]:
    x, y, walk = call.inputs[0], call.outputs[0], _walk(call)
    task, wide = _task(call.op), _wide(call)
    used = _operand_views(walk, call)
    end = epilogue_of(
        call, _epilogue(call), 1, (*walk.kept.sizes[:1], 1, *walk.kept.sizes[1:]),
        views=used, end=1 + len(used),
    )  # fmt: skip
    blocks = -(-walk.reduced.count // tile.elements)
    whole = _ReductionPass(call, x, walk, In(0), y, Out(0), wide, tile)
    if parts == 1:
        return (whole.launch(task, blocks, 1, end),)
    tiles = -(-blocks // parts)
    first, second = whole.halves(-(-blocks // tiles))
    return (
        first.launch(replace(task, finish=""), tiles, -(-blocks // tiles), _NOTHING),
        second.launch(replace(task, term=""), -(-parts // second.tile.elements), 1, end),
    )


_NOTHING = BlockEpilogue(NO_EPILOGUE, {}, {})


def _dtype_named(element: str) -> DType:
    return next(dtype for dtype, name in ELEMENTS.items() if name == element)


def _operand_views(walk: _Walk, call: CudaCall) -> list[View]:
    """The epilogue's operands along the kept axes: [k0, 1, k1, k2], as results are counted."""
    found = []
    for view, (s0, s1, s2) in zip(call.inputs[1:], walk.kept.strides[2:], strict=False):
        n0, n1, n2 = walk.kept.sizes
        found.append(View(view.dtype, (n0, 1, n1, n2), (s0, 0, s1, s2)))
    return found


@dataclass(frozen=True, slots=True)
class _ReductionPass:
    """One launch: what it reads, the loops, where its results go."""

    call: CudaCall
    x: View
    walk: _Walk
    source: Operand
    y: View
    target: Operand
    wide: str
    tile: AxisTile

    def halves(self, parts: int) -> tuple[_ReductionPass, _ReductionPass]:
        """From x to results of so many parts, and from these to the results."""
        kept, kind = self.walk.kept, _dtype_named(self.wide)
        rows, (_, n1, n2) = kept.count, kept.sizes
        temp, between = Temp(0, parts * rows * kind.itemsize), View(kind, (parts, rows), (rows, 1))
        dense = AxisLoops(kept.sizes, (kept.strides[0], (n1 * n2, n2, 1)))
        first = replace(self, y=between, target=temp, walk=replace(self.walk, kept=dense))
        dense = AxisLoops(kept.sizes, ((n1 * n2, n2, 1), *kept.strides[1:]))
        rest = _Walk(dense, axis_loops([parts], [[rows]]), "kept")
        tile = AxisTile(32, 32, 4, 1)
        return first, replace(self, x=between, source=temp, walk=rest, tile=tile)

    def launch(self, task: _CudaReduction, tiles: int, parts: int, end: BlockEpilogue) -> Launch:
        """In `parts` parts of `tiles` blocks of elements."""
        kept, reduced = self.walk.kept, self.walk.reduced
        config = CudaReduceConfig(
            (element_of(self.x), element_of(self.y), self.wide),
            (task.term, task.combine, task.finish), task.power, task.root,
            _limit(self.call.inputs[0].dtype, task.combine),
            (max(2, kept.axes), reduced.axes), self.walk.unit, kept.unit(1), self._step(),
            self.tile, end.code,
        )  # fmt: skip
        count = self.call.inputs[0].size // max(1, kept.count)
        integers = {
            "count": count, "rows": kept.count, "k1": kept.sizes[1], "k2": kept.sizes[2],
            "reduced": reduced.count, "tiles": tiles, "r1": reduced.sizes[1],
            "r2": reduced.sizes[2], **kept.integers("x_k", 0), **reduced.integers("x_r", 0),
            "y_part": kept.count, **kept.integers("y_k", 1), **end.integers,
        }  # fmt: skip
        operands = {"x": self.source, "y": self.target, **end.operands}
        return Launch(config, operands, integers, parts * -(-kept.count // self.tile.rows))

    def _step(self) -> int:
        """What all divide that neighbouring elements are found by."""
        kept, reduced, unit = self.walk.kept, self.walk.reduced, self.walk.unit
        if not unit:
            return 1
        steps = [step for step in (*kept.strides[0], *reduced.strides[0]) if step > 1]
        along = kept if unit == "kept" else reduced
        return common_step((*steps, along.count, along.sizes[-1]), (self.x,))


def _entry(config: CudaReduceConfig) -> Entry:
    kind, result, wide = config.elements
    term, combine, finish = config.task
    constants: dict[str, int | float | str] = {
        "WIDE": wide, "LIMIT": config.limit, "TERM": term, "COMBINE": combine, "FINISH": finish,
        "POWER": config.power, "ROOT": config.root, "KEPT": config.axes[0],
        "REDUCED": config.axes[1], "UNIT": config.unit, "Y_UNIT": config.y_unit,
        "STEP": config.step, "BM": config.tile.rows, "BR": config.tile.elements,
        "STAGES": config.tile.stages,
    }  # fmt: skip
    return Entry(
        "reduce.direct_code:reduce_rows",
        (("x", kind), ("y", result)),
        _INTEGERS,
        constants,
        {"EPILOGUE": source_of(config.epilogue)},
        pointers_of(config.epilogue),
        integers_of(config.epilogue),
        warps=config.tile.warps,
        stages=config.tile.stages,
    )


REDUCE_DIRECT = CudaKernel(
    "reduce.direct", (Reduce, VectorNorm), CudaReduceConfig, _supports, _variants, _entry
)
