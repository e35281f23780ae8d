"""Copies between any two strided arrays: what moves, reorders and concatenations come down to.

Axes are collapsed over destination and source; what is left is done in one of these ways:

    rows          both contiguous innermost: vector copies (or scalar ones of longer elements)
    fill          the source repeats one element
    transpose     the source is contiguous along another axis: `copy_transposed`
    interleave    the same, where the innermost axis has 2 to 8 elements and the destination is
                  dense
    deinterleave  the same, where the other axis has 2 to 8 elements and the source is dense
    scalar        anything else

Short contiguous runs of 2, 4 or 8 elements are first taken for one element of up to 8 bytes.
Memory-bound: rows and transposes reach a copy's speed once rows are longer than a few vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr
from saccade.backends.cpu.codegen.streams import LINE
from saccade.backends.cpu.codegen.values import Int, Vec
from saccade.kernels.base import Launch, Operand
from saccade.kernels.cpu.movement.copy_transposed import (
    Transposed,
    transposed_operands,
    transposed_plan,
)
from saccade.kernels.cpu.movement.loop_nest import Loops, Nest, Row, collapse, in_lines, partition
from saccade.kernels.cpu.movement.register_shuffles import deinterleave, interleave

__all__ = ["ELEMENT", "CopyConfig", "copy_launch", "copy_way", "emit_copy", "emit_row"]

ELEMENT = {1: "int8", 2: "int16", 4: "int32", 8: "int64"}
_FEW = 8  # longest axis that is interleaved
_STREAMS = 4  # planes of the destination, at most, that are written side by side


@dataclass(frozen=True)
class CopyConfig:
    """What the code depends on.

    Attributes:
        way: See the module.
        itemsize: Bytes of an element.
        rank: Axes of the nest.
        few: Length of the short axis of `interleave` and `deinterleave`, else 0.
        tile: Rectangles of `transpose`.
        streamed: Whether what is written goes past the caches.
    """

    way: str
    itemsize: int
    rank: int
    few: int = 0
    tile: tuple[int, int] = (0, 0)
    streamed: bool = False


@dataclass(frozen=True, slots=True)
class _Plan:
    way: str
    itemsize: int
    loops: Loops
    starts: tuple[int, int]
    few: int = 0
    across: int = 0  # number of the axis across the innermost


def _plan(
    sizes: Sequence[int],
    strides: tuple[Sequence[int], Sequence[int]],
    starts: tuple[int, int],
    itemsize: int,
) -> _Plan:
    loops, starts, itemsize = _widen(collapse(sizes, strides), starts, itemsize)
    loops = _streams_inside(loops)
    to, source = (s[-1] for s in loops.strides)
    if to == 1 and source in (0, 1):
        return _Plan("rows" if source else "fill", itemsize, loops, starts)
    if not transposed_operands(loops):
        return _Plan("scalar", itemsize, loops, starts)
    across = loops.strides[1].index(1)
    size, inner = loops.sizes[across], loops.sizes[-1]
    # Whole vectors are stored (here) or loaded (below) across both axes: no gaps between them.
    if inner <= _FEW and loops.strides[0][across] == inner:
        return _Plan("interleave", itemsize, loops, starts, inner, across)
    if size <= _FEW and source == size:
        return _Plan("deinterleave", itemsize, loops, starts, size, across)
    return _Plan("transpose", itemsize, loops, starts, 0, across)


def _widen(
    loops: Loops, starts: tuple[int, int], itemsize: int
) -> tuple[Loops, tuple[int, int], int]:
    """Short contiguous runs as one element, where everything else steps over whole runs."""
    run = loops.sizes[-1]
    # A single run is copied by vectors as it is.
    if loops.rank == 1 or run not in (2, 4, 8) or run * itemsize > 8:
        return loops, starts, itemsize
    if any(s[-1] != 1 for s in loops.strides):
        return loops, starts, itemsize
    steps = (*starts, *(step for s in loops.strides for step in s[:-1]))
    if any(step % run for step in steps):
        return loops, starts, itemsize
    strides = [tuple(step // run for step in s[:-1]) for s in loops.strides]
    # Without the run other axes may merge.
    wide = collapse(loops.sizes[:-1], strides)
    return wide, (starts[0] // run, starts[1] // run), itemsize * run


def _streams_inside(loops: Loops) -> Loops:
    """A few planes of the destination side by side, where the source has them row by row.

    One after the other, they would each read a part of the same rows of the source.
    """
    order = list(range(loops.rank))
    for axis in range(loops.rank - 2, -1, -1):
        step = abs(loops.strides[1][axis])
        if loops.sizes[axis] > _STREAMS or not step:
            continue
        later = order[order.index(axis) + 1 : -1]
        outer = [i for i in later if loops.sizes[i] > _STREAMS and abs(loops.strides[1][i]) > step]
        if outer:
            order.remove(axis)
            order.insert(order.index(outer[-1]) + 1, axis)

    def arranged(values: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(values[i] for i in order)

    return Loops(arranged(loops.sizes), tuple(arranged(s) for s in loops.strides))


def _without(loops: Loops, axis: int) -> Loops:
    def cut(values: tuple[int, ...]) -> tuple[int, ...]:
        return values[:axis] + values[axis + 1 :]

    return Loops(cut(loops.sizes), tuple(cut(s) for s in loops.strides))


def copy_way(sizes: Sequence[int], to: Sequence[int], source: Sequence[int], itemsize: int) -> str:
    """Which way of the module's list a copy would take (for cost estimates)."""
    return _plan(sizes, (to, source), (0, 0), itemsize).way


def copy_launch(
    sizes: Sequence[int],
    to: Sequence[int],
    source: Sequence[int],
    itemsize: int,
    operands: tuple[Operand, Operand],
    *,
    starts: tuple[int, int] = (0, 0),
    lanes: int = 16,
    threads: int = 1,
    far: bool = False,
) -> Launch:
    """The phase that copies `source[i…] to[i…]` for all indices below `sizes`.

    Args:
        sizes: Extent of each axis.
        to: Elements between neighbours in the destination; none 0 where the extent is above 1.
        source: The same of the source; 0 repeats, negative flips.
        itemsize: Bytes of an element: 1, 2, 4 or 8.
        operands: Destination and source.
        starts: First element in each.
        lanes: fp32 elements of a vector of the target.
        threads: Width of the team.
        far: Whether the caches do not hold the destination.
    """
    plan = _plan(sizes, (to, source), starts, itemsize)
    given = dict(zip(("to", "source"), operands, strict=True))
    # Whether the buffer itself begins at a line is asked when the code runs.
    far = far and plan.starts[0] * plan.itemsize % LINE == 0
    if plan.way == "transpose":
        vector = 4 * lanes // plan.itemsize
        transposed = transposed_plan(
            plan.loops, 1, (vector, vector), plan.itemsize, threads, far=far
        )
        config = CopyConfig(
            plan.way, plan.itemsize, transposed.loops.rank, 0, transposed.tile, transposed.streamed
        )
        return Launch(config, given, transposed.integers(plan.starts), transposed.cut.chunks)
    loops, extra = _arrange(plan)
    total = loops.rows * loops.sizes[-1] * max(1, plan.few)
    # About eight chunks a thread, so that one who is done can help, but none below 32 KB.
    elements = max((32 << 10) // plan.itemsize, total // (8 * threads))
    cut = partition(loops, max(1, elements // max(1, plan.few)), 64)
    streamed = far and plan.way in ("rows", "fill") and in_lines(loops, plan.itemsize)
    config = CopyConfig(plan.way, plan.itemsize, loops.rank, plan.few, streamed=streamed)
    integers = {**Nest.integers(loops, cut, plan.starts), **extra}
    return Launch(config, given, integers, cut.chunks)


def _arrange(plan: _Plan) -> tuple[Loops, dict[str, int]]:
    """The nest's axes, and both strides along the short axis that the code walks itself."""
    if not plan.few:
        return plan.loops, {}
    loops = _without(plan.loops, plan.across)
    size, *steps = (v[plan.across] for v in (plan.loops.sizes, *plan.loops.strides))
    if plan.way == "deinterleave":
        return loops, {"to_step": steps[0], "source_step": steps[1]}
    # Vectors go along the long axis: it becomes the innermost, and the short one goes along.
    short = {"to_step": loops.strides[0][-1], "source_step": loops.strides[1][-1]}
    long = tuple((*s[:-1], step) for s, step in zip(loops.strides, steps, strict=True))
    return Loops((*loops.sizes[:-1], size), long), short


def emit_copy(k: KernelBuilder, config: CopyConfig) -> None:
    """The code of one configuration."""
    to, source = (k.pointer(name, ELEMENT[config.itemsize]) for name in ("to", "source"))
    transposed = config.way == "transpose"
    nest = Transposed(k, config.rank, 2, config.tile) if transposed else Nest(k, config.rank, 2)
    with k.streams(to, [source], config.streamed) as ways:
        for result in ways:
            _emit_way(k, result, source, nest, config)


def _emit_way(
    k: KernelBuilder, to: Ptr, source: Ptr, nest: Nest | Transposed, config: CopyConfig
) -> None:
    """All chunks, in the way of the configuration."""
    vector = 4 * k.lanes // config.itemsize
    if isinstance(nest, Transposed):
        _transpose(to, source, nest)
    elif config.way in ("rows", "fill"):
        with nest.walk() as row:
            emit_row(k, to, source, row, config, vector)
    elif config.way in ("interleave", "deinterleave"):
        _few(k, to, source, nest, config, vector)
    else:
        with nest.walk() as row, k.range(row.low, row.high) as i:
            at, origin = (o + s[-1] * i for o, s in zip(row.offsets, nest.strides, strict=True))
            to.store(source.load(origin), at)


def emit_row(
    k: KernelBuilder, to: Ptr, source: Ptr, row: Row, config: CopyConfig, lanes: int
) -> None:
    """One row, contiguous in `to`, contiguous or one element in `source`."""
    at, origin = row.offsets
    fill = config.way == "fill"
    splat = source.splat(origin, lanes) if fill else None

    def value(i: Int, count: int) -> Vec:
        if splat is not None:
            return splat if count > 1 else k.extract(splat, 0)
        return source.vec(origin + i, lanes=count)

    # Small elements end one by one: not every target masks less than 32 bits.
    steps = [4 * lanes, lanes, 1] if config.itemsize < 4 else [4 * lanes, lanes]
    low = row.low
    for step in steps:
        count = min(step, lanes)
        whole = low + (row.high - low) // step * step
        with k.range(low, whole, step) as i:
            # All loads first: LLVM cannot move one above a store that might overlap it.
            loaded = [value(i + u, count) for u in range(0, step, count)]
            for u, v in enumerate(loaded):
                to.store(v, at + i + u * count)
        low = whole
    if config.itemsize >= 4:
        with k.when(low < row.high):
            mask = k.first(row.high - low, lanes)
            tail = splat if splat is not None else source.vec(origin + low, mask, lanes)
            to.store(tail, at + low, mask)


def _few(
    k: KernelBuilder, to: Ptr, source: Ptr, nest: Nest, config: CopyConfig, lanes: int
) -> None:
    """Vectors along the innermost axis; the short axis is unrolled."""
    to_step, source_step = k.integers("to_step source_step")
    few = config.few
    merge = config.way == "interleave"
    with nest.walk() as row:
        at, origin = row.offsets
        whole = row.low + (row.high - row.low) // lanes * lanes
        with k.range(row.low, whole, lanes) as i:
            if merge:
                parts = [source.vec(origin + source_step * f + i, lanes=lanes) for f in range(few)]
                for o, v in enumerate(interleave(k, parts)):
                    to.store(v, at + i * few + o * lanes)
            else:
                parts = [source.vec(origin + i * few + o * lanes, lanes=lanes) for o in range(few)]
                for f, v in enumerate(deinterleave(k, parts)):
                    to.store(v, at + to_step * f + i)
        with k.range(whole, row.high) as i:
            for f in range(few):
                if merge:
                    to.store(source.load(origin + source_step * f + i), at + i * few + f)
                else:
                    to.store(source.load(origin + i * few + f), at + to_step * f + i)


def _transpose(to: Ptr, source: Ptr, transposed: Transposed) -> None:
    """Contiguous in the destination along one axis, in the source along another."""
    with transposed.walk() as (at, origin):
        for row, values in enumerate(transposed.read(source, 1, origin)):
            to.store(values, at + transposed.steps[0] * row)
