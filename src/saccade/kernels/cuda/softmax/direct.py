"""Softmax and its logarithm along any axis of any storage.

    y = exp(x - max) / Σ exp(x - max)        log: y = x - max - log Σ exp(x - max)

A program has some rows. They lie in registers where they have up to 8192 elements, else they are
read three times. Rows whose own elements are apart are neighbours along the result's innermost
axis, so that a program reads them side by side.

Floor: the bytes of x and y.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from saccade.backends.cuda.codegen.expressions import TritonLines
from saccade.kernels.base import In, Launch, Out, Variant
from saccade.kernels.cuda.base import FLOATS, CudaCall, CudaKernel, Entry, element_of
from saccade.kernels.cuda.movement.loop_axes import LoopAxes, collapsed, power_dividing, refuse_walk
from saccade.kernels.cuda.movement.walk_plan import (
    Walk,
    WalkCode,
    block_walk,
    power_above,
    walk_variants,
)
from saccade.kernels.cuda.movement.walk_text import WalkText
from saccade.opdefs import Softmax

__all__ = ["SOFTMAX_DIRECT", "CudaSoftmaxConfig"]

_HELD = 8192  # elements that a program keeps in registers
_STEP = 16  # strides that are multiples of it are passed divided: accesses stay wide
_AREAS = ((1024, 1), (4096, 4), (2048, 4), (1024, 4), (_HELD, 8))
"""Elements and warps of a program; one warp alone sums rows without waiting for others."""


@dataclass(frozen=True)
class CudaSoftmaxConfig:
    """What the code depends on.

    Attributes:
        elements: Element types of y and x, as Triton calls them.
        log: Whether the logarithm is wanted.
        length_step: What the length of rows is a multiple of.
        once: Whether a block holds whole rows.
        walk: How rows are found; a block is rows and their elements.
    """

    elements: tuple[str, str]
    log: bool
    length_step: int
    once: bool
    walk: WalkCode


def _supports(call: CudaCall) -> str | None:
    for view in (call.inputs[0], call.outputs[0]):
        if view.dtype not in FLOATS:
            return f"elements of type {view.dtype.value}"
    return refuse_walk(call.outputs[0], call.inputs)


def _ways(call: CudaCall) -> Iterator[Walk]:
    op: Softmax = call.op
    x, y = call.inputs[0], call.outputs[0]
    length = y.shape[op.axis]
    others = [axis for axis in range(len(y.shape)) if axis != op.axis]
    strides = [[view.strides[axis] for axis in others] for view in (y, x)]
    axes, _ = collapsed([y.shape[axis] for axis in others], strides)
    along = tuple((view.strides[op.axis] if length > 1 else 1) for view in (y, x))
    apart = along[0] != 1 and axes.strides[0][-1] == 1 and axes.sizes[-1] > 1
    held = min(power_above(length), _HELD)
    if apart:
        for area in (4096, 2048, 1024):
            yield _side_by_side(axes, along, length, area)
        return
    sides = tuple((step,) for step in along)
    for area, warps in _AREAS:
        if held <= area:
            block = (min(area // held, power_above(axes.count)), held)
            yield block_walk(axes, sides, (0, 0), block, (), _STEP, warps)


def _side_by_side(axes: LoopAxes, along: tuple[int, ...], length: int, area: int) -> Walk:
    """Rows whose neighbours lie along the innermost of the other axes."""
    rows = min(32, power_above(axes.sizes[-1]))
    block = (rows, min(power_above(length), max(16, area // rows)))
    if rows * power_above(length) <= _HELD:
        block = (rows, power_above(length))
        spare = max(1, area // (block[0] * block[1]))
        block = (min(rows * spare, power_above(axes.sizes[-1])), block[1])
    outer = LoopAxes(axes.sizes[:-1], tuple(s[:-1] for s in axes.strides))
    sides = tuple((s[-1], step) for s, step in zip(axes.strides, along, strict=True))
    way = block_walk(outer, sides, (0, 0), block, (axes.sizes[-1], length), _STEP)
    return replace(way, programs=outer.count * -(-axes.sizes[-1] // block[0]))


def _variants(call: CudaCall) -> Iterator[Variant]:
    x, y = call.inputs[0], call.outputs[0]
    return walk_variants(call, _ways(call), x.nbytes + y.nbytes, _launch, sums=True)


def _launch(call: CudaCall, way: Walk) -> Launch:
    op: Softmax = call.op
    x, y = call.inputs[0], call.outputs[0]
    length = y.shape[op.axis]
    step = power_dividing((length,), _STEP)
    once = length <= way.code.block[1]
    config = CudaSoftmaxConfig((element_of(y), element_of(x)), op.log, step, once, way.code)
    rows = way.sizes["down"] if way.code.ends else way.sizes["rows"]
    integers = {**way.integers, "rows": rows, "length": length // step}
    return Launch(config, {"y": Out(0), "x": In(0)}, integers, way.programs if y.size else 0)


def _entry(config: CudaSoftmaxConfig) -> Entry:
    walk = config.walk
    tiled = bool(walk.ends)
    constants = {
        "ROWS": walk.block[0], "LENGTH": walk.block[1],
        "ROWS_STEP": walk.ends[0] if tiled else 1, "LENGTH_STEP": config.length_step,
        "SPLIT": tiled, "ONCE": config.once, "LOG": config.log,
    }  # fmt: skip
    kinds = config.elements
    return Entry(
        "softmax.direct_code:softmax",
        (("y", kinds[0]), ("x", kinds[1])),
        ("rows", "length"),
        constants,
        {"Y_PLACES": _places(config, 0), "X_PLACES": _places(config, 1)},
        (),
        walk.integers,
        (),
        walk.warps,
    )


def _places(config: CudaSoftmaxConfig, p: int) -> str:
    """The function that says where the elements of a block are, in y (0) or in x (1)."""
    text = WalkText(config.walk, config.elements[:1], TritonLines({}))
    found = text.places(p, text.base(p))
    body = "".join(f"    {line}\n" for line in text.lines.lines)
    given = "outer, row, column" if config.walk.ends else "outer, row, lane"
    head = f"def {'yx'[p]}_places(extra, {given}):\n"
    return f"@triton.jit\n{head}{body}    return {found}\n"


SOFTMAX_DIRECT = CudaKernel(
    "softmax.direct",
    (Softmax,),
    CudaSoftmaxConfig,
    _supports,
    _variants,
    _entry,
    lambda _call: ((0, 0),),
)
