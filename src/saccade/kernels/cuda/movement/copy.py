"""`Move`: elements from one stored array to places in another, as one strided copy.

Reorders are moves too: with the identity map, between differently stored operand and result. Each
is one walk (`movement.walk_plan`) over the factors of its index map, collapsed. Elements go by
their size alone, so that a `BitCast` whose operand and result are stored differently is one, too.

Floor: the bytes read and written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, cast

from saccade.backends.cuda.codegen.expressions import TritonLines
from saccade.ir import IndexMap
from saccade.kernels.base import In, Launch, Operand, Out, Variant, View
from saccade.kernels.cuda.base import CudaCall, CudaKernel, Entry
from saccade.kernels.cuda.movement.loop_axes import collapsed, refuse_walk
from saccade.kernels.cuda.movement.walk_plan import (
    Walk,
    WalkCode,
    general_walk,
    walk_variants,
    walks,
)
from saccade.kernels.cuda.movement.walk_text import WalkText
from saccade.opdefs import BitCast, Move

__all__ = ["MOVEMENT_COPY", "CudaCopyConfig", "copied", "moved", "raw_element", "refuse_move"]


@dataclass(frozen=True)
class CudaCopyConfig:
    """What the code depends on: bytes of an element, and how elements are found."""

    itemsize: int
    walk: WalkCode


def refuse_move(call: CudaCall) -> str | None:
    """Why the first operand's elements cannot be moved into the result, or None."""
    if call.inputs[0].dtype is not call.outputs[0].dtype:
        return "a change of element type"
    return refuse_walk(call.outputs[0], call.inputs)


def raw_element(itemsize: int) -> str:
    """Elements of so many bytes as Triton calls them, whatever they hold."""
    return f"u{8 * itemsize}"


def _factor_strides(groups: Sequence[Sequence[Any]], strides: Sequence[int]) -> list[int]:
    """Elements between neighbours along each factor of axes that are split row-major."""
    found: list[int] = []
    for sizes, stride in zip(groups, strides, strict=True):
        inner_first = accumulate(reversed(sizes), int.__mul__, initial=1)
        found += [stride * step for step in list(inner_first)[-2::-1]]
    return found


def moved(
    index_map: IndexMap, source: View, result: View
) -> tuple[list[int], list[int], list[int], int]:
    """Sizes of the factors, strides in the result and the source, and the source's first place."""
    factors: Any = index_map.factors
    groups = [[factor.size for factor in axis] for axis in index_map.out_axes]
    origin = _factor_strides(index_map.in_factors, source.strides)
    steps = [0 if f.source is None else f.step * origin[f.source] for f in factors]
    start = sum(f.start * origin[f.source] for f in factors if f.source is not None)
    return [f.size for f in factors], _factor_strides(groups, result.strides), steps, start


def _supports(call: CudaCall) -> str | None:
    if isinstance(call.op, BitCast):
        return refuse_walk(call.outputs[0], call.inputs)
    return refuse_move(call)


def _ways(call: CudaCall) -> tuple[Walk, ...]:
    source, out = call.inputs[0], call.outputs[0]
    if isinstance(call.op, BitCast):
        sizes, to, steps, start = list(out.shape), list(out.strides), list(source.strides), 0
    else:
        sizes, to, steps, start = moved(call.op.map, source, out)
    itemsizes, starts = (out.dtype.itemsize,) * 2, (0, start)
    axes, _ = collapsed(sizes, (to, steps))
    whole, _ = collapsed(sizes, (to, steps), ones=True)
    return (*walks(axes, itemsizes, starts), general_walk(whole, itemsizes, starts))


def _variants(call: CudaCall) -> Iterator[Variant]:
    return walk_variants(call, _ways(call), 2 * call.outputs[0].nbytes, _launch)


def _generic_configs(call: CudaCall) -> tuple[CudaCopyConfig, ...]:
    return (cast("CudaCopyConfig", _launch(call, _ways(call)[-1]).config),)


def _launch(call: CudaCall, way: Walk) -> Launch:
    config = CudaCopyConfig(call.outputs[0].dtype.itemsize, way.code)
    operands: dict[str, Operand] = {"p0": Out(0), "p1": In(0)}
    return Launch(config, operands, {**way.integers, **way.sizes}, way.programs)


def copied(itemsize: int, walk: WalkCode) -> WalkText:
    """The function that copies a block."""
    text = WalkText(walk, (raw_element(itemsize),) * 2, TritonLines({}))
    text.lines.add(f"v1 = {text.load(1, text.base(1))}")
    text.store("v1")
    return text


def _entry(config: CudaCopyConfig) -> Entry:
    return copied(config.itemsize, config.walk).entry()


MOVEMENT_COPY = CudaKernel(
    "movement.copy",
    (Move, BitCast),
    CudaCopyConfig,
    _supports,
    _variants,
    _entry,
    generic_configs=_generic_configs,
)
