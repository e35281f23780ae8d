"""Copies between any two strided arrays: what moves, reorders and concatenations come down to.

Axes are collapsed over destination and source; what is left is done in one of these ways:

    rows          both contiguous innermost: vector copies (or scalar ones of longer elements) fill
    the source repeats one element transpose     the source is contiguous along another axis:
    squares in registers interleave    the same, where the innermost axis has 2 to 8 elements and
    the destination is dense deinterleave  the same, where the other axis has 2 to 8 elements and
    the source is dense scalar        anything else

Short contiguous runs of 2, 4 or 8 elements are first taken for one element of up to 8 bytes.
Memory-bound: rows and transposes reach a copy's speed once rows are longer than a few vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from saccade.codegen.language import Kernel, Ptr
from saccade.codegen.values import Int, Vec
from saccade.kernels.base import Launch, Operand
from saccade.kernels.movement.networks import deinterleave, interleave, transpose
from saccade.kernels.movement.strided import Loops, Nest, Row, collapse, partition

__all__ = ["ELEMENT", "CopyConfig", "copy_launch", "copy_way", "emit_copy", "emit_row"]

ELEMENT = {1: "int8", 2: "int16", 4: "int32", 8: "int64"}
_TILE = 16
_FEW = 8  # longest axis that is interleaved


@dataclass(frozen=True)
class CopyConfig:
    """What the code depends on.

    Attributes:
        way: See the module.
        itemsize: Bytes of an element.
        rank: Axes of the nest.
        few: Length of the short axis of `interleave` and `deinterleave`, side of the squares of
            `transpose`, else 0.
    """

    way: str
    itemsize: int
    rank: int
    few: int = 0


@dataclass(frozen=True, slots=True)
class _Plan:
    way: str
    itemsize: int
    loops: Loops
    starts: tuple[int, int]
    few: int = 0
    other: tuple[int, int, int] = (1, 0, 0)  # size and strides of the axis across the innermost


def _plan(
    sizes: Sequence[int],
    strides: tuple[Sequence[int], Sequence[int]],
    starts: tuple[int, int],
    itemsize: int,
) -> _Plan:
    loops, starts, itemsize = _widen(collapse(sizes, strides), starts, itemsize)
    to, source = (s[-1] for s in loops.strides)
    if to == 1 and source in (0, 1):
        return _Plan("rows" if source else "fill", itemsize, loops, starts)
    across = next((i for i, s in enumerate(loops.strides[1][:-1]) if s == 1), None)
    if to != 1 or across is None:
        return _Plan("scalar", itemsize, loops, starts)
    size, inner = loops.sizes[across], loops.sizes[-1]
    other = (size, loops.strides[0][across], 1)
    if inner <= _FEW and other[1] == inner:
        return _Plan("interleave", itemsize, _without(loops, across), starts, inner, other)
    if size <= _FEW and source == size:
        return _Plan("deinterleave", itemsize, _without(loops, across), starts, size, other)
    return _Plan("transpose", itemsize, _without(loops, across), starts, 0, other)


def _widen(
    loops: Loops, starts: tuple[int, int], itemsize: int
) -> tuple[Loops, tuple[int, int], int]:
    """Short contiguous runs as one element, where everything else steps over whole runs."""
    run = loops.sizes[-1]
    if loops.rank == 1 or run not in (2, 4, 8) or run * itemsize > 8:
        return loops, starts, itemsize
    if any(s[-1] != 1 for s in loops.strides):
        return loops, starts, itemsize
    steps = (*starts, *(step for s in loops.strides for step in s[:-1]))
    if any(step % run for step in steps):
        return loops, starts, itemsize
    strides = [tuple(step // run for step in s[:-1]) for s in loops.strides]
    wide = collapse(loops.sizes[:-1], strides)
    return wide, (starts[0] // run, starts[1] // run), itemsize * run


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
    """
    plan = _plan(sizes, (to, source), starts, itemsize)
    tile = _tile(plan, 4 * lanes // plan.itemsize)
    loops, extra = _arrange(plan, tile)
    total = 1
    for n in sizes:
        total *= n
    moved = total * itemsize // plan.itemsize
    elements = max((32 << 10) // plan.itemsize, moved // (8 * threads))
    cut = partition(loops, max(1, elements // max(1, tile, plan.few)), 64)
    config = CopyConfig(plan.way, plan.itemsize, loops.rank, plan.few or tile)
    return Launch(config, operands, (*Nest.integers(loops, cut, plan.starts), *extra), cut.chunks)


def _tile(plan: _Plan, vector: int) -> int:
    """Side of the squares of a transpose; the smaller one where it leaves fewer lanes empty."""
    if plan.way != "transpose":
        return 0
    side = min(vector, _TILE)
    short = min(plan.other[0], plan.loops.sizes[-1])
    return side // 2 if side > 8 and short < 4 * side and 0 < short % side <= side // 2 else side


def _arrange(plan: _Plan, tile: int) -> tuple[Loops, tuple[int, ...]]:
    """The nest's axes, and the short or blocked axis that the code walks itself."""
    loops, (size, *steps) = plan.loops, plan.other
    if plan.way == "transpose":
        # Blocks of the other axis become the last axis before the innermost.
        blocked = tuple(
            (*s[:-1], step * tile, s[-1]) for s, step in zip(loops.strides, steps, strict=True)
        )
        return Loops((*loops.sizes[:-1], -(-size // tile), loops.sizes[-1]), blocked), plan.other
    if plan.way == "interleave":
        # Vectors go along the long axis: it becomes the innermost, and the short one goes along.
        short = (loops.sizes[-1], *(s[-1] for s in loops.strides))
        long = tuple((*s[:-1], step) for s, step in zip(loops.strides, steps, strict=True))
        return Loops((*loops.sizes[:-1], size), long), short
    return loops, plan.other if plan.way == "deinterleave" else ()


def emit_copy(k: Kernel, config: CopyConfig) -> None:
    """The code of one configuration."""
    to, source = (k.pointer(name, ELEMENT[config.itemsize]) for name in ("to", "source"))
    nest = Nest(k, config.rank, 2)
    vector = 4 * k.lanes // config.itemsize
    if config.way in ("rows", "fill"):
        with nest.walk() as row:
            emit_row(k, to, source, row, config, vector)
    elif config.way == "transpose":
        _Transpose(k, to, source, nest, config.few).emit()
    elif config.way in ("interleave", "deinterleave"):
        _few(k, to, source, nest, config, vector)
    else:
        with nest.walk() as row, k.range(row.low, row.high) as i:
            at, origin = (o + s[-1] * i for o, s in zip(row.offsets, nest.strides, strict=True))
            to.store(source.load(origin), at)


def emit_row(k: Kernel, to: Ptr, source: Ptr, row: Row, config: CopyConfig, lanes: int) -> None:
    """One row, contiguous in `to`, contiguous or one element in `source`."""
    at, origin = row.offsets
    fill = config.way == "fill"
    splat = source.splat(origin, lanes) if fill else None

    def value(i: Int, count: int) -> Vec:
        if splat is not None:
            return splat if count > 1 else k.extract(splat, 0)
        return source.vec(origin + i, lanes=count)

    steps = [4 * lanes, lanes, 1] if config.itemsize < 4 else [4 * lanes, lanes]
    low = row.low
    for step in steps:
        count = min(step, lanes)
        whole = low + (row.high - low) // step * step
        with k.range(low, whole, step) as i:
            loaded = [value(i + u, count) for u in range(0, step, count)]
            for u, v in enumerate(loaded):
                to.store(v, at + i + u * count)
        low = whole
    if config.itemsize >= 4:
        with k.when(low < row.high):
            mask = k.first(row.high - low, lanes)
            tail = splat if splat is not None else source.vec(origin + low, mask, lanes)
            to.store(tail, at + low, mask)


def _few(k: Kernel, to: Ptr, source: Ptr, nest: Nest, config: CopyConfig, lanes: int) -> None:
    """Vectors along the innermost axis; the short axis is unrolled."""
    _, to_step, source_step = k.integers("size to source")
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


class _Transpose:
    """Squares: contiguous in the destination along one axis, in the source along the other."""

    def __init__(self, k: Kernel, to: Ptr, source: Ptr, nest: Nest, tile: int) -> None:
        self.k, self.to, self.source, self.nest, self.tile = k, to, source, nest, tile
        self.size, self.to_step, _ = k.integers("size to source")

    def emit(self) -> None:
        """All rows of squares."""
        k, tile = self.k, self.tile
        with self.nest.walk() as row:
            across = k.minimum_int(self.size - row.indices[-1] * tile, tile)
            with k.range(row.low, row.high, tile) as i:
                along = k.minimum_int(row.high - i, tile)
                full = across.equals(tile) & along.equals(tile)
                with k.when_else(full) as (then, other):
                    with then:
                        self._square(row, i, None, None)
                    with other:
                        self._rest(row, i, across, along)

    def _origin(self, row: Row, i: Int, along: int | Int) -> Int:
        return row.offsets[1] + self.nest.strides[1][-1] * (i + along)

    def _square(self, row: Row, i: Int, across: Int | None, along: Int | None) -> None:
        k, tile = self.k, self.tile
        rows = []
        for step in range(tile):
            mask = None
            if across is not None and along is not None:
                mask = k.first((along > step).select(across, 0), tile)
            rows.append(self.source.vec(self._origin(row, i, step), mask, tile))
        for step, v in enumerate(transpose(k, rows)):
            mask = None
            if across is not None and along is not None:
                mask = k.first((across > step).select(along, 0), tile)
            self.to.store(v, row.offsets[0] + self.to_step * step + i, mask)

    def _rest(self, row: Row, i: Int, across: Int, along: Int) -> None:
        """A square at the border."""
        k = self.k
        if self.to.element in ("int32", "int64"):
            self._square(row, i, across, along)
            return
        # There are no masked accesses of small elements on every target.
        with k.range(0, across) as j, k.range(0, along) as step:
            value = self.source.load(self._origin(row, i, step) + j)
            self.to.store(value, row.offsets[0] + self.to_step * j + i + step)
