"""`Move` and `Concat`: elements from one stored array to places in another, as strided copies.

Reorders are moves too: with the identity map, between differently stored operand and result. Each
is one walk (`movement.walk`) over the factors of its index map, collapsed; `Concat` is one for
each operand, into its slice of the result. Elements go by their size alone.

Floor: the bytes read and written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any

from saccade.backends.cuda.codegen.expressions import TritonLines
from saccade.ir import IndexMap
from saccade.kernels.base import In, Launch, Out, Variant, View
from saccade.kernels.cuda.base import CudaCall, CudaKernel, Entry
from saccade.kernels.cuda.movement.loop_axes import collapsed, refuse_walk
from saccade.kernels.cuda.movement.walk import Walk, WalkCode, walks
from saccade.kernels.cuda.movement.walk_text import WalkText
from saccade.opdefs import Concat, Move

__all__ = ["MOVEMENT_CONCAT", "MOVEMENT_COPY", "CudaCopyConfig"]


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


def _moved(
    index_map: IndexMap, source: View, result: View
) -> tuple[list[int], list[int], list[int], int]:
    """Sizes of the factors, strides in the result and the source, and the source's first place."""
    factors: Any = index_map.factors
    groups = [[factor.size for factor in axis] for axis in index_map.out_axes]
    origin = _factor_strides(index_map.in_factors, source.strides)
    steps = [0 if f.source is None else f.step * origin[f.source] for f in factors]
    start = sum(f.start * origin[f.source] for f in factors if f.source is not None)
    return [f.size for f in factors], _factor_strides(groups, result.strides), steps, start


def _ways(call: CudaCall) -> tuple[tuple[Walk, ...], ...]:
    """The walks of each launch."""
    out = call.outputs[0]
    itemsizes = (out.dtype.itemsize,) * 2
    if not isinstance(call.op, Concat):
        sizes, to, steps, start = _moved(call.op.map, call.inputs[0], out)
        return (walks(collapsed(sizes, (to, steps))[0], itemsizes, (0, start)),)
    found, place = [], 0
    for view in call.inputs:
        axes, _ = collapsed(view.shape, (out.strides, view.strides))
        found.append(walks(axes, itemsizes, (place, 0)))
        place += view.shape[call.op.axis] * out.strides[call.op.axis]
    return tuple(found)


def _variants(call: CudaCall) -> Iterator[Variant]:
    itemsize = call.outputs[0].dtype.itemsize
    timed = []
    for ways in zip(*_ways(call), strict=True):
        sizes = (view.size for view in call.inputs)
        if not isinstance(call.op, Concat):
            sizes = (call.outputs[0].size for _ in ways)
        nbytes = [2 * size * itemsize for size in sizes]
        micros = sum(w.micros(call, n) for w, n in zip(ways, nbytes, strict=True))
        timed.append((micros, ways))
    for micros, ways in sorted(timed, key=lambda pair: pair[0]):
        yield Variant(micros, partial(_launches, call, ways))


def _launches(call: CudaCall, ways: Sequence[Walk]) -> tuple[Launch, ...]:
    itemsize = call.outputs[0].dtype.itemsize
    return tuple(
        Launch(
            CudaCopyConfig(itemsize, way.code),
            {"p0": Out(0), "p1": In(index)},
            {**way.integers, **way.ends},
            way.programs,
        )
        for index, way in enumerate(ways)
    )


def _entry(config: CudaCopyConfig) -> Entry:
    text = WalkText(config.walk, (raw_element(config.itemsize),) * 2, TritonLines({}))
    text.lines.add(f"v1 = {text.load(1, text.base(1))}")
    text.store("v1")
    return text.entry()


MOVEMENT_COPY = CudaKernel("movement.copy", (Move,), CudaCopyConfig, refuse_move, _variants, _entry)
MOVEMENT_CONCAT = CudaKernel(
    "movement.concat", (Concat,), CudaCopyConfig, refuse_move, _variants, _entry
)
