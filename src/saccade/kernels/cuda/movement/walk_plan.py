"""Plans for walking a result's elements, with operands of any strides beside it.

Where operands have neighbours along the result's innermost axis, or repeat, programs take short
vectors of that axis (16 bytes of the widest operand), all other axes being counted by one number
that is taken apart again (a multiplication and a shift for each axis). An operand that has its
neighbours along another axis is walked in rectangles over both: it is read along the one, the
result is written along the other, and Triton exchanges elements between threads in shared memory.

Floor: the bytes of all operands and the result, over the memory's bandwidth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil

from saccade.backends.cuda.gpus import gpu
from saccade.kernels.base import Launch, Variant
from saccade.kernels.cuda.base import CudaCall
from saccade.kernels.cuda.machine import PROGRAM, stream_micros
from saccade.kernels.cuda.movement.loop_axes import LoopAxes, division, power_dividing

__all__ = [
    "Walk", "WalkCode", "block_walk", "general_walk", "power_above", "tiled_walks", "vector_of",
    "vector_walks", "walk_variants", "walks",
]  # fmt: skip

_LINE = 16  # bytes that a thread moves at once
_THREADS = 128  # of a program
_FEW = 8  # elements of an innermost axis that one warp has many of
# Microseconds from a program's start to its end, most of them for memory, and for each element of a
# thread (estimates, not measured).
_LATENCY, _ELEMENT = 0.5, 0.02


@dataclass(frozen=True)
class WalkCode:
    """What the code of a walk depends on.

    Attributes:
        rank: Axes besides those of the block.
        kinds: For the result and each operand how it meets the axes of a block, the vector or the
            two of a rectangle: `1` neighbours, `0` the same element, `s` a stride.
        steps: For each of them, what all its other strides are multiples of.
        starts: For each of them, whether its first element lies beyond its pointer.
        block: Vectors and their elements, or elements down and across.
        ends: What the sizes of a rectangle's axes are multiples of; empty for vectors.
        warps: Of a program.
    """

    rank: int
    kinds: tuple[str, ...]
    steps: tuple[int, ...]
    starts: tuple[bool, ...]
    block: tuple[int, int]
    ends: tuple[int, ...]
    warps: int

    @property
    def sizes(self) -> tuple[str, ...]:
        """What the launch gives for the sizes of the block's axes: the names in `Walk.sizes`."""
        return ("down", "across") if self.ends else ("rows",)

    @property
    def integers(self) -> tuple[str, ...]:
        """What the launch gives for the generated function.

        For each axis besides those of the block but the first, its size `n` and how to divide by
        it (a factor `m`, a shift `h`); for each operand its strides `s` along these axes, `t` and
        `c` along the block's where they are no neighbours, its start `a`.
        """
        found = [f"{word}{axis}" for axis in range(1, self.rank) for word in "nmh"]
        for p, (kinds, started) in enumerate(zip(self.kinds, self.starts, strict=True)):
            found += [f"s{p}_{axis}" for axis in range(self.rank)]
            found += [f"{word}{p}" for word, kind in zip("tc", kinds, strict=False) if kind == "s"]
            found += [f"a{p}"] * started
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Walk:
    """One way to walk.

    Attributes:
        code: What the code depends on.
        integers: For the launch: what the generated function reads, by name.
        sizes: For the launch: of the block's axes, in the steps of `code.ends`, by name.
        programs: Blocks of the grid.
        length: Of the first of the code's axes besides the block's.
        axes: Which of the axes that are walked stand for these, and for down and across, and how
            many elements count one there.
        excess: Bytes that are moved for each one asked for: threads that are neighbours read
            elements that are not.
    """

    code: WalkCode
    integers: dict[str, int]
    sizes: dict[str, int]
    programs: int
    length: int
    axes: tuple[tuple[int, int], ...] = ()
    excess: float = 1.0

    def micros(self, call: CudaCall, nbytes: float) -> float:
        """Estimated time of a walk that has so many bytes to move."""
        machine = gpu(call.target.machine)
        slots = machine.multiprocessors * min(32, 64 // self.code.warps)
        serial = self.code.block[0] * self.code.block[1] / (32 * self.code.warps)
        waves = ceil(self.programs / slots) * (_LATENCY + _ELEMENT * serial)
        warps = max(1, self.programs) * self.code.warps
        filled: float = min(1.0, warps / (16 * machine.multiprocessors)) ** 0.5
        streamed = stream_micros(call, nbytes * self.excess)
        idle = stream_micros(call, 0)
        return idle + max((streamed - idle) / filled, waves, PROGRAM * self.programs)


def walk_variants(
    call: CudaCall,
    ways: Iterable[Walk],
    nbytes: float,
    launch: Callable[[CudaCall, Walk], Launch],
    *,
    sums: bool = False,
) -> Iterator[Variant]:
    """Variants of a call that is one walk, whichever way; the fastest first.

    Args:
        call: The call.
        ways: To walk.
        nbytes: How many there are to move.
        launch: Gives the launch of one of them.
        sums: Whether programs sum, in an order that their blocks decide.
    """

    def launches(way: Walk) -> tuple[Launch, ...]:
        return (launch(call, way),)

    distinct: dict[WalkCode, Walk] = {}
    for way in ways:
        distinct.setdefault(way.code, way)
    timed = [(way.micros(call, nbytes), way) for way in distinct.values()]
    for micros, way in sorted(timed, key=lambda pair: pair[0]):
        rounding = (way.code.block, way.code.warps) if sums else None
        yield Variant(micros, partial(launches, way), rounding)


def walks(
    axes: LoopAxes, itemsizes: Sequence[int], starts: Sequence[int] | None = None
) -> tuple[Walk, ...]:
    """Ways to walk.

    Args:
        axes: The result's and the operands', `loop_axes.collapsed`.
        itemsizes: Bytes of their elements.
        starts: For each of them its first element, counted from its pointer; None for 0.
    """
    starts = tuple(starts or (0,) * len(itemsizes))
    vectors = vector_walks(axes, vector_of(axes, itemsizes, starts), starts)
    other = _other_unit_axis(axes)
    if other is None:
        return tuple(vectors)
    # Rectangles may be small, as of channels that are shuffled: vectors have whole programs.
    beside = other == len(axes.sizes) - 2 and axes.sizes[-1] <= _FEW
    excess = 1.5 if beside else 4.0
    apart = (replace(way, excess=excess) for way in vectors)
    return (*tiled_walks(axes, other, starts), *apart)


def _other_unit_axis(axes: LoopAxes) -> int | None:
    """The longest axis along which an operand has neighbours that the innermost one lacks."""
    found: list[tuple[int, int]] = []
    for strides in axes.strides[1:]:
        if strides[-1] not in (0, 1):
            found += [(axes.sizes[a], a) for a, s in enumerate(strides[:-1]) if s == 1]
    return max(found)[1] if found else None


def vector_of(axes: LoopAxes, itemsizes: Sequence[int], starts: Sequence[int]) -> int:
    """Elements of the innermost axis that a thread takes at once."""
    widest = max(itemsizes)
    inner = axes.strides[0][-1]
    places = (axes.sizes[-1], *axes.strides[0][:-1], starts[0]) if inner == 1 else (1,)
    return power_dividing(places, _LINE // widest)


def general_walk(
    axes: LoopAxes, itemsizes: Sequence[int], starts: Sequence[int] | None = None
) -> Walk:
    """A walk whose code depends on as few sizes as may be, to serve others of the same call.

    Args:
        axes: With those of one element.
        itemsizes: As for `walks`.
        starts: The same.
    """
    starts = tuple(starts or (0,) * len(itemsizes))
    other = _other_unit_axis(axes)
    if other is not None:
        *_, way = tiled_walks(axes, other, starts, loose=True)
        return replace(way, excess=1.5)
    vector = vector_of(axes, itemsizes, starts)
    outer, lanes = _split(axes, vector)
    way = block_walk(outer, lanes, starts, (2 * _THREADS, vector), (), vector)
    rank = len(outer.sizes)
    return replace(way, axes=_counting(range(rank), rank, vector), excess=1.25)


def _counting(kept: Iterable[int], rank: int, vector: int) -> tuple[tuple[int, int], ...]:
    """The axes that are kept, the last of all of which counts vectors."""
    return tuple((a, vector if a == rank - 1 else 1) for a in kept)


def _split(axes: LoopAxes, vector: int) -> tuple[LoopAxes, tuple[tuple[int, ...], ...]]:
    """The axes that count vectors, and each operand's stride inside of them."""
    strides = tuple((*s[:-1], s[-1] * vector) for s in axes.strides)
    outer = LoopAxes((*axes.sizes[:-1], axes.sizes[-1] // vector), strides)
    return outer, tuple((s[-1],) for s in axes.strides)


def vector_walks(axes: LoopAxes, vector: int, starts: Sequence[int]) -> Iterator[Walk]:
    """Walks in vectors of so many elements, which must divide the innermost axis."""
    whole, lanes = _split(axes, vector)
    kept = [a for a, n in enumerate(whole.sizes) if n != 1] or [0]
    outer = LoopAxes(
        tuple(whole.sizes[a] for a in kept), tuple(tuple(s[a] for a in kept) for s in whole.strides)
    )
    for each in (4, 2, 1):
        way = block_walk(outer, lanes, starts, (_THREADS * each, vector), (), vector)
        yield replace(way, axes=_counting(kept, len(axes.sizes), vector))


def tiled_walks(
    axes: LoopAxes, down: int, starts: Sequence[int], *, loose: bool = False
) -> Iterator[Walk]:
    """Walks in rectangles over an axis and the innermost one; loosely, whatever the former is."""
    last = len(axes.sizes) - 1
    kept = [a for a in range(last) if a != down]
    outer = LoopAxes(
        tuple(axes.sizes[a] for a in kept), tuple(tuple(s[a] for a in kept) for s in axes.strides)
    )
    sides = tuple((s[down], s[last]) for s in axes.strides)
    ends = (axes.sizes[down], axes.sizes[last])
    for area in (4096, 2048, 1024):
        edge = 64 if area > 1024 else 32
        across = min(edge, power_above(ends[1]))
        high = area // across if loose else min(area // across, power_above(ends[0]))
        across = min(area // high, power_above(ends[1]))
        way = block_walk(outer, sides, starts, (high, across), ends, _LINE, loose=loose)
        yield replace(way, axes=tuple((a, 1) for a in (*kept, down, last)))


def power_above(number: int) -> int:
    """The least power of two that is no less than a number."""
    return 1 << max(0, number - 1).bit_length()


def block_walk(
    outer: LoopAxes, sides: Sequence[tuple[int, ...]], starts: Sequence[int],
    block: tuple[int, int], ends: tuple[int, ...], most: int, warps: int = _THREADS // 32,
    *, loose: bool = False,
) -> Walk:  # fmt: skip
    """One walk.

    Args:
        outer: The axes besides those of a block.
        sides: For the result and each operand, strides along the axes of a block.
        starts: For each of them its first element, counted from its pointer.
        block: `WalkCode.block`.
        ends: Sizes of a rectangle's two axes; empty for vectors.
        most: Up to which power of two it is looked what divides strides.
        warps: Of a program.
        loose: Whether nothing shall be known to divide what goes down a rectangle.
    """
    kinds = tuple("".join(str(s) if s in (0, 1) else "s" for s in side) for side in sides)
    known = ["1" in kind and not (loose and kind[0] == "1") for kind in kinds]
    steps = tuple(
        power_dividing((*s, start, *(n for n in side if n != 1)), most if is_known else 1)
        for s, side, start, is_known in zip(outer.strides, sides, starts, known, strict=True)
    )
    end_steps = tuple(power_dividing((n,), _LINE) for n in ends)
    if loose:
        end_steps = (1, *end_steps[1:])
    started = tuple(start != 0 for start in starts)
    code = WalkCode(len(outer.sizes), kinds, steps, started, block, end_steps, warps)
    integers = _integers(code, outer, sides, starts)
    if not ends:
        rows = outer.count
        return Walk(code, integers, {"rows": rows}, -(-rows // block[0]), outer.sizes[0])
    programs = outer.count * -(-ends[0] // block[0]) * -(-ends[1] // block[1])
    core = {"down": ends[0] // end_steps[0], "across": ends[1] // end_steps[1]}
    return Walk(code, integers, core, programs, outer.sizes[0] if outer.sizes else 1)


def _integers(
    code: WalkCode, outer: LoopAxes, sides: Sequence[tuple[int, ...]], starts: Sequence[int]
) -> dict[str, int]:
    """Values of `code.integers`: sizes and how to divide by them, strides in their steps."""
    found: dict[str, int] = {}
    for axis, size in enumerate(outer.sizes[1:], 1):
        factor, shift = division(size)
        found |= {f"n{axis}": size, f"m{axis}": factor, f"h{axis}": shift}
    for p, (step, kinds) in enumerate(zip(code.steps, code.kinds, strict=True)):
        found |= {f"s{p}_{axis}": s // step for axis, s in enumerate(outer.strides[p])}
        named = zip("tc", sides[p], kinds, strict=False)
        found |= {f"{word}{p}": s // step for word, s, kind in named if kind == "s"}
        if code.starts[p]:
            found[f"a{p}"] = starts[p] // step
    return found
